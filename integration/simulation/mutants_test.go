package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	plant   = flag.Bool("plant", false, "plant each mistake and look whether it is found")
	huntFor = flag.Duration("hunt", time.Minute,
		"for how long other seeds are begun when the one that has found a mistake does not find it any more")
)

// A mutant is a mistake that is planted into the code of the product.
type mutant struct {
	name  string
	seed  uint64 // finds it; 0 if a test does
	edits []edit
	test  test
}

// A test is one that finds a mistake out of the simulation's reach: in the adapter of NATS, and in
// code whose effect a recovery hides.
type test struct {
	pkg, run string
	// a test that finds the mistake by hanging fails after this time; 0: 90 s
	hangs time.Duration
}

// An edit replaces text that occurs once in a file.
type edit struct{ file, before, after string }

const (
	loopOf   = "services/orchestrator/"
	systemOf = "internal/identity/"
	outboxOf = "pkg/outbox/"
	roundOf  = "pkg/round/"
	sqliteOf = "pkg/history/sqlite/"
)

// mutants are plausible mistakes. Mistakes without an effect are left out, because a recovery hides
// them: if a worker acknowledges before it has published, for example, its instance waits until the
// orchestrator finds that no worker has the task.
var mutants = []mutant{
	{name: "messages are acknowledged before the commit", seed: 1, edits: []edit{
		{loopOf + "receive.go", "	if d.NumDelivered > r.quarantineAfter {\n",
			"	d.Hold.Ack()\n	if d.NumDelivered > r.quarantineAfter {\n"},
	}},
	{name: "a turn is published before its commit", seed: 2, edits: []edit{
		{loopOf + "committer.go", "		x.begun, x.result, x.err = c.commit(ctx, batch, delay)\n", `		for _, d := range decisions {
			_ = c.publisher.Publish(ctx, outbox.Committed{Messages: d.messages})
		}
		x.begun, x.result, x.err = c.commit(ctx, batch, delay)
`},
	}},
	{name: "a turn that was refused counts as committed", seed: 2, edits: []edit{
		{loopOf + "loop.go", "		if outcome.Status == history.Committed {\n			e.conflicts = 0",
			"		if outcome.Status != history.Unstorable {\n			e.conflicts = 0"},
	}},
	{name: "a commit that nobody knows of counts as done", seed: 1, edits: []edit{
		{loopOf + "loop.go",
			"	l.commits.succeed(x)\n	for i, d := range x.decisions {\n		outcome := " +
				"x.result.Outcomes[i]\n",
			"	l.commits.succeed(x)\n	for i, d := range x.decisions {\n		outcome := " +
				"history.Outcome{Status: history.Committed}\n		if x.err == nil {\n			outcome = " +
				"x.result.Outcomes[i]\n		}\n"},
		{loopOf + "loop.go",
			"	case x.err != nil && (ctx.Err() != nil || history.ClassOf(x.err) == " +
				"history.Ambiguous):\n		l.takeUnknown(x)\n		return\n",
			"	case x.err != nil && history.ClassOf(x.err) == history.Ambiguous:\n"},
	}},
	{name: "a timer fires before it is known what was stored earlier", seed: 9, edits: []edit{
		{roundOf + "order.go", "	if x.watermark.IsZero() || !at.After(x.watermark) {\n", "	if true {\n"},
		{loopOf + "watermarks.go", "	case !ok, i.handed, !timer.Due.After(e.watermark):\n",
			"	case !ok || timer.Due.After(e.watermark), i.handed:\n"},
	}},
	{name: "later messages overtake one that waits for a watermark",
		test: test{pkg: "./services/orchestrator", run: "^TestMessagesOfABarredInstanceTakeNoRoom$"}, edits: []edit{
			{loopOf + "watermarks.go", "		e.barred = true\n", ""},
		}},
	{name: "a message is dead-lettered before it is known whether its start was stored",
		test: test{pkg: "./pkg/round", run: "^TestScenarios$/^mailbox_message_waits_for_watermark$"}, edits: []edit{
			{roundOf + "inbox.go", "!known.IsZero() && until.After(known) {", "false && until.After(known) {"},
		}},
	{name: "a message in a new partition gives up a start that waits in an old one", seed: 24613, edits: []edit{
		{loopOf + "noop.go", "		if !givesUp {\n", "		if partition >= 0 || !givesUp {\n"},
	}},
	{name: "the ack wait of messages that wait for the watermark is extended",
		test: test{pkg: "./services/orchestrator", run: "^TestTheAckWaitOfMessagesAsideIsNotExtended$"}, edits: []edit{
			{loopOf + "item.go", "if !i.aside && now.Sub", "if now.Sub"},
		}},
	{name: "quarantined messages of an instance are tried in the order of their arrival",
		test: test{pkg: "./services/orchestrator", run: "^TestQuarantinedMessagesOfAnInstanceAreTriedInItsOrder$"},
		edits: []edit{
			{loopOf + "quarantine.go", "first != i && s.replace(i, first)",
				"false && first != i && s.replace(i, first)"},
		}},
	{name: "the clock of the broker orders messages, and not their sequence", seed: 2239, edits: []edit{
		{loopOf + "item.go", "		if at[n].Before(last) {\n", "		if false {\n"},
	}},
	{name: "a leap of the clock is not noticed before the next round", seed: 16, edits: []edit{
		{loopOf + "clock.go", "		if ahead := c.ahead[i] + leap; ahead.Abs() > c.config.most {\n",
			"		if ahead := c.ahead[i] + 0*leap; ahead.Abs() > c.config.most {\n"},
	}},
	{name: "an orchestrator with another database joins", seed: 8, edits: []edit{
		{systemOf + "identity.go", "	case e.System != d.ID:\n", "	case false:\n"},
	}},
	{name: "what was stored after a deadline is taken before it", seed: 11, edits: []edit{
		{roundOf + "inbox.go", "		case !d.Moment.IsZero() && !in.fireDue(d.Moment):\n", "		case false:\n"},
	}},
	{name: "a watermark does not wait for what the receiver before has left",
		test: test{pkg: "./internal/broker/nats", run: "^TestConformance$/^a_watermark_waits_for_a_message",
			hangs: 30 * time.Second},
		edits: []edit{
			{natsOf + "receiver_watermarks.go", "	case len(m.of.order.left[x.who]) > 0: // they are redelivered\n",
				"	case false:\n"},
		}},
	{name: "what is decided again comes after what is newer", seed: 22, edits: []edit{
		{loopOf + "instances.go", "	e.waiting = append(slices.Clone(items), e.waiting...)\n",
			"	e.waiting = append(slices.Clone(e.waiting), items...)\n"},
		// A round puts its messages in order again.
		{roundOf + "inbox.go", "	order := byMoment(inbox)\n", "	order := []int(nil)\n	_ = byMoment\n"},
	}},
	{name: "there is no fence", seed: 16, edits: []edit{
		{sqliteOf + "commit.go",
			"	case c.Incarnation != b.Incarnation || c.Execution != b.Execution || c.LastEvent != " +
				"b.LastEvent:\n		return false\n",
			"	case c.Incarnation != b.Incarnation || c.Execution != b.Execution:\n		return false\n"},
		{sqliteOf + "statements.go", "\"rondo_history\", historyColumns, \"\")",
			"\"rondo_history\", historyColumns, \" ON CONFLICT DO UPDATE SET last_event = " +
				"excluded.last_event, data = excluded.data\")"},
		{sqliteOf + "statements.go", "AND last_event = ?\"", "AND last_event >= ? - 1000000\""},
	}},
	{name: "an outbox entry is forgotten before it is published", seed: 27, edits: []edit{
		{outboxOf + "entry.go", "	return e.open.Add(-int64(messages)) <= 0 && !e.failed.Load()\n",
			"	return false\n"},
		{outboxOf + "outbox.go", "	if err := p.now.put(ctx, segment{of[prompt], e}); err != nil {\n",
			"	p.published.add(e.keys)\n	if err := p.now.put(ctx, segment{of[prompt], e}); err != nil {\n"},
	}},
	{name: "nobody sweeps", seed: 1, edits: []edit{
		{loopOf + "maintenance/maintenance.go", "	_, err := k.sweeper.Sweep(ctx)\n	return err\n",
			"	return nil\n"},
	}},
	{name: "a sweep removes what it has not published", seed: 1, edits: []edit{
		{outboxOf + "sweep.go",
			"	err = Send(ctx, s.Broker, s.Prefix, messages, s.Log, s.Watcher)\n", ""},
	}},
	{name: "a sweep sends again with a new id", seed: 6, edits: []edit{
		{outboxOf + "sweep.go", "	messages, err = s.wanted(ctx, messages)\n",
			"	for i := range messages {\n		if id := messages[i].Header[events.HeaderMsgID]; len(id) > 0 " +
				"{\n			messages[i].Header[events.HeaderMsgID] = []string{id[0] + " +
				"\"/again\"}\n		}\n	}\n	messages, err = s.wanted(ctx, messages)\n"},
	}},
	{name: "work that the broker has lost is not sent again", seed: 5, edits: []edit{
		{outboxOf + "heal.go", "			wanted[i], errs[n] = !has, err\n", "			_, errs[n] = has, err\n"},
	}},
	{name: "children that the broker has lost are not started again", seed: 5, edits: []edit{
		{outboxOf + "heal.go", "				asked = append(asked, i)\n			}\n		case *events.Task:",
			"				_ = i\n			}\n		case *events.Task:"},
	}},
	{name: "an instance is looked after only when something is due", seed: 31, edits: []edit{
		{roundOf + "record.go", "		if at := r.now.Add(d); row.WakeAt.IsZero() || at.Before(row.WakeAt) {\n",
			"		if at := r.now.Add(d); false && at.Before(row.WakeAt) {\n"},
	}},
	{name: "a child that is asked again does not tell how it has ended",
		test: test{pkg: "./pkg/round", run: "^TestScenarios$"}, edits: []edit{
			{roundOf + "starts.go",
				"			in.notifyParent(row) // the parent asks again: it may have missed the answer\n", ""},
		}},
	{name: "a timer fires when its message comes", seed: 2, edits: []edit{
		{roundOf + "inbox.go", "	if wait := o.next().Sub(in.now); wait > 0 {\n",
			"	if wait := o.next().Sub(in.now); wait > time.Hour {\n"},
	}},
	{name: "an answer for a former execution is taken", seed: 343, edits: []edit{
		{roundOf + "inbox.go", "	case execution != in.ledger.info.Execution:\n",
			"	case execution > in.ledger.info.Execution:\n"},
	}},
	{name: "a delayed detached start is published at once", seed: 2, edits: []edit{
		{roundOf + "effects.go", "	m.NotBefore = f.NotBefore\n	if f.Conflict", "	if f.Conflict"},
	}},
	{name: "a start that comes again restarts an instance again", seed: 2, edits: []edit{
		{roundOf + "starts.go",
			"		if r, is := in.takenBefore(d, startIDs(d.Message, s)...); is {\n" +
				"			return r\n		}\n	}\n	version",
			"	}\n	version"},
		{roundOf + "state.go", "	if s.isSameStart(m, start) {\n		return false\n	}\n	running",
			"	running"},
	}},
	{name: "a letter that comes again is taken again", seed: 1, edits: []edit{
		{roundOf + "inbox.go",
			"	if r, is := in.takenBefore(d, d.Message.ID); is {\n		return r\n	}\n	if r, full := " +
				"in.mailboxFull(1", "	if r, full := in.mailboxFull(1"},
	}},
	{name: "an instance that has lost the result of a step stays in memory",
		test: test{pkg: "./services/orchestrator", run: "^TestAStepWhoseResultIsDroppedRunsAgain$"}, edits: []edit{
			{loopOf + "loop.go", "		e.behind = true\n", ""},
		}},
	{name: "what an execution has taken is forgotten by the next one", seed: 19, edits: []edit{
		{roundOf + "lifecycle.go", "	old.seen.carry(started, x.now, x.config.remembered())\n", ""},
	}},
	{name: "unread messages do not go along into the next execution", seed: 21, edits: []edit{
		{roundOf + "lifecycle.go", "	for _, m := range unread {\n		age :=",
			"	for _, m := range unread[:0] {\n		age :="},
	}},
	{name: "an instance that is read again misses its last event", seed: 1, edits: []edit{
		{roundOf + "replay.go", "	x.playback.rest = history\n",
			"	x.playback.rest = history[:max(1, len(history)-1)]\n"},
	}},
	{name: "steps that were lost do not run again", seed: 31, edits: []edit{
		{roundOf + "replay.go", "			x.turn.Steps = append(x.turn.Steps, x.step(s, true))\n",
			"			_ = s\n"},
	}},
	{name: "partitions that are given up are not read to their end", seed: 69, edits: []edit{
		{loopOf + "ownership/ownership.go", "	partitions, known := w.partitions.All(), w.known\n",
			"	w.partitions.Draining = nil\n	partitions, known := w.partitions.All(), w.known\n"},
	}},
	{name: "a message that means nothing here is acknowledged without asking the store", seed: 17, edits: []edit{
		{loopOf + "noop.go", "	return d.entry.fresh || !slices", "	return true || !slices"},
	}},
}

// quickly is which of the mutants of the simulation a short run plants: every fourth, a dozen.
const quickly = 4

// TestMutants plants each mistake into the product, and lets the simulation find it. With -short,
// it plants a dozen of them, which their seeds must find. Without -plant, it only checks that all
// mistakes can still be planted.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(mutants, mutantsOfDelivery, receiptMutants, scheduleMutants)
	if len(all) < 83 {
		t.Errorf("there are %d mistakes", len(all))
	}
	planted := func(i int) bool { return *plant || testing.Short() && i%quickly == 0 }
	simulated := 0
	together := &nursery{root: root, sources: make(map[string][]byte), copies: make(map[string][]copied)}
	numbers := make(map[string]int)
	for _, m := range all {
		m.apply(t, root)
		if m.test.run != "" {
			continue
		}
		if simulated++; planted(simulated) {
			numbers[m.name] = together.plant(t, m)
		}
	}
	program := ""
	if len(together.planted) > 0 {
		program = build(t, root, together.files(t))
		if found, _ := hunt(t, program, 0, 1, 1); found != "" {
			t.Fatalf("without a mistake, the program fails:\n%s", found)
		}
	}
	for _, m := range all {
		number, sample := numbers[m.name]
		if !sample && (m.test.run == "" || !*plant) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if *plant { // a sample leaves the other processors to other tests
				t.Parallel()
			}
			if m.test.run != "" {
				m.test.finds(t, root, m.apply(t, root))
				return
			}
			program := program
			if number == 0 {
				program = build(t, root, m.apply(t, root))
			}
			if found, _ := hunt(t, program, number, m.seed, 1); found != "" {
				t.Logf("found with seed %d", m.seed)
				return
			}
			if !*plant {
				t.Fatalf("seed %d does not find it any more; `make mutants` looks for another one", m.seed)
			}
			begun := time.Now()
			found, out := hunt(t, program, number, 1, 1_000_000)
			if found == "" {
				t.Fatalf("it is not found within %v:\n%s", *huntFor, out)
			}
			t.Logf("seed %d does not find it any more, but another one does, after %v:\n%s", m.seed,
				time.Since(begun).Round(time.Second), found)
		})
	}
	if len(numbers) > 0 {
		t.Logf("%d of %d mistakes are in one program", len(together.planted), len(numbers))
	}
}

// apply returns the files of the product with the mistake.
func (m mutant) apply(t *testing.T, root string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for _, e := range m.edits {
		path := filepath.Join(root, filepath.FromSlash(e.file))
		text, known := files[path]
		if !known {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.before); n != 1 {
			t.Fatalf("%s has this %d times, want it once: %q", e.file, n, e.before)
		}
		files[path] = strings.Replace(text, e.before, e.after, 1)
	}
	return files
}

// finds lets a test find a mistake.
func (x test) finds(t *testing.T, root string, files map[string]string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off",
		fmt.Sprint("-timeout=", cmp.Or(x.hangs, 90*time.Second)), "-overlay", overlayOf(t, t.TempDir(), files),
		"-run", x.run, x.pkg)
	c.Dir, c.Env = root, withoutLedger()
	switch out, _ := c.CombinedOutput(); {
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("no tests to run")):
		t.Fatalf("%s cannot be run in %s:\n%s", x.run, x.pkg, out)
	case !bytes.Contains(out, []byte("FAIL")):
		t.Fatalf("%s in %s does not find it:\n%s", x.run, x.pkg, out)
	}
	t.Logf("found by %s in %s", x.run, x.pkg)
}

// build builds the simulation with other files.
func build(t *testing.T, root string, files map[string]string) (program string) {
	t.Helper()
	dir := t.TempDir()
	list, program := overlayOf(t, dir, files), filepath.Join(dir, "simulation.test")
	c := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o",
		program, "./integration/simulation")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("it cannot be built: %v\n%s", err, out)
	}
	return program
}

// withoutLedger returns the environment without the variable that keeps seeds: those that find a
// mutant are not faults.
func withoutLedger() []string { return append(os.Environ(), "RONDO_TEST_LEDGER=") }

// overlayOf writes which files the build takes instead of others.
func overlayOf(t *testing.T, dir string, files map[string]string) (list string) {
	t.Helper()
	replace := make(map[string]string)
	for path, text := range files {
		to := filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return list
}

var found = regexp.MustCompile(`(?s)seed \d+ \(.*?make sim SEED=\d+ N=1`)

// hunt runs seeds until one of them fails, for as long as it may take, and returns the failure. The
// program plays the mistake with this number. A world in which work never ends runs for 20 virtual
// minutes, some seconds of CPU time: hunt lets it end.
func hunt(t *testing.T, program string, number int, seed uint64, n int) (what, out string) {
	t.Helper()
	var b bytes.Buffer
	c := exec.CommandContext(t.Context(), program, "-test.run=^TestSeeds$", fmt.Sprint("-seed=", seed),
		fmt.Sprint("-seeds=", n), "-stop-at=1", fmt.Sprint("-within=", *huntFor), "-test.timeout=20m")
	c.Env = append(withoutLedger(), fmt.Sprint(plantedVariable, "=", number), "GOMAXPROCS=1") // for one bubble
	c.Stdout, c.Stderr = &b, &b
	_ = c.Run() // it is to fail
	what = found.FindString(b.String())
	return what[:min(len(what), 700)], b.String()[:min(b.Len(), 3000)]
}
