package slowtest

import (
	"bytes"
	"runtime/pprof"
)

// Goroutines returns the stacks of all goroutines, equal ones counted. A test that has waited too
// long prints them, so that its log shows where everything stands.
func Goroutines() string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return err.Error()
	}
	return b.String()
}
