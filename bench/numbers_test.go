package main

import (
	"slices"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	cases := []struct {
		name   string
		sorted []float64
		p      float64
		want   float64
	}{
		{"of nothing", nil, 0.5, 0},
		{"of one", []float64{7}, 0.99, 7},
		{"the median of two is the lower one", []float64{1, 2}, 0.5, 1},
		{"half", hundred, 0.5, 50},
		{"99 of 100", hundred, 0.99, 99},
		{"more than there are", hundred, 0.999, 100},
		{"all", hundred, 1, 100},
		{"none", hundred, 0, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := percentile(c.sorted, c.p); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestMedianAndMiddle(t *testing.T) {
	cases := []struct {
		values []float64
		median float64
		middle int // its index
		spread float64
	}{
		{[]float64{5}, 5, 0, 0},
		{[]float64{30, 10, 20}, 20, 2, 100},
		{[]float64{40, 10, 30, 20}, 25, 3, 120},
		{[]float64{2, 2, 2}, 2, 1, 0},
		{[]float64{0, 0}, 0, 0, 0},
	}
	for _, c := range cases {
		before := slices.Clone(c.values)
		if got := median(c.values); got != c.median {
			t.Errorf("the median of %v is %v, want %v", c.values, got, c.median)
		}
		if got := middle(c.values); got != c.middle {
			t.Errorf("the middle of %v is at %d, want %d", c.values, got, c.middle)
		}
		if got := spread(c.values); got != c.spread {
			t.Errorf("the spread of %v is %v, want %v", c.values, got, c.spread)
		}
		if !slices.Equal(before, c.values) {
			t.Errorf("%v was changed to %v", before, c.values)
		}
	}
	if got := median(nil); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestSlope(t *testing.T) {
	cases := []struct {
		name string
		x, y []float64
		want float64
	}{
		{"of nothing", nil, nil, 0},
		{"of one point", []float64{1}, []float64{5}, 0},
		{"level", []float64{0, 1, 2}, []float64{5, 5, 5}, 0},
		{"a line", []float64{0, 1, 2, 3}, []float64{1, 3, 5, 7}, 2},
		{"downwards", []float64{0, 10}, []float64{5, 0}, -0.5},
		{"up and down along a line", []float64{0, 1, 2, 3}, []float64{1, -1, 1, -1}, -0.4},
		{"all at the same moment", []float64{2, 2}, []float64{1, 5}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := slope(c.x, c.y); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestMilliseconds(t *testing.T) {
	got := milliseconds([]time.Duration{time.Second, 1500 * time.Microsecond})
	if want := []float64{1.5, 1000}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDisturbed(t *testing.T) {
	begun := time.Unix(1000, 0)
	s := &samples{begun: begun, seconds: []float64{1, 2, 3, 4, 5, 6}, stolen: []float64{0, 0, 9, 1.5, 0, 0}}
	s.stalls = []stall{{begun.Add(10 * time.Second), begun.Add(11 * time.Second)}}
	cases := []struct {
		name     string
		from, to time.Duration
		want     bool
	}{
		{"before anything was taken", 0, 1500 * time.Millisecond, false},
		{"while it was taken", 2500 * time.Millisecond, 2600 * time.Millisecond, true},
		{"taken before it ended", 1500 * time.Millisecond, 2500 * time.Millisecond, true},
		{"taken shortly before", 3900 * time.Millisecond, 4 * time.Second, true},
		{"a little may be taken", 4100 * time.Millisecond, 5 * time.Second, false},
		{"after the last sample", 7 * time.Second, 8 * time.Second, false},
		{"before the disk stood still", 9 * time.Second, 9900 * time.Millisecond, false},
		{"ended while it did", 9 * time.Second, 10100 * time.Millisecond, true},
		{"all the time", 9 * time.Second, 13 * time.Second, true},
		{"begun shortly afterwards", 11900 * time.Millisecond, 14 * time.Second, true},
		{"begun later", 12100 * time.Millisecond, 14 * time.Second, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := s.disturbed(c.from, c.to); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
