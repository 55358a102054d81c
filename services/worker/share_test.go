package worker

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

func TestIdleQueuesKeepNobodyFromAsking(t *testing.T) {
	l := newLimits(Config{Slots: 1})
	a, b, c := l.line(broker.Queue{Activity: "a"}), l.line(broker.Queue{Activity: "b"}),
		l.line(broker.Queue{Activity: "c"})
	taken := make(chan struct{})
	l.arrive(a, l.ask(t.Context(), a), time.Minute, func() { close(taken) }, func() { t.Error("it got no slot") })
	<-taken
	granted := make(chan *grant, 3)
	for _, n := range []*line{a, b, c} {
		go func() { granted <- l.ask(t.Context(), n) }()
	}
	for ready := false; !ready; {
		l.mu.Lock()
		ready = len(l.hungry) == 3
		l.mu.Unlock()
	}
	l.release(a, time.Minute)
	for range 3 {
		select {
		case g := <-granted:
			if g.n != 1 || g.promised != 0 {
				t.Errorf("it may take %d, of which %d are promised", g.n, g.promised)
			}
		case <-time.After(time.Minute):
			t.Fatal("a queue may not ask, though a slot is free")
		}
	}
}

func TestSlotsArePromisedToBusyQueuesForAMoment(t *testing.T) {
	l := newLimits(Config{Slots: 10})
	a, b := l.line(broker.Queue{Activity: "a"}), l.line(broker.Queue{Activity: "b"})
	g := l.ask(t.Context(), a)
	if g.n != 5 {
		t.Errorf("one of two idle queues may take %d of 10", g.n)
	}
	g.close(g.n)
	g = l.ask(t.Context(), a) // it has brought all it asked for
	if g.n != 10 || g.promised != 10 {
		t.Errorf("it may take %d, %d are promised", g.n, g.promised)
	}
	late := make(chan struct{})
	go func() {
		defer close(late)
		if l.ask(t.Context(), b) == nil {
			t.Error("the other queue may not ask")
		}
	}()
	select {
	case <-late: // when the promise has ended
	case <-time.After(time.Minute):
		t.Fatal("the promise does not end")
	}
	g.close(0)
	if a.loaded || l.all.promised != 0 {
		t.Errorf("loaded %v, promised %d", a.loaded, l.all.promised)
	}
}

func TestADeliveryWithoutASlotStandsAndThenGoesBack(t *testing.T) {
	l := newLimits(Config{Slots: 1})
	n := l.line(broker.Queue{Activity: "a"})
	begun, lost := make(chan int, 3), make(chan int, 3)
	arrive := func(i int, patience time.Duration) {
		l.arrive(n, nil, patience, func() { begun <- i }, func() { lost <- i })
	}
	arrive(1, time.Minute)
	arrive(2, time.Millisecond)
	arrive(3, time.Minute)
	if i := <-begun; i != 1 {
		t.Errorf("%d has begun", i)
	}
	if i := <-lost; i != 2 {
		t.Errorf("%d has gone back", i)
	}
	l.release(n, time.Minute)
	if i := <-begun; i != 3 {
		t.Errorf("%d has begun", i)
	}
	arrive(4, time.Minute)
	l.close()
	if i := <-lost; i != 4 {
		t.Errorf("%d has gone back", i)
	}
	arrive(5, time.Minute)
	if i := <-lost; i != 5 {
		t.Errorf("%d has gone back", i)
	}
	if l.used() != 1 {
		t.Errorf("%d slots are taken", l.used())
	}
}

func TestAskingEndsWithTheContext(t *testing.T) {
	l := newLimits(Config{Slots: 1, RatePerActivity: map[string]float64{"a": 0.001}})
	n := l.line(broker.Queue{Activity: "a"})
	if after := l.arrive(n, nil, 0, func() {}, nil); after != 0 {
		t.Errorf("the first must wait for %v", after)
	}
	if after := l.arrive(n, nil, 0, nil, nil); after < 10*time.Minute {
		t.Errorf("the second must wait for %v", after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if g := l.ask(ctx, n); g != nil || len(l.hungry) != 0 {
		t.Errorf("got %+v", g)
	}
}
