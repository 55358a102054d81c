package main

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// writer implements [history.Rounds], [history.Outbox], [history.Wakes], [history.Updates] and
// [history.Systems].
type writer struct{ *session }

// Load implements [history.Rounds].
func (s writer) Load(ctx context.Context, ids []string, admit func(string, round.Row) bool) ([]round.Known, error) {
	return call(ctx, s.session, "load", func() ([]round.Known, error) {
		known := make([]round.Known, len(ids))
		for i, id := range ids {
			known[i].Instance = id
			in, err := s.find(id)
			if err != nil {
				continue
			}
			known[i].Row = copyRow(in.row)
			if admit == nil || admit(id, known[i].Row) {
				known[i].History, known[i].Unreadable = decode(id, in.row.Execution, in.events[in.row.Execution])
			}
		}
		return known, nil
	})
}

// Commit implements [history.Rounds].
func (s writer) Commit(ctx context.Context, batch history.Batch) (history.Result, error) {
	return call(ctx, s.session, "commit", func() (history.Result, error) {
		if err := batch.Check(); err != nil {
			return history.Result{}, err
		}
		encoded := make([]histories, len(batch.Turns)) // before anything is changed: it may fail
		for i, d := range batch.Turns {
			var err error
			if encoded[i], err = encode(d.Turn); err != nil {
				return history.Result{}, err
			}
		}
		result := history.Result{Outcomes: make([]history.Outcome, len(batch.Turns))}
		var messages []events.Wire
		for i, d := range batch.Turns {
			if result.Outcomes[i] = s.judge(d.Turn); result.Outcomes[i].Status == history.Committed {
				s.apply(d.Turn, encoded[i])
				messages = append(messages, d.Messages...)
			}
		}
		result.Entries = s.addToOutbox(messages)
		for _, key := range batch.Published {
			delete(s.outbox, key)
		}
		return result, nil
	})
}

// judge decides whether a turn may be stored: its instance must have the version that it expects.
func (t *tables) judge(turn *round.Turn) history.Outcome {
	in, parent := t.instances[turn.Instance], turn.Row.Parent
	var is round.RowVersion // of an instance that does not exist, and of a tombstone
	if in.exists() {
		is = in.row.RowVersion()
	}
	e := turn.Expected
	switch {
	case e.Incarnation != is.Incarnation || e.Execution != is.Execution || e.LastEvent != is.LastEvent:
		return history.Outcome{Status: history.Conflict, Actual: is}
	case is.Execution > 0: // it goes on
	case in != nil && in.row.StartMessage == text(turn.Row.StartMessage):
		return history.Outcome{Status: history.Deleted}
	case parent != nil && !t.instances[parent.Instance].asked(parent):
		return history.Outcome{Status: history.ParentDeleted}
	}
	return history.Outcome{Status: history.Committed}
}

// asked reports whether the instance is the parent that asked for a child. If it has begun another
// incarnation since, it still has the execution that did.
func (in *instance) asked(p *events.Parent) bool {
	return in.exists() && (in.row.Incarnation == p.Incarnation || in.former[p.Execution].Incarnation == p.Incarnation)
}

// apply stores a turn that was taken, with its encoded events.
func (t *tables) apply(turn *round.Turn, encoded histories) {
	in := t.instances[turn.Instance]
	if !in.exists() { // it may be a tombstone, which the new incarnation replaces
		in = &instance{former: make(map[int64]round.Row), events: make(histories)}
		t.instances[turn.Instance] = in
	}
	if in.row.Incarnation != turn.Row.Incarnation {
		in.created = cmp.Or(turn.Row.StartedAt, turn.Row.UpdatedAt).UTC()
	}
	if in.values == nil || turn.ClearValues {
		in.values = make(map[string]history.Value)
	}
	for execution, list := range encoded {
		in.events[execution] = append(in.events[execution], list...)
	}
	for _, row := range turn.Former {
		in.former[row.Execution] = copyRow(row)
		if row.Incarnation == turn.Row.Incarnation && row.StartedAt.Before(in.created) {
			in.created = row.StartedAt.UTC()
		}
	}
	for _, v := range turn.Values {
		if delete(in.values, v.Key); !v.Removed {
			in.values[v.Key] = history.Value{Data: bytes.Clone(v.Value), Execution: v.Execution, Set: v.Set}
		}
	}
	in.row = copyRow(turn.Row)
}

// copyRow copies a row with all that it points to: the store and its callers share no memory. Its
// texts and times are as a database gives them.
func copyRow(r round.Row) round.Row {
	r.Version, r.Trace, r.StartMessage = text(r.Version), text(r.Trace), text(r.StartMessage)
	r.StartedAt, r.UpdatedAt = r.StartedAt.UTC(), r.UpdatedAt.UTC()
	r.EndedAt, r.WakeAt = r.EndedAt.UTC(), r.WakeAt.UTC()
	r.Output, r.CustomStatus = bytes.Clone(r.Output), bytes.Clone(r.CustomStatus)
	r.Attributes, r.Error = maps.Clone(r.Attributes), copyError(r.Error)
	if r.Parent != nil {
		p := *r.Parent
		r.Parent = &p
	}
	return r
}

func copyError(e *failure.Error) *failure.Error {
	if e == nil {
		return nil
	}
	c := *e
	c.Details, c.Cause = bytes.Clone(e.Details), copyError(e.Cause)
	return &c
}

// text is s as databases take it. Clients may send anything.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func encode(turn *round.Turn) (histories, error) {
	encoded := make(histories)
	for _, x := range turn.Executions {
		for _, e := range x.Events {
			data, err := events.EncodeEvent(e)
			if err != nil {
				return nil, err
			}
			encoded[x.ID] = append(encoded[x.ID], data)
		}
	}
	return encoded, nil
}

func decode(id string, execution int64, encoded [][]byte) (list []events.Event, err error) {
	for _, data := range encoded {
		e, err := events.DecodeEvent(data)
		if err != nil {
			return nil, &history.Error{Class: history.Corrupt, Op: "read a history", Err: &history.UnreadableError{
				Instance: id, Execution: execution, Event: int64(len(list)) + 1, Column: "data", Err: err}}
		}
		list = append(list, e)
	}
	return list, nil
}

// ---- The outbox.

// addToOutbox stores messages in as few entries as their bound allows.
func (s *session) addToOutbox(messages []events.Wire) (keys []history.OutboxKey) {
	var last *entry
	for _, m := range messages {
		packed := history.AppendPacked(nil, m)
		if last == nil || len(last.packed)+len(packed) > history.MaxOutboxEntry {
			last = new(entry)
			s.lastID = max(history.OutboxID(s.now(), 0), s.lastID+1) // in order, also if the clock goes back
			keys = append(keys, history.OutboxKey{ID: s.lastID})
			s.outbox[keys[len(keys)-1]] = last
		}
		last.packed = append(last.packed, packed...)
	}
	return keys
}

// before gives the keys of the entries that were stored before a moment, oldest first.
func (t *tables) before(at time.Time) []history.OutboxKey {
	end := history.OutboxID(at, 0)
	keys := slices.SortedFunc(maps.Keys(t.outbox), func(a, b history.OutboxKey) int { return cmp.Compare(a.ID, b.ID) })
	return slices.DeleteFunc(keys, func(k history.OutboxKey) bool { return k.ID >= end })
}

func (t *tables) unpack(key history.OutboxKey) history.OutboxEntry {
	messages, err := history.Unpack(t.outbox[key].packed)
	return history.OutboxEntry{Key: key, Messages: messages, Err: err}
}

// LeaseOutbox implements [history.Outbox].
func (s writer) LeaseOutbox(ctx context.Context, take history.Lease) ([]history.OutboxEntry, error) {
	return call(ctx, s.session, "lease_outbox", func() (leased []history.OutboxEntry, err error) {
		if err := take.Check(); err != nil {
			return nil, err
		}
		now, size := s.now(), int64(0)
		for _, key := range s.before(take.Before) {
			e := s.outbox[key]
			if e.leased.After(now) {
				continue
			}
			size += int64(len(e.packed))
			if len(leased) == take.Limit || take.Bytes > 0 && size > take.Bytes && len(leased) > 0 {
				break
			}
			e.leased = take.Until
			leased = append(leased, s.unpack(key))
		}
		return leased, nil
	})
}

// RemoveOutbox implements [history.Outbox].
func (s writer) RemoveOutbox(ctx context.Context, keys []history.OutboxKey) error {
	_, err := call(ctx, s.session, "remove_outbox", func() (any, error) {
		for _, key := range keys {
			delete(s.outbox, key)
		}
		return nil, nil
	})
	return err
}

// CountOutbox implements [history.Outbox].
func (s writer) CountOutbox(ctx context.Context, limit int) (int, error) {
	return call(ctx, s.session, "count_outbox", func() (int, error) { return min(len(s.outbox), limit), nil })
}

// OldestOutbox implements [history.Outbox].
func (s writer) OldestOutbox(ctx context.Context) (time.Time, error) {
	return call(ctx, s.session, "oldest_outbox", func() (oldest time.Time, err error) {
		for key := range s.outbox {
			if made := key.Made(); oldest.IsZero() || made.Before(oldest) {
				oldest = made
			}
		}
		return oldest, nil
	})
}

// ---- The sweep for overdue instances, and the system.

// LeaseOverdue implements [history.Wakes].
func (s writer) LeaseOverdue(ctx context.Context, take history.Lease) ([]history.Overdue, error) {
	return call(ctx, s.session, "lease_overdue", func() (overdue []history.Overdue, err error) {
		if err := take.Check(); err != nil {
			return nil, err
		}
		for id, in := range s.instances {
			if at := in.row.WakeAt; !at.IsZero() && at.Before(take.Before) {
				overdue = append(overdue, history.Overdue{Instance: id, RowVersion: in.row.RowVersion(), WakeAt: at})
			}
		}
		slices.SortFunc(overdue, func(a, b history.Overdue) int {
			return cmp.Or(a.WakeAt.Compare(b.WakeAt), cmp.Compare(a.Instance, b.Instance))
		})
		overdue = overdue[:min(len(overdue), take.Limit)]
		for _, o := range overdue {
			s.instances[o.Instance].row.WakeAt = take.Until
		}
		return overdue, nil
	})
}

// LastUpdate implements [history.Updates].
func (s writer) LastUpdate(ctx context.Context, before time.Time) (time.Time, error) {
	return call(ctx, s.session, "last_update", func() (last time.Time, err error) {
		for _, in := range s.instances {
			if at := in.row.UpdatedAt; in.exists() && at.Before(before) && at.After(last) {
				last = at
			}
		}
		return last, nil
	})
}

// Identity implements [history.Systems].
func (s writer) Identity(ctx context.Context) (history.System, error) {
	return call(ctx, s.session, "identity", func() (history.System, error) {
		system := s.system
		system.Exclusive = true // no other process can have this memory
		return system, nil
	})
}

// SetIdentity implements [history.Systems].
func (s writer) SetIdentity(ctx context.Context, from history.System, id string,
	beats int64) (now history.System, ok bool, err error) {
	now, err = call(ctx, s.session, "set_identity", func() (history.System, error) {
		if ok = s.system.ID == from.ID && s.system.Beats == from.Beats; ok {
			s.system = history.System{ID: id, Beats: beats, BeatAt: s.now()}
		}
		system := s.system
		system.Exclusive = true
		return system, nil
	})
	return now, ok, err
}
