package rondotest

import (
	"errors"
	"slices"

	"github.com/rondo-run/rondo/pkg/check"
)

// Check looks for what must never be: in the messages that were sent, of which none may be sent twice with different content, and in the histories of all
// instances: see package check. The end of a test does it by itself.
func (e *Env) Check() error {
	errs := slices.Clone(e.problems)
	for _, id := range e.order {
		in := e.instances[id]
		errs = append(errs, check.Instance{ID: id, Row: in.row, History: in.history, Values: in.values}.Check())
	}
	return errors.Join(errs...)
}
