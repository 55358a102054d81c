package slowtest

import (
	"sync"
	"testing"
	"time"
)

const (
	always = 3                     // so many tests have room on any machine
	nap    = 10 * time.Millisecond // how long the sleeper sleeps
	memory = 100                   // over about how many naps it is remembered how late it was woken
	late   = nap                   // as late as this, on average, and the machine does not keep up
	enough = 2 * time.Minute       // after this a test has room all the same: it may be part of one that waits for it
	// more than always come no sooner after each other than this: what one does to the machine
	// shows only then
	gap = time.Second / 4
	// so late, on average, is a sleeper woken on a machine that is busy with what it keeps up with
	slow = 5 * time.Millisecond
)

// Slowest is how slow a machine may become, as Pace counts it.
const Slowest = 5

// crowd has the tests of this process that have room.
var crowd struct {
	mutex   sync.Mutex
	inside  map[string]int // the number of requests, by name
	entered time.Time      // when the last one did
	outside int            // how many wait
	late    time.Duration  // how late the sleeper is woken, on average
	watched bool
}

// Room waits until there is room for a test, which has it until it ends. It is for tests that start
// much, and of which many run at once. Their number depends on the machine then, and they do not
// start all at once. On a machine that does not keep up, each would take so long that its
// operations time out and are retried, and no test would end.
func Room(tb testing.TB) {
	tb.Helper()
	name := tb.Name()
	crowd.mutex.Lock()
	crowd.outside++
	if !crowd.watched {
		crowd.watched = true
		go watchCrowd()
	}
	crowd.mutex.Unlock()
	if !Until(enough, func() bool { return enter(name, false) }) {
		enter(name, true)
	}
	tb.Cleanup(func() { leave(name) })
}

// enter admits a test if there is room, or anyway.
func enter(name string, anyway bool) bool {
	crowd.mutex.Lock()
	defer crowd.mutex.Unlock()
	now := time.Now()
	if !anyway && crowd.inside[name] == 0 && len(crowd.inside) >= always &&
		(crowd.late > late || now.Sub(crowd.entered) < gap) {
		return false
	}
	crowd.entered = now
	if crowd.inside == nil {
		crowd.inside = make(map[string]int)
	}
	crowd.inside[name]++
	crowd.outside--
	return true
}

func leave(name string) {
	crowd.mutex.Lock()
	defer crowd.mutex.Unlock()
	if crowd.inside[name]--; crowd.inside[name] == 0 {
		delete(crowd.inside, name)
	}
}

// Pace returns how many times longer than on a quick machine an operation of a test with room may
// take now: 1 to Slowest.
func Pace() int {
	crowd.mutex.Lock()
	defer crowd.mutex.Unlock()
	return min(1+int(crowd.late/slow), Slowest)
}

// watchCrowd is the sleeper. It ends when no test has room or waits for it.
func watchCrowd() {
	for before := time.Now(); ; {
		<-time.After(nap)
		now := time.Now()
		crowd.mutex.Lock()
		if crowd.outside+len(crowd.inside) == 0 {
			crowd.watched = false
			crowd.mutex.Unlock()
			return
		}
		crowd.late += (now.Sub(before) - nap - crowd.late) / memory
		crowd.mutex.Unlock()
		before = now
	}
}
