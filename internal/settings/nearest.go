package settings

import "strings"

// DidYouMean names the likely intention, to be put behind an error: "; did you mean start?", or
// nothing.
func DidYouMean(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// nearest is the one of several words that a word looks like, "" if it looks like none. Upper case
// counts as lower case.
func nearest(name string, known []string) string {
	best, least := "", 1+len(name)/3
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k), least+1); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// distance is the edit distance of a and b. It gives up at the limit.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}
