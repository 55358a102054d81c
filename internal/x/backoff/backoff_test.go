package backoff

import (
	"math"
	"testing"
	"time"
)

func TestDelaysDoubleUpToTheMost(t *testing.T) {
	b := Backoff{First: 50 * time.Millisecond, Most: time.Second}
	for more, want := range map[int]time.Duration{
		-1: 50 * time.Millisecond, 0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 4: 800 * time.Millisecond,
		5: time.Second, 6: time.Second, math.MaxInt: time.Second,
	} {
		if got := b.After(more); got != want {
			t.Errorf("after %d more failures the delay is %v, want %v", more, got, want)
		}
	}
}
