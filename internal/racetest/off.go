//go:build !race

package racetest

// On says that the race detector is on.
const On = false
