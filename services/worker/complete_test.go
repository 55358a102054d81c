package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// The result of a task that is redelivered is stored: it may be why its receiver dies, and only the
// broker counts how often it was delivered.
func TestResultsOfRedeliveredTasksAreStored(t *testing.T) {
	c := &completer{prefix: "rondo"}
	for deliveries, want := range map[int]string{1: "there", 2: "", 3: ""} {
		a := &attempt{
			m:    events.Message{Instance: "i"},
			work: &events.Task{Ref: events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2}},
			d:    broker.Delivery{NumDelivered: deliveries, Header: events.Header{events.HeaderDirectReply: {"there"}}},
		}
		wire, err := c.encode(a, events.Message{ID: "m", Content: &events.TaskDone{Ref: a.work.Ref}})
		if err != nil || wire.DirectTo != want {
			t.Errorf("delivery %d: the result goes to %q (%v), want %q", deliveries, wire.DirectTo, err, want)
		}
	}
}

// acks counts acknowledgements.
type acks struct {
	broker.Hold
	n int
}

func (a *acks) Ack() { a.n++ }

// A task is handed over to the worker that held it, but that worker does not have it any more,
// because it was restarted under the same id, say. The task stays with the sender.
func TestNoHoldIsTakenOverWithoutItsTask(t *testing.T) {
	w := &Worker{held: newHeld(), lasted: new(lasted)}
	var hold acks
	if err := w.mine(broker.Delivery{Subject: "rondo.task._.a.1-2.i", Hold: &hold}); err == nil || hold.n > 0 {
		t.Errorf("it takes a task that it does not have (%v), and has acknowledged %d", err, hold.n)
	}
}

// slowBus stores messages once it is released.
type slowBus struct {
	Broker
	release chan struct{}
	answer  error
	stored  atomic.Int64
}

func (b *slowBus) Publish(ctx context.Context, messages ...events.Wire) error {
	select {
	case <-b.release:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.stored.Add(int64(len(messages)))
	return b.answer
}

// completing completes activities.
type completing struct {
	*completer
	held                *held
	publishing, running sync.WaitGroup
}

func newCompleting(ctx context.Context, bus Broker) *completing {
	held := newHeld()
	settler := &settler{held: held, lasted: new(lasted), notes: new(notes)}
	return &completing{held: held, completer: &completer{ctx: ctx, bus: bus, prefix: "rondo", settler: settler,
		log: slog.New(slog.DiscardHandler), finished: make(chan completion, maxFinished),
		room: semaphore.NewWeighted(finishedBytes), refusals: semaphore.NewWeighted(finishedBytes)}}
}

func (c *completing) publish() {
	for range publishers {
		c.publishing.Go(c.run)
	}
}

// ends has the activity of a task return a result, and then calls left.
func (c *completing) ends(instance string, task int64, result codec.Payload, left func()) {
	a := newAttempt(&queue{}, broker.Delivery{Hold: nothing{}}, c.log)
	a.decoded(events.Message{Instance: instance}, &events.Task{Activity: "a",
		Ref: events.Ref{Incarnation: "incarnation", Execution: 1, Event: task}})
	c.held.add(a)
	a.life.move(onCall)
	a.life.move(onReturn)
	c.running.Go(func() {
		c.done(a, result)
		left()
	})
}

// freed checks that nothing takes room once all has ended.
func (c *completing) freed(t *testing.T) {
	t.Helper()
	if !c.room.TryAcquire(finishedBytes) || !c.refusals.TryAcquire(finishedBytes) {
		t.Error("not all of the room is free")
	}
}

// Results that the broker has not stored yet are bounded by their size. Activities with further
// results keep their slots.
func TestResultsWaitWithinBounds(t *testing.T) {
	const results, size = 300, 1 << 20
	large := slices.Repeat([]byte("1"), size)
	for name, x := range map[string]struct {
		ends   bool // the worker ends while they wait
		answer error
		stored int64 // messages that the bus gets, at least
	}{
		"they are stored":    {stored: results},
		"they are refused":   {stored: results, answer: &broker.Refused{}},
		"the worker ends":    {ends: true},
		"they are uncertain": {stored: results, answer: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(context.Background())
				bus := &slowBus{release: make(chan struct{}), answer: x.answer}
				c := newCompleting(ctx, bus)
				c.publish()
				var returned atomic.Int64
				for i := range int64(results) {
					c.ends("i", i+1, large, func() { returned.Add(1) })
				}
				synctest.Wait()
				if n := returned.Load(); n == 0 || n > finishedBytes/size {
					t.Errorf("while nothing is stored, %d activities with %d bytes each have left their slots, "+
						"want at most %d", n, size, finishedBytes/size)
				}
				if x.ends {
					end()
				} else {
					close(bus.release)
				}
				c.running.Wait()
				synctest.Wait()
				end()
				c.publishing.Wait()
				if n := len(c.held.all()); n > 0 {
					t.Errorf("%d tasks are still held", n)
				}
				if n := bus.stored.Load(); n < x.stored {
					t.Errorf("the bus got %d messages, want %d", n, x.stored)
				}
				c.freed(t)
			})
		})
	}
}

// forbiddenBus refuses the results of one instance because of a setting, until that is changed.
type forbiddenBus struct {
	Broker
	instance string
	changed  atomic.Bool
	stored   atomic.Int64 // of the others
}

func (b *forbiddenBus) Publish(_ context.Context, messages ...events.Wire) error {
	refused := new(broker.Refused)
	for _, m := range messages {
		if strings.HasSuffix(m.Subject, b.instance) && !b.changed.Load() {
			refused.Messages = append(refused.Messages, m)
			refused.Reasons = append(refused.Reasons, broker.ErrMisconfigured)
		} else {
			b.stored.Add(1)
		}
	}
	if len(refused.Messages) > 0 {
		return refused
	}
	return nil
}

// Large results that a setting of the broker prevents leave room for others.
func TestLargeResultsThatASettingPreventsHoldUpNoOthers(t *testing.T) {
	const results, size = finishedBytes >> 20, 1 << 20
	large := slices.Repeat([]byte("1"), size-100) // with its subject, it has a MiB at most
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(context.Background())
		bus := &forbiddenBus{instance: "forbidden"}
		c := newCompleting(ctx, bus)
		c.publish()
		done := func(instance string, i int64) { c.ends(instance, i, large, func() {}) }
		for i := range int64(results) {
			done("forbidden", i+1)
		}
		synctest.Wait()
		for i := range int64(3) {
			done("other", i+1)
		}
		synctest.Wait()
		if n := bus.stored.Load(); n != 3 {
			t.Errorf("%d of 3 results of another instance are stored", n)
		}
		bus.changed.Store(true)
		<-time.After(2 * refusedPause)
		c.running.Wait()
		synctest.Wait()
		if n := bus.stored.Load(); n != 3+results {
			t.Errorf("when the setting is changed, %d of %d results are stored", n, 3+results)
		}
		end()
		c.publishing.Wait()
		c.freed(t)
	})
}

// Activities that end after the publishers of the worker leave no task that is neither published
// nor nacked.
func TestResultsAfterTheEndAreNacked(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	end()
	c := newCompleting(ctx, nil)
	for i := range int64(100) {
		c.ends("i", i+1, codec.Payload("1"), func() {})
	}
	c.running.Wait()
	if n := len(c.held.all()); n > 0 {
		t.Errorf("%d of 100 tasks are still held", n)
	}
}
