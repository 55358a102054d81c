package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Each process that receives compares regularly with what setup would make: all streams and
// buckets, the consumers of its partitions, and, if it receives from partition 0, the consumers of
// due messages and of task queues. It repairs what it may, and remembers the rest for /readyz, for
// `rondo doctor` and for the log.
//
// Setup stores a fingerprint of the settings in the metadata of each part. Two builds with
// different settings must not change each other's streams during a deployment: a part that fits its
// own fingerprint was made so by setup, and is not damaged. A damaged part fits neither that nor
// the settings of this process. A process repairs only parts that have the fingerprint that it
// would store itself, after it has seen the damage twice: setup may be changing them just then.

// reconcileEvery is the interval of the looks. Twice that and [mendAfter] are well below a minute.
const reconcileEvery = 15 * time.Second

// receivedLately is how long a process counts as a receiver of a partition after it has stopped: it
// may start again at once, because receiving has failed.
const receivedLately = 5 * time.Second

// reconciler compares and repairs.
type reconciler struct {
	*resources
	every  time.Duration
	strays *strays

	mu      sync.Mutex
	started bool
	active  map[int]int       // receivers, by partition
	ended   map[int]time.Time // when the last one has ended
	found   atomic.Pointer[[]flaw]
	leaps   *leaps
}

// flaw is a broker.Flaw with its repair.
type flaw struct {
	broker.Flaw
	atOnce  bool                        // its repair need not wait until it was seen twice
	numbers bool                        // its problem has numbers, which change
	repair  func(context.Context) error // nil: this process must not repair it
}

// receiving notes that this process receives from a partition, until end is called. The first call
// starts the reconciler.
func (r *reconciler) receiving(partition int) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active == nil {
		r.active, r.ended = make(map[int]int), make(map[int]time.Time)
	}
	r.active[partition]++
	if !r.started {
		r.started = r.run(func() { r.reconcile(r.ctx) })
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.active[partition]--; r.active[partition] == 0 {
			delete(r.active, partition)
			r.ended[partition] = time.Now()
		}
	}
}

// partitions lists the partitions from which this process receives.
func (r *reconciler) partitions() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.ended, func(_ int, at time.Time) bool { return time.Since(at) > receivedLately })
	own := slices.AppendSeq(slices.Collect(maps.Keys(r.active)), maps.Keys(r.ended))
	slices.Sort(own)
	return slices.Compact(own)
}

// Flaws implements broker.Repairer.
func (in *inbox) Flaws() (out []broker.Flaw) {
	if found := in.reconciler.found.Load(); found != nil {
		for _, f := range *found {
			out = append(out, f.Flaw)
		}
	}
	for _, consumer := range in.receivers.mayNotAsk() {
		out = append(out, broker.Flaw{Part: "consumer " + in.names.inbox + "/" + consumer,
			Problem: "NATS does not let this user ask for its messages",
			Remedy:  "give the user the permissions of deploy/nats", Harmful: true})
	}
	return out
}

// reconcile looks until the context ends.
func (r *reconciler) reconcile(ctx context.Context) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.leaps.looks:
		case <-ctx.Done():
			return
		}
		own := r.partitions()
		if len(own) == 0 {
			r.found.Store(nil)
			continue
		}
		now, err := r.look(ctx, own)
		if err != nil {
			r.log.Debug("NATS: the streams could not be compared with the setup; looking again later", "error", err)
			continue
		}
		r.settle(ctx, now)
	}
}

// settle logs and repairs flaws.
func (r *reconciler) settle(ctx context.Context, now []flaw) {
	was, repaired := make(map[string]bool), false
	if before := r.found.Swap(&now); before != nil {
		for _, f := range *before {
			was[f.Part+f.Problem] = true
			if f.numbers {
				was[f.Part] = true
			}
		}
	}
	for _, f := range now {
		seen := was[f.Part+f.Problem]
		if logged := f.numbers && !was[f.Part]; logged || !seen && !f.numbers {
			r.log.Warn("NATS: a part of the broker is missing or damaged", "what", f.Part, "detail", f.Problem,
				"advice", f.Remedy)
		}
		if f.repair == nil || !seen && !f.atOnce {
			continue
		}
		if err := f.repair(ctx); err != nil && ctx.Err() == nil {
			r.log.Error("NATS: a part of the broker could not be repaired; trying again", "what", f.Part, "error", err)
		} else if err == nil {
			r.log.Info("NATS: a part of the broker was repaired", "what", f.Part)
			repaired = true
		}
	}
	if !repaired {
		return
	}
	if now, err := r.look(ctx, r.partitions()); err == nil {
		r.found.Store(&now)
	}
}

// look compares everything that this process is responsible for.
func (r *reconciler) look(ctx context.Context, own []int) (found []flaw, err error) {
	p := &r.plan
	c := comparison{reconciler: r, first: slices.Contains(own, 0)}
	inbox := c.stream(ctx, p.inboxConfig(max(1, r.inboxCount(ctx))))
	later := c.stream(ctx, p.laterConfig())
	work := c.stream(ctx, p.tasksConfig())
	c.stream(ctx, p.deadConfig())
	c.stream(ctx, p.membersConfig())
	c.stream(ctx, p.sessionsConfig())
	c.stream(ctx, p.kvConfig())
	c.stream(ctx, p.progressConfig())
	if inbox != nil {
		for _, i := range own {
			for _, l := range lanes {
				if i < partitionsOf(inbox.CachedInfo().Config) {
					c.consumer(ctx, inbox, p.partitionConsumer(l, i))
				}
			}
		}
	}
	if inbox != nil && c.first && inbox.CachedInfo().Config.SubjectTransform != nil {
		r.strays.look(ctx, inbox)
	}
	if later != nil && c.first {
		c.consumer(ctx, later, p.dueConsumer())
	}
	if work != nil && c.first {
		c.tasks(ctx, work)
	}
	c.found = append(c.found, r.shares.look(inbox, later, work, r.every)...)
	return c.found, errors.Join(c.errs...)
}

// inboxCount returns the number of partitions that the inbox should have: that of the stream's
// metadata, because the transform may be damaged.
func (r *reconciler) inboxCount(ctx context.Context) int {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	st, err := r.js.Stream(ctx, r.names.inbox)
	if err != nil {
		return int(max(r.resources.partitions.Load(), 1))
	}
	c := st.CachedInfo().Config
	if n, err := strconv.Atoi(c.Metadata[partitionsKey]); err == nil && n > 0 && c.Metadata[madeKey] != "" {
		return n
	}
	return partitionsOf(c)
}

// judge compares the fingerprint in the metadata of a part with those of what it is, and of what
// this process wants.
func judge(made, is, want string) partState {
	version, _, _ := strings.Cut(want, "-")
	switch {
	case made == is, made != "" && !strings.HasPrefix(made, version+"-"):
		return intact
	case made == "" || made == want:
		return ours
	}
	return foreign
}

// partState says of which settings a part is that differs from the wanted one.
type partState int

const (
	intact  partState = iota // it is as the setup of other settings, or of another version, has made it
	ours                     // it was made with the settings of this process, and is damaged
	foreign                  // it was made with other settings, and is damaged
)

// comparison is one look.
type comparison struct {
	*reconciler
	first bool // this process receives from partition 0, and repairs what all use
	found []flaw
	errs  []error
}

// The remedies of flaws.
const (
	repairedSoon = "an orchestrator repairs it within a minute"
	runSetup     = "run `migrate --streams` with the permissions of setup"
	resume       = "resume it with `nats consumer resume`"
)

func (c *comparison) note(part, problem string, harmful bool, repair func(context.Context) error) {
	f := flaw{Flaw: broker.Flaw{Part: part, Problem: problem, Harmful: harmful, Remedy: runSetup}, repair: repair,
		atOnce: problem == isMissing}
	if repair != nil {
		f.Remedy = repairedSoon
	}
	c.found = append(c.found, f)
}

const isMissing = "it is missing"

// may returns repair if orchestrators with the settings of this process may make and change
// streams.
func (c *comparison) may(repair func(context.Context) error) func(context.Context) error {
	if c.plan.config.Setup != Make {
		return nil
	}
	return repair
}

// noteStream notes a flaw of a stream. The receiver of partition 0 repairs it.
func (c *comparison) noteStream(part, problem string, harmful bool, repair func(context.Context) error) {
	c.note(part, problem, harmful, repair)
	if !c.first {
		c.found[len(c.found)-1].repair = nil
	}
}

// refused reports whether an error ends the comparison of a part. What this user may not see is
// left out.
func (c *comparison) refused(what string, err error) bool {
	if err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", what, err))
	}
	return err != nil
}

// stream compares a stream. It returns nil if there is none, or none that may be seen.
func (c *comparison) stream(ctx context.Context, want jetstream.StreamConfig) (st jetstream.Stream) {
	part := "stream " + want.Name
	err := c.denied.during(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := c.bounded(ctx)
		defer cancel()
		st, err = c.js.Stream(ctx, want.Name)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.noteStream(part, isMissing, true, c.may(c.mend))
		return nil
	}
	if c.refused(part, err) {
		return nil
	}
	have := st.CachedInfo().Config
	want.Replicas = 0 // setup has one replica at times
	made := fingerprint(want)
	want.Metadata[madeKey] = made
	if have.Metadata[prefixKey] == "" { // it is older, or was made by hand
		want.Metadata = nil
	}
	differs := different(have, merged(have, want))
	lost := have.Metadata[boundKey] == boundSet && have.MaxBytes <= 0
	if lost {
		differs = append(differs, "its bound in bytes is gone")
	}
	interrupted := replicasBefore(have) > 0 && c.plan.settled(have)
	if interrupted {
		differs = append(differs, fmt.Sprintf("it has one of %d replicas, because a change of the number of "+
			"partitions was interrupted", replicasBefore(have)))
	}
	state := judge(have.Metadata[madeKey], fingerprint(have), made)
	if len(differs) == 0 || state == intact && !lost && !interrupted {
		return st
	}
	var repair func(context.Context) error
	switch {
	case state == ours || lost:
		repair = c.may(func(ctx context.Context) error { return c.repairStream(ctx, want) })
	case state == intact: // it may have other settings, which stay
		repair = c.may(func(ctx context.Context) error { return c.restoreReplicas(ctx, want.Name) })
	}
	c.noteStream(part, strings.Join(differs, "; "), !mild(want.Name == c.names.dead, differs), repair)
	return st
}

// repairStream makes a stream as wanted, with a bound if it should have one.
func (r *reconciler) repairStream(ctx context.Context, want jetstream.StreamConfig) error {
	release, err := r.mending.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	s, is := setup{r: r.resources}, there{}
	if want.Metadata == nil {
		want.Metadata = map[string]string{prefixKey: r.names.prefix}
	}
	if want.Name == r.names.inbox { // an operator may have changed the number since the look
		n := max(1, r.inboxCount(ctx))
		want.SubjectTransform, want.Metadata[partitionsKey] = r.plan.partitionTransform(n), strconv.Itoa(n)
	}
	s.stream(ctx, want)
	if len(s.errs) == 0 && mayBeBounded(want) {
		for name, to := range map[string]*jetstream.Stream{r.names.inbox: &is.inbox, r.names.dead: &is.dead} {
			st, err := s.r.streamCalled(ctx, name)
			if !s.failed("stream "+name, err) {
				*to = st
			}
		}
		s.bound(ctx, &is)
	}
	return errors.Join(s.errs...)
}

// restoreReplicas gives a stream the replicas that it had before an interrupted change.
func (r *reconciler) restoreReplicas(ctx context.Context, name string) error {
	release, err := r.mending.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	st, err := r.streamCalled(ctx, name)
	if err != nil {
		return err
	}
	have := st.CachedInfo().Config
	n := replicasBefore(have)
	if n == 0 || !r.plan.settled(have) { // another process has restored them, or changes the stream
		return nil
	}
	c := have
	c.Replicas, c.Metadata = n, userMetadata(have.Metadata)
	delete(c.Metadata, replicasKey)
	s := setup{r: r.resources}
	return s.update(ctx, have, c)
}

// mild reports whether a system works with the differences of a stream.
func mild(isDead bool, differs []string) bool {
	return !slices.ContainsFunc(differs, func(d string) bool {
		return !strings.HasPrefix(d, "window for duplicates") && !strings.HasPrefix(d, "its bound") &&
			!strings.HasPrefix(d, "it has one of") &&
			!(isDead && (strings.HasPrefix(d, "age") || strings.HasPrefix(d, "maximum number")))
	})
}

// consumer compares a consumer of the inbox or of due messages.
func (c *comparison) consumer(ctx context.Context, st jetstream.Stream, want jetstream.ConsumerConfig) {
	stream := st.CachedInfo().Config.Name
	part := "consumer " + stream + "/" + want.Durable
	var have jetstream.Consumer
	err := c.denied.during(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := c.bounded(ctx)
		defer cancel()
		have, err = c.js.Consumer(ctx, stream, want.Durable)
		return err
	})
	var repair func(context.Context) error
	if c.plan.config.Setup == Make { // also of partitions that are not the first
		repair = c.repairConsumer(st, want)
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c.note(part, isMissing, true, repair)
		return
	}
	if !c.refused(part, err) {
		c.compare(part, have.CachedInfo().Config, want, repair)
		c.overdue(ctx, st, have.CachedInfo(), want)
	}
}

// repairConsumer makes a consumer as wanted.
func (c *comparison) repairConsumer(st jetstream.Stream, want jetstream.ConsumerConfig) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.askAgain(ctx, func(ctx context.Context) error {
			_, err := st.CreateOrUpdateConsumer(ctx, want)
			return err
		})
	}
}

// compare compares the configuration of a consumer.
func (c *comparison) compare(part string, have, want jetstream.ConsumerConfig, repair func(context.Context) error) {
	if have.PauseUntil != nil && have.PauseUntil.After(time.Now()) {
		c.found = append(c.found, flaw{Flaw: broker.Flaw{Part: part, Remedy: resume, Harmful: true,
			Problem: "it is paused until " + have.PauseUntil.UTC().Format(time.RFC3339)}})
		return
	}
	differs := differentConsumer(have, want)
	state := judge(have.Metadata[madeKey], consumerFingerprint(have), want.Metadata[madeKey])
	if len(differs) == 0 || state == intact {
		return
	}
	if state == foreign {
		repair = nil
	}
	harmful := len(differs) > 1 || !strings.HasPrefix(differs[0], "ack_wait ")
	c.note(part, strings.Join(differs, "; "), harmful, repair)
}

// tasks compares the consumers of task queues, which orchestrators and workers make themselves:
// each orchestrator may repair them.
func (c *comparison) tasks(ctx context.Context, st jetstream.Stream) {
	var all []*jetstream.ConsumerInfo
	err := c.denied.during(ctx, func(ctx context.Context) error {
		ctx, cancel := c.bounded(ctx)
		defer cancel()
		list := st.ListConsumers(ctx)
		for i := range list.Info() {
			all = append(all, i)
		}
		return list.Err()
	})
	if c.refused("task queues", err) {
		return
	}
	for _, i := range all {
		q, ok := queueOfConsumer(i.Name)
		if !ok {
			continue
		}
		want := c.plan.taskConsumer(q)
		c.compare("consumer "+c.names.work+"/"+i.Name, i.Config, want, c.repairConsumer(st, want))
		c.overdue(ctx, st, i, want)
	}
}

// queueOfConsumer returns the task queue of a consumer, unless its name was cut.
func queueOfConsumer(name string) (q broker.TaskQueueName, ok bool) {
	words := strings.Split(name, "_")
	if tag, isDefault := "", len(words) == 4 && words[0] == "w" && words[1] == "" && words[2] == ""; isDefault {
		words = []string{"w", tag, words[3]}
	}
	if len(words) != 3 || words[0] != "w" {
		return q, false
	}
	tag, err := events.DecodeToken(words[1])
	activity, failed := events.DecodeToken(words[2])
	if err != nil || failed != nil {
		return q, false
	}
	q = broker.TaskQueueName{Tag: tag, Activity: activity}
	return q, ConsumerOf(q) == name
}
