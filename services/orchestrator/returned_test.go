package orchestrator

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// A nacked message is remembered by its sequence and its time of storage, and the more there are,
// the longer each waits.
func TestReturnedMessagesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReturned()
		at := func(place uint64) broker.Delivery { return broker.Delivery{Sequence: place, StoredAt: time.Unix(1, 0)} }
		for place := range uint64(2 * returnRate) {
			r.note(at(place), time.Second)
		}
		r.note(at(7), time.Second)
		if got := r.spread(); got != 2*time.Second {
			t.Errorf("twice as many as come again in a second wait %v", got)
		}
		other := at(7)
		other.StoredAt = time.Unix(2, 0) // the broker has lost everything, and counts from one again
		if a, b, c := r.times(at(7)), r.times(at(8)), r.times(other); a != 2 || b != 1 || c != 0 {
			t.Errorf("they were nacked %d, %d and %d times", a, b, c)
		}
		r.forget(at(7))
		if n := r.times(at(7)); n != 0 {
			t.Errorf("one that was settled is remembered %d times", n)
		}
		<-time.After(returnedFor + forgetEvery)
		r.note(at(1), time.Second)
		if got := r.spread(); got != time.Second/returnRate {
			t.Errorf("those that did not come again still count: %v", got)
		}
	})
}

// Of messages that are nacked at the same moment, no two come back at once.
func TestMessagesNackedTogetherAreSpread(t *testing.T) {
	const n = 1000
	r := newReturned()
	var mu sync.Mutex
	delays := make(map[time.Duration]int)
	var all sync.WaitGroup
	for place := range uint64(n) {
		all.Go(func() {
			after := r.delay(broker.Delivery{Sequence: place, StoredAt: time.Unix(1, 0)}, 0)
			mu.Lock()
			delays[after]++
			mu.Unlock()
		})
	}
	all.Wait()
	if len(delays) != n {
		t.Errorf("%d messages have %d delays", n, len(delays))
	}
}
