package bounded_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/x/bounded"
)

func TestWaitEndsWithTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		called := false
		if !bounded.Wait(2*time.Second, func() {
			<-time.After(time.Second)
			called = true
		}) || !called {
			t.Error("a function that returns in time is not waited for")
		}
		if want := began.Add(time.Second); !time.Now().Equal(want) {
			t.Errorf("the wait ends at %v; want %v", time.Now(), want)
		}
	})
}

func TestWaitEndsWithTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hangs, ended := make(chan struct{}), make(chan struct{})
		if bounded.Wait(2*time.Second, func() {
			<-hangs
			close(ended)
		}) {
			t.Error("a function that hangs has returned")
		}
		if want := began.Add(2 * time.Second); !time.Now().Equal(want) {
			t.Errorf("the wait ends at %v; want %v", time.Now(), want)
		}
		close(hangs)
		<-ended // it goes on
	})
}
