// Package slowtest tells tests how long the machine stood still: how much too late a goroutine that
// only sleeps was woken, and how long the disk took for a write that usually takes no time. A test
// with a deadline subtracts that, so that it fails for the code, and not for other work of the
// machine. It also spares the machine: tests look less often where a look takes long, and fewer of
// them run at once where everything does.
package slowtest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	every  = 20 * time.Millisecond  // how often it looks
	usual  = 100 * time.Millisecond // a look that takes no longer is no stall
	record = 4096                   // how much is written for a look at the disk
)

// A Watch looks at the machine until its test ends.
type Watch struct {
	mutex  sync.Mutex
	stalls []stall
}

type stall struct{ from, to time.Time }

// Begin starts a watch.
func Begin(tb testing.TB) *Watch {
	tb.Helper()
	f, err := os.Create(filepath.Join(tb.TempDir(), "stall"))
	if err != nil {
		tb.Fatal(err)
	}
	w := new(Watch)
	end := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() { w.watch(end, func() {}) })
	both.Go(func() {
		w.watch(end, func() {
			if _, err := f.WriteAt(make([]byte, record), 0); err != nil {
				tb.Error(err)
			} else if err = f.Sync(); err != nil {
				tb.Error(err)
			}
		})
	})
	tb.Cleanup(func() {
		close(end)
		both.Wait()
		_ = f.Close() // its content is worth nothing
	})
	return w
}

// watch calls do again and again, and notes calls that took longer than usual.
func (w *Watch) watch(end <-chan struct{}, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := time.Now()
	for {
		do()
		select {
		case <-tick.C:
		case <-end:
			return
		}
		now := time.Now()
		if now.Sub(before) > usual {
			w.mutex.Lock()
			w.stalls = append(w.stalls, stall{before, now})
			w.mutex.Unlock()
		}
		before = now
	}
}

// Since returns how long the machine has stood still since then, as far as is known: a stall is not
// seen before it ends.
func (w *Watch) Since(then time.Time) time.Duration {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var lost time.Duration
	for _, s := range w.stalls { // in the order in which they ended; both looks may see the same one
		if s.to.After(then) {
			lost += s.to.Sub(later(s.from, then))
			then = s.to
		}
	}
	return lost
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
