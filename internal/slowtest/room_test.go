package slowtest_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/rondo-run/rondo/internal/slowtest"
)

// TestRoom gives room to many tests one after the other and at once, also to those that ask twice.
func TestRoom(t *testing.T) {
	var mutex sync.Mutex
	n := 0
	t.Run("all", func(t *testing.T) {
		for i := range 50 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				slowtest.Room(t)
				slowtest.Room(t)
				mutex.Lock()
				defer mutex.Unlock()
				n++
			})
		}
	})
	if n != 50 {
		t.Errorf("%d had room", n)
	}
}
