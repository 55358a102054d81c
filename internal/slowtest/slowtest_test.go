package slowtest

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatTakesLongIsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Watch)
		begun := time.Now()
		end := make(chan struct{})
		looks := 0
		go w.watch(end, func() {
			if looks++; looks == 10 {
				<-time.After(3 * time.Second)
			}
		})
		<-time.After(time.Second)
		if lost := w.Since(begun); lost != 0 {
			t.Errorf("%v are lost before the stall has ended", lost)
		}
		<-time.After(4 * time.Second)
		if lost := w.Since(begun); lost < 3*time.Second || lost > 3*time.Second+2*every {
			t.Errorf("%v are lost, want 3 s", lost)
		}
		if lost := w.Since(begun.Add(2 * time.Second)); lost < time.Second || lost > 2*time.Second {
			t.Errorf("%v are lost in the second half", lost)
		}
		if lost := w.Since(time.Now()); lost != 0 {
			t.Errorf("%v are lost since now", lost)
		}
		close(end)
	})
}

func TestPace(t *testing.T) {
	defer func(before time.Duration) { crowd.late = before }(crowd.late)
	for late, want := range map[time.Duration]int{0: 1, slow - 1: 1, slow: 2, 3 * slow: 4, 4 * slow: Slowest,
		time.Minute: Slowest} {
		crowd.late = late
		if got := Pace(); got != want {
			t.Errorf("where a sleeper is woken %v late the pace is %d, want %d", late, got, want)
		}
	}
}
