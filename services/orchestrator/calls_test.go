package orchestrator

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelayedCallsKeepTheirOrder: the instances of a failed read wait for the same time, and go on
// in the order of their messages.
func TestDelayedCallsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t.Context())
		var executed, want []int
		note := func(i int) func() { return func() { executed = append(executed, i) } }
		c.after(2*loadAgain, note(100))
		for i := range 100 {
			c.after(loadAgain, note(i))
			want = append(want, i)
		}
		begun := time.Now()
		for range want {
			(<-c.waiting)()
		}
		if took := time.Since(begun); took != loadAgain {
			t.Errorf("the calls came after %v, want %v", took, loadAgain)
		}
		(<-c.waiting)()
		if want = append(want, 100); !slices.Equal(executed, want) {
			t.Errorf("the order is %v", executed)
		}
	})
}
