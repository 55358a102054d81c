package orchestrator

import (
	"testing"
	"time"
)

// The watch takes a pause of the whole process for one tick, and time without CPU for no time of
// computing.
func TestWatchCountsWhatItHasSeen(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name         string
		passed, used []time.Duration // for each tick
		unknown      bool            // how much CPU was used
		ran, went    time.Duration
	}{
		{name: "it computes", passed: []time.Duration{s, s, s}, used: []time.Duration{s, s, s},
			ran: 3 * s, went: 3 * s},
		{name: "others compute, too", passed: []time.Duration{s, s, s}, used: []time.Duration{8 * s, 8 * s, 8 * s},
			ran: 3 * s, went: 3 * s},
		{name: "it is blocked", passed: []time.Duration{s, s, s}, used: []time.Duration{0, 0, 0}, ran: 0, went: 3 * s},
		{name: "it is stopped for a minute", passed: []time.Duration{s, 60 * s, s},
			used: []time.Duration{s / 2, s / 2, s / 2}, ran: 3 * s / 2, went: 4 * s},
		{name: "a paused machine charges the pause", passed: []time.Duration{s, 60 * s, s},
			used: []time.Duration{s, 60 * s, s}, ran: 4 * s, went: 4 * s},
		{name: "it gets a tenth of a processor", passed: []time.Duration{s, s, s},
			used: []time.Duration{s / 10, s / 10, s / 10}, ran: 3 * s / 10, went: 3 * s},
		{name: "nobody knows", passed: []time.Duration{s, 60 * s, s}, used: []time.Duration{0, 0, 0}, unknown: true,
			ran: 4 * s, went: 4 * s},
		{name: "the clock was put back", passed: []time.Duration{s, -s, s}, used: []time.Duration{s, s, s},
			ran: 2 * s, went: 2 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			used := time.Duration(0)
			w := newWatcher(s, time.Now(), used)
			at := w.at
			for i := range c.passed {
				at, used = at.Add(c.passed[i]), used+c.used[i]
				w.tick(at, used, !c.unknown)
			}
			if want := (clocks{ran: c.ran, went: c.went}); w.now != want {
				t.Errorf("the clocks say %+v, want %+v", w.now, want)
			}
		})
	}
}
