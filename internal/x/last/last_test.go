package last_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/x/last"
)

func TestDueOncePerInterval(t *testing.T) {
	var l last.Time
	if !l.Get().IsZero() {
		t.Errorf("before anything was done: %v", l.Get())
	}
	began := time.Now()
	for _, x := range []struct {
		after time.Duration
		due   bool
	}{{0, true}, {0, false}, {time.Second - 1, false}, {time.Second, true}, {2*time.Second - 1, false}} {
		if due := l.Due(began.Add(x.after), time.Second); due != x.due {
			t.Errorf("after %v: due is %v", x.after, due)
		}
	}
	l.Forget()
	if !l.Due(began, time.Second) {
		t.Error("it is not due after it was forgotten")
	}
}

func TestOneOfManyIsDue(t *testing.T) {
	var l last.Time
	var due atomic.Int64
	var wait sync.WaitGroup
	now := time.Now()
	for range 20 {
		wait.Go(func() {
			if l.Due(now, time.Hour) {
				due.Add(1)
			}
		})
	}
	wait.Wait()
	if due.Load() != 1 {
		t.Errorf("%d of 20 are due", due.Load())
	}
}

// A clock that is set back by an hour must not make everything wait for an hour.
func TestTheMonotonicReadingIsKept(t *testing.T) {
	var l last.Time
	now := time.Now()
	if l.Set(now); l.Get() != now { // == compares the monotonic readings, too
		t.Errorf("%v is kept as %v", now, l.Get())
	}
}
