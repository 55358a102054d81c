package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// window is a point at which a service dies. Its name is in docs/reliability.md.
type window struct {
	name string
	at   crossing
	// before runs before the service that dies is started; nil: nothing.
	before func(r *windowRun)
	// worker says that a worker dies; otherwise it is an orchestrator.
	worker bool
	// only are the shapes that it is tried with; nil: all that get there when nothing disturbs
	// them.
	only []string
	// during runs while the service runs; nil: the shape is begun.
	during func(r *windowRun)
	// ignorant says that the orchestrator that dies does not have the code.
	ignorant bool
}

// byChance says that a run reaches the window only on a quick machine: a message must be delivered
// before it is due, or published so long before it is due that NATS delays it.
func (w window) byChance() bool { return w.at.call == "delay" || w.at.call == "forward" }

// tries is how many runs may be needed to get there.
func (w window) tries() int {
	if w.byChance() {
		return 5
	}
	return 1
}

func at(edge, call string, kind ...string) crossing {
	return crossing{edge, call, strings.Join(kind, "")}
}

// waiting are shapes that wait for something without a worker, working are those that wait for
// work.
var (
	waiting = []string{"one", "fan-out", "timer", "child", "continue-as-new", "retry"}
	working = []string{"one", "fan-out", "child", "continue-as-new", "retry"}
)

// calmest are shapes that get to a window that is not noted on SQLite.
var calmest = []string{"one", "fan-out", "child", "continue-as-new", "queue and values", "kept events", "steps"}

// windows lists all of them: the loop of the orchestrator, its other work, and the worker.
var windows = []window{
	{name: "before it receives", at: at("before", "receive")},
	{name: "a message was received", at: at("after", "receive")},
	{name: "a timer was received", at: at("after", "receive", "timer-due")},
	{name: "a child's answer was received", at: at("after", "receive", "child-ended")},
	{name: "before a timer that came early is returned", at: at("before", "delay"), only: []string{"timer"}},
	{name: "a timer that came early was returned", at: at("after", "delay"), only: []string{"timer"}},
	{name: "before the history is read", at: at("before", "load"), before: leaveWaiting, only: waiting},
	{name: "the history was read", at: at("after", "load"), before: leaveWaiting, only: waiting},
	{name: "while it decides", at: at("during", "decide")},
	{name: "before the commit", at: at("before", "commit")},
	{name: "in the commit, before the database has it", at: at("during", "commit", "unsent"), only: calmest},
	{name: "in the commit, before the answer is read", at: at("during", "commit", "unanswered"), only: calmest},
	{name: "after the commit", at: at("after", "commit")},
	{name: "before the commit of an end", at: at("before", "commit", "end")},
	{name: "after the commit of an end", at: at("after", "commit", "end")},
	{name: "before an instance continues as new", at: at("before", "commit", "continue-as-new")},
	{name: "an instance has continued as new", at: at("after", "commit", "continue-as-new")},
	{name: "before work is published", at: at("before", "publish", "task")},
	{name: "half of the work is published", at: at("half", "publish", "task")},
	{name: "work was published", at: at("after", "publish", "task")},
	{name: "before a timer is published", at: at("before", "publish", "timer-due")},
	{name: "a timer was published", at: at("after", "publish", "timer-due")},
	{name: "before a child's start is published", at: at("before", "publish", "internal_start")},
	{name: "a child's start was published", at: at("after", "publish", "internal_start")},
	{name: "before a child's answer is published", at: at("before", "publish", "child-ended")},
	{name: "a child's answer was published", at: at("after", "publish", "child-ended")},
	{name: "before a message to another instance is published", at: at("before", "publish", "internal_mailbox")},
	{name: "half of what was said is published", at: at("half", "publish", "internal_mailbox")},
	{name: "a message to another instance was published", at: at("after", "publish", "internal_mailbox")},
	{name: "before work is withdrawn", at: at("before", "publish", "withdrawal of task")},
	{name: "work was withdrawn", at: at("after", "publish", "withdrawal of task")},
	{name: "before outbox entries are removed", at: at("before", "remove outbox"), only: []string{"timer"}},
	{name: "outbox entries were removed", at: at("after", "remove outbox"), only: []string{"timer"}},
	{name: "before a question for values is taken", at: at("before", "take work")},
	{name: "a question for values was taken", at: at("after", "take work")},
	{name: "before the answer with values is published", at: at("before", "publish", "task-done")},
	{name: "the answer with values was published", at: at("after", "publish", "task-done")},
	{name: "before a message is acknowledged", at: at("before", "acknowledge")},
	{name: "a message was acknowledged", at: at("after", "acknowledge")},
	{name: "before an end is announced", at: at("before", "announce")},
	{name: "an end was announced", at: at("after", "announce")},
	{name: "before a step runs", at: at("before", "step")},
	{name: "a step has run", at: at("after", "step")},
	{name: "before a bad message is dead-lettered", at: at("before", "store a dead letter"), during: sayNonsense,
		only: []string{"one"}},
	{name: "a bad message was dead-lettered", at: at("after", "store a dead letter"), during: sayNonsense,
		only: []string{"one"}},

	{name: "before outbox entries are leased", at: at("before", "lease outbox"), before: leaveOutbox,
		only: waiting},
	{name: "outbox entries were leased", at: at("after", "lease outbox"), before: leaveOutbox, only: waiting},
	{name: "half of the outbox entries are published", at: at("half", "publish", "task"), before: leaveOutbox,
		only: []string{"fan-out"}},
	{name: "outbox entries are published, and not removed", at: at("before", "remove outbox"),
		before: leaveOutbox, only: waiting},
	{name: "before overdue instances are leased", at: at("before", "lease overdue"), before: loseMessages,
		only: waiting},
	{name: "overdue instances were leased", at: at("after", "lease overdue"), before: loseMessages, only: waiting},
	{name: "half of what was lost is published", at: at("half", "publish"), before: loseMessages, only: working},
	{name: "what was lost is published", at: at("after", "publish"), before: loseMessages, only: waiting},
	{name: "before the recovery of a lost broker", at: at("before", "acquire lease"), before: loseEverything,
		only: waiting},
	{name: "a recovery has begun", at: at("after", "acquire lease"), before: loseEverything, only: waiting},
	{name: "a recovery knows when the broker was lost", at: at("before", "put", "lost"), before: loseEverything,
		only: waiting},
	{name: "a recovery has noted when the broker was lost", at: at("after", "put", "lost"), before: loseEverything,
		only: waiting},
	{name: "half of a recovery is published", at: at("half", "publish"), before: loseEverything, only: working},
	{name: "a recovery is published, and the flag is not set", at: at("before", "put", "recovered"),
		before: loseEverything, only: waiting},
	{name: "the flag of a recovery is set", at: at("after", "put", "recovered"), before: loseEverything, only: waiting},
	{name: "a recovery was given back", at: at("after", "release"), before: loseEverything, only: waiting},

	{name: "a count is in the database, and not in NATS", at: at("before", "put", "system"), only: waiting},
	{name: "a count is in the database and in NATS", at: at("after", "put", "system"), only: waiting},
	{name: "before it joins", at: at("before", "join")},
	{name: "it has joined", at: at("after", "join")},
	{name: "before it leaves", at: at("before", "leave"), during: tellToEnd, only: waiting},
	{name: "it has left", at: at("after", "leave"), during: tellToEnd, only: waiting},
	{name: "before a message is given back", at: at("before", "give back"), ignorant: true, only: waiting},
	{name: "a message was given back", at: at("after", "give back"), ignorant: true, only: waiting},
	{name: "before a message is handed over", at: at("before", "hand over"), ignorant: true, before: haveAnother,
		during: beginMany, only: []string{"one"}},
	{name: "a message was handed over", at: at("after", "hand over"), ignorant: true, before: haveAnother,
		during: beginMany, only: []string{"one"}},
	{name: "before a message is taken over", at: at("before", "take over"), before: haveIgnorant, during: beginMany,
		only: []string{"one"}},

	{name: "before a due timer is forwarded", at: at("before", "forward"), only: []string{"timer"}},
	{name: "a due timer was forwarded", at: at("after", "forward"), only: []string{"timer"}},
	{name: "before a worker takes work", at: at("before", "take work"), worker: true},
	{name: "a worker has taken work", at: at("after", "take work"), worker: true},
	{name: "before work that came early is returned", at: at("before", "delay"), worker: true, only: []string{"retry"}},
	{name: "work that came early was returned", at: at("after", "delay"), worker: true, only: []string{"retry"}},
	{name: "before a worker says that it has begun", at: at("before", "publish", "task-begun"), worker: true},
	{name: "a worker has said that it has begun", at: at("after", "publish", "task-begun"), worker: true},
	{name: "before an activity does something", at: at("before", "execute"), worker: true},
	{name: "an activity has done something", at: at("after", "execute"), worker: true},
	{name: "before a heartbeat is noted", at: at("before", "put", "task"), worker: true, only: []string{"heartbeat"}},
	{name: "a heartbeat was noted", at: at("after", "put", "task"), worker: true, only: []string{"heartbeat"}},
	{name: "before a result is published", at: at("before", "publish", "task-done"), worker: true},
	{name: "a result was published", at: at("after", "publish", "task-done"), worker: true},
	{name: "before an error is published", at: at("before", "publish", "task-failed"), worker: true},
	{name: "an error was published", at: at("after", "publish", "task-failed"), worker: true},
	{name: "before work is acknowledged", at: at("before", "acknowledge", "task"), worker: true},
	{name: "work was acknowledged", at: at("after", "acknowledge", "task"), worker: true},
	{name: "before a worker hears of a withdrawal", at: at("before", "hear of a withdrawal"), worker: true},
	{name: "a worker has heard of a withdrawal", at: at("after", "hear of a withdrawal"), worker: true},
}

// windowNamed finds a window.
func windowNamed(name string) (window, bool) {
	i := slices.IndexFunc(windows, func(w window) bool { return w.name == name })
	if i < 0 {
		return window{}, false
	}
	return windows[i], true
}

// TestCrashWindows kills a service at each arrow of the loop, and starts another one: each shape
// has the same result, with the same history, as without the crash. Each window is tried with one
// shape on one database; with [large], with all shapes that reach it, on both databases. With
// -short, every fourth window is tried.
func TestCrashWindows(t *testing.T) {
	t.Parallel()
	calm := &undisturbed{stories: make(map[string]map[string][]string), passed: make(map[string]map[crossing]int)}
	t.Run("undisturbed", func(t *testing.T) {
		for _, x := range shapes {
			for _, db := range windowStores[:size(1, len(windowStores))] {
				t.Run(x.name+"/"+db.name, func(t *testing.T) {
					t.Parallel()
					calm.run(newWindowRun(t, window{}, x, db, 0))
				})
			}
		}
	})
	calm.everyCallHasAWindow(t)
	if t.Failed() {
		return
	}
	for i, w := range windows {
		if i%racetest.Short(1, 4) != 0 {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			runs := calm.runsOf(w)
			if len(runs) == 0 {
				t.Fatal("no shape gets there")
			}
			if !large {
				// not all get there as often every time
				runs = slices.DeleteFunc(runs, func(x windowChoice) bool { return x.nth > 1 })
				runs = []windowChoice{runs[i%len(runs)]}
			}
			var reached atomic.Int32
			t.Cleanup(func() {
				if reached.Load() == 0 && !t.Failed() {
					t.Error("nobody got there")
				}
			})
			for _, x := range runs {
				t.Run(x.String(), func(t *testing.T) {
					t.Parallel()
					for range w.tries() {
						if newWindowRun(t, w, x.shape, x.db, x.nth).die(calm.stories[x.shape.name]) {
							reached.Add(1)
							break
						}
					}
				})
			}
		})
	}
}

// windowChoice is how a window is tried.
type windowChoice struct {
	shape shape
	db    windowStore
	nth   int
}

func (c windowChoice) String() string {
	name := c.shape.name + "/" + c.db.name
	if c.nth > 1 {
		name += fmt.Sprint("/time ", c.nth)
	}
	return name
}

// undisturbed has the histories of runs without a crash.
type undisturbed struct {
	mu      sync.Mutex
	stories map[string]map[string][]string // by shape
	passed  map[string]map[crossing]int    // by shape, "worker/…" for those of workers
}

// run runs a shape without a crash.
func (u *undisturbed) run(r *windowRun) {
	workers := newGate(crossing{}, 0)
	r.gated(r.g)
	r.gatedWorker(workers)
	r.begins(r.shape)
	r.finish(nil)
	story := r.story(r.shape.unordered)
	u.mu.Lock()
	defer u.mu.Unlock()
	if before := u.stories[r.shape.name]; before != nil && told(before) != told(story) {
		r.t.Errorf("the histories differ without anything having happened:\n%s\n%s", told(before), told(story))
	}
	u.stories[r.shape.name] = story
	for kind, g := range map[string]*gate{"": r.g, "worker/": workers} {
		g.mu.Lock()
		u.passed[kind+r.shape.name] = maps.Clone(g.passed)
		g.mu.Unlock()
	}
}

// times is how often a shape gets to a window.
func (u *undisturbed) times(w window, x shape) (n int) {
	key := x.name
	if w.worker {
		key = "worker/" + key
	}
	for c, times := range u.passed[key] {
		if c.edge == w.at.edge && c.call == w.at.call && (w.at.kind == "" || w.at.kind == c.kind) {
			n += times
		}
	}
	return n
}

// runsOf lists how a window can be tried.
func (u *undisturbed) runsOf(w window) (runs []windowChoice) {
	for _, x := range shapes {
		n := 1
		if w.only == nil {
			n = u.times(w, x)
		}
		if n == 0 || w.only != nil && !slices.Contains(w.only, x.name) {
			continue
		}
		for _, db := range windowStores {
			if w.at.edge == "during" && w.at.call == "commit" && db.name != "postgres" {
				continue // sqlite.TestKilledAtEachStatement does that
			}
			runs = append(runs, windowChoice{x, db, 1})
			if n > 1 && w.only == nil {
				runs = append(runs, windowChoice{x, db, n})
			}
		}
	}
	return runs
}

// windowStore is a database with how services connect to it.
type windowStore struct {
	name string
	open func(t *testing.T) (address string, open func(*gate) history.Store)
}

var windowStores = []windowStore{
	{"sqlite", func(t *testing.T) (string, func(*gate) history.Store) {
		open := openSQLite(t)
		return "", func(*gate) history.Store { return open() }
	}},
	{"postgres", func(t *testing.T) (string, func(*gate) history.Store) {
		pgtest.Need(t)
		address := pgtest.Database(t)
		return address, func(g *gate) history.Store {
			o := cockroach.Options{WakeStep: wakeStep, MaxConns: 3, Log: quiet(), ConnectTimeout: connects}
			if g != nil {
				o.Configure = tapped(g)
			}
			s, err := cockroach.Open(t.Context(), address, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
	}},
}

// windowRun is one run of one window.
type windowRun struct {
	*system
	w        window
	shape    shape
	address  string // of the database
	openFor  func(*gate) history.Store
	g        *gate
	v        *service // the one that dies, if it is an orchestrator
	patience time.Duration
}

func newWindowRun(t *testing.T, w window, x shape, db windowStore, nth int) *windowRun {
	t.Helper()
	r := &windowRun{w: w, shape: x, g: newGate(w.at, nth), patience: time.Minute}
	r.address, r.openFor = db.open(t)
	r.system = newSystem(t, func() history.Store { return r.openFor(nil) }, orchestrationsOf(r.g)...)
	if w.at.call == "delay" {
		r.config.InboxAckWait = time.Second // orchestrators nack messages that are early by more than half of it
	}
	return r
}

// settings are those of orchestrators in these runs. No orchestrator repairs a silent instance,
// unless the test is about that: so the component that is responsible must repair the damage of a
// crash.
func (r *windowRun) settings(c *orchestrator.Config) {
	c.Round.Patience = r.patience
	c.Sweep.Every, c.Sweep.OverdueGrace, c.Sweep.OutboxAfter, c.ShutdownTimeout = r.wait(200*time.Millisecond),
		r.wait(200*time.Millisecond),
		r.wait(500*time.Millisecond), 300*time.Millisecond
}

// gated starts an orchestrator that passes a gate.
func (r *windowRun) gated(g *gate) *service {
	r.t.Helper()
	l := newLine(r.server.URL()[len("nats://"):], g)
	before := r.open
	r.config.InProcess, r.open = l, func() history.Store { return r.openFor(g) }
	v := r.prepare(r.settings)
	r.config.InProcess, r.open = nil, before
	c := r.hasty()
	r.settings(&c)
	o, err := orchestrator.New(gatedBroker{v.broker, g, l}, gatedStore{v.store, g}, r.code, c)
	if err != nil {
		r.t.Fatal(err)
	}
	v.Orchestrator = o
	g.die = func() {
		v.kill()
		l.cut()
	}
	v.start()
	return v
}

// gatedWorker starts a worker that passes a gate.
func (r *windowRun) gatedWorker(g *gate) {
	r.t.Helper()
	l := newLine(r.server.URL()[len("nats://"):], g)
	r.config.InProcess = l
	b := r.connect()
	r.config.InProcess = nil
	code, err := activity.NewRegistry(activitiesOf(g)...)
	if err != nil {
		r.t.Fatal(err)
	}
	w, err := worker.New(gatedBroker{b, g, l}, code,
		worker.Config{Logger: quiet(), ShutdownTimeout: 100 * time.Millisecond, CancelGrace: 100 * time.Millisecond})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g.die = func() {
		l.cut()
		stop()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx) // it may be dead
	}()
	r.t.Cleanup(func() {
		stop()
		<-ended
	})
}

// die runs until the service dies, has another one go on, and compares the histories. It reports
// whether the service reached the window.
func (r *windowRun) die(calm map[string][]string) (reached bool) {
	r.t.Helper()
	if r.w.before != nil {
		r.w.before(r)
	}
	if r.w.worker {
		r.orchestrate(r.settings)
		r.gatedWorker(r.g)
	} else {
		r.gatedWorker(newGate(crossing{}, 0))
		if r.w.ignorant {
			r.deploy(basics...)
		}
		r.v = r.gated(r.g)
	}
	switch {
	case r.w.during != nil:
		r.w.during(r)
	case r.w.before == nil:
		r.begins(r.shape)
	}
	if reached = r.dies(); !reached {
		r.t.Logf("it did not get there %d times: what is done in one go differs a little", r.g.nth)
	}
	if r.w.worker {
		r.gatedWorker(newGate(crossing{}, 0))
	} else {
		r.deploy(orchestrationsOf(r.g)...)
		r.orchestrate(r.settings)
	}
	r.finish(calm)
	return reached
}

// dies waits until the service dies. It reports false if the run ended before.
func (r *windowRun) dies() (died bool) {
	r.t.Helper()
	if !large && !r.w.byChance() {
		r.await(r.g.killed, "it gets to where it dies")
		return true
	}
	defer func() {
		if died {
			return
		}
		select { // something may be left to do after the end
		case <-r.g.killed:
			died = true
		case <-time.After(2 * time.Second):
		}
	}()
	r.eventually("it gets to where it dies, or ends", func() error {
		select {
		case <-r.g.killed:
			died = true
			return nil
		default:
		}
		for _, x := range r.shape.starts {
			info, err := r.system.store.Instance(r.t.Context(), x.instance)
			if err != nil || !info.Status.Ended() {
				return errors.Join(err, errors.New("it goes on"))
			}
		}
		n, err := r.system.store.CountOutbox(r.t.Context(), 1)
		if n > 0 {
			err = errors.New("it has an outbox entry")
		}
		return err
	})
	return died
}

// large makes tests try everything: `make large` sets it.
var large = os.Getenv("RONDO_TEST_LARGE") != ""

// size is how much a test does.
func size(normal, ifLarge int) int {
	if large {
		return ifLarge
	}
	return normal
}

// finish waits until all instances have ended, and checks them.
func (r *windowRun) finish(calm map[string][]string) {
	r.t.Helper()
	for _, x := range r.shape.starts {
		r.completed(x.instance, x.want)
	}
	r.eventually("all instances end", func() error {
		if n := len(r.list(running)); n > 0 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	r.settled()
	r.outboxIsEmpty()
	if calm == nil {
		return
	}
	story := r.story(r.shape.unordered)
	maps.DeleteFunc(story, func(name string, _ []string) bool { return strings.HasPrefix(name, "one of many") })
	if told(calm) != told(story) {
		r.t.Errorf("the histories differ. Undisturbed:\n%s\nwith the crash:\n%s", told(calm), told(story))
	}
}

// ---- What happens before and during.

// leaveWaiting runs the shape until it waits for messages in the broker.
func leaveWaiting(r *windowRun) {
	v := r.orchestrate(func(c *orchestrator.Config) {
		r.settings(c)
		c.ShutdownTimeout = patience // it is to end in order
	})
	r.begins(r.shape)
	r.journal.await("committed i: committed", 1)
	r.settled()
	r.outboxIsEmpty()
	if err := v.end(); err != nil {
		r.t.Fatal(err)
	}
}

// leaveOutbox has a first orchestrator die before it publishes what it has committed.
func leaveOutbox(r *windowRun) {
	g := newGate(at("after", "commit"), 1)
	r.gated(g)
	r.begins(r.shape)
	r.await(g.killed, "the first one dies")
}

// loseMessages leaves the shape waiting, and has the broker lose all messages.
func loseMessages(r *windowRun) {
	r.patience = time.Second
	leaveWaiting(r)
	js := r.raw().js
	for _, name := range []string{"RONDO", "RONDO_LATER", "RONDO_TASKS"} {
		stream, err := js.Stream(r.t.Context(), name)
		if err == nil {
			err = stream.Purge(r.t.Context())
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// loseEverything leaves the shape waiting, and deletes all that the broker has.
func loseEverything(r *windowRun) {
	leaveWaiting(r)
	r.config.SessionLease = time.Second // a recovery holds a lease for so long
	r.loseBroker()
}

// sayNonsense begins the shape and sends something that cannot be read.
func sayNonsense(r *windowRun) {
	r.begins(r.shape)
	if err := r.raw().publish("rondo.task-done.nonsense.i", nil, []byte("{}")); err != nil {
		r.t.Fatal(err)
	}
}

// tellToEnd begins the shape and stops the orchestrator in order.
func tellToEnd(r *windowRun) {
	r.begins(r.shape)
	r.journal.await("committed i: committed", 1)
	r.v.stop()
}

// haveAnother runs an orchestrator beside.
func haveAnother(r *windowRun) { r.orchestrate(r.settings) }

// haveIgnorant runs an orchestrator beside that does not have the code.
func haveIgnorant(r *windowRun) {
	r.deploy(basics...)
	r.orchestrate(r.settings)
	r.deploy(orchestrationsOf(r.g)...)
}

// beginMany begins the shape many times, so that both of two orchestrators have some of it.
func beginMany(r *windowRun) {
	r.begins(r.shape)
	for i := range 16 {
		r.start(r.shape.name, fmt.Sprint("one of many ", i), 3)
	}
}
