package worker

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/services/worker/scheduler"
)

// tasks has the tasks that slots has executed and refused.
type tasks struct {
	*slots
	begun, refused chan *attempt
}

func newTasks(c Config) *tasks {
	t := &tasks{begun: make(chan *attempt, 10), refused: make(chan *attempt, 10)}
	t.slots = newSlots(c, func(a *attempt) { t.begun <- a }, func(a *attempt) { t.refused <- a })
	return t
}

// arrives is a task that the worker has not requested.
func (s *tasks) arrives(q scheduler.QueueID, patience time.Duration) *attempt {
	a := new(attempt)
	s.received(q, nil, a, patience)
	return a
}

func is(t *testing.T, c <-chan *attempt, want *attempt, what string) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Errorf("another task is %s", what)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no task is %s", what)
	}
}

func TestSlotsAreReservedForBusyQueuesForAMoment(t *testing.T) {
	s := newTasks(Config{Slots: 10})
	a, b := s.add(broker.TaskQueueName{Activity: "a"}), s.add(broker.TaskQueueName{Activity: "b"})
	f, _ := s.ask(t.Context(), a)
	f.answered(f.N) // it has brought all that it requested
	f, _ = s.ask(t.Context(), a)
	if f.N != 10 || f.timer == nil { // Reserved needs the lock: the timer releases the slots
		t.Errorf("it may fetch %d, reserved: %t", f.N, f.timer != nil)
	}
	late := make(chan struct{})
	go func() {
		defer close(late)
		if _, ok := s.ask(t.Context(), b); !ok {
			t.Error("the other queue may not ask")
		}
	}()
	select {
	case <-late: // when the reservation has ended
	case <-time.After(time.Minute):
		t.Fatal("the reservation does not end")
	}
	f.answered(0)
}

func TestAFreeSlotLetsAllIdleQueuesAsk(t *testing.T) {
	s := newTasks(Config{Slots: 1})
	var queues []scheduler.QueueID
	for _, name := range []string{"a", "b", "c"} {
		queues = append(queues, s.add(broker.TaskQueueName{Activity: name}))
	}
	is(t, s.begun, s.arrives(queues[0], time.Minute), "executed")
	granted := make(chan int, 3)
	for _, q := range queues {
		go func() {
			f, _ := s.ask(t.Context(), q)
			granted <- f.N
		}()
	}
	s.freed(queues[0], time.Minute)
	for range 3 {
		select {
		case n := <-granted:
			if n != 1 {
				t.Errorf("it may fetch %d", n)
			}
		case <-time.After(time.Minute):
			t.Fatal("a queue may not ask, though a slot is free")
		}
	}
}

func TestATaskWithoutASlotWaitsAndIsThenRefused(t *testing.T) {
	s := newTasks(Config{Slots: 1})
	q := s.add(broker.TaskQueueName{Activity: "a"})
	first := s.arrives(q, time.Minute)
	second, third := s.arrives(q, time.Millisecond), s.arrives(q, time.Minute)
	is(t, s.begun, first, "executed")
	is(t, s.refused, second, "refused")
	s.freed(q, time.Minute)
	is(t, s.begun, third, "executed")
	fourth := s.arrives(q, time.Minute)
	s.close()
	is(t, s.refused, fourth, "refused")
	is(t, s.refused, s.arrives(q, time.Minute), "refused")
	if s.used() != 1 {
		t.Errorf("%d slots are used", s.used())
	}
	if len(s.patience) != 0 {
		t.Errorf("%d timers are left", len(s.patience))
	}
}

func TestAskingEndsWithTheContext(t *testing.T) {
	s := newTasks(Config{Slots: 1, RatePerActivity: map[string]float64{"a": 0.001}})
	q := s.add(broker.TaskQueueName{Activity: "a"})
	if after := s.received(q, nil, new(attempt), 0); after != 0 {
		t.Errorf("the first must wait for %v", after)
	}
	if after := s.received(q, nil, new(attempt), 0); after < 10*time.Minute {
		t.Errorf("the second must wait for %v", after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, ok := s.ask(ctx, q); ok {
		t.Errorf("it may fetch %d", f.N)
	}
}
