package slowtest_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/slowtest"
)

// TestUntil looks until it is so, gives up in time, and looks at what takes long for a small part
// of the time only.
func TestUntil(t *testing.T) {
	n := 0
	if !slowtest.Until(time.Minute, func() bool { n++; return n == 3 }) || n != 3 {
		t.Errorf("it is so after 3 looks; %d were taken", n)
	}
	began := time.Now()
	if slowtest.Until(30*time.Millisecond, func() bool { return false }) || time.Since(began) < 30*time.Millisecond {
		t.Errorf("it gave up after %v", time.Since(began))
	}
	var looking time.Duration
	began = time.Now()
	slowtest.Until(400*time.Millisecond, func() bool {
		looked := time.Now()
		<-time.After(20 * time.Millisecond)
		looking += time.Since(looked)
		return false
	})
	if all := time.Since(began); looking > all/3 {
		t.Errorf("it looked for %v of %v", looking, all)
	}
}
