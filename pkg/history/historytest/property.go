package historytest

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/seedtest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var (
	seed  = flag.Uint64("history.seed", 0, "the only seed of the store's random tests; 0: the ledger, and one more")
	steps = flag.Int("history.steps", 300, "how many steps the store's random tests take")
)

// propertyTests do random things to a store and to a model of it.
var propertyTests = []test{
	{"random/as_the_model_says", asTheModelSays},
}

// model is a model of a store in the simplest form: its data and its answers.
type model struct {
	*store
	r          *rand.Rand
	alive      map[string]*Actor
	values     map[string]map[string]string
	tombstones map[string]tombstone
	outbox     map[history.OutboxKey]*outboxRow
	answers    []*outboxRow // of deleted children; a deletion does not say under which key
	wakes      map[string]time.Time
	late       []*lateTurn // turns that were decided some time ago
	trace      []string
}

// tombstone is the tombstone of a deleted instance.
type tombstone struct {
	start string // the message that began its last incarnation
	until time.Time
}

// outboxRow is a row of the outbox.
type outboxRow struct {
	messages []string // nil: some of the batch's
	batch    *unknown
	made     time.Time
	free     time.Time // when it may be taken
}

// unknown are the messages of a batch that is stored in several rows.
type unknown struct {
	messages map[string]bool
	rows     int // that the model has not read
}

// learn takes the messages of a row from the store, if the model does not know them.
func (m *model) learn(p *outboxRow, got []string) []string {
	m.Helper()
	if p.messages != nil {
		return p.messages
	}
	for _, id := range got {
		if !p.batch.messages[id] {
			m.Fatalf("%q was not stored, or was before", id)
		}
		delete(p.batch.messages, id)
	}
	if p.batch.rows--; p.batch.rows == 0 && len(p.batch.messages) > 0 || len(got) == 0 {
		m.Fatalf("a row has %v, and no row has %v", got, p.batch.messages)
	}
	p.messages = got
	return got
}

// lateTurn is a turn with the actor as it is if the turn is taken.
type lateTurn struct {
	turn *round.Turn
	then *Actor
}

// asTheModelSays takes random steps, and compares the answers of the store with those of the model:
// verdicts, outbox entries, overdue and deleted instances, and from time to time everything.
func asTheModelSays(t *testing.T, db *Database) {
	if *seed != 0 {
		asTheModelSaysWith(t, db, *seed)
		return
	}
	for _, s := range seedtest.Kept(t, t.Name()) {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) { asTheModelSaysWith(t, db, s) })
	}
	asTheModelSaysWith(t, db, seedtest.Draw(t))
}

// asTheModelSaysWith does so with one seed.
func asTheModelSaysWith(t *testing.T, db *Database, drawn uint64) {
	m := &model{
		store: open(t, db), r: rand.New(rand.NewPCG(drawn, 3)), alive: make(map[string]*Actor),
		values:     make(map[string]map[string]string),
		tombstones: make(map[string]tombstone), outbox: make(map[history.OutboxKey]*outboxRow),
		wakes: make(map[string]time.Time),
	}
	defer func() {
		if t.Failed() {
			t.Logf("repeat it with -history.seed=%d; the last steps were", drawn)
			for _, line := range m.trace[max(0, len(m.trace)-30):] {
				t.Log(line)
			}
		}
	}()
	for n := range racetest.Short(*steps, min(*steps, 120)) {
		m.step()
		if n%20 == 19 {
			m.compare()
		}
	}
	m.compare()
	t.Logf("%d instances, %d tombstones, %d outbox entries in the end", len(m.alive), len(m.tombstones), len(m.outbox))
}

func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *model) step() {
	m.Helper()
	switch n := m.r.IntN(100); {
	case n < 55:
		m.commitSome()
	case n < 65:
		m.takeSome()
	case n < 72:
		m.wakeSome()
	case n < 82:
		m.deleteSome()
	case n < 86:
		m.pruneOne()
	case n < 89:
		m.tidyUp()
	case n < 91 && !m.db.Volatile:
		m.note("reopen")
		m.store = m.reopen()
	default:
		d := time.Duration(10*(1+m.r.IntN(60))) * time.Second
		if m.r.IntN(20) == 0 {
			d = time.Duration(1+m.r.IntN(30)) * time.Hour
		}
		m.note("advance %v", d)
		m.clock.Advance(d)
	}
}

// ids are those that instances may have.
func (m *model) ids() []string { return numbered("i", 14) }

// commitSome decides turns of some instances, keeps some for later, and commits the others together
// with some that were kept.
func (m *model) commitSome() {
	m.Helper()
	var batch []*lateTurn
	ids := m.ids()
	for _, i := range m.r.Perm(len(ids))[:1+m.r.IntN(5)] {
		d := m.decide(ids[i])
		if m.r.IntN(4) == 0 {
			m.late = append(m.late, d)
		} else {
			batch = append(batch, d)
		}
	}
	for range m.r.IntN(3) {
		if len(m.late) == 0 {
			break
		}
		i := m.r.IntN(len(m.late))
		d := m.late[i]
		if slices.ContainsFunc(batch, func(x *lateTurn) bool { return x.turn.Instance == d.turn.Instance }) {
			continue
		}
		batch = append(batch, d)
		if m.r.IntN(2) == 0 { // the others come again
			m.late = slices.Delete(m.late, i, i+1)
		}
	}
	m.commitBatch(batch)
}

// decide takes an instance one random turn further, as the model knows it.
func (m *model) decide(id string) *lateTurn {
	a := NewActor(id)
	if known := m.alive[id]; known != nil {
		a = known.Clone()
	}
	a.At(m.clock.Now())
	message := fmt.Sprintf("%s-%d", id, m.r.IntN(1_000_000))
	var t *round.Turn
	switch n := m.r.IntN(10); {
	case a.Row.Execution == 0:
		options := []Option{WithMessage(message)}
		if g, ok := m.tombstones[id]; ok && m.r.IntN(3) == 0 {
			options = []Option{WithMessage(g.start)}
		}
		if ids := slices.Sorted(maps.Keys(m.alive)); len(ids) > 0 && m.r.IntN(3) == 0 {
			options = append(options, WithParent(m.alive[pick(m.r, ids...)]))
		}
		t = a.StartAndCall(options...)
	case a.Row.Status.Ended():
		t = a.StartAndCall(WithMessage(message))
	case n == 0:
		t = Together(a.Note(), a.Complete(`1`))
	case n == 1:
		t = a.ContinueAsNew()
	case n == 2:
		t = Together(a.Set("a", fmt.Sprint(m.r.IntN(100))), a.Set("b", fmt.Sprint(m.r.IntN(100))))
	case n == 3:
		t = a.Remove(pick(m.r, "a", "b"))
	case n == 4:
		t = a.SetStatus(fmt.Sprint(m.r.IntN(100)))
	case n == 5:
		t = a.Wake(m.clock.Now().Add(time.Duration(10*m.r.IntN(1000)) * time.Second))
	default:
		t = a.Note()
	}
	if m.r.IntN(2) == 0 {
		Sends(t, message+"-sent", "other")
	}
	return &lateTurn{t, a}
}

// expect is the status that the store should give to a turn.
func (m *model) expect(d *lateTurn) history.CommitStatus {
	known, t := m.alive[d.turn.Instance], d.turn
	if known != nil || t.Expected.Execution > 0 {
		if known != nil && t.Expected.Incarnation == known.Row.Incarnation &&
			t.Expected.Execution == known.Row.Execution &&
			t.Expected.LastEvent == known.Row.LastEvent {
			return history.Committed
		}
		return history.Conflict
	}
	if g, ok := m.tombstones[t.Instance]; ok && g.start == t.Row.StartMessage {
		return history.Deleted
	}
	if p := t.Row.Parent; p != nil && !m.hadIncarnation(p.Instance, p.Incarnation) {
		return history.ParentDeleted
	}
	return history.Committed
}

// hadIncarnation reports whether an instance has that incarnation, or began another one
// without being deleted, and still has the execution that asked for the child.
func (m *model) hadIncarnation(id, incarnation string) bool {
	a := m.alive[id]
	return a != nil && (a.Row.Incarnation == incarnation ||
		slices.Contains(slices.Collect(maps.Values(a.incarnations)), incarnation))
}

func (m *model) commitBatch(list []*lateTurn) {
	m.Helper()
	if len(list) == 0 {
		return
	}
	var turns []*round.Turn
	var want []history.CommitStatus
	for _, d := range list {
		turns, want = append(turns, d.turn), append(want, m.expect(d))
		m.note("commit %q from %+v to %d/%d, starts %q: %v", d.turn.Instance, d.turn.Expected, d.turn.Row.Execution,
			d.turn.Row.LastEvent, d.turn.Row.StartMessage, want[len(want)-1])
	}
	batch := Batch(m.TB, turns...)
	for key := range m.outbox { // some have been published meanwhile
		if m.r.IntN(5) == 0 {
			batch.Published = append(batch.Published, key)
			delete(m.outbox, key)
		}
	}
	r, err := m.Commit(m.ctx(), batch)
	if err != nil {
		m.Fatal(err)
	}
	m.verdicts(r, want...)
	var sent []string
	for i, d := range list {
		if want[i] == history.Committed {
			m.take1(d)
			for _, msg := range d.turn.Messages {
				sent = append(sent, msg.ID)
			}
		}
	}
	if (len(sent) > 0) != (len(r.Entries) > 0) || len(r.Entries) > 3 {
		// what begins, what goes on, and what takes the place of a tombstone
		m.Fatalf("%d messages were stored in %v", len(sent), r.Entries)
	}
	those := &unknown{make(map[string]bool), len(r.Entries)}
	for _, id := range sent {
		those.messages[id] = true
	}
	for _, key := range r.Entries {
		m.outbox[key] = &outboxRow{batch: those, made: m.clock.Now()}
	}
}

// take1 takes the model where a turn has brought an instance.
func (m *model) take1(d *lateTurn) {
	id, t := d.turn.Instance, d.turn
	if m.values[id] == nil || t.ClearValues {
		m.values[id] = make(map[string]string)
	}
	for _, v := range t.Values {
		if v.Removed {
			delete(m.values[id], v.Key)
		} else {
			m.values[id][v.Key] = string(v.Value)
		}
	}
	a := d.then.Clone()
	a.incarnations = make(map[int64]string)
	if before := m.alive[id]; before != nil {
		maps.Copy(a.incarnations, before.incarnations)
		for x := range a.Events { // executions pruned meanwhile stay away
			if _, kept := before.Events[x]; !kept && x <= before.Row.Execution {
				delete(a.Events, x)
			}
		}
	}
	for _, f := range t.Former {
		a.incarnations[f.Execution] = f.Incarnation
	}
	m.alive[id] = a
	delete(m.tombstones, id)
	if m.wakes[id] = t.Row.WakeAt; t.Row.WakeAt.IsZero() {
		delete(m.wakes, id)
	}
}

// takeSome takes over outbox entries.
func (m *model) takeSome() {
	m.Helper()
	now := m.clock.Now()
	take := history.Lease{Before: now.Add(-time.Duration(m.r.IntN(100)) * time.Second),
		Until: now.Add(time.Duration(1+m.r.IntN(100)) * time.Minute), Limit: 10_000}
	m.note("lease outbox %+v", take)
	list, err := m.LeaseOutbox(m.ctx(), take)
	if err != nil {
		m.Fatal(err)
	}
	got := make(map[history.OutboxKey][]string)
	for _, p := range list {
		got[p.Key] = slices.Sorted(slices.Values(m.messages([]history.OutboxEntry{p})))
	}
	for key, ids := range got {
		i := slices.IndexFunc(m.answers, func(p *outboxRow) bool { return slices.Equal(p.messages, ids) })
		if i >= 0 && m.outbox[key] == nil {
			m.outbox[key] = m.answers[i]
			m.answers = slices.Delete(m.answers, i, i+1)
		}
	}
	for _, p := range m.answers {
		if p.made.Before(take.Before) {
			m.Fatalf("taken are %v, and not the answer %v", got, p.messages)
		}
	}
	want := make(map[history.OutboxKey][]string)
	for key, p := range m.outbox {
		if p.made.Before(take.Before) && !p.free.After(now) {
			want[key] = m.learn(p, got[key])
			p.free = take.Until
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		m.Fatalf("taken are %v, want %v", got, want)
	}
	var kept []history.OutboxKey
	for key := range want {
		if m.r.IntN(2) == 0 {
			kept = append(kept, key)
			delete(m.outbox, key)
		}
	}
	if err := m.RemoveOutbox(m.ctx(), kept); err != nil {
		m.Fatal(err)
	}
}

// wakeSome leases the overdue instances.
func (m *model) wakeSome() {
	m.Helper()
	now := m.clock.Now()
	take := history.Lease{Before: now.Add(time.Microsecond),
		Until: now.Add(time.Duration(1+m.r.IntN(100)) * time.Minute), Limit: 10_000}
	m.note("take overdue %+v", take)
	list, err := m.LeaseOverdue(m.ctx(), take)
	if err != nil {
		m.Fatal(err)
	}
	got, want := make(map[string]round.RowVersion), make(map[string]round.RowVersion)
	for _, o := range list {
		got[o.Instance] = o.RowVersion
	}
	for id, at := range m.wakes {
		if at.Before(take.Before) {
			want[id] = m.alive[id].Row.RowVersion()
			m.wakes[id] = take.Until
		}
	}
	if !maps.Equal(got, want) {
		m.Fatalf("overdue are %v, want %v", got, want)
	}
}

// deleteSome deletes instances with their descendants.
func (m *model) deleteSome() {
	m.Helper()
	ids := slices.Sorted(maps.Keys(m.alive))
	if len(ids) == 0 {
		return
	}
	id := pick(m.r, ids...)
	family := map[string]bool{id: true}
	for more := true; more; {
		more = false
		for child, a := range m.alive {
			if p := a.Row.Parent; p != nil && family[p.Instance] && !family[child] {
				family[child], more = true, true
			}
		}
	}
	m.note("delete %v", slices.Sorted(maps.Keys(family)))
	d := m.delete(id)
	if answer, is := m.answerOf(m.alive[id]); is && !family[m.alive[id].Row.Parent.Instance] {
		m.answers = append(m.answers, &outboxRow{messages: []string{answer}, made: m.clock.Now()})
	}
	var want history.DeleteResult
	for member := range family {
		a := m.alive[member]
		want.Add(counts(a))
		want.Values += int64(len(m.values[member]))
		until := m.clock.Now().Add(history.TombstoneTTL)
		if old := m.clock.Now().Add(-history.TombstoneTTL); a.Row.Status.Ended() && a.Row.EndedAt.Before(old) &&
			a.Row.UpdatedAt.Before(old) {
			until = m.clock.Now().Add(time.Hour)
		}
		m.tombstones[member] = tombstone{a.Row.StartMessage, until}
		delete(m.alive, member)
		delete(m.values, member)
		delete(m.wakes, member)
	}
	m.equal("deleted", d, want)
}

// answerOf is the id of the answer that a child gives its parent when it is deleted without it, if
// the parent waits.
func (m *model) answerOf(a *Actor) (id string, is bool) {
	p := a.Row.Parent
	if p == nil || m.alive[p.Instance] == nil {
		return "", false
	}
	parent := m.alive[p.Instance].Row
	return events.MessageID(events.VerbChild, a.ID, events.Ref{Incarnation: a.Row.Incarnation,
		Execution: a.Row.Execution, Event: p.Event}), parent.Incarnation == p.Incarnation && !parent.Status.Ended()
}

// pruneOne removes former executions.
func (m *model) pruneOne() {
	m.Helper()
	ids := slices.Sorted(maps.Keys(m.alive))
	if len(ids) == 0 {
		return
	}
	a := m.alive[pick(m.r, ids...)]
	keep := 1 + m.r.IntN(3)
	m.note("prune %q, keep %d", a.ID, keep)
	d := must[history.DeleteResult](m.store, "prune")(m.Prune(m.ctx(), a.ID, history.Keep{Last: keep}))
	var want history.DeleteResult
	for x, list := range a.Events {
		if x <= a.Row.Execution-int64(keep) {
			want.Executions++
			want.Events += int64(len(list))
			delete(a.Events, x)
			delete(a.incarnations, x)
		}
	}
	m.equal("pruned", d, want)
}

func (m *model) tidyUp() {
	m.Helper()
	m.note("tidy")
	m.tidy()
	for id, g := range m.tombstones {
		if g.until.Before(m.clock.Now()) {
			delete(m.tombstones, id)
		}
	}
}

// compare compares everything.
func (m *model) compare() {
	m.Helper()
	want := history.Metrics{Instances: make(map[round.Status]int64),
		OutboxEntries: int64(len(m.outbox) + len(m.answers)), Tombstones: int64(len(m.tombstones))}
	for _, id := range m.ids() {
		a := m.alive[id]
		if a == nil {
			m.gone(id)
			continue
		}
		m.same(a)
		m.valuesAre(id, m.values[id])
		m.equal("executions of "+id, m.executions(id), slices.Sorted(maps.Keys(a.Events)))
		d := counts(a)
		want.Instances[a.Row.Status]++
		want.Executions += d.Executions
		want.Events += d.Events
	}
	m.lists(history.Filter{}, slices.Collect(maps.Keys(m.alive))...)
	m.equal("metrics", m.metrics(), want)
}
