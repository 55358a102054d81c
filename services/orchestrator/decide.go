package orchestrator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// decision is a turn with the messages it promises as the broker takes them.
type decision struct {
	entry    *entry
	turn     round.Turn
	promises []events.Wire
	events   int
	bytes    int   // about as much as it writes
	err      error // what it promises cannot be written

	told                 *told     // for whoever follows the trace, if anybody does
	committed, published time.Time // when that was done
	batch                int       // turns that were committed together

	// For metrics:
	times    times
	repeated map[string]bool // the ids of the messages that start something again and again

	refused  time.Time // when others were let go first, because the store did not take it alone again and again
	refusals int       // how often
	tries    int       // since it is taken for why
}

// deciders are the goroutines that let code go on. One whose code does not come back is lost, and
// another takes its place.
type deciders struct {
	o    *Orchestrator
	jobs chan *entry

	mu      sync.Mutex
	watcher *watcher
	busy    map[*job]bool
	lost    int
	limit   int
}

// job is a round that is being decided.
type job struct {
	entry       *entry // of which what is known stays as it is while the job goes on
	live        *round.Instance
	seen        *clocks // when the watch saw it first
	interrupted bool
	reported    bool
}

// maxLost is how many goroutines may be lost before the process counts as dead.
const maxLost = 16

// jobsAhead is how many jobs wait for the deciders, so that these need not wait for the loop.
const jobsAhead = 64

func newDeciders(o *Orchestrator) *deciders {
	used, _ := o.config.CPU()
	return &deciders{
		o: o, jobs: make(chan *entry, jobsAhead), busy: make(map[*job]bool), limit: maxLost,
		watcher: newWatcher(o.config.RunawayAfter/watchTicks, time.Now(), used),
	}
}

// run decides until the context ends. It does not wait for code that does not come back.
func (d *deciders) run(ctx context.Context) {
	var wait sync.WaitGroup
	for range d.o.config.Deciders {
		wait.Go(func() { d.work(ctx) })
	}
	tick := time.NewTicker(d.o.config.RunawayAfter / watchTicks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			d.mu.Lock()
			stuck := len(d.busy)
			d.mu.Unlock()
			if stuck == 0 {
				wait.Wait()
			}
			return
		case <-tick.C:
			d.watch(ctx, &wait)
		}
	}
}

func (d *deciders) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.jobs:
			j := &job{entry: e, live: e.live}
			d.mu.Lock()
			d.busy[j] = true
			d.mu.Unlock()
			out := d.decide(e)
			d.mu.Lock()
			delete(d.busy, j)
			lost := j.reported
			if lost {
				d.lost--
			}
			d.mu.Unlock()
			if ctx.Err() != nil { // the loop does not take it any more, nor end its coroutines
				j.live.Evict()
				return
			}
			select {
			case d.o.loop.decided <- out:
			case <-ctx.Done():
				j.live.Evict()
				return
			}
			if lost {
				return // another one has taken its place
			}
		}
	}
}

// decide runs one round.
func (d *deciders) decide(e *entry) *decision {
	now := events.Instant(d.o.config.Now())
	inbox := make([]round.Delivery, len(e.taken))
	for i, t := range e.taken {
		inbox[i] = round.Delivery{Message: t.message, Attempts: max(1, t.attempts),
			NumDelivered: max(1, t.delivery.NumDelivered)}
		if !t.inside() {
			inbox[i].Age = now.Sub(t.delivery.StoredAt)
			inbox[i].Sent = round.SentAt(t.message.Sent, t.delivery.StoredAt, t.delivery.NotBefore)
		}
	}
	hydrated, x := e.live.Hydrated(), begin(e.taken)
	out := &decision{entry: e, turn: e.live.Decide(inbox, now)}
	x.undecided = time.Now()
	out.times = x
	if d.o.config.Tracer != nil && isTraced(&out.turn) {
		out.told = tell(e, out.turn.Receipts, hydrated, x)
	}
	d.o.measureRound(out, hydrated)
	prefix := d.o.broker.Prefix()
	for _, m := range out.turn.Messages {
		w, err := events.Encode(prefix, m)
		if err != nil {
			out.err = fmt.Errorf("a message to %q cannot be written: %w", m.Instance, err)
			break
		}
		out.promises = append(out.promises, w)
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

// live tells whether enough goroutines are left.
func (d *deciders) live() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost >= d.limit {
		return fmt.Errorf("the code of %d instances does not come back", d.lost)
	}
	return nil
}
