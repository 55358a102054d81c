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
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// Commit implements [history.Rounds].
func (s *Store) Commit(ctx context.Context, batch history.Batch) (history.Result, error) {
	if err := batch.Check(); err != nil {
		return history.Result{}, err
	}
	entries, err := s.encode(ctx, batch.Turns)
	if err != nil {
		return history.Result{}, fail("commit", err)
	}
	result := history.Result{Outcomes: make([]history.Outcome, len(entries))}
	if len(entries) == 0 && len(batch.Published) == 0 {
		return result, nil
	}
	if result.Promises, err = s.commit(ctx, entries, batch.Published); err != nil {
		return history.Result{}, err
	}
	for _, e := range entries {
		result.Outcomes[e.Place] = e.Outcome
	}
	return result, nil
}

// entry is a turn on its way into the database.
type entry struct {
	relational.Entry
	found *relational.Columns // the row that is there, as far as judging needs it; nil if there is none
}

// encode writes turns as rows, in the order of their keys. It takes most of the time that is not
// SQLite's, and many can do it at once.
func (s *Store) encode(ctx context.Context, turns []history.Decided) ([]*entry, error) {
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

func (s *Store) encodeTurn(d history.Decided) (*entry, error) {
	encoded, err := relational.Encode(d)
	if err != nil {
		return nil, err
	}
	encoded.Columns.WakeAt.Time = s.wakeAt(d.Turn.Row.WakeAt)
	return &entry{Entry: encoded}, nil
}

// commit stores entries, and says in each what became of it.
func (s *Store) commit(ctx context.Context, entries []*entry,
	published []history.PromiseKey) (keys []history.PromiseKey, err error) {
	var careful, doubt bool
	err = s.retry(ctx, func() error {
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
func (s *Store) try(ctx context.Context, entries []*entry, published []history.PromiseKey, careful,
	doubt bool) (keys []history.PromiseKey, err error) {
	err = s.once(ctx, s.writer, toWrite, func(w *session) error {
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
		if keys, err = s.promise(w, winners); err != nil {
			return err
		}
		return removePromises(ctx, w, published)
	})
	if err != nil && class(err) != history.Ambiguous {
		keys = nil
	}
	return keys, err
}

// judged are the columns that decide whether a turn is taken, and how it is written.
const judged = "instance, incarnation, execution, last_event, custom_status_version, status, name, start_message, " +
	"created_at, wake_at, attributes"

// judge reads how instances stand, and gives the entries that are taken. The others have their
// outcomes.
func judge(ctx context.Context, w *session, entries []*entry, doubt bool) (winners []*entry, err error) {
	ids := make([]string, 0, 2*len(entries))
	for _, e := range entries {
		ids = append(ids, e.Turn.Instance)
		if relational.StartsChild(e.Turn) {
			ids = append(ids, e.Turn.Row.Parent.Instance)
		}
	}
	found := make(map[string]*relational.Columns, len(ids))
	err = selectInstances(ctx, w, judged, ids, func(r relational.Row) error {
		c := new(relational.Columns)
		err := r.Scan(&c.Instance, &c.Incarnation, &c.Execution, &c.LastEvent, &c.CustomStatusVersion,
			&c.Status, &c.Name,
			&c.StartMessage,
			&c.CreatedAt, &c.WakeAt, &c.Attributes)
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
		if relational.StartsChild(e.Turn) {
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
		e.Outcome = relational.Refusal(e.Turn, e.found, parentGone)
		if doubt {
			if err := e.recognize(ctx, w); err != nil {
				return nil, err
			}
		}
	}
	return winners, nil
}

// fits reports whether the instance stands where the turn was decided. A tombstone stands where a
// start is decided, but not for the start that began what is in it.
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
	return c.Status != relational.Deleted || c.StartMessage != e.Columns.StartMessage
}

// recognize takes a turn whose last event is in history as the turn would have stored it.
func (e *entry) recognize(ctx context.Context, w *session) error {
	last := e.Rows[len(e.Rows)-1]
	return w.query(context.WithoutCancel(ctx), func(r relational.Row) error {
		var data []byte
		err := r.Scan(&data)
		if err == nil && bytes.Equal(data, last.Data) {
			e.Outcome = history.Outcome{Status: history.Committed}
		}
		return err
	}, "SELECT data FROM rondo_history WHERE shard = 0 AND instance = ? AND execution = ? AND event = ?",
		e.Turn.Instance, last.Execution, last.Event)
}

// writeEach writes each entry in a savepoint of its own. What the database refuses to store makes
// only its turn unstorable.
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

// ---- Promises.

// promiseIDs counts up the ids of promises. They are times, and go on from the last one when the
// clock stands still or goes back.
type promiseIDs struct {
	mu   sync.Mutex
	last int64
}

func (p *promiseIDs) next(now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = max(history.PromiseID(now, 0), p.last+1)
	return p.last
}

// promise stores what entries have promised in as few rows as possible.
func (s *Store) promise(w *session, entries []*entry) (keys []history.PromiseKey, err error) {
	var row [][]byte
	size := 0
	flush := func() error {
		if size == 0 {
			return nil
		}
		id := s.promises.next(s.options.Now())
		_, err := w.exec("INSERT INTO rondo_outbox (id, messages) VALUES (?, ?)", id, slices.Concat(row...))
		keys = append(keys, history.PromiseKey{ID: id})
		row, size = row[:0], 0
		return err
	}
	for _, e := range entries {
		for _, p := range e.Promises {
			if size+len(p) > history.MaxPromise {
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
