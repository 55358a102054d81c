package cockroach

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// Commit implements [history.Rounds].
func (s *Store) Commit(ctx context.Context, batch history.Batch) (history.Result, error) {
	if err := batch.Check(); err != nil {
		return history.Result{}, err
	}
	if err := s.mayWrite("commit"); err != nil {
		return history.Result{}, err
	}
	result := history.Result{Outcomes: make([]history.Outcome, len(batch.Turns))}
	entries, err := s.encode(batch.Turns)
	if err != nil {
		return history.Result{}, err
	}
	keys, err := s.commit(ctx, entries, batch.Published)
	if err != nil {
		return history.Result{}, err
	}
	for _, e := range entries {
		result.Outcomes[e.Place] = e.Outcome
	}
	result.Promises = keys
	return result, nil
}

// entry is a turn on its way into the database.
type entry struct {
	relational.Entry
	size    int
	several bool // it needs a transaction of several statements
	general bool // it needs the statement that can do everything, for a reason that was found in the database
}

// encode writes turns as rows, in the order of their keys.
func (s *Store) encode(turns []history.Decided) ([]*entry, error) {
	entries := make([]*entry, len(turns))
	for i, d := range turns {
		e, err := s.encodeTurn(d)
		if err != nil {
			return nil, &history.Error{Class: history.Permanent, Op: "commit", Err: err}
		}
		e.Place = i
		entries[i] = e
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Columns.Shard, b.Columns.Shard), cmp.Compare(a.Turn.Instance, b.Turn.Instance))
	})
	return entries, nil
}

func (s *Store) encodeTurn(d history.Decided) (*entry, error) {
	encoded, err := relational.Encode(d)
	if err != nil {
		return nil, err
	}
	e, t := &entry{Entry: encoded}, d.Turn
	c := &e.Columns
	c.Shard = history.ShardOf(t.Instance)
	c.WakeAt.Time = s.wakeAt(c.Shard, t.Row.WakeAt)
	newIncarnation := t.Expected.Incarnation != t.Row.Incarnation
	if !newIncarnation {
		// What never changes within an incarnation is there already.
		c.Attributes, c.CreatedAt.Time = nil, t.Row.UpdatedAt
		if t.Expected.CustomStatusVersion == t.Row.CustomStatusVersion {
			c.CustomStatus = nil
		}
	}
	for _, r := range e.Rows {
		e.size += len(r.Data) + len(t.Instance) + 32
	}
	for _, f := range e.Former {
		e.size += len(f.Output) + len(f.Error)
	}
	for _, p := range e.Promises {
		e.size += len(p)
	}
	for _, v := range t.Values {
		e.size += len(v.Key) + len(v.Value)
		e.several = e.several || v.Removed
	}
	e.size += rowSize(e)
	e.several = e.several || t.ClearValues || newIncarnation && t.Expected.Execution > 0
	return e, nil
}

// wakeAt rounds a wake-up time up, and moves one that has passed to where the sweep looks.
func (s *Store) wakeAt(shard int16, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	if step := s.options.WakeStep; step > 0 {
		at = at.Add(step - 1).Truncate(step)
	}
	// The mark may be further than this process knows, and move while the turn is on its way, but
	// not nearer to now than the slack.
	if low := s.options.Now().Add(-markSlack / 2); at.Before(low) {
		at = low
	}
	return s.notBefore(markWake, shard, at)
}

// promiseID is the id of the next row of the outbox. The ones behind it may be used, too.
func (s *Store) promiseID() int64 {
	now := s.options.Now()
	at := s.notBefore(markOutbox, s.shard, now)
	if !at.Equal(now) { // until the clock comes there, all of them would share one microsecond
		at = at.Add(-time.Duration(s.random() % uint64(time.Second)))
	}
	return history.PromiseID(at, s.random())
}

// promiseRows gives each piece the row of the outbox it goes into.
func (s *Store) promiseRows(entries []*entry) (ids []int64, pieces [][]byte) {
	id, size := s.promiseID(), 0
	for _, e := range entries {
		for _, p := range e.Promises {
			if size > 0 && size+len(p) > history.MaxPromise {
				id, size = id+1, 0
			}
			size += len(p)
			ids, pieces = append(ids, id), append(pieces, p)
		}
	}
	return ids, pieces
}

// promised is the row of the outbox that a statement makes, with whose parts it has and where these
// are.
type promised struct {
	id          int64
	whole       []byte
	of          []string
	place, size []int64
}

func promise(id int64, entries []*entry) promised {
	n, size := 0, 0
	for _, e := range entries {
		for _, piece := range e.Promises {
			n, size = n+1, size+len(piece)
		}
	}
	p := promised{id: id, whole: make([]byte, 0, size), of: make([]string, 0, n), place: make([]int64, 0, n),
		size: make([]int64, 0, n)}
	for _, e := range entries {
		for _, piece := range e.Promises {
			p.of, p.place, p.size = append(p.of, e.Turn.Instance), append(p.place, int64(len(p.whole)+1)),
				append(p.size, int64(len(piece)))
			p.whole = append(p.whole, piece...)
		}
	}
	return p
}

// there reports whether there is a row, if some turns were taken.
func (p promised) there(won map[string]bool) bool {
	return slices.ContainsFunc(p.of, func(id string) bool { return won[id] })
}

// args are the parameters of keepPromises.
func (p promised) args(shard int16, turns int) []any {
	same := func(n int64) int64 { return n }
	return []any{shard, p.id, int64(turns), p.whole, texts(func(id string) string {
		return id
	})(p.of), int8s(same)(p.place), int8s(same)(p.size)}
}

// commit stores entries, and says in each what became of it. Where the database refuses something
// about one of them, it finds out which by halves.
func (s *Store) commit(ctx context.Context, entries []*entry,
	published []history.PromiseKey) ([]history.PromiseKey, error) {
	keys, err := s.commitTogether(ctx, entries, published)
	if err == nil {
		return s.commitTombstones(ctx, entries, keys)
	}
	if !isUnstorable(err) || len(entries) == 0 {
		return keys, err
	}
	if len(entries) == 1 {
		entries[0].Outcome = history.Outcome{Status: history.Unstorable, Err: err}
		_, err := s.commitTogether(ctx, nil, published)
		return nil, err
	}
	half := len(entries) / 2
	first, err := s.commit(ctx, entries[:half], published)
	if err != nil {
		return nil, err
	}
	second, err := s.commit(ctx, entries[half:], nil)
	if err != nil {
		// The first half is stored. The caller must not believe that nothing is.
		return nil, &history.Error{Class: history.Ambiguous, Op: "commit the rest of a batch", Err: err}
	}
	return append(first, second...), nil
}

// commitTombstones stores the turns that begin instances where there are tombstones that do not
// refuse them.
func (s *Store) commitTombstones(ctx context.Context, entries []*entry,
	keys []history.PromiseKey) ([]history.PromiseKey, error) {
	var again []*entry
	for _, e := range entries {
		if o := e.Outcome; o.Status == history.Conflict && o.Actual == e.Turn.Expected && !e.general {
			e.general = true
			again = append(again, e)
		}
	}
	if len(again) == 0 {
		return keys, nil
	}
	more, err := s.commit(ctx, again, nil)
	if err != nil && len(again) < len(entries) {
		// the others are stored
		err = &history.Error{Class: history.Ambiguous, Op: "commit the rest of a batch", Err: err}
	}
	return append(keys, more...), err
}

// commitTogether stores entries in one transaction. When it cannot tell whether that has happened,
// it looks, and tries again: a turn that is stored already refuses itself.
func (s *Store) commitTogether(ctx context.Context, entries []*entry,
	published []history.PromiseKey) (keys []history.PromiseKey, err error) {
	size, promised, several := 0, 0, false
	for _, e := range entries {
		size += e.size
		several = several || e.several
		for _, p := range e.Promises {
			promised += len(p)
		}
	}
	once := s.commitStatement
	if several || size > s.options.SingleStatement || promised > history.MaxPromise {
		once = s.commitTransaction
	}
	doubt := false
	var recent []history.PromiseKey // of the try that has an answer
	err = retry(ctx, func() error {
		won, made, err := once(ctx, entries, published)
		if isUnstorable(err) && generalize(entries) { // somebody else may have begun one of them at this moment
			won, made, err = once(ctx, entries, published)
		}
		c := class(err, true)
		switch {
		case err == nil:
			keys, recent = append(keys, made...), made
			err := retry(ctx, func() error { return s.judge(ctx, entries, won, doubt) })
			if err != nil && len(won) > 0 { // what was taken is stored
				err = &history.Error{Class: history.Ambiguous, Op: "read back", Err: err}
			}
			return err
		case c == history.Ambiguous:
			doubt = true
			keys = append(keys, made...) // the row may be there
			return &history.Error{Class: history.Retry, Op: "commit", Err: err}
		}
		return fail("commit", c, err)
	})
	if err != nil && doubt && !isUnstorable(err) {
		err = &history.Error{Class: history.Ambiguous, Op: "commit", Err: err}
	}
	// A turn that was stored and has been erased since is not recognized. Nobody publishes what it
	// promised, so rows that may hold that are left to the sweep.
	if doubt && slices.ContainsFunc(entries, func(e *entry) bool { return e.Outcome.Status != history.Committed }) {
		keys = recent
	}
	return keys, err
}

// generalize has entries that begin instances stored with the statement that can do everything,
// unless they are already.
func generalize(entries []*entry) (changed bool) {
	for _, e := range entries {
		changed = changed || !e.general && e.Turn.Expected.Execution == 0
		e.general = true
	}
	return changed
}

// judge says what became of each entry. Those that did not win are looked up.
func (s *Store) judge(ctx context.Context, entries []*entry, won map[string]bool, doubt bool) error {
	var lost []*entry
	for _, e := range entries {
		if won[e.Turn.Instance] {
			e.Outcome = history.Outcome{Status: history.Committed}
		} else {
			lost = append(lost, e)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	ids := make([]string, 0, 2*len(lost))
	for _, e := range lost {
		ids = append(ids, e.Turn.Instance)
		if relational.StartsChild(e.Turn) {
			ids = append(ids, e.Turn.Row.Parent.Instance)
		}
	}
	found, err := s.rows(ctx, ids)
	if err != nil {
		return fail("read back", class(err, false), err)
	}
	for _, e := range lost {
		if doubt {
			ours, err := s.isStored(ctx, e)
			if err != nil {
				return fail("read back", class(err, false), err)
			}
			if ours {
				e.Outcome = history.Outcome{Status: history.Committed}
				continue
			}
		}
		parentGone := false
		if relational.StartsChild(e.Turn) {
			parentGone, err = s.ParentGone(ctx, plain(s.pool), e.Turn, found[e.Turn.Row.Parent.Instance])
			if err != nil {
				return fail("read back", class(err, false), err)
			}
		}
		e.Outcome = relational.Refusal(e.Turn, found[e.Turn.Instance], parentGone)
	}
	return nil
}

// sameEvent compares a row of history.
const sameEvent = "SELECT data = $5 FROM rondo_history WHERE shard = $1 AND instance = $2 AND " +
	"execution = $3 AND event = $4"

// isStored reports whether the end of an entry's history is what the entry would have stored.
func (s *Store) isStored(ctx context.Context, e *entry) (bool, error) {
	last := e.Rows[len(e.Rows)-1]
	var same bool
	err := s.pool.QueryRow(ctx, sameEvent, e.Columns.Shard, e.Turn.Instance, last.Execution, last.Event,
		last.Data).Scan(&same)
	if err == pgx.ErrNoRows {
		return false, nil
	}
	return same, err
}

// part is what one statement stores.
type part struct {
	statement string
	entries   []*entry
	args      []any
	promised
}

// parts are the statements of a batch. A usual one has two, or one made of both, for the turns that
// begin instances and for those that go on: neither needs all the columns, and what begins is
// inserted without a look at conflicts.
func (s *Store) parts(entries []*entry) (parts []part) {
	id := s.promiseID()
	add := func(statement string, entries []*entry, instances []any, more ...any) {
		p := part{statement: statement, entries: entries, promised: promise(id+int64(len(parts)), entries)}
		p.args = slices.Concat(instances, historyArgs(historyRows(entries)),
			p.promised.args(s.shard, len(entries)), more)
		parts = append(parts, p)
	}
	switch {
	case !slices.ContainsFunc(entries, (*entry).unusual):
		var fresh, known []*entry
		for _, e := range entries {
			if e.Turn.Expected.Execution == 0 {
				fresh = append(fresh, e)
			} else {
				known = append(known, e)
			}
		}
		if len(fresh) > 0 && len(known) > 0 && s.statements.both != "" {
			add(s.statements.both, entries, append(instanceArgs(freshLists, fresh), instanceArgs(knownLists, known)...))
			break
		}
		if len(fresh) > 0 {
			add(s.statements.fresh, fresh, instanceArgs(freshLists, fresh))
		}
		if len(known) > 0 {
			add(s.statements.known, known, instanceArgs(knownLists, known))
		}
	case slices.ContainsFunc(entries, (*entry).extras):
		add(s.statements.commitExtras, entries, instanceArgs(allLists, entries),
			slices.Concat(formerArgs(entries), valueArgs(valueRows(entries)), attributeArgs(entries))...)
	default:
		add(s.statements.commit, entries, instanceArgs(allLists, entries))
	}
	return parts
}

// extras reports whether an entry has more than events and promises.
func (e *entry) extras() bool {
	return len(e.Former) > 0 || len(e.Turn.Values) > 0 || len(e.Columns.Attributes) > 0
}

// unusual reports whether an entry needs the statement that can do everything.
func (e *entry) unusual() bool {
	b, r := e.Turn.Expected, e.Turn.Row
	return e.general || e.extras() || relational.StartsChild(e.Turn) || b.Execution > 0 &&
		(b.Execution != r.Execution || b.Incarnation != r.Incarnation)
}

// commitStatement stores entries with one round trip. It gives the instances whose turns were
// taken, and the rows of the outbox that there may be now.
func (s *Store) commitStatement(ctx context.Context, entries []*entry,
	published []history.PromiseKey) (won map[string]bool, keys []history.PromiseKey, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fail("commit", class(err, false), err) // nothing was sent
	}
	defer conn.Release()
	var b pgx.Batch
	s.queueRemovals(&b, published)
	won = make(map[string]bool, len(entries))
	parts := s.parts(entries)
	makeRoom(conn.Conn(), parametersSize(entries), firstArgs(parts)...)
	for _, p := range parts {
		b.Queue(p.statement, p.args...).Query(func(rows pgx.Rows) error { return collect(rows, won) })
	}
	if err = conn.SendBatch(ctx, &b).Close(); err != nil {
		won = nil
	}
	for _, p := range parts {
		if err != nil && len(p.of) > 0 || p.there(won) {
			keys = append(keys, history.PromiseKey{Shard: s.shard, ID: p.id})
		}
	}
	return won, keys, err
}

// parametersSize is about how large the parameters of the statements for entries are.
func parametersSize(entries []*entry) int {
	size := 2 << 10
	for _, e := range entries {
		size += e.size + 300 // that is mostly lengths
	}
	return size
}

func firstArgs(parts []part) (firsts []*any) {
	for i := range parts {
		firsts = append(firsts, &parts[i].args[0])
	}
	return firsts
}

// collect reads the instances whose turns were taken.
func collect(rows pgx.Rows, won map[string]bool) error {
	var id string
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		won[id] = true
		return nil
	})
	return err
}

func (s *Store) keysOf(ids []int64) []history.PromiseKey {
	var keys []history.PromiseKey
	for _, id := range slices.Compact(slices.Clone(ids)) {
		keys = append(keys, history.PromiseKey{Shard: s.shard, ID: id})
	}
	return keys
}

// These remove rows of the outbox by their keys.
const (
	removePromise  = "DELETE FROM rondo_outbox WHERE shard = $1 AND id = $2"
	removePromises = "DELETE FROM rondo_outbox WHERE shard = $1 AND id = ANY($2)"
)

// fewPromises is up to how many keys PostgreSQL is faster with a statement for each: for a list it
// collects the places of all rows first, in a bitmap.
const fewPromises = 4

// queueRemovals adds the removal of promises that have been kept.
func (s *Store) queueRemovals(b *pgx.Batch, keys []history.PromiseKey) {
	byShard := make(map[int16][]int64)
	for _, k := range keys {
		byShard[k.Shard] = append(byShard[k.Shard], k.ID)
	}
	for shard, ids := range byShard {
		if s.flavour == cockroachdb || len(ids) > fewPromises {
			b.Queue(removePromises, shard, ids)
			continue
		}
		for _, id := range ids {
			b.Queue(removePromise, shard, id)
		}
	}
}

// commitTransaction stores entries with several statements in one transaction, for batches that are
// large or remove something.
func (s *Store) commitTransaction(ctx context.Context, entries []*entry,
	published []history.PromiseKey) (won map[string]bool, keys []history.PromiseKey, err error) {
	err = s.inTransaction(ctx, func(tx pgx.Tx) error {
		won, keys = make(map[string]bool, len(entries)), nil
		restarted, err := s.formerAttributes(ctx, tx, entries)
		if err != nil {
			return err
		}
		for part := range inParts(entries, s.options.SingleStatement, rowSize) {
			rows, err := tx.Query(ctx, s.statements.instances, instanceArgs(allLists, part)...)
			if err != nil {
				return err
			}
			if err := collect(rows, won); err != nil {
				return err
			}
		}
		var winners []*entry
		for _, e := range entries {
			if won[e.Turn.Instance] {
				winners = append(winners, e)
			}
		}
		for _, c := range restarted {
			if won[c.Instance] {
				if err := s.DropAttributes(ctx, plain(tx), c.Instance, c.CreatedAt.Time, c.Attributes); err != nil {
					return err
				}
			}
		}
		ids, pieces := s.promiseRows(winners)
		keys = s.keysOf(ids)
		return s.commitRest(ctx, tx, winners, ids, pieces, published)
	})
	return won, keys, err
}

// formerAttributes finds the attributes of the incarnations that end when instances are started
// anew.
func (s *Store) formerAttributes(ctx context.Context, tx pgx.Tx, entries []*entry) ([]*relational.Columns, error) {
	var ids []string
	for _, e := range entries {
		if e.Turn.Expected.Execution > 0 && e.Turn.Expected.Incarnation != e.Turn.Row.Incarnation {
			ids = append(ids, e.Turn.Instance)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := s.rowsWith(ctx, tx, ids)
	var out []*relational.Columns
	for _, id := range ids {
		if c := found[id]; c != nil && len(c.Attributes) > 0 {
			out = append(out, c)
		}
	}
	return out, err
}

// rowSize is about how large an entry's row of the table of instances is.
func rowSize(e *entry) int {
	c := &e.Columns
	return 300 + len(c.Attributes) + len(c.Output) + len(c.Error) + len(c.CustomStatus)
}

// formerSize is about how large the rows of its former executions are.
func formerSize(e *entry) (size int) {
	for _, f := range e.Former {
		size += 300 + len(f.Output) + len(f.Error)
	}
	return size
}

// inParts cuts a list into parts of bounded size.
func inParts[T any](list []T, limit int, size func(T) int) func(func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n, total := 0, 0
			for n < len(list) && (n == 0 || total+size(list[n]) <= limit) {
				total += size(list[n])
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// commitRest stores all but the rows of the instances.
func (s *Store) commitRest(ctx context.Context, tx pgx.Tx, winners []*entry, ids []int64, pieces [][]byte,
	published []history.PromiseKey) error {
	var b pgx.Batch
	s.queueRemovals(&b, published)
	for _, e := range winners {
		if e.Turn.ClearValues {
			b.Queue("DELETE FROM rondo_values WHERE shard = $1 AND instance = $2", e.Columns.Shard, e.Turn.Instance)
			continue
		}
		for _, v := range e.Turn.Values {
			if v.Removed {
				b.Queue("DELETE FROM rondo_values WHERE shard = $1 AND instance = $2 AND key = $3", e.Columns.Shard,
					e.Turn.Instance, v.Key)
			}
		}
	}
	for part := range inParts(historyRows(winners), s.options.SingleStatement, func(r historyRow) int {
		return len(r.Data) + 64
	}) {
		b.Queue(s.statements.history, historyArgs(part)...)
	}
	for part := range inParts(valueRows(winners), s.options.SingleStatement, func(r valueRow) int {
		return len(r.value) + 64
	}) {
		b.Queue(s.statements.values, valueArgs(part)...)
	}
	for part := range inParts(winners, s.options.SingleStatement, formerSize) {
		b.Queue(s.statements.former, formerArgs(part)...)
	}
	for part := range inParts(winners, s.options.SingleStatement, func(e *entry) int {
		return len(e.Columns.Attributes)
	}) {
		b.Queue(s.statements.attributes, attributeArgs(part)...)
	}
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0] {
			n++
		}
		b.Queue("INSERT INTO rondo_outbox (shard, id, messages) VALUES ($1, $2, $3)", s.shard, ids[0],
			slices.Concat(pieces[:n]...))
		ids, pieces = ids[n:], pieces[n:]
	}
	return tx.SendBatch(ctx, &b).Close()
}
