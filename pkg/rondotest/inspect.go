package rondotest

import (
	"log/slog"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/jobpush"
)

// Instance is an instance as the store has it.
type Instance struct {
	ID, Name, Version string
	Parent            string // the id of the parent of a child
	Status            string // "running", "suspended", "halted", or how it has ended
	Incarnation       string // tells instances of one id apart
	Execution         int64  // continue-as-new adds 1
	Attributes        map[string]string
	Output            codec.Payload
	Error             *failure.Error
	CustomStatus      codec.Payload
	Unread            int   // messages in mailboxes
	LastEvent         int64 // of the history of this execution
	HistoryBytes      int64
	StartedAt         time.Time // this execution
	EndedAt           time.Time // zero: it has not ended
}

// Ended reports whether the instance has ended.
func (i Instance) Ended() bool { return !i.EndedAt.IsZero() }

// Instance gives an instance as the store has it; ok is false if there is none of the id.
func (e *Env) Instance(id string) (in Instance, ok bool) {
	row, ok := e.row(id)
	if !ok {
		return Instance{}, false
	}
	in = Instance{
		ID: id, Name: row.Name, Version: row.Version, Status: string(row.Status),
		Incarnation: row.Incarnation, Execution: row.Execution,
		Attributes: row.Attributes, Output: row.Output, Error: row.Error, CustomStatus: row.CustomStatus,
		Unread: row.Unread, LastEvent: row.LastEvent, HistoryBytes: row.HistoryBytes, StartedAt: row.StartedAt,
		EndedAt: row.EndedAt,
	}
	if row.Parent != nil {
		in.Parent = row.Parent.Instance
	}
	return in, true
}

// Instances lists all instances, in the order in which they were started.
func (e *Env) Instances() []string {
	var ids []string
	e.system.store.each(func(in *instance) {
		if in.row.Execution > 0 {
			ids = append(ids, in.id)
		}
	})
	return ids
}

// History is the history of the current execution of an instance.
func (e *Env) History(id string) []events.Event {
	in := e.system.store.instances[id]
	if in == nil {
		return nil
	}
	return in.history[in.row.Execution]
}

// Kinds is the history in one word an event: handy to compare with an expected one.
func (e *Env) Kinds(id string) []events.Kind {
	var kinds []events.Kind
	for _, ev := range e.History(id) {
		kinds = append(kinds, ev.Fact.Kind())
	}
	return kinds
}

// Logs are the records that orchestrations have logged. They are in the log of the test, too, with
// those of activities and steps.
func (e *Env) Logs() []slog.Record { return e.system.report.logs }

// Counted is the sum of what orchestrations have counted under a name.
func (e *Env) Counted(name string) (sum float64) {
	for _, n := range e.system.report.numbers(coro.EmittedCount, name) {
		sum += n
	}
	return sum
}

// Measured are the values that orchestrations have measured under a name.
func (e *Env) Measured(name string) (values []float64) {
	return e.system.report.numbers(coro.EmittedValue, name)
}

// Pushed lists the items that orchestrations have pushed to a queue, in the order of the pushes,
// each push once. The items stay in the queue.
func (e *Env) Pushed(name string) []jobpush.Pushed {
	return slices.Clone(e.system.jobs.items[name])
}

// Warnings are what an operator would be told.
func (e *Env) Warnings() []string { return e.system.report.warnings }

// DeadLetters are the messages that were dead-lettered.
func (e *Env) DeadLetters() []DeadLetter { return e.system.report.dead }

// Ignored are the messages that changed nothing: duplicates, late answers, events for which no code
// waited.
func (e *Env) Ignored() []DeadLetter { return e.system.report.ignored }

// Faults are the reasons for which the engine has halted or failed instances.
func (e *Env) Faults() []*failure.Error { return e.system.report.faults }

// Rounds counts the rounds that were run.
func (e *Env) Rounds() int { return e.system.report.rounds }

// Check looks for violations: in the messages, of which none may be sent twice with different
// content, in the histories of all instances, and between parents and children (see package check).
// It also runs at the end of each test.
func (e *Env) Check() error { return e.system.store.check() }
