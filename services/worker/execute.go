package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
)

// execute is the way of an attempt that has a slot, from here to where its completion is published.
// It is the attempt's goroutine.
func (w *Worker) execute(a *attempt) {
	returned, began := false, time.Now()
	defer func() {
		if !returned { // runtime.Goexit, which cannot be stopped, only noticed
			a.end(nil, goexited)
		}
		w.limits.release(a.q.line, time.Since(began))
	}()
	if w.admit(a) {
		a.end(a.run())
	}
	returned = true
}

// admit finds out whether the function is to be called here and now. If not, it does what is to be
// done instead.
func (w *Worker) admit(a *attempt) bool {
	switch {
	case a.unreadable != nil:
		w.putAside(a, broker.Cause{Reason: "unreadable", Detail: a.unreadable.Error(), By: w.config.ID,
			Attempts: a.d.NumDelivered})
		return false
	case w.elsewhere(a), !a.mayBegin(), w.tooLate(a), !w.inSession(a):
		return false
	case a.d.NumDelivered > 1 && !w.recall(a):
		return false
	}
	if !a.work.StartBy.IsZero() {
		w.begun(a)
	}
	if w.recent.has(a.d.Subject) {
		w.doubt(a)
	}
	return true
}

// tooLate fails work whose time was over before it came. Work that was handed out before may have
// begun in time: then the instance knows, and if it did not, the instance withdraws it.
func (w *Worker) tooLate(a *attempt) bool {
	now := time.Now()
	k := a.work
	switch {
	case !k.Deadline.IsZero() && !now.Before(k.Deadline):
		a.end(nil, timeout(events.TimeoutOverall, overallMessage))
	case a.d.NumDelivered == 1 && !k.StartBy.IsZero() && !now.Before(k.StartBy):
		a.end(nil, timeout(events.TimeoutScheduleToStart, "no worker took it up in time"))
	default:
		return false
	}
	return true
}

// putAside makes a dead letter of work that must not come again.
func (w *Worker) putAside(a *attempt, why broker.Cause) {
	detail := why.Detail
	if !w.config.LogPayloads { // it has parts of what cannot be read or sent
		detail = events.Digest(detail)
	}
	a.log().Warn("worker: task dead-lettered", "subject", a.d.Subject, "reason", why.Reason, "detail", detail)
	if err := w.bus.StoreDeadLetter(w.publishing, a.d, why); err != nil {
		a.log().Warn("worker: storing a dead letter failed; the task is redelivered", "subject",
			a.d.Subject, "error", err)
		a.giveBack(time.Second)
		return
	}
	w.config.Metrics.DeadLettered(w.bus.Prefix(), a.d.Subject, why.Reason)
	if a.unreadable != nil { // otherwise what has become of it was recorded before it could not be sent
		a.measure(telemetry.WorkUnreadable, nil)
	}
	a.mu.Lock()
	a.decided = true
	a.mu.Unlock()
	a.finish(acked, 0)
}

// ---- What is noted about work, for whoever gets it if this worker dies.

// noteEvery bounds how often progress is noted.
const noteEvery = time.Second

// note is what is known about a piece of work besides the work itself.
type note struct {
	// Begun counts the workers that have begun it, beginning with the second: the first one has
	// nothing to note, because most work is done by the first.
	Begun    int            `json:"begun,omitempty"`
	Progress events.Payload `json:"progress,omitempty"`
}

func (a *attempt) noteKey() string { return "work/" + events.Token(a.m.Instance, a.work.Ref) }

// note is what would be noted now.
func (a *attempt) note() note { return note{Begun: a.begun, Progress: a.last} }

func (a *attempt) writeNote(ctx context.Context, n note) {
	data, err := json.Marshal(n)
	if err == nil {
		a.mu.Lock()
		a.hasNote = true
		a.mu.Unlock()
		err = a.w.bus.SetNote(ctx, a.noteKey(), data)
	}
	if err != nil {
		a.log().Debug("worker: progress could not be noted", "error", err)
	}
	a.mu.Lock()
	a.noting = false
	late := a.over
	a.mu.Unlock()
	if late { // it was finished in the meantime, and may have dropped the note too early
		_ = a.w.bus.DropNote(ctx, a.noteKey())
	}
}

// recall reads what was noted about work that was handed out before, and notes that it is begun
// once more. It reports false if that was too often.
func (w *Worker) recall(a *attempt) bool {
	ctx, cancel := context.WithTimeout(w.publishing, noteTimeout)
	defer cancel()
	data, err := w.bus.Note(ctx, a.noteKey())
	var n note
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &n)
	}
	if err != nil {
		a.log().Warn("worker: what was noted about work cannot be read; it is executed all the same", "subject",
			a.d.Subject, "error", err)
	}
	if before := n.Begun + 1; before >= w.config.MaxAttempts {
		w.poison(a, before)
		return false
	}
	a.mu.Lock()
	a.begun, a.hasNote, a.notedAt = n.Begun+1, true, time.Now()
	if len(n.Progress) > 0 {
		a.last = n.Progress
	}
	next := a.note()
	a.mu.Unlock()
	a.writeNote(ctx, next)
	return true
}

// noteTimeout bounds how long work waits for a note.
const noteTimeout = 2 * time.Second

// noteReturn takes back that it was begun, and notes how far it has got.
func (a *attempt) noteReturn() {
	a.mu.Lock()
	needed := a.begun > 0 || a.dirty
	if a.begun > 0 {
		a.begun--
	}
	n := a.note()
	a.mu.Unlock()
	if !needed {
		return
	}
	data, err := json.Marshal(n)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(a.w.publishing, noteTimeout)
	defer cancel()
	_ = a.w.bus.SetNote(ctx, a.noteKey(), data)
}

// poison ends work that no worker survives.
func (w *Worker) poison(a *attempt, attempts int) {
	err := &events.Error{Kind: events.Poison, Final: true, Attempts: attempts,
		Message: fmt.Sprintf("each of %d workers that began it has died before it was done; the work is with the "+
			"dead letters", attempts)}
	a.log().Error("worker: work is poison", "attempts", attempts)
	if e := w.bus.StoreDeadLetter(w.publishing, a.d,
		broker.Cause{Reason: "poison", Detail: err.Message, By: w.config.ID, Attempts: attempts}); e != nil {
		a.log().Warn("worker: storing a poisoned task as a dead letter failed; it is redelivered", "error", e)
		a.giveBack(time.Second)
		return
	}
	w.config.Metrics.DeadLettered(w.bus.Prefix(), a.d.Subject, "poison")
	a.mu.Lock()
	a.hasNote = true
	a.mu.Unlock()
	a.end(nil, err)
}
