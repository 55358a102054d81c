package round

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// The receipts of messages, with the times of sending. A message may be redelivered at any time:
// after a crash, from a sweep of the outbox, or because its publisher did not hear that it was
// stored. All copies say the same about when it was sent first. An execution knows every message
// that it has taken in itself. Of those before, it knows the newest by that time, and the newest
// time among those it has forgotten. So a message that was sent later is decided on what the
// execution knows; about an older one the histories of earlier executions are asked.

// clocksApart is how far the clock of a sender may be ahead of the broker's. The time of a message
// from a clock that is further ahead differs from copy to copy.
const clocksApart = 10 * time.Second

// SentAt is when a message counts as sent, given what it says itself and when the broker stored it.
// The sender's word counts, so that all copies have the same time, but not for a time that is far
// from having come: it would make the messages of others look old.
func SentAt(said, stored, notBefore time.Time) time.Time {
	least := later(stored, notBefore)
	switch latest := least.Add(clocksApart); {
	case said.IsZero():
		return least
	case said.After(latest):
		return latest
	}
	return later(said, notBefore)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// takenIn is a message that was taken in: the hash of its id, and when it was sent, in microseconds
// since 1970.
type takenIn struct {
	hash uint64
	sent int64
}

// seen remembers which messages were taken in.
type seen struct {
	all   []takenIn // in the order in which they came
	index map[uint64]struct{}
	// forgotten is when the newest message was sent that was taken in and is not in all; 0 if there
	// is none.
	forgotten int64
}

func (s *seen) load(f *events.Started, at time.Time) {
	if !f.Forgotten.IsZero() {
		s.forget(f.Forgotten.UnixMicro())
	}
	for i, h := range f.Seen {
		sent := at.UnixMicro()
		if i < len(f.SeenAges) {
			sent -= f.SeenAges[i]
		}
		s.add(takenIn{h, sent})
	}
}

func (s *seen) take(r events.Receipt) {
	s.add(takenIn{events.SeenHash(r.Message), r.Sent.UnixMicro()})
}

func (s *seen) add(t takenIn) {
	if s.hasHash(t.hash) {
		return
	}
	s.all = append(s.all, t)
	const few = 16 // below, looking through them is as good as an index
	switch {
	case s.index != nil:
		s.index[t.hash] = struct{}{}
	case len(s.all) > few:
		s.index = make(map[uint64]struct{}, 2*few)
		for _, t := range s.all {
			s.index[t.hash] = struct{}{}
		}
	}
}

func (s *seen) has(message string) bool {
	return message != "" && s.hasHash(events.SeenHash(message))
}

func (s *seen) hasHash(h uint64) bool {
	if s.index != nil {
		_, ok := s.index[h]
		return ok
	}
	return slices.ContainsFunc(s.all, func(t takenIn) bool { return t.hash == h })
}

func (s *seen) forget(sent int64) { s.forgotten = max(s.forgotten, sent, 1) }

// reaches reports whether everything that was sent then, if it was taken in, is known.
func (s *seen) reaches(sent time.Time) bool {
	return s.forgotten == 0 || sent.UnixMicro() > s.forgotten
}

// carry writes what the next execution knows into its first event: the n that were sent last.
func (s *seen) carry(f *events.Started, at time.Time, n int) {
	newest := slices.Clone(s.all)
	slices.SortStableFunc(newest, func(a, b takenIn) int { return cmp.Compare(a.sent, b.sent) })
	forgets := seen{forgotten: s.forgotten}
	if more := len(newest) - n; more > 0 {
		forgets.forget(newest[more-1].sent)
		newest = newest[more:]
	}
	if forgets.forgotten != 0 {
		f.Forgotten = time.UnixMicro(forgets.forgotten).UTC()
	}
	if len(newest) == 0 {
		return
	}
	f.Seen, f.SeenAges = make([]uint64, len(newest)), make([]int64, len(newest))
	for i, t := range newest {
		f.Seen[i], f.SeenAges[i] = t.hash, events.Instant(at).UnixMicro()-t.sent
	}
	if !slices.ContainsFunc(f.SeenAges, func(age int64) bool { return age != 0 }) {
		f.SeenAges = nil
	}
}

func (c *Config) remembered() int { return cmp.Or(c.Remembered, events.MaxSeen) }

// ---- What earlier executions have taken in.

// Former is the receipts of executions before the current one, as far back as their histories were
// read. Make it with [NewFormer].
type Former struct {
	execution int64 // the one that asks
	next      int64 // the one to be read next
	seen      seen
	missing   string
	before    *Former // receipts that were read for an earlier execution, until next gets there

	// Of the history of next, as far as it was read:
	last  int64
	first events.Event
	ended bool
}

// NewFormer begins with nothing read.
func NewFormer(execution int64) *Former { return &Former{execution: execution, next: execution - 1} }

// maxFormer bounds the receipts of earlier executions that are kept.
const maxFormer = 500_000

// Then begins for a later execution, or goes on for the same one. Receipts that were read already
// need not be read again.
func (f *Former) Then(execution int64) *Former {
	next := NewFormer(execution)
	if f.execution <= execution && f.missing == "" && len(f.seen.all) < maxFormer {
		if f.execution == execution {
			return f
		}
		next.before = f
	}
	next.join()
	return next
}

// join takes receipts that were read before, when next has got there.
func (f *Former) join() {
	b := f.before
	if b == nil || b.execution-1 != f.next || b.next == b.execution-1 {
		return
	}
	for _, t := range b.seen.all {
		f.seen.add(t)
	}
	f.seen.forgotten, f.next, f.before = b.seen.forgotten, b.next, nil
}

// Of reports for which execution it is.
func (f *Former) Of() int64 { return f.execution }

// Next is the execution whose history is to be read next, to find out whether a message that was
// sent then was taken in; 0 if nothing more has to be, or can be, read.
func (f *Former) Next(sent time.Time) int64 {
	if f.missing != "" || f.knows(sent) {
		return 0
	}
	return f.next
}

// Last is the last event that was read of the history of the next execution; 0 if none was.
func (f *Former) Last() int64 { return f.last }

// Read takes what the whole history of the next execution says.
func (f *Former) Read(history []events.Event) { f.ReadPage(history, true) }

// ReadPage takes what the events of the next execution say that follow [Former.Last]. The last page
// may be empty.
func (f *Former) ReadPage(page []events.Event, last bool) {
	if f.last == 0 && len(page) > 0 {
		f.first = page[0]
	}
	for _, e := range page {
		if r, ok := events.ReceiptOf(e); ok {
			f.seen.take(r)
		}
		if e.ID == f.last+1 {
			f.last = e.ID
		}
		f.ended = e.ID == f.last && events.Ends(e.Fact)
	}
	if !last {
		return
	}
	started, ok := f.first.Fact.(*events.Started)
	if !ok || !f.ended {
		f.Missing(fmt.Sprintf("the history of execution %d was removed", f.next))
		return
	}
	var before seen
	before.load(started, f.first.At)
	for _, t := range before.all {
		f.seen.add(t)
	}
	f.seen.forgotten = before.forgotten
	f.next--
	f.last, f.first, f.ended = 0, events.Event{}, false
	f.join()
}

// Missing notes that nothing more can be read, and why.
func (f *Former) Missing(why string) { f.missing = why }

// knows reports whether everything that was sent then, if an execution that was read has taken it
// in, is known.
func (f *Former) knows(sent time.Time) bool {
	return f.next < f.execution-1 && f.seen.reaches(sent)
}

// Question asks for what executions before one have taken in, as far back as a message tells that
// was sent then.
type Question struct {
	Execution int64
	Sent      time.Time
}

// Remember hands in what earlier executions have taken in, for the next round.
func (in *Instance) Remember(f *Former) { in.former = f }

// takenBefore tells whether a message was taken in before under one of its ids. The second result
// is false if it was not.
func (in *receiver) takenBefore(d Delivery, ids ...string) (Receipt, bool) {
	s, sent := &in.ledger.seen, in.sent(d)
	former := in.former
	if former != nil && former.execution != in.ledger.info.Execution {
		former = nil
	}
	for _, id := range ids {
		if s.has(id) || former != nil && former.seen.has(id) {
			return ignored(Duplicate, "this message was taken before"), true
		}
	}
	switch {
	case d.Message.ID == "", s.reaches(sent), former != nil && former.knows(sent):
		return Receipt{}, false
	case former != nil && former.missing != "":
		return Receipt{Verdict: Dead, Reason: Undecided, Detail: fmt.Sprintf(
			"it was sent at %s, and whether instance %q has taken it in since is not known: %s; "+
				"send it again if it was not",
			sent.Format(time.RFC3339Nano), in.id, former.missing)}, true
	}
	if q := in.turn.Question; q == nil || sent.Before(q.Sent) {
		in.turn.Question = &Question{Execution: in.ledger.info.Execution, Sent: sent}
	}
	return again, true
}
