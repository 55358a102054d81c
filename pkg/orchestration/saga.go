package orchestration

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Saga keeps functions that undo earlier steps. It is plain code: it records nothing before
// Compensate.
//
//	var undo orchestration.Saga
//	…
//	undo.Add("refund", func(ctx *orchestration.Context) error { _, err := Refund.Call(ctx, receipt); return err })
//	…
//	if err := pack(ctx); err != nil {
//		return none, errors.Join(err, undo.Compensate(ctx, 10*time.Minute))
//	}
type Saga struct{ steps []compensation }

type compensation struct {
	name string
	undo func(ctx *Context) error
}

// Add registers the function that undoes the step before.
func (s *Saga) Add(name string, undo func(ctx *Context) error) {
	s.steps = append(s.steps, compensation{name, undo})
}

// Compensate undoes everything, newest first, also when the instance is being cancelled; then for
// at most the given time. A step that fails does not keep the others from being undone; the error
// tells of all that failed.
func (s *Saga) Compensate(ctx *Context, atMost time.Duration) error {
	shielded, done := ctx.Shield(atMost)
	defer done()
	steps := s.steps
	s.steps = nil
	var errs []error
	for _, c := range slices.Backward(steps) {
		if err := c.undo(shielded); err != nil {
			errs = append(errs, fmt.Errorf("compensation %q failed: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Forget drops all functions, when there is nothing left to undo.
func (s *Saga) Forget() { s.steps = nil }
