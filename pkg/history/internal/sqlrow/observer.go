package sqlrow

import (
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// Observer is the [history.Observer] of a store, nil for none. A method is observed by its first
// statement:
//
//	defer o.Begin("load").End(&err)
//
// That is in the methods and not in the [Transactor], because an operation may have several
// transactions, and may fail before the first. A method that another method needs is split: its
// inner part does not call Begin. Begin and End do not allocate, and without an observer they do
// not read the clock.
type Observer history.Observer

// Begin begins an operation.
func (o Observer) Begin(op string) Operation {
	if o == nil {
		return Operation{}
	}
	return Operation{o, op, time.Now()}
}

// Operation is an operation in progress.
type Operation struct {
	observer Observer
	op       string
	began    time.Time
}

// End ends the operation with the error that its method returns.
func (x Operation) End(err *error) {
	if x.observer != nil {
		x.observer(x.op, time.Since(x.began), *err)
	}
}
