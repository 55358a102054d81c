package maintenance

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// namedBroker is a broker with a prefix, whose flag recovered is not set.
type namedBroker struct{ valueBroker }

func (*namedBroker) Prefix() string { return "rondo" }

// timedStore notes until when something is leased, and before what moment it looks for the last
// update.
type timedStore struct {
	history.Store
	mu    sync.Mutex
	times []time.Time
}

func (s *timedStore) note(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, at)
}

func (s *timedStore) LeaseOutbox(_ context.Context, take history.Lease) ([]history.OutboxEntry, error) {
	s.note(take.Until)
	return nil, nil
}

func (s *timedStore) LeaseOverdue(_ context.Context, take history.Lease) ([]history.Overdue, error) {
	s.note(take.Until)
	return nil, nil
}

func (s *timedStore) LastUpdate(_ context.Context, before time.Time) (time.Time, error) {
	s.note(before)
	return before, nil
}

func (s *timedStore) List(context.Context, history.Filter, history.Page) (history.InstanceList, error) {
	return history.InstanceList{}, nil
}

// While the clock may be wrong, nothing is leased: an entry or an instance that is leased until a
// moment years ahead would be looked after only then. The leases have the time of the right clock.
func TestSweepsWaitForARightClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right, now := make(chan struct{}), time.Now().AddDate(0, 0, 1)
		b, s := &namedBroker{}, &timedStore{}
		k := New(b, s, Config{By: "me", Limit: 10, Logger: slog.New(slog.DiscardHandler),
			Background: func(f func(context.Context)) { f(t.Context()) },
			Clock: func(ctx context.Context) (time.Time, error) {
				select {
				case <-right:
					return now, nil
				case <-ctx.Done():
					return now, ctx.Err()
				}
			}})
		var wait sync.WaitGroup
		for _, do := range []func(context.Context) error{k.sweep, k.heal, k.recover} {
			wait.Go(func() {
				if err := do(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if len(s.times) > 0 {
			t.Errorf("with a wrong clock, the store is asked for %v", s.times)
		}
		close(right)
		wait.Wait()
		for _, at := range s.times {
			if at.Sub(now).Abs() > time.Hour {
				t.Errorf("the store is asked for %v at %v", at, now)
			}
		}
		if len(s.times) != 3 {
			t.Errorf("the store was asked %d times, want 3", len(s.times))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		right = make(chan struct{})
		if err := k.heal(ctx); err == nil {
			t.Error("an orchestrator that ends leases something with a wrong clock")
		}
	})
}

// No regular job begins before the clock allows it.
func TestRegularJobsWaitForTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := New(&namedBroker{}, &timedStore{}, Config{Logger: slog.New(slog.DiscardHandler),
			Jitter: func(string, time.Duration) time.Duration { return 0 },
			Clock: func(ctx context.Context) (time.Time, error) {
				<-ctx.Done()
				return time.Time{}, ctx.Err()
			}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.regularly(ctx, time.Second, "removing", func(context.Context) error {
				t.Error("it was done")
				return nil
			})
		}()
		<-time.After(time.Hour)
		cancel()
		<-ended
	})
}
