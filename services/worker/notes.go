package worker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/jsonw"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// noteEvery is the minimum interval between two notes of progress.
	noteEvery = time.Second
	// noteTimeout is how long a task waits for a note.
	noteTimeout = 2 * time.Second
)

// note is the knowledge about a task that is not in the task itself.
type note struct {
	// Begun counts the workers that have begun the task, from the second one on: the first one
	// notes nothing, because it completes most tasks.
	Begun    int           `json:"begun,omitempty"`
	Progress codec.Payload `json:"progress,omitempty"`
}

// encode returns at most [broker.MaxTaskValue] bytes for any progress that a heartbeat may have.
func (n note) encode() ([]byte, error) { return jsonw.Marshal(n) }

// progress is what the worker notes about an attempt, and when. It is guarded by the attempt's
// lock.
type progress struct {
	last    codec.Payload // of this attempt or the one before
	begun   int           // how often workers noted that it begins; see notes.begin
	dirty   bool          // there is progress to note
	writing bool
	notedAt time.Time
	noted   bool // there may be a note
}

// note returns the present note.
func (p *progress) note() note { return note{Begun: p.begun, Progress: p.last} }

// beat keeps progress to note.
func (p *progress) beat(last codec.Payload) { p.last, p.dirty = last, true }

// due reports whether it is time to note progress. If so, the caller writes it, and calls wrote or
// unwritten.
func (p *progress) due(now time.Time) bool {
	if !p.dirty || p.writing || now.Sub(p.notedAt) < noteEvery {
		return false
	}
	p.writing, p.dirty, p.notedAt = true, false, now
	return true
}

func (p *progress) wrote() { p.writing = false }

func (p *progress) unwritten() { p.writing, p.dirty = false, true }

// begins counts one more begin after those of a note.
func (p *progress) begins(before note, now time.Time) note {
	p.begun, p.noted, p.notedAt = before.Begun+1, true, now
	if len(before.Progress) > 0 {
		p.last = before.Progress
	}
	return p.note()
}

// returns counts the task as not begun, and reports whether that, or progress, is worth a note.
func (p *progress) returns() (n note, needed bool) {
	needed = p.begun > 0 || p.dirty
	if p.begun > 0 {
		p.begun--
	}
	return p.note(), needed
}

// notes stores notes about tasks in the broker, for the worker that gets a task if this one dies.
type notes struct {
	kv   broker.KV
	side *side
}

func noteKey(a *attempt) string { return broker.KeyTask + events.Token(a.m.Instance, a.work.Ref) }

// keep notes progress when that is due.
func (n *notes) keep(a *attempt, now time.Time) {
	a.mu.Lock()
	due := !a.life.over() && a.progress.due(now)
	is := a.progress.note()
	a.mu.Unlock()
	if due && !n.side.run(func(ctx context.Context) { n.write(ctx, a, is) }) {
		a.mu.Lock()
		a.progress.unwritten()
		a.mu.Unlock()
	}
}

func (n *notes) write(ctx context.Context, a *attempt, is note) {
	data, err := is.encode()
	if err == nil {
		n.mark(a)
		err = n.kv.Put(ctx, noteKey(a), data, broker.KeyTTL)
	}
	if err != nil {
		a.log().Debug("worker: progress could not be noted", "error", err)
	}
	a.mu.Lock()
	a.progress.wrote()
	late := a.life.over()
	a.mu.Unlock()
	if late { // it was finished in the meantime, and may have dropped the note too early
		_ = n.kv.Delete(ctx, noteKey(a))
	}
}

// mark remembers that there may be a note to drop.
func (n *notes) mark(a *attempt) {
	a.mu.Lock()
	a.progress.noted = true
	a.mu.Unlock()
}

// read reads the note about a redelivered task. If that fails, the note is empty.
func (n *notes) read(ctx context.Context, a *attempt) (is note) {
	data, err := n.kv.Get(ctx, noteKey(a))
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &is)
	}
	if err != nil {
		a.log().Warn("worker: crash count and progress of a task cannot be read; executing it without them", "subject",
			a.d.Subject, "error", err)
	}
	return is
}

// begin notes that a redelivered task begins once more.
func (n *notes) begin(ctx context.Context, a *attempt, before note) {
	a.mu.Lock()
	is := a.progress.begins(before, time.Now())
	a.mu.Unlock()
	n.write(ctx, a, is)
}

// returned notes that the task counts as not begun, and its progress.
func (n *notes) returned(a *attempt) {
	a.mu.Lock()
	is, needed := a.progress.returns()
	a.mu.Unlock()
	if !needed {
		return
	}
	data, err := is.encode()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(n.side.ctx, noteTimeout)
	defer cancel()
	_ = n.kv.Put(ctx, noteKey(a), data, broker.KeyTTL)
}

// drop drops the note of a finished task, later.
func (n *notes) drop(a *attempt) {
	n.side.run(func(ctx context.Context) {
		if err := n.kv.Delete(ctx, noteKey(a)); err != nil {
			a.log().Debug("worker: a note could not be dropped; it goes by itself after a day", "error", err)
		}
	})
}
