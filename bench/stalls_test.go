package main

import (
	"slices"
	"testing"
	"time"
)

func TestStalls(t *testing.T) {
	type seen struct{ at, finished, waiting int64 } // the first in milliseconds
	cases := []struct {
		name string
		seen []seen
		want []int64 // from when to when, by turns
	}{
		{"nothing was seen", nil, nil},
		{"nothing to do", []seen{{0, 5, 0}, {100, 5, 0}, {200, 5, 0}}, nil},
		{"something is finished all the time", []seen{{0, 5, 3}, {40, 6, 3}, {80, 7, 3}, {120, 8, 3}}, nil},
		{"too short", []seen{{0, 5, 0}, {10, 5, 1}, {50, 5, 1}, {60, 6, 0}}, nil},
		{"it stands still, and goes on", []seen{{0, 5, 0}, {10, 5, 1}, {40, 5, 2}, {70, 5, 3}, {80, 8, 0}},
			[]int64{10, 70}},
		{"two, with one that is finished between them",
			[]seen{{0, 5, 1}, {60, 5, 1}, {70, 6, 1}, {130, 6, 1}, {140, 7, 0}}, []int64{0, 60, 70, 130}},
		{"until nobody looks any more", []seen{{0, 5, 1}, {90, 5, 1}}, []int64{0, 90}},
		{"what waited is given up", []seen{{0, 5, 1}, {60, 5, 0}, {120, 5, 0}}, []int64{0, 60}},
		{"seldom looked at", []seen{{0, 5, 1}, {500, 5, 1}, {1000, 6, 0}}, []int64{0, 500}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			begun := time.Unix(1000, 0)
			var w diskWatch
			for _, s := range c.seen {
				w.see(begun.Add(time.Duration(s.at)*time.Millisecond), diskState{s.finished, s.waiting})
			}
			w.end()
			var got []int64
			for _, s := range w.stalls {
				got = append(got, s.from.Sub(begun).Milliseconds(), s.to.Sub(begun).Milliseconds())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			var r conditions
			r.noteStalls(w.stalls)
			var sum, longest float64
			for pair := range slices.Chunk(c.want, 2) {
				sum, longest = sum+float64(pair[1]-pair[0]), max(longest, float64(pair[1]-pair[0]))
			}
			if r.Stalled != sum || r.LongestStall != longest {
				t.Errorf("noted %v and %v ms, want %v and %v", r.Stalled, r.LongestStall, sum, longest)
			}
		})
	}
}

// TestWatchingADisk writes something through to a disk of which the system tells.
func TestWatchingADisk(t *testing.T) {
	dir := t.TempDir()
	look, err := diskOf(dir)
	if err != nil {
		t.Skip("THE DISK IS NOT WATCHED: ", err)
	}
	before, err := look()
	if err != nil {
		t.Fatal(err)
	}
	stop := watchDisk(t.Context(), dir)
	if _, err := syncTime(dir); err != nil {
		t.Fatal(err)
	}
	for _, s := range stop() {
		if s.to.Sub(s.from) < stallsFrom {
			t.Errorf("a stall of %v", s.to.Sub(s.from))
		}
	}
	after, err := look()
	if err != nil {
		t.Fatal(err)
	}
	if after.finished < before.finished+200 {
		t.Errorf("%d were finished before writing through 200 times, and %d afterwards", before.finished,
			after.finished)
	}
	if _, err := diskOf(dir + "/not/there"); err == nil {
		t.Error("a directory that is not there has a disk")
	}
}
