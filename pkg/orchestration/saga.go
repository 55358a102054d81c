package orchestration

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Saga remembers how to undo what was done. It is plain code: it says nothing to anybody until
// Compensate is called.
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

// Add remembers how to undo what was just done.
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

// Forget drops what was remembered, when there is nothing to undo any more.
func (s *Saga) Forget() { s.steps = nil }
