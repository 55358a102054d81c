package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/client"
)

// finding is the result of one examination.
type finding struct {
	What   string `json:"what"`
	State  string `json:"state"` // ok, look (the operator should), or bad
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

const (
	fine = "ok"
	look = "look"
	bad  = "bad"
)

// mayAsk is the advice when NATS does not let the user ask: the system may be healthy.
const mayAsk = "log in as a user with the permissions of a client, as in docs/nats.md#rights; the users of " +
	"orchestrators and workers may not ask"

// askFor is how long doctor waits for the first answer of an orchestrator.
const askFor = 6 * time.Second

// maxSkew is how far clocks may be apart.
const maxSkew = time.Second

// examination is one look at everything.
type examination struct {
	c     *cli
	found []finding
	// silence means that orchestrators have subscribed to requests, and none answers.
	silence bool
}

func (e *examination) note(what, state, advice, format string, args ...any) {
	e.found = append(e.found, finding{what, state, fmt.Sprintf(format, args...), advice})
}

func (c *cli) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look whether everything is well, and say what to do if it is not", Args: exactly(),
		Long: `Look whether everything is well: NATS and its version, the streams, the orchestrators, their code and their clocks, the database, work that nobody takes, and
dead letters. It changes nothing. It exits with 1 if something is bad.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, r, err := c.settings.config(cmd)
			if err != nil {
				return err
			}
			if c.settings.print {
				return c.settings.printConfig(c.out, &config, r)
			}
			if guess := c.settings.guess(r); guess != "" {
				fmt.Fprintln(c.problems, guess)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cmp.Or(max(c.timeout, 0), patience))
			defer cancel()
			e := &examination{c: c}
			e.examine(ctx, brokerConfig(&config))
			return e.print()
		},
	}
}

func (e *examination) print() error {
	worst := fine
	for _, f := range e.found {
		if f.State == bad || worst == fine {
			worst = f.State
		}
	}
	if e.c.asJSON() {
		if err := e.c.json(struct {
			Findings []finding `json:"findings"`
		}{e.found}); err != nil {
			return err
		}
	} else {
		for _, f := range e.found {
			fmt.Fprintf(e.c.out, "%-5s %-14s %s\n", f.State, f.What, oneLine(f.Detail))
			if f.Advice != "" {
				fmt.Fprintf(e.c.out, "%20s → %s\n", "", f.Advice)
			}
		}
	}
	if worst == bad {
		return errors.New("problems were found; see the lines marked bad")
	}
	return nil
}

func (e *examination) examine(ctx context.Context, config natsbroker.Config) {
	config.Logger, config.Name = slog.New(slog.DiscardHandler), "rondo doctor"
	config.Setup = natsbroker.Use
	dial, cancel := context.WithTimeout(ctx, dialFor)
	b, err := natsbroker.Connect(dial, config)
	cancel()
	if errors.Is(err, broker.ErrPermission) {
		e.note("NATS", bad, "", "%s", strings.TrimPrefix(err.Error(), "nats: "))
		return
	}
	if err != nil {
		e.note("NATS", bad, "start a system with `rondo dev`, or say where NATS is with --nats or $RONDO_NATS_URL",
			"%s", strings.TrimPrefix(err.Error(), "nats: "))
		return
	}
	e.c.bus, e.c.client = b, busclient.New[*client.Client](b, busclient.Options{Name: "rondo"})
	e.note("NATS", fine, "", "%s", b.Server())
	e.streams(ctx, config)
	e.orchestrators(ctx)
	e.processes(ctx)
	e.database(ctx)
	e.instances(ctx)
	e.deadLetters(ctx)
}

// streams verifies the streams, consumers and buckets in NATS.
func (e *examination) streams(ctx context.Context, config natsbroker.Config) {
	config.Setup = natsbroker.Verify
	b, err := natsbroker.Connect(ctx, config)
	if err == nil {
		e.note("streams", fine, "", "streams, consumers and buckets are as they should be")
		e.storage(ctx, b)
		_ = b.Close() // nothing was done with it
		return
	}
	text := strings.TrimPrefix(err.Error(), "nats: ")
	if strings.Contains(strings.ToLower(text), "permissions violation") {
		e.note("streams", look, "use a NATS user that may read JetStream",
			"unknown: this user lacks the permissions for JetStream")
		return
	}
	e.note("streams", bad, "run your program with \"migrate --streams\", or an orchestrator with --setup make: each "+
		"creates what is missing", "%s", strings.ReplaceAll(text, "\n", "; "))
}

// storage compares the streams that clients can fill with their bounds.
func (e *examination) storage(ctx context.Context, b *natsbroker.Bus) {
	inbox, dead, err := b.Uses(ctx)
	if err != nil {
		e.note("storage", look, "", "unknown: %v", err)
		return
	}
	const mib = 1 << 20
	switch left := inbox.MaxBytes - inbox.Bytes; {
	case inbox.MaxBytes == 0:
		e.note("storage", look,
			"run your program with \"migrate --streams\", which bounds the stream, or set --inbox-max-bytes",
			"stream %s has no bound: messages of clients can take all storage of NATS", inbox.Name)
	case left < mib:
		e.note("storage", bad, "orchestrators make room by taking its messages; `rondo partitions` shows what waits",
			"stream %s is full: NATS refuses messages beyond %d MiB", inbox.Name, inbox.MaxBytes/mib)
	case left < inbox.MaxBytes/5:
		e.note("storage", look, "are there enough orchestrators? `rondo partitions` shows what waits",
			"stream %s has %d of %d MiB; NATS refuses messages when it is full", inbox.Name, inbox.Bytes/mib,
			inbox.MaxBytes/mib)
	}
	if dead.MaxBytes > 0 && dead.MaxBytes-dead.Bytes < dead.MaxBytes/10 {
		e.note("storage", look, "look at them with `rondo deadletters`, and drop or replay them",
			"stream %s has %d of %d MiB: the oldest dead letters are dropped", dead.Name, dead.Bytes/mib,
			dead.MaxBytes/mib)
	}
}

func (e *examination) orchestrators(ctx context.Context) {
	began := e.c.now()
	asking, cancel := context.WithTimeout(ctx, askFor) // leaving time for the rest
	s, err := e.c.client.System().Status(asking)
	cancel()
	took := e.c.now().Sub(began)
	switch {
	case errors.Is(err, broker.ErrNoResponders):
		e.note("orchestrators", bad, "start one: your program with `orchestrator`, or `rondo dev`; "+refused,
			"none answers")
		return
	case errors.Is(err, broker.ErrPermission):
		e.note("orchestrators", look, mayAsk, "unknown: this user may not ask them")
		return
	case isSilent(err):
		e.note("orchestrators", bad, silentAdvice, "none of those that NATS knows has answered within %v",
			took.Round(time.Second))
		e.silence = true
		return
	case err != nil:
		e.note("orchestrators", bad, "look into their logs", "%v", err)
		return
	}
	defer e.silent(ctx)
	e.note("orchestrators", fine, "", "%d alive, %s; the answer took %v", len(s.Orchestrators),
		plural.Count(len(s.Partitions), "partition"), took.Round(time.Millisecond))
	engines := make(map[int]bool)
	for _, o := range s.Orchestrators {
		engines[o.Engine] = true
	}
	if len(engines) > 1 {
		e.note("versions", look, "finish the deployment: only those with the newest engine get partitions",
			"orchestrators of %d engines are running", len(engines))
	}
	e.partitions(s)
	e.queues(s)
}

// silentAdvice is the advice when an orchestrator does not answer.
const silentAdvice = "the /livez of one that is frozen, or cut off from the network, does not answer: restart it; " +
	"NATS forgets one that was killed, or whose machine has failed, within some minutes"

// isSilent reports whether the error says that no orchestrator has answered. If the database does
// not answer them, orchestrators say so earlier than that.
func isSilent(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// silent looks for orchestrators that do not answer, while others do.
func (e *examination) silent(ctx context.Context) {
	unanswered, sent, ids, err := query.NewReader(e.c.bus).Silent(ctx)
	if err != nil || unanswered == 0 { // older orchestrators have no pings
		return
	}
	slices.Sort(ids)
	e.note("orchestrators", look, silentAdvice, "one or more do not answer: NATS delivered %s to one "+
		"orchestrator each, and %d had no answer; these answer: %s", plural.Count(sent, "request"), unanswered,
		cmp.Or(strings.Join(ids, ", "), "none"))
}

// refused is the advice about orchestrators that were started and have ended.
const refused = "an orchestrator that ends at once says in its log why, for example that its database and this NATS " +
	"are different systems: see docs/operating.md#one-database-one-nats"

// system compares the ids of systems that the databases of the orchestrators have with the one that
// NATS has, as far as doctor learns them. It says what it has not compared.
func (e *examination) system(ctx context.Context, systems map[string][]string, silent int) {
	here, err := identity.Read(ctx, e.c.bus)
	inNATS := "that of NATS was not compared: this user cannot read it"
	switch {
	case err == nil && here == nil:
		inNATS = "NATS has no system"
	case err == nil:
		inNATS = fmt.Sprintf("NATS has system %s, whose last beat was at %s", identity.Short(here.System),
			here.BeatAt.UTC().Format(time.RFC3339))
	}
	var each []string
	differ, only := len(systems) > 1, ""
	for id, orchestrators := range systems {
		only = identity.Short(id)
		slices.Sort(orchestrators)
		each = append(each, fmt.Sprintf("%s of %s", identity.Short(id), strings.Join(orchestrators, ", ")))
		differ = differ || here != nil && here.System != id
	}
	slices.Sort(each)
	switch {
	case len(each) == 0:
		e.note("system", look, refused, "not compared, since no orchestrator names the system of its database; %s",
			inNATS)
	case differ:
		e.note("system", bad, identity.Advice, "the databases of the orchestrators have the systems %s; %s",
			strings.Join(each, "; "), inNATS)
	case err == nil && here == nil:
		e.note("system", look, "look again in half a minute: an orchestrator tells NATS",
			"the databases of the orchestrators have system %s; %s", only, inNATS)
	case silent > 0:
		e.note("system", look, "", "the databases of the orchestrators have system %s; %d more do not name theirs; %s",
			only, silent, inNATS)
	default:
		e.note("system", fine, "", "the databases of the orchestrators have system %s; %s", only, inNATS)
	}
}

// processes examines the answers of all processes to a discovery request.
func (e *examination) processes(ctx context.Context) {
	began := e.c.now()
	all, err := e.c.client.System().Processes(ctx)
	took := e.c.now().Sub(began)
	if errors.Is(err, broker.ErrPermission) {
		e.note("workers", look, mayAsk, "unknown: this user may not ask them")
		return
	}
	if err != nil {
		e.note("processes", look, "", "they cannot be asked: %v", err)
		return
	}
	workers, nameless, builds, systems := 0, 0, make(map[string][]string), make(map[string][]string)
	waiting := make(map[string][]string) // instances, by why
	for _, p := range all {
		switch {
		case p.System != "":
			systems[p.System] = append(systems[p.System], p.ID)
		case p.Kind == client.KindOrchestrator:
			nameless++
		}
		if p.Kind == client.KindWorker {
			workers++
		}
		if p.Build != "" && !slices.Contains(builds[p.Kind], p.Build) {
			builds[p.Kind] = append(builds[p.Kind], p.Build)
		}
		if p.Problem != "" {
			e.note(p.Kind+"s", bad, "look into its log", "%s: %s", p.ID, oneLine(p.Problem))
		}
		for _, w := range p.Warnings {
			e.note(p.Kind+"s", look, "", "%s: %s", p.ID, oneLine(w))
		}
		if skew := p.Now.Sub(began.Add(took / 2)); skew > maxSkew+took || skew < -maxSkew-took {
			e.note("clocks", look,
				"timers and time limits are as good as the clocks: let all machines have the time from NTP",
				"the clock of %s %s differs from this one by %v", p.Kind, p.ID, skew.Round(time.Millisecond))
		}
		for _, x := range p.Rounds {
			state := look
			if x.Abandoned {
				state = bad
			}
			e.note("code", state, longRoundHint, "the round of instance %q has been running for %s", x.Instance,
				roundText(p.ID, x, e.c.now()))
		}
		e.quarantined(p)
		for _, u := range p.Unknown {
			why := cmp.Or(u.Detail, u.Reason)
			waiting[why] = append(waiting[why], u.Instance)
		}
	}
	e.waiting(waiting)
	e.system(ctx, systems, nameless)
	e.accounts(all)
	if workers == 0 {
		e.note("workers", look, "start one: your program with `worker`; those in other languages need not answer",
			"none answers")
	} else {
		e.note("workers", fine, "", "%d alive", workers)
	}
	for _, kind := range []string{client.KindOrchestrator, client.KindWorker} {
		if len(builds[kind]) > 1 {
			e.note("versions", look, "is a deployment in progress?", "%ss of %d builds are running: %s", kind,
				len(builds[kind]), strings.Join(builds[kind], "; "))
		}
	}
}

// namedOf is how many instances doctor names of those that are in the same state.
const namedOf = 3

// waiting tells of the instances that wait for their code, one line for each reason.
func (e *examination) waiting(instances map[string][]string) {
	const advice = "deploy an orchestrator that has its code"
	for _, why := range slices.Sorted(maps.Keys(instances)) {
		ids := slices.Compact(slices.Sorted(slices.Values(instances[why]))) // several orchestrators may have seen one
		if len(ids) == 1 {
			e.note("code", look, advice, "%s waits: %s", ids[0], why)
			continue
		}
		text := strings.Join(ids[:min(namedOf, len(ids))], ", ")
		if n := len(ids) - namedOf; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		e.note("code", look, advice+"; `rondo orchestrators --output json` lists them", "%s wait: %s", text, why)
	}
}

// quarantined counts the instances with quarantined messages, and names those that are tried now.
func (e *examination) quarantined(p client.Process) {
	n := len(p.Quarantined) + p.MoreQuarantined
	if n == 0 {
		return
	}
	var tried []string
	for _, x := range p.Quarantined {
		if x.Attempt > 0 {
			tried = append(tried, fmt.Sprintf("%q (attempt %d)", x.Instance, x.Attempt))
		}
	}
	text := fmt.Sprintf("orchestrator %q has messages of %d instances in quarantine", p.ID, n)
	if n == 1 {
		text = fmt.Sprintf("orchestrator %q has messages of instance %q in quarantine", p.ID, p.Quarantined[0].Instance)
	}
	if len(tried) > 0 {
		text += ", and is trying " + strings.Join(tried, ", ")
	}
	e.note("code", look, quarantineHint+"; `rondo orchestrators` lists them", "%s", text)
}

// accounts tells which processes are in the NATS account of this user.
func (e *examination) accounts(all []client.Process) {
	var same []string
	for _, kind := range []string{client.KindOrchestrator, client.KindWorker} {
		if slices.ContainsFunc(all, func(p client.Process) bool { return p.Kind == kind && !p.OtherAccount }) {
			same = append(same, kind+"s")
		}
	}
	switch {
	case len(all) == 0:
	case len(same) == 0:
		e.note("accounts", fine, "", "no orchestrator or worker is in the NATS account of this user")
	default:
		e.note("accounts", fine, "", "%s are in the NATS account of this user: one circle of trust, see "+
			"docs/security.md", strings.Join(same, " and "))
	}
}

func (e *examination) partitions(s client.SystemStatus) {
	for _, p := range s.Partitions {
		switch {
		case p.Owner == "":
			e.note("partitions", bad, "is an orchestrator running that is not just leaving?",
				"partition %d has no owner", p.Partition)
		case p.Receivers == 0 && p.Waiting > 0:
			e.note("partitions", look, "look again in a few seconds, then into the log of "+p.Owner,
				"partition %d has %s, and %s does not ask for messages", p.Partition,
				plural.Count(p.Waiting, "waiting message"), p.Owner)
		}
	}
}

func (e *examination) queues(s client.SystemStatus) {
	var waiting int64
	for _, q := range s.TaskQueues {
		waiting += q.Waiting
		if q.Waiting > 0 && q.Receivers == 0 && q.Held == 0 {
			tag := ""
			if q.Tag != "" {
				tag = " with the tag " + q.Tag
			}
			e.note("workers", look, "start a worker that has the activity "+q.Activity+tag,
				"no worker takes %s for %s%s", plural.Count(q.Waiting, "waiting activity task"), q.Activity, tag)
		}
	}
	e.note("tasks", fine, "", "%s, %s", plural.Count(len(s.TaskQueues)+s.MoreTaskQueues, "task queue"),
		plural.Count(waiting, "waiting task"))
}

// database asks an orchestrator for something that it has to look up.
func (e *examination) database(ctx context.Context) {
	if e.silence {
		e.note("database", look, "", "unknown: no orchestrator answers")
		return
	}
	began := e.c.now()
	switch _, err := e.c.client.Instances().Get(ctx, "rondo-doctor"); {
	case err == nil, errors.Is(err, client.ErrNoInstance):
	case errors.Is(err, broker.ErrNoResponders):
		return
	case errors.Is(err, broker.ErrPermission):
		e.note("database", look, mayAsk, "unknown: this user may not ask the orchestrators")
		return
	case isSilent(err):
		e.note("database", look, "", "unknown: no orchestrator has answered in time")
		return
	default:
		e.note("database", bad, "look whether the database runs, and into the logs of the orchestrators", "%v", err)
		return
	}
	e.note("database", fine, "", "it answers; that took %v", e.c.now().Sub(began).Round(time.Millisecond))
}

// instances looks for those that do not go on by themselves.
func (e *examination) instances(ctx context.Context) {
	if e.silence {
		return
	}
	n, err := e.c.client.Instances().Count(ctx, client.Filter{Statuses: []client.Status{client.Halted}}, 0)
	switch {
	case err != nil: // the database was looked at before
	case n > 0:
		e.note("instances", look, "`rondo list --status halted` lists them, and `rondo show` says what each needs",
			"%s: the code does not fit the history", plural.Count(n, "halted instance"))
	default:
		e.note("instances", fine, "", "none is halted")
	}
}

func (e *examination) deadLetters(ctx context.Context) {
	list, err := e.c.bus.DeadLetters(ctx, 0, 100)
	switch {
	case err != nil:
		e.note("dead letters", look, "use an account that may look at JetStream", "they cannot be seen: %v", err)
	case len(list) == 0:
		e.note("dead letters", fine, "", "there are none")
	case len(list) == 100:
		e.note("dead letters", look, "`rondo deadletters` tells why", "100 or more dead letters")
	default:
		e.note("dead letters", look, "`rondo deadletters` tells why", "%s", plural.Count(len(list), "dead letter"))
	}
}
