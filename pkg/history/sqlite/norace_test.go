//go:build !race

package sqlite_test

// underRace says that the race detector makes everything slow.
const underRace = false
