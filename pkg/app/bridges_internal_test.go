package app

import (
	"testing"
	"time"
)

// TestPushesEndBeforeTheProcess: the pusher of an orchestrator nacks the pushes that are left, and
// so needs time after those that go on: it must not use up the shutdown timeout.
func TestPushesEndBeforeTheProcess(t *testing.T) {
	const nacks = 6 * time.Second // of a worker, at the end
	for _, timeout := range []time.Duration{20 * time.Second, time.Minute, time.Hour} {
		if all := pushesWithin(timeout) + pusherGrace + nacks; all > timeout {
			t.Errorf("with a timeout of %v, the pusher needs %v", timeout, all)
		}
	}
	if pushesWithin(1) <= 0 {
		t.Error("a worker refuses a timeout of 0")
	}
}
