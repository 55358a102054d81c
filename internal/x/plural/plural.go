// Package plural writes numbers with their nouns.
package plural

import "strconv"

// Count returns a number and a noun: "1 task", "2 tasks". The noun is in the singular, and its
// plural is formed with an s.
func Count[N ~int | ~int32 | ~int64 | ~uint32 | ~uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	if n < 0 {
		return strconv.FormatInt(int64(n), 10) + " " + noun
	}
	return strconv.FormatUint(uint64(n), 10) + " " + noun
}
