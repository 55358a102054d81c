package jobserver

import (
	"testing"
	"time"
)

func TestEachCallerHasItsOwnLimit(t *testing.T) {
	clock := newManual()
	l := newLimits(clock.now, 10)
	fast, usual, slow := &Caller{Name: "fast", Rate: 100}, &Caller{Name: "usual"}, &Caller{Name: "slow", Rate: 0.25}
	count := func(c *Caller) (n int, wait time.Duration) {
		for ; n < 1000; n++ {
			if wait = l.wait(c); wait > 0 {
				break
			}
		}
		return n, wait
	}
	for _, want := range []struct {
		c    *Caller
		n    int
		wait time.Duration
	}{{fast, 200, 10 * time.Millisecond}, {usual, 20, 100 * time.Millisecond}, {slow, 1, 4 * time.Second}} {
		if n, wait := count(want.c); n != want.n || wait != want.wait {
			t.Errorf("%s: %d at once, and then wait %v; want %d and %v", want.c.Name, n, wait, want.n, want.wait)
		}
	}
	clock.pass(time.Second)
	if n, _ := count(fast); n != 100 {
		t.Errorf("after a second, %d", n)
	}
	if n, wait := count(slow); n != 0 || wait != 3*time.Second {
		t.Errorf("who was refused has to wait longer for it: %d, %v", n, wait)
	}
	usual.Rate = 50 // the file was read again
	clock.pass(time.Minute)
	if n, wait := count(usual); n != 20 || wait != 20*time.Millisecond {
		t.Errorf("with another rate: %d that it had saved up, and then %v", n, wait)
	}
	clock.pass(time.Minute)
	if n, _ := count(usual); n != 100 {
		t.Errorf("with another rate, after a minute: %d", n)
	}
}

func TestWithoutARateThereIsNoLimit(t *testing.T) {
	l := newLimits(newManual().now, 0)
	for range 10_000 {
		if wait := l.wait(&Caller{Name: "x"}); wait != 0 {
			t.Fatal(wait)
		}
	}
	one := newLimits(newManual().now, 0.5)
	if first, second := one.wait(nil), one.wait(nil); first != 0 || second != 2*time.Second {
		t.Errorf("those who are not asked who they are: %v, %v", first, second)
	}
	huge := newLimits(newManual().now, 1e300)
	if wait := huge.wait(&Caller{Name: "x"}); wait != 0 {
		t.Fatal(wait)
	}
}
