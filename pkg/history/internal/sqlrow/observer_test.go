package sqlrow

import (
	"errors"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
)

func operate(o Observer, fails error) (err error) {
	defer o.Begin("load").End(&err)
	return fails
}

// TestObserverDoesNotAllocate, with an observer and without one.
func TestObserverDoesNotAllocate(t *testing.T) {
	racetest.TooMuch(t)
	fails, n := errors.New("it fails"), 0
	for _, o := range []Observer{nil, func(op string, took time.Duration, err error) {
		if op == "load" && took >= 0 && err == fails {
			n++
		}
	}} {
		if allocs := testing.AllocsPerRun(100, func() { _ = operate(o, fails) }); allocs != 0 {
			t.Errorf("%v allocations in an operation, observed: %t", allocs, o != nil)
		}
	}
	if n != 101 { // AllocsPerRun calls once more
		t.Errorf("%d of 101 operations were observed", n)
	}
}

func BenchmarkObserver(b *testing.B) {
	for name, o := range map[string]Observer{"none": nil, "empty": func(string, time.Duration, error) {}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = operate(o, nil)
			}
		})
	}
}
