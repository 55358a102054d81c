package cockroach

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// committer stores turns.
type committer struct {
	db     *database
	loader *loader // reads back how instances stand
	marks  *marks
	ids    *outboxIDs

	statements      statements
	singleStatement int // see Options.SingleStatement
}

// Commit implements [history.Rounds].
func (s *committer) Commit(ctx context.Context, batch history.Batch) (result history.Result, err error) {
	defer s.db.observer.Begin("commit").End(&err)
	if err := batch.Check(); err != nil {
		return history.Result{}, err
	}
	if err := s.db.mayWrite("commit"); err != nil {
		return history.Result{}, err
	}
	result = history.Result{Outcomes: make([]history.Outcome, len(batch.Turns))}
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
	result.Entries = keys
	return result, nil
}

// entry is a turn in flight to the database.
type entry struct {
	sqlrow.Entry
	size    int
	several bool // it needs a transaction of several statements
	general bool // it needs the statement that can do everything, for a reason that was found in the database
}

// encode writes turns as rows, in the order of their keys.
func (s *committer) encode(turns []history.Decided) ([]*entry, error) {
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

func (s *committer) encodeTurn(d history.Decided) (*entry, error) {
	encoded, err := sqlrow.Encode(d)
	if err != nil {
		return nil, err
	}
	e, t := &entry{Entry: encoded}, d.Turn
	c := &e.Columns
	c.Shard = history.ShardOf(t.Instance)
	c.WakeAt.Time = s.marks.wakeAt(c.Shard, t.Row.WakeAt)
	newIncarnation := t.Expected.Incarnation != t.Row.Incarnation
	if !newIncarnation {
		// Columns that never change within an incarnation are stored already.
		c.Attributes, c.CreatedAt.Time = nil, t.Row.UpdatedAt
		if t.Expected.CustomStatusVersion == t.Row.CustomStatusVersion {
			c.CustomStatus = nil
		}
	}
	for i := range e.Rows {
		r := &e.Rows[i]
		r.Shard = c.Shard
		e.size += len(r.Data) + len(t.Instance) + 32
	}
	for i := range e.Former {
		f := &e.Former[i]
		f.Shard = c.Shard
		e.size += len(f.Output) + len(f.Error)
	}
	for _, p := range e.Packed {
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

// outboxIDs makes the ids of outbox entries of this process.
type outboxIDs struct {
	marks  *marks
	shard  int16 // where this process keeps its outbox entries
	random func() uint64
	now    func() time.Time
}

// next is the id of the next row of the outbox. The ones behind it may be used, too.
func (o *outboxIDs) next() int64 {
	now := o.now()
	at := o.marks.notBefore(markOutbox, o.shard, now)
	if !at.Equal(now) { // until the clock comes there, all of them would share one microsecond
		at = at.Add(-time.Duration(o.random() % uint64(time.Second)))
	}
	return history.OutboxID(at, o.random())
}

// key is the key of the next row of the outbox.
func (o *outboxIDs) key() history.OutboxKey { return history.OutboxKey{Shard: o.shard, ID: o.next()} }

// rows gives each piece the row of the outbox it goes into.
func (o *outboxIDs) rows(entries []*entry) (ids []int64, pieces [][]byte) {
	id, size := o.next(), 0
	for _, e := range entries {
		for _, p := range e.Packed {
			if size > 0 && size+len(p) > history.MaxOutboxEntry {
				id, size = id+1, 0
			}
			size += len(p)
			ids, pieces = append(ids, id), append(pieces, p)
		}
	}
	return ids, pieces
}

// keysOf are the keys of rows by their ids.
func (o *outboxIDs) keysOf(ids []int64) []history.OutboxKey {
	var keys []history.OutboxKey
	for _, id := range slices.Compact(slices.Clone(ids)) {
		keys = append(keys, history.OutboxKey{Shard: o.shard, ID: id})
	}
	return keys
}

// outboxRow is the outbox entry that a statement makes, with the entries of its parts and their
// positions.
type outboxRow struct {
	id          int64
	whole       []byte
	of          []string
	place, size []int64
}

func newOutboxRow(id int64, entries []*entry) outboxRow {
	n, size := 0, 0
	for _, e := range entries {
		for _, piece := range e.Packed {
			n, size = n+1, size+len(piece)
		}
	}
	p := outboxRow{id: id, whole: make([]byte, 0, size), of: make([]string, 0, n), place: make([]int64, 0, n),
		size: make([]int64, 0, n)}
	for _, e := range entries {
		for _, piece := range e.Packed {
			p.of, p.place, p.size = append(p.of, e.Turn.Instance), append(p.place, int64(len(p.whole)+1)),
				append(p.size, int64(len(piece)))
			p.whole = append(p.whole, piece...)
		}
	}
	return p
}

// there reports whether there is a row, if some turns were taken.
func (p outboxRow) there(won map[string]bool) bool {
	return slices.ContainsFunc(p.of, func(id string) bool { return won[id] })
}

// args are the parameters of insertOutboxRow.
func (p outboxRow) args(shard int16, turns int) []any {
	same := int8s(func(n *int64) int64 { return *n })
	ids := texts(func(id *string) string { return *id })
	return []any{shard, p.id, int64(turns), p.whole, ids(p.of), same(p.place), same(p.size)}
}

// commit stores entries, and sets the outcome of each. If the database refuses something about one
// of them, commit finds that one by bisection.
func (s *committer) commit(ctx context.Context, entries []*entry,
	published []history.OutboxKey) ([]history.OutboxKey, error) {
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
func (s *committer) commitTombstones(ctx context.Context, entries []*entry,
	keys []history.OutboxKey) ([]history.OutboxKey, error) {
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

// commitTogether stores entries in one transaction. If the outcome is unknown, it reads the
// instances and retries: a turn that is stored already conflicts with itself.
func (s *committer) commitTogether(ctx context.Context, entries []*entry,
	published []history.OutboxKey) (keys []history.OutboxKey, err error) {
	size, packed, several := 0, 0, false
	for _, e := range entries {
		size += e.size
		several = several || e.several
		for _, p := range e.Packed {
			packed += len(p)
		}
	}
	once := s.commitStatement
	if several || size > s.singleStatement || packed > history.MaxOutboxEntry {
		once = s.commitTransaction
	}
	doubt := false
	var recent []history.OutboxKey // of the try that has an answer
	err = retry(ctx, func() error {
		won, made, err := once(ctx, entries, published)
		if isUnstorable(err) && generalize(entries) { // another process may have begun one of them at this moment
			won, made, err = once(ctx, entries, published)
		}
		c := class(err, s.db.flavour)
		switch {
		case err == nil:
			keys, recent = append(keys, made...), made
			err := retry(ctx, func() error { return s.judge(ctx, entries, won, doubt) })
			if err != nil && len(won) > 0 { // the taken turns are stored
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
	// A turn that was stored and has been erased since is not recognized. No process publishes its
	// messages, so rows that may hold these are left to the sweep.
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

// judge sets the outcome of each entry. It looks up those that did not win.
func (s *committer) judge(ctx context.Context, entries []*entry, won map[string]bool, doubt bool) error {
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
		if sqlrow.StartsChild(e.Turn) {
			ids = append(ids, e.Turn.Row.Parent.Instance)
		}
	}
	found, err := s.loader.rows(ctx, ids)
	if err != nil {
		return fail("read back", class(err, noCommit), err)
	}
	for _, e := range lost {
		if doubt {
			ours, err := s.isStored(ctx, e)
			if err != nil {
				return fail("read back", class(err, noCommit), err)
			}
			if ours {
				e.Outcome = history.Outcome{Status: history.Committed}
				continue
			}
		}
		parentGone := false
		if sqlrow.StartsChild(e.Turn) {
			parentGone, err = dialect.ParentGone(ctx, plain(s.db.pool), e.Turn, found[e.Turn.Row.Parent.Instance])
			if err != nil {
				return fail("read back", class(err, noCommit), err)
			}
		}
		e.Outcome = sqlrow.Refusal(e.Turn, found[e.Turn.Instance], parentGone)
	}
	return nil
}

// sameEvent compares a row of history.
const sameEvent = "SELECT data = $5 FROM rondo_history WHERE shard = $1 AND instance = $2 AND " +
	"execution = $3 AND event = $4"

// isStored reports whether the last event in the database is the one that the entry would have
// stored.
func (s *committer) isStored(ctx context.Context, e *entry) (bool, error) {
	last := e.Rows[len(e.Rows)-1]
	var same bool
	err := s.db.pool.QueryRow(ctx, sameEvent, e.Columns.Shard, e.Turn.Instance, last.Execution, last.Event,
		last.Data).Scan(&same)
	if err == pgx.ErrNoRows {
		return false, nil
	}
	return same, err
}

// part is the share of a commit that one statement stores.
type part struct {
	statement string
	entries   []*entry
	args      []any
	outboxRow
}

// parts are the statements of a batch. A usual one has two, or one made of both, for the turns that
// begin instances and for those that go on: neither needs all the columns, and what begins is
// inserted without a look at conflicts.
func (s *committer) parts(entries []*entry) (parts []part) {
	id := s.ids.next()
	add := func(statement string, entries []*entry, instances []any, more ...any) {
		p := part{statement: statement, entries: entries, outboxRow: newOutboxRow(id+int64(len(parts)), entries)}
		p.args = slices.Concat(instances, historyArrays.args(historyRows(entries)),
			p.outboxRow.args(s.ids.shard, len(entries)), more)
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
			add(s.statements.both, entries, append(freshArrays.args(fresh), knownArrays.args(known)...))
			break
		}
		if len(fresh) > 0 {
			add(s.statements.fresh, fresh, freshArrays.args(fresh))
		}
		if len(known) > 0 {
			add(s.statements.known, known, knownArrays.args(known))
		}
	case slices.ContainsFunc(entries, (*entry).extras):
		add(s.statements.commitExtras, entries, allArrays.args(entries),
			slices.Concat(formerArrays.args(formerRows(entries)), valueArrays.args(valueRows(entries)),
				attributeArrays.args(attributeRows(entries)))...)
	default:
		add(s.statements.commit, entries, allArrays.args(entries))
	}
	return parts
}

// extras reports whether an entry has more than events and messages.
func (e *entry) extras() bool {
	return len(e.Former) > 0 || len(e.Turn.Values) > 0 || len(e.Columns.Attributes) > 0
}

// unusual reports whether an entry needs the statement that can do everything.
func (e *entry) unusual() bool {
	b, r := e.Turn.Expected, e.Turn.Row
	return e.general || e.extras() || sqlrow.StartsChild(e.Turn) || b.Execution > 0 &&
		(b.Execution != r.Execution || b.Incarnation != r.Incarnation)
}

// commitStatement stores entries with one round trip. It gives the instances whose turns were
// taken, and the rows of the outbox that there may be now.
func (s *committer) commitStatement(ctx context.Context, entries []*entry,
	published []history.OutboxKey) (won map[string]bool, keys []history.OutboxKey, err error) {
	conn, err := s.db.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fail("commit", class(err, noCommit), err) // nothing was sent
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
			keys = append(keys, history.OutboxKey{Shard: s.ids.shard, ID: p.id})
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

// These remove rows of the outbox by their keys.
const (
	removeEntry   = "DELETE FROM rondo_outbox WHERE shard = $1 AND id = $2"
	removeEntries = "DELETE FROM rondo_outbox WHERE shard = $1 AND id = ANY($2)"
)

// fewEntries is up to how many keys PostgreSQL is faster with a statement for each: for a list it
// collects the places of all rows first, in a bitmap.
const fewEntries = 4

// queueRemovals adds the removal of published outbox entries.
func (s *committer) queueRemovals(b *pgx.Batch, keys []history.OutboxKey) {
	byShard := make(map[int16][]int64)
	for _, k := range keys {
		byShard[k.Shard] = append(byShard[k.Shard], k.ID)
	}
	for shard, ids := range byShard {
		if s.db.flavour == cockroachdb || len(ids) > fewEntries {
			b.Queue(removeEntries, shard, ids)
			continue
		}
		for _, id := range ids {
			b.Queue(removeEntry, shard, id)
		}
	}
}

// commitTransaction stores entries with several statements in one transaction, for batches that are
// large or remove something.
func (s *committer) commitTransaction(ctx context.Context, entries []*entry,
	published []history.OutboxKey) (won map[string]bool, keys []history.OutboxKey, err error) {
	err = s.db.inTransaction(ctx, func(tx pgx.Tx) error {
		won, keys = make(map[string]bool, len(entries)), nil
		restarted, err := s.formerAttributes(ctx, tx, entries)
		if err != nil {
			return err
		}
		for part := range inParts(entries, s.singleStatement, rowSize) {
			rows, err := tx.Query(ctx, s.statements.instances, allArrays.args(part)...)
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
				err := dialect.DropAttributes(ctx, plain(tx), c.Instance, c.CreatedAt.Time, c.Attributes)
				if err != nil {
					return err
				}
			}
		}
		ids, pieces := s.ids.rows(winners)
		keys = s.ids.keysOf(ids)
		return s.commitRest(ctx, tx, winners, ids, pieces, published)
	})
	return won, keys, err
}

// formerAttributes finds the attributes of the incarnations that end when instances are started
// anew.
func (s *committer) formerAttributes(ctx context.Context, tx pgx.Tx,
	entries []*entry) ([]*sqlrow.InstanceRow, error) {
	var ids []string
	for _, e := range entries {
		if e.Turn.Expected.Execution > 0 && e.Turn.Expected.Incarnation != e.Turn.Row.Incarnation {
			ids = append(ids, e.Turn.Instance)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := s.loader.rowsWith(ctx, tx, ids)
	var out []*sqlrow.InstanceRow
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
func (s *committer) commitRest(ctx context.Context, tx pgx.Tx, winners []*entry, ids []int64, pieces [][]byte,
	published []history.OutboxKey) error {
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
	for part := range inParts(historyRows(winners), s.singleStatement, func(r *sqlrow.HistoryRow) int {
		return len(r.Data) + 64
	}) {
		b.Queue(s.statements.history, historyArrays.args(part)...)
	}
	for part := range inParts(valueRows(winners), s.singleStatement, func(r sqlrow.ValueRow) int {
		return len(r.Value) + 64
	}) {
		b.Queue(s.statements.values, valueArrays.args(part)...)
	}
	for part := range inParts(winners, s.singleStatement, formerSize) {
		b.Queue(s.statements.former, formerArrays.args(formerRows(part))...)
	}
	for part := range inParts(winners, s.singleStatement, func(e *entry) int {
		return len(e.Columns.Attributes)
	}) {
		b.Queue(s.statements.attributes, attributeArrays.args(attributeRows(part))...)
	}
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0] {
			n++
		}
		b.Queue("INSERT INTO rondo_outbox (shard, id, messages) VALUES ($1, $2, $3)", s.ids.shard, ids[0],
			slices.Concat(pieces[:n]...))
		ids, pieces = ids[n:], pieces[n:]
	}
	return tx.SendBatch(ctx, &b).Close()
}
