package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// decision is a turn with its messages, encoded for the broker.
type decision struct {
	entry    *entry
	turn     round.Turn
	messages []events.Wire
	events   int
	bytes    int   // about as much as it writes
	err      error // its messages cannot be encoded

	traced               *traced   // for the spans of the round; nil: it is not traced
	committed, published time.Time // when that was done
	batch                int       // turns that were committed together

	// For metrics:
	times times

	retry turnRetry
}

// deciders are the goroutines that run the code of rounds. One whose code does not return is lost,
// and another takes its place.
type deciders struct {
	config deciderConfig
	rounds *roundMetrics
	log    *slog.Logger
	jobs   chan *entry
	done   chan *decision // to the loop

	mu      sync.Mutex
	watcher *watcher
	busy    map[*job]bool
	lost    int
	limit   int
}

// deciderConfig has the settings of the deciders.
type deciderConfig struct {
	concurrency              int
	runawayAfter, stuckAfter time.Duration
	prefix                   string
	// now returns the time once the clock is right.
	now    func(ctx context.Context) (time.Time, error)
	cpu    func() (used time.Duration, known bool)
	traced bool // spans of rounds are exported
	room   *historyRoom
}

// job is a round that is being decided.
type job struct {
	entry       *entry // its known fields do not change while the job runs
	live        *round.Instance
	row         round.Row // has name and version, also in the first round
	began       time.Time
	seen        *clocks // when the watch saw it first
	interrupted bool
	reported    bool
}

func newJob(e *entry, now time.Time) *job {
	j := &job{entry: e, live: e.live, row: e.known.row(), began: now}
	if len(e.taken) > 0 && j.row.Name == "" {
		if s, ok := e.taken[0].message.Content.(*events.Start); ok {
			j.row.Name, j.row.Version = s.Orchestration, s.Version
		}
	}
	return j
}

// maxLost is how many goroutines may be lost before the process counts as dead.
const maxLost = 16

// jobsAhead is how many jobs wait for the deciders, so that these need not wait for the loop.
const jobsAhead = 64

func newDeciders(config deciderConfig, rounds *roundMetrics, log *slog.Logger) *deciders {
	used, _ := config.cpu()
	return &deciders{
		config: config, rounds: rounds, log: log, jobs: make(chan *entry, jobsAhead), done: make(chan *decision, 64),
		busy: make(map[*job]bool), limit: maxLost,
		watcher: newWatcher(config.runawayAfter/watchTicks, time.Now(), used),
	}
}

// run decides until the context ends. It does not wait for code that does not return, and calls
// stuck for its instance.
func (d *deciders) run(ctx context.Context, stuck func(ctx context.Context, e *entry)) {
	var wait sync.WaitGroup
	for range d.config.concurrency {
		wait.Go(func() { d.work(ctx) })
	}
	tick := time.NewTicker(d.config.runawayAfter / watchTicks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			d.mu.Lock()
			left := len(d.busy)
			d.mu.Unlock()
			if left == 0 {
				wait.Wait()
			}
			return
		case <-tick.C:
			d.watch(ctx, &wait, stuck)
		}
	}
}

func (d *deciders) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.jobs:
			now, err := d.config.now(ctx)
			j := newJob(e, time.Now())
			if err != nil || !d.begins(ctx, j) { // the service ends
				evict(e.live, unwindFor)
				return
			}
			out := d.decide(e, events.Instant(now))
			d.mu.Lock()
			delete(d.busy, j)
			lost := j.reported
			if lost {
				d.lost--
			}
			d.mu.Unlock()
			if ctx.Err() != nil { // the loop does not take it any more, nor end its coroutines
				evict(j.live, unwindFor)
				return
			}
			select {
			case d.done <- out:
			case <-ctx.Done():
				evict(j.live, unwindFor)
				return
			}
			if lost {
				return // another one has taken its place
			}
		}
	}
}

// begins notes that a decider begins with a job, unless the context has ended: then run has counted
// the busy ones, and would wait for the code.
func (d *deciders) begins(ctx context.Context, j *job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	d.busy[j] = true
	d.config.room.release(j.entry)
	return true
}

// decide runs one round, at a time.
func (d *deciders) decide(e *entry, now time.Time) *decision {
	inbox, at := make([]round.Delivery, len(e.taken)), moments(e.taken)
	for i, t := range e.taken {
		inbox[i] = round.Delivery{Message: t.message, Attempts: max(1, t.attempts),
			NumDelivered: max(1, t.delivery.NumDelivered), Moment: at[i]}
		if !t.inside() {
			inbox[i].Age = now.Sub(t.delivery.StoredAt)
			inbox[i].Sent = round.SentAt(t.message.Sent, t.delivery.StoredAt, t.delivery.NotBefore)
		}
	}
	hydrated, x := e.live.Hydrated(), begin(e.taken)
	out := &decision{entry: e, turn: e.live.Decide(inbox, now)}
	x.undecided = time.Now()
	out.times = x
	if d.config.traced && isTraced(&out.turn) {
		out.traced = trace(e, out.turn.Receipts, hydrated, x)
	}
	d.rounds.decided(out, hydrated)
	prefix := d.config.prefix
	for _, m := range out.turn.Messages {
		w, err := events.Encode(prefix, m)
		if err != nil {
			out.err = fmt.Errorf("a message to %q cannot be written: %w", m.Instance, err)
			break
		}
		out.messages = append(out.messages, w)
		out.bytes += len(w.Body) + 512
	}
	for _, x := range out.turn.Executions {
		out.events += len(x.Events)
		for _, v := range x.Events {
			out.bytes += v.Fact.Size() + 128
		}
	}
	return out
}

// evictRest evicts the instances that no decider has started with, or whose decisions the loop has
// not taken. The loop and the deciders have ended; a decider that still runs ends its own.
func (d *deciders) evictRest(evict func(e *entry)) {
	for {
		select {
		case e := <-d.jobs:
			evict(e)
		case x := <-d.done:
			evict(x.entry)
		default:
			return
		}
	}
}

// lostNow counts the goroutines in which the code of an instance has not returned.
func (d *deciders) lostNow() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// live tells whether enough goroutines are left.
func (d *deciders) live() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost >= d.limit {
		return fmt.Errorf("the code of %d instances does not return", d.lost)
	}
	return nil
}
