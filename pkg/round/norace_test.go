//go:build !race

package round_test

// underRace tells that the race detector is on, which makes everything slower and larger.
const underRace = false
