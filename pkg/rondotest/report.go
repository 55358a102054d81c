package rondotest

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// DeadLetter is a message that could not be processed, and the reason.
type DeadLetter struct {
	Message events.Message
	Reason  string
	Detail  string
}

// report collects what turns have shown, and what became of messages.
type report struct {
	rounds   int
	logs     []slog.Record
	told     []round.Emitted
	warnings []string
	faults   []*failure.Error
	dead     []DeadLetter
	ignored  []DeadLetter
	changed  map[string]bool    // the events to which the same code has given other data
	fail     func(text string)  // fails the test
	decided  map[string]decided // messages that were taken, found to change nothing, or dead-lettered
}

// decided is what became of a message, and how the instance stood then.
type decided struct {
	round.Receipt
	status round.Status
}

// add takes what a turn of an instance shows.
func (r *report) add(in *instance, turn round.Turn) {
	for _, l := range turn.Logs {
		r.logs = append(r.logs, l.Record)
	}
	r.told = append(r.told, turn.Emitted...)
	for _, w := range turn.Warnings {
		if w = in.id + ": " + w; !slices.Contains(r.warnings, w) { // each replay warns
			r.warnings = append(r.warnings, w)
		}
	}
	f := turn.Fault
	if f == nil {
		return
	}
	r.faults = append(r.faults, f)
	if f.Kind != failure.Nondeterminism || f.Type != failure.ChangedData {
		return
	}
	if at := fmt.Sprintf("%s/%d/%d", in.id, in.row.Execution, f.Event); !r.changed[at] { // each replay finds it
		r.changed[at] = true
		r.fail(f.Message)
	}
}

// settle takes what became of a message for good.
func (r *report) settle(m events.Message, receipt round.Receipt, status round.Status) {
	r.decided[m.ID] = decided{receipt, status}
	letter := DeadLetter{Message: m, Reason: string(receipt.Reason), Detail: receipt.Detail}
	switch {
	case receipt.Verdict == round.Dead:
		r.dead = append(r.dead, letter)
	case receipt.Verdict == round.Ignored && receipt.Reason != round.Woken:
		r.ignored = append(r.ignored, letter)
	}
}

// numbers are the values that orchestrations have told under a name.
func (r *report) numbers(kind coro.EmittedKind, name string) (values []float64) {
	for _, x := range r.told {
		if x.Kind == kind && x.Name == name {
			values = append(values, x.Value)
		}
	}
	return values
}
