package worker

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// asking is a queue's goroutine: it asks again and again, and takes as much as it may.
type asking struct {
	t      *testing.T
	limits *limits
	line   *line
	begun  chan struct{}
	lost   chan struct{}
}

func newAsking(t *testing.T, l *limits, activity string) *asking {
	return &asking{t, l, l.line(broker.Queue{Activity: activity}), make(chan struct{}, 100), make(chan struct{}, 100)}
}

// ask gives how much the queue may take now, nil if it has to wait.
func (a *asking) ask() *grant {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	granted := make(chan *grant, 1)
	go func() { granted <- a.limits.ask(ctx, a.line) }()
	for {
		select {
		case g := <-granted:
			cancel()
			return g
		default:
		}
		a.limits.mu.Lock()
		waits := a.line.hungry
		a.limits.mu.Unlock()
		if waits {
			cancel()
			return <-granted
		}
	}
}

// take asks, and takes all of it in. It gives how much that was.
func (a *asking) take(patience time.Duration) int {
	a.t.Helper()
	g := a.ask()
	if g == nil {
		return 0
	}
	for range g.n {
		a.limits.arrive(a.line, g, patience, func() { a.begun <- struct{}{} }, func() { a.lost <- struct{}{} })
	}
	g.close(g.n)
	return g.n
}

// wants compares how much may be taken.
func (a *asking) wants(n int, patience time.Duration, when string) {
	a.t.Helper()
	if got := a.take(patience); got != n {
		a.t.Fatalf("%s: %d are taken, want %d", when, got, n)
	}
}

func (a *asking) begins(n int) {
	a.t.Helper()
	for range n {
		select {
		case <-a.begun:
		case <-time.After(time.Minute):
			a.t.Fatal("nothing begins")
		}
	}
}

func (a *asking) beginsNothing() {
	a.t.Helper()
	select {
	case <-a.begun:
		a.t.Fatal("more begin than there are slots")
	default:
	}
}

func TestQuickWorkIsTakenAhead(t *testing.T) {
	t.Parallel()
	l := newLimits(Config{Slots: 2})
	a := newAsking(t, l, "a")
	a.wants(2, time.Hour, "two slots")
	a.begins(2)
	a.wants(0, time.Hour, "nobody knows how long it takes")
	l.release(a.line, time.Millisecond)
	a.wants(1, time.Hour, "a free slot")
	a.begins(1)
	a.wants(1, time.Hour, "it is quick")
	a.beginsNothing()
	a.wants(0, time.Hour, "one stands")
	l.release(a.line, time.Millisecond)
	a.begins(1)
	a.wants(1, time.Millisecond, "none stands any more")
	select {
	case <-a.lost:
	case <-time.After(time.Minute):
		t.Fatal("it does not go back")
	}
	a.wants(0, time.Hour, "it was not quick after all")
	for range 60 {
		l.release(a.line, time.Millisecond)
		a.wants(1, time.Hour, "a free slot")
		a.begins(1)
	}
	a.wants(1, time.Hour, "it is quick again")
}

func TestNothingIsTakenAheadOfOthers(t *testing.T) {
	t.Parallel()
	l := newLimits(Config{Slots: 1})
	a, b := newAsking(t, l, "a"), newAsking(t, l, "b")
	a.wants(1, time.Hour, "a slot")
	a.begins(1)
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan *grant, 1)
	go func() { waits <- l.ask(ctx, b.line) }()
	for hungry := false; !hungry; {
		l.mu.Lock()
		hungry = b.line.hungry
		l.mu.Unlock()
	}
	l.mu.Lock()
	a.line.note(time.Millisecond)
	l.mu.Unlock()
	a.wants(0, time.Hour, "somebody else waits")
	l.release(a.line, time.Millisecond)
	if g := <-waits; g == nil || g.n != 1 {
		t.Errorf("the one who waits may take %+v", g)
	}
	cancel()
	a.wants(1, time.Hour, "the slot is free as long as nothing has come")
	a.begins(1)
	a.wants(1, time.Hour, "nobody waits")
	a.beginsNothing()
}

func TestHowMuchIsTakenAhead(t *testing.T) {
	t.Parallel()
	l := newLimits(Config{Slots: 100})
	a := newAsking(t, l, "a")
	a.wants(100, time.Hour, "all slots")
	a.begins(100)
	l.mu.Lock()
	a.line.note(time.Millisecond)
	l.mu.Unlock()
	a.wants(12, time.Hour, "an eighth of the slots")
	for range 5 {
		l.release(a.line, time.Millisecond)
		a.begins(1)
		a.wants(0, time.Hour, "not for each of them alone")
	}
	l.release(a.line, time.Millisecond)
	a.begins(1)
	a.wants(6, time.Hour, "for half of them")
	a.beginsNothing()
	l.mu.Lock()
	a.line.takes = soon + 1
	l.mu.Unlock()
	l.release(a.line, time.Second)
	a.begins(1)
	a.wants(0, time.Hour, "it takes long")
	l.close()
	for range 11 {
		select {
		case <-a.lost:
		case <-time.After(time.Minute):
			t.Fatal("what stands does not go back at the end")
		}
	}
}
