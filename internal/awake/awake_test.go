package awake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/awake"
)

func TestAPauseCountsAsOneTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := awake.New(time.Second)
		for range 3 {
			<-time.After(time.Second)
			c.Tick(time.Now())
		}
		if got := c.Now(); got != 3*time.Second {
			t.Errorf("after three ticks: %v", got)
		}
		<-time.After(time.Minute) // without ticks: the process stands still
		if got := c.Now(); got != 5*time.Second {
			t.Errorf("when it goes on: %v", got)
		}
		c.Tick(time.Now())
		<-time.After(time.Second / 2)
		if got := c.Now(); got != 5500*time.Millisecond {
			t.Errorf("half a second later: %v", got)
		}
	})
}
