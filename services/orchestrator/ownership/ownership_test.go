package ownership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// changing is a broker with one partition, and, from the second look on, with two. It is also the
// consumer, which waits when the owned partitions are set.
type changing struct {
	broker.Handovers
	changed chan struct{}
	waits   time.Duration

	mu     sync.Mutex
	looks  int
	events []string
	others []broker.Member
	fault  error
}

func (c *changing) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, what)
}

func (c *changing) Join(context.Context, broker.Member) (broker.Membership, error) { return c, nil }
func (c *changing) Leave(context.Context) error                                    { return nil }
func (c *changing) Changed() <-chan struct{}                                       { return c.changed }

func (c *changing) Fault() error { return c.fault }
func (c *changing) Members() []broker.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]broker.Member{{ID: "this", Engine: 1}}, c.others...)
}

func (c *changing) Partitions(context.Context) (broker.Partitions, error) {
	c.note("look")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return broker.Partitions{Count: min(c.looks, 2)}, nil
}

func (c *changing) Receive(ctx context.Context, _ int, _ func(broker.Delivery)) error {
	<-ctx.Done()
	return nil
}

func (c *changing) SetOwned(map[int]bool) bool {
	c.note("own")
	<-time.After(c.waits)
	return true
}

// TestPartitionsAreReadBeforeTheyAreAssigned: while the orchestrator waits for what it was doing,
// the members change, and the time comes to read the partitions. It reads them first: otherwise it
// would assign outdated ones.
func TestPartitionsAreReadBeforeTheyAreAssigned(t *testing.T) {
	for range 30 { // a select with two ready cases would pass every second time
		synctest.Test(t, func(t *testing.T) {
			c := &changing{changed: make(chan struct{}, 1), waits: lookEvery + time.Second}
			w := &Ownership{self: broker.Member{ID: "this", Engine: 1}, broker: c, members: c,
				log: slog.New(slog.DiscardHandler), receivers: make(map[int]*receiving)}
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				w.Run(ctx, consumer{c})
			}()
			<-time.After(time.Second)
			c.mu.Lock()
			c.others = []broker.Member{{ID: "this, too", Engine: 2}} // it owns all
			c.mu.Unlock()
			c.changed <- struct{}{}
			<-time.After(lookEvery + time.Second)
			c.mu.Lock()
			events := slices.Clone(c.events)
			c.mu.Unlock()
			if want := []string{"look", "own", "look", "own"}; !slices.Equal(events, want) {
				t.Errorf("it did %q, want %q", events, want)
			}
			end()
			<-ended
		})
	}
}

// TestPartitionsAreReadEveryFewSeconds: the number of partitions changes, and no member does. The
// orchestrator knows the number within ten seconds.
func TestPartitionsAreReadEveryFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{changed: make(chan struct{}, 1)}
		w := &Ownership{self: broker.Member{ID: "this", Engine: 1}, broker: c, members: c,
			log: slog.New(slog.DiscardHandler), receivers: make(map[int]*receiving)}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx, consumer{c})
		}()
		<-time.After(10 * time.Second)
		c.mu.Lock()
		events := slices.Clone(c.events)
		c.mu.Unlock()
		if want := []string{"look", "own", "look", "own"}; !slices.Equal(events[:min(4, len(events))], want) {
			t.Errorf("it did %q, want %q", events, want)
		}
		end()
		<-ended
	})
}

// TestAMemberThatOthersCannotSeeIsNotReady: an orchestrator whose membership is not stored says so.
func TestAMemberThatOthersCannotSeeIsNotReady(t *testing.T) {
	c := &changing{}
	w := &Ownership{members: c, known: true}
	if err := w.Ready(); err != nil {
		t.Error(err)
	}
	c.fault = errors.New("the disk is full")
	if err := w.Ready(); !errors.Is(err, c.fault) {
		t.Errorf("ready with %v", err)
	}
}

type consumer struct{ *changing }

func (c consumer) Receive(context.Context, broker.Delivery) {}
func (c consumer) TakeOver(broker.Delivery) error           { return nil }

// lateJoin is a broker that responds too late to the first attempts to join. It counts the
// subscriptions to handovers.
type lateJoin struct {
	changing
	late          int
	subscriptions int
}

func (l *lateJoin) ReceiveHandovers(broker.HandoverKind, string, func(broker.Delivery) error) (func(), error) {
	l.subscriptions++
	return func() { l.subscriptions-- }, nil
}

func (l *lateJoin) Join(context.Context, broker.Member) (broker.Membership, error) {
	if l.late--; l.late >= 0 {
		return nil, context.DeadlineExceeded
	}
	return l, nil
}

// TestJoiningAgainReceivesHandoversOnce: each message that another orchestrator forwards must be
// taken once, however often joining was tried.
func TestJoiningAgainReceivesHandoversOnce(t *testing.T) {
	b := &lateJoin{late: 2}
	w := &Ownership{self: broker.Member{ID: "this"}, broker: b, log: slog.New(slog.DiscardHandler)}
	for range 2 {
		if err := w.Join(t.Context(), consumer{&b.changing}); err == nil || b.subscriptions != 0 {
			t.Errorf("it has %d subscriptions, %v; want none after an error", b.subscriptions, err)
		}
	}
	if err := w.Join(t.Context(), consumer{&b.changing}); err != nil || b.subscriptions != 1 {
		t.Errorf("it has %d subscriptions, %v; want one", b.subscriptions, err)
	}
	w.Leave(t.Context(), time.Second)
	if b.subscriptions != 0 {
		t.Errorf("it has %d subscriptions after it has left", b.subscriptions)
	}
}
