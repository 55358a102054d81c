package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// committer stores turns.
type committer struct {
	db   *database
	ids  outboxIDs
	step wakeStep
	now  func() time.Time
}

// Commit implements [history.Rounds].
func (s *committer) Commit(ctx context.Context, batch history.Batch) (result history.Result, err error) {
	defer s.db.observer.Begin("commit").End(&err)
	if err := batch.Check(); err != nil {
		return history.Result{}, err
	}
	entries, err := s.encode(ctx, batch.Turns)
	if err != nil {
		return history.Result{}, fail("commit", err)
	}
	result = history.Result{Outcomes: make([]history.Outcome, len(entries))}
	if len(entries) == 0 && len(batch.Published) == 0 {
		return result, nil
	}
	if result.Entries, err = s.commit(ctx, entries, batch.Published); err != nil {
		return history.Result{}, err
	}
	for _, e := range entries {
		result.Outcomes[e.Place] = e.Outcome
	}
	return result, nil
}

// entry is a turn in flight to the database.
type entry struct {
	sqlrow.Entry
	found *sqlrow.InstanceRow // the row that is there, as far as judging needs it; nil if there is none
}

// encode writes turns as rows, in the order of their keys. It takes most of the time that is not
// SQLite's, and many can do it at once.
func (s *committer) encode(ctx context.Context, turns []history.Decided) ([]*entry, error) {
	entries := make([]*entry, len(turns))
	for i, d := range turns {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := s.encodeTurn(d)
		if err != nil {
			return nil, err
		}
		e.Place = i
		entries[i] = e
	}
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.Turn.Instance, b.Turn.Instance) })
	return entries, nil
}

func (s *committer) encodeTurn(d history.Decided) (*entry, error) {
	encoded, err := sqlrow.Encode(d)
	if err != nil {
		return nil, err
	}
	encoded.Columns.WakeAt.Time = s.step.of(d.Turn.Row.WakeAt)
	return &entry{Entry: encoded}, nil
}

// commit stores entries, and sets the outcome of each.
func (s *committer) commit(ctx context.Context, entries []*entry,
	published []history.OutboxKey) (keys []history.OutboxKey, err error) {
	var careful, doubt bool
	err = s.db.retry(ctx, func() error {
		made, err := s.try(ctx, entries, published, careful, doubt)
		if err != nil && isUnstorable(err) && !careful && len(entries) > 0 {
			careful = true
			made, err = s.try(ctx, entries, published, careful, doubt)
		}
		keys = append(keys, made...)
		doubt = doubt || err != nil && class(err) == history.Ambiguous
		return fail("commit", err)
	})
	if err != nil && doubt {
		err = &history.Error{Class: history.Ambiguous, Op: "commit", Err: err}
	}
	return keys, err
}

// try stores entries in one transaction. It gives the rows of the outbox that there may be now. A
// careful one finds out which turns the database does not take. When there is doubt whether an
// earlier try has happened, turns that are stored are taken.
func (s *committer) try(ctx context.Context, entries []*entry, published []history.OutboxKey, careful,
	doubt bool) (keys []history.OutboxKey, err error) {
	err = s.db.once(ctx, s.db.writer, toWrite, func(w *session) error {
		winners, err := judge(ctx, w, entries, doubt)
		if err != nil {
			return err
		}
		if careful {
			winners, err = writeEach(ctx, w, winners)
		} else {
			err = write(ctx, w, winners)
		}
		if err != nil {
			return err
		}
		if keys, err = s.storeMessages(w, winners); err != nil {
			return err
		}
		return removeEntries(ctx, w, published)
	})
	if err != nil && class(err) != history.Ambiguous {
		keys = nil
	}
	return keys, err
}

// judged are the columns that decide whether a turn is taken, and how it is written.
var judged = sqlrow.Instances.Only("instance", "incarnation", "execution", "last_event", "custom_status_version",
	"status", "name", "start_message", "created_at", "wake_at", "attributes")

var judgedNames = judged.String()

// judge reads how instances stand, and gives the entries that are taken. The others have their
// outcomes.
func judge(ctx context.Context, w *session, entries []*entry, doubt bool) (winners []*entry, err error) {
	ids := make([]string, 0, 2*len(entries))
	for _, e := range entries {
		ids = append(ids, e.Turn.Instance)
		if sqlrow.StartsChild(e.Turn) {
			ids = append(ids, e.Turn.Row.Parent.Instance)
		}
	}
	found := make(map[string]*sqlrow.InstanceRow, len(ids))
	err = selectInstances(ctx, w, judgedNames, ids, func(r sqlrow.Row) error {
		c := new(sqlrow.InstanceRow)
		err := r.Scan(judged.Targets(c)...)
		found[c.Instance] = c
		return err
	})
	if err != nil {
		return nil, err
	}
	winners = make([]*entry, 0, len(entries))
	for _, e := range entries {
		e.found = found[e.Turn.Instance]
		parentGone := false
		if sqlrow.StartsChild(e.Turn) {
			parentGone, err = dialect.ParentGone(ctx, w, e.Turn, found[e.Turn.Row.Parent.Instance])
			if err != nil {
				return nil, err
			}
		}
		if e.fits(parentGone) {
			e.Outcome = history.Outcome{Status: history.Committed}
			winners = append(winners, e)
			continue
		}
		e.Outcome = sqlrow.Refusal(e.Turn, e.found, parentGone)
		if doubt {
			if err := e.recognize(ctx, w); err != nil {
				return nil, err
			}
		}
	}
	return winners, nil
}

// fits reports whether the instance stands where the turn was decided. A tombstone stands where a
// start is decided, but not for the start that began its instance.
func (e *entry) fits(parentGone bool) bool {
	b, c := e.Turn.Expected, e.found
	switch {
	case parentGone:
		return false
	case c == nil:
		return b.Execution == 0
	case c.Incarnation != b.Incarnation || c.Execution != b.Execution || c.LastEvent != b.LastEvent:
		return false
	}
	return c.Status != sqlrow.Deleted || c.StartMessage != e.Columns.StartMessage
}

// recognize takes a turn whose last event is in history as the turn would have stored it.
func (e *entry) recognize(ctx context.Context, w *session) error {
	last := e.Rows[len(e.Rows)-1]
	return w.query(context.WithoutCancel(ctx), func(r sqlrow.Row) error {
		var data []byte
		err := r.Scan(&data)
		if err == nil && bytes.Equal(data, last.Data) {
			e.Outcome = history.Outcome{Status: history.Committed}
		}
		return err
	}, "SELECT data FROM rondo_history WHERE shard = 0 AND instance = ? AND execution = ? AND event = ?",
		e.Turn.Instance, last.Execution, last.Event)
}

// writeEach writes each entry in a savepoint of its own. If the database refuses an entry, only its
// turn is unstorable.
func writeEach(ctx context.Context, w *session, entries []*entry) (winners []*entry, err error) {
	for _, e := range entries {
		if _, err := w.exec("SAVEPOINT turn"); err != nil {
			return nil, err
		}
		err := write(ctx, w, []*entry{e})
		switch {
		case err == nil:
			winners = append(winners, e)
		case isUnstorable(err):
			e.Outcome = history.Outcome{Status: history.Unstorable,
				Err: fail("commit", fmt.Errorf("instance %q: %w", e.Turn.Instance, err))}
			if _, err := w.exec("ROLLBACK TO turn"); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
		if _, err := w.exec("RELEASE turn"); err != nil {
			return nil, err
		}
	}
	return winners, nil
}

// ---- Outbox entries.

// outboxIDs counts up the ids of outbox entries. They are times, and go on from the last one when
// the clock stands still or goes back.
type outboxIDs struct {
	mu   sync.Mutex
	last int64
}

func (p *outboxIDs) next(now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = max(history.OutboxID(now, 0), p.last+1)
	return p.last
}

// entry is the key of the next outbox entry.
func (s *committer) entry() history.OutboxKey { return history.OutboxKey{ID: s.ids.next(s.now())} }

// storeMessages stores the messages of entries in as few rows as possible.
func (s *committer) storeMessages(w *session, entries []*entry) (keys []history.OutboxKey, err error) {
	var row [][]byte
	size := 0
	flush := func() error {
		if size == 0 {
			return nil
		}
		id := s.ids.next(s.now())
		_, err := w.exec("INSERT INTO rondo_outbox (id, messages) VALUES (?, ?)", id, slices.Concat(row...))
		keys = append(keys, history.OutboxKey{ID: id})
		row, size = row[:0], 0
		return err
	}
	for _, e := range entries {
		for _, p := range e.Packed {
			if size+len(p) > history.MaxOutboxEntry {
				if err := flush(); err != nil {
					return nil, err
				}
			}
			row, size = append(row, p), size+len(p)
		}
	}
	err = flush()
	return keys, err
}
