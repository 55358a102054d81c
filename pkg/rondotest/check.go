package rondotest

import (
	"errors"
	"slices"

	"github.com/rondo-run/rondo/internal/check"
)

// Check looks for what must never be: in the messages that were sent, of which none may be sent
// twice with different content, in the histories of all instances, and between parents and
// children: see package check. The end of a test does it by itself.
func (e *Env) Check() error {
	var all []check.Instance
	for _, id := range e.order {
		in := e.instances[id]
		all = append(all, check.Instance{ID: id, Row: in.row, History: in.history, Values: in.values})
	}
	return errors.Join(append(slices.Clone(e.problems), check.Together(all...))...)
}
