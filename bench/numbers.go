package main

import (
	"math"
	"slices"
	"time"
)

// percentile gives the smallest value that is not exceeded by the share p of all values, which must
// be sorted; 0 if there are none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// median gives the middle value, or the mean of the two in the middle; 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	all := slices.Sorted(slices.Values(values))
	return (all[len(all)/2] + all[(len(all)-1)/2]) / 2
}

// middle gives the index of the value in the middle, the lower one of two.
func middle(values []float64) int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case values[a] < values[b]:
			return -1
		case values[a] > values[b]:
			return 1
		}
		return 0
	})
	return order[(len(order)-1)/2]
}

// spread is how far apart the largest and the smallest value are, in percent of the median.
func spread(values []float64) float64 {
	m := median(values)
	if m == 0 {
		return 0
	}
	return 100 * (slices.Max(values) - slices.Min(values)) / m
}

// slope is how much y grows with x, by least squares; 0 if that cannot be said.
func slope(x, y []float64) float64 {
	n := float64(len(x))
	if n < 2 {
		return 0
	}
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx += x[i]
		sy += y[i]
		sxx += x[i] * x[i]
		sxy += x[i] * y[i]
	}
	below := n*sxx - sx*sx
	if below == 0 {
		return 0
	}
	return (n*sxy - sx*sy) / below
}

// milliseconds gives durations as sorted milliseconds.
func milliseconds(of []time.Duration) []float64 {
	out := make([]float64, len(of))
	for i, d := range of {
		out[i] = inMilliseconds(d)
	}
	slices.Sort(out)
	return out
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rounded rounds a value to a number of decimal places.
func rounded(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}
