//go:build !race

package natsbus_test

const raceDetector = false
