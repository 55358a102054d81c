package jobpush_test

import (
	"context"
	"fmt"
	"slices"
)

// exampleT stands in for the *testing.T that an Example function does not get. Tests have the real
// one.
type exampleT struct {
	cleanups []func()
}

func newT() *exampleT { return new(exampleT) }

// end does what the end of a test does.
func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

func (t *exampleT) Helper()                           {}
func (t *exampleT) Failed() bool                      { return false }
func (t *exampleT) Context() context.Context          { return context.Background() }
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Logf(string, ...any)               {}
func (t *exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (t *exampleT) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
