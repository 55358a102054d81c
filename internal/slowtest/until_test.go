package slowtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/slowtest"
)

// TestUntil polls until the condition holds, gives up after the limit, and spends a small part of
// the time on polls that take long. It has virtual time.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		if !slowtest.Until(time.Minute, func() bool { n++; return n == 3 }) || n != 3 {
			t.Errorf("the condition holds at the third poll; Until polled %d times", n)
		}
		const most, poll = 400 * time.Millisecond, 20 * time.Millisecond
		began := time.Now()
		if slowtest.Until(most, func() bool { return false }) {
			t.Error("Until reports a condition that never holds")
		}
		if took := time.Since(began); took < most || took > 2*most {
			t.Errorf("Until gave up after %v, want %v or little more", took, most)
		}
		began, n = time.Now(), 0
		slowtest.Until(most, func() bool {
			n++
			<-time.After(poll)
			return false
		})
		if all, polling := time.Since(began), time.Duration(n)*poll; n < 2 || polling > all/3 {
			t.Errorf("%d polls took %v of %v", n, polling, all)
		}
	})
}
