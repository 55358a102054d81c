package stall

import (
	"sync"
	"testing"
	"time"
)

const (
	looks  = 4                     // how often a sleeper is woken for one measure
	nap    = 10 * time.Millisecond // how long it sleeps each time
	late   = 40 * time.Millisecond // later than this, on average, and the machine does not keep up
	enough = 30 * time.Second      // after this a test begins all the same: it may be the one before that waits for it
)

// entrance lets tests in one after the other, so that each sees what those before have made of the machine.
var entrance sync.Mutex

// Calm waits until the machine keeps up with what it has to do. A test that many others run beside calls it before it begins: how many run at once then depends on the machine, and none
// finds that everything takes ten times as long. Elsewhere nothing is done meanwhile, so that this costs no time but on a machine that is busy.
func Calm(tb testing.TB) {
	tb.Helper()
	for began := time.Now(); !calm() && time.Since(began) < enough; {
	}
}

// calm measures whether who sleeps is woken in time.
func calm() bool {
	entrance.Lock()
	defer entrance.Unlock()
	began := time.Now()
	for range looks {
		<-time.After(nap)
	}
	return time.Since(began) < looks*(nap+late)
}
