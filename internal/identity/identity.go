// Package identity keeps a database from being used with a broker that is not its own, and notices
// when one of them is older than it was.
//
// A database and a broker that belong together are a system. Both keep its id and a count: the
// database in the table rondo_system, the broker under [broker.KeySystem]. Every few seconds, the
// orchestrator that owns partition 0 makes a beat: it increments the count in the database, and
// AFTER that in the broker. All orchestrators compare both, before they join the others and as long
// as they run:
//
//	database          broker          what it means, and what follows
//	no id             none            both are new: they become a system, as below
//	an id, count 0    none            likewise, and a process died in between
//	an id             none, or less   the broker has lost files, or another broker is used with this database
//	an id             the same        they agree
//	an id             more            the database was restored, or is a copy; or another copy is used meanwhile
//	one of them       another         they do not belong together
//
// An id ends with the prefix of the system, because a process with another prefix uses other
// streams and buckets, and so finds no entry: to it, the broker looks like one that has lost files.
//
// A database and a broker become a system before a process serves them, and neither can become part
// of two. The first three steps are compare-and-set, and any process may do the next one:
//
//  1. the database gets an id and the count 0, if it has none
//  2. the broker gets an entry with this id and a random one to follow it, if it has no entry: from
//     then on, the broker refuses other databases
//  3. the id in the database becomes the following one, with the count 1, if it is still the first:
//     from then on, the database refuses other brokers, whose entries have another id to follow
//  4. the broker's entry gets the new id and the count 1
//
// Where one side is ahead, its next beats tell the two meanings apart. If they come, another broker
// or another database is in use: this process must end, which it does with a [*Mismatch]. If none
// comes for a while, the other side has lost something: its count is set to that of the side ahead,
// and the broker gets once more the messages that it may lack since its last beat. A database that
// is older by more than [MaxLoss] was restored from a backup or is an old copy, which nothing here
// can tell apart: an operator has to decide ([Adopt]). Only time counts in which this process has
// looked: after a comparison that failed or came late, the wait begins again.
package identity

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/history"
)

// Every is the interval of beats and of comparisons.
const Every = 10 * time.Second

// AnswersWithin bounds the time of a command for one look at the database and the broker. Both may
// be slow, but one that hangs must not keep the command for ever.
const AnswersWithin = time.Minute

// MaxLoss is how much a database may have lost without an operator: more than the last moments that
// an asynchronous standby lacks when it takes over. Time in which no beat was made does not count:
// nothing ran then.
const MaxLoss = time.Minute

// isOld reports whether a database lacks more than MaxLoss of what the broker has seen of it.
func isOld(d history.System, e *Entry) bool {
	return e.BeatAt.Sub(d.BeatAt) > MaxLoss && e.Beats-d.Beats > int64(MaxLoss/Every)
}

// Entry is what the broker keeps.
type Entry struct {
	System string    `json:"system"`
	Beats  int64     `json:"beats"`
	BeatAt time.Time `json:"beat_at"` // on the clock of the database
	// Next is the id that the database gets instead of System if the two become a system.
	Next string `json:"next,omitempty"`
}

func entryOf(s history.System) Entry { return Entry{System: s.ID, Beats: s.Beats, BeatAt: s.BeatAt} }

// claims reports whether the broker has an entry that waits for its database, which has just one id
// or the other.
func (e Entry) claims(d history.System) bool {
	return e.Next != "" && (d.ID == e.System || d.ID == e.Next)
}

// Broker is the part of the broker that keeps the entry.
type Broker interface {
	broker.KV
	// Prefix begins the names of all streams and buckets of a system.
	Prefix() string
}

// newID returns the id of a new system.
func newID(prefix string) string { return rand.Text() + prefixMark + prefix }

const prefixMark = "/"

// ErrNoEntry says that what the broker keeps is no entry.
var ErrNoEntry = errors.New("it has no system")

// Read returns what the broker keeps, nil for nothing.
func Read(ctx context.Context, kv broker.KV) (*Entry, error) {
	value, err := kv.Get(ctx, broker.KeySystem)
	if err != nil || value == nil {
		return nil, err
	}
	e := new(Entry)
	if err := json.Unmarshal(value, e); err != nil || e.System == "" {
		return nil, fmt.Errorf("the broker's key %q: %w: %q (%v); `rondo migrate --adopt` writes it anew",
			broker.KeySystem, ErrNoEntry, value, err)
	}
	return e, nil
}

func (e Entry) write(ctx context.Context, kv broker.KV) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return kv.Put(ctx, broker.KeySystem, value, 0)
}

// create writes an entry if the broker has none.
func (e Entry) create(ctx context.Context, kv broker.KV) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = kv.Create(ctx, broker.KeySystem, value)
	return err
}

// relation is what a comparison says.
type relation uint8

const (
	agree          relation = iota + 1
	fresh                   // neither has an id
	unsaid                  // the broker was not told yet
	unclaimed               // the broker was told, and the database does not know of it yet
	unconfirmed             // the database has the id to follow, and the broker was not told yet
	brokerBehind            // the broker has a lower count, or none
	databaseBehind          // the database has a lower count
	foreign                 // the ids differ
	old                     // the database is too old
)

// compare compares what the broker kept with what the database had shortly after.
func compare(d history.System, e *Entry) relation {
	switch {
	case e == nil && d.ID == "":
		return fresh
	case e == nil && d.Beats == 0:
		return unsaid
	case e == nil:
		return brokerBehind
	case e.claims(d) && d.Beats == 0:
		return unclaimed
	case e.claims(d) && d.Beats == 1:
		return unconfirmed
	case e.claims(d):
		return brokerBehind // it has lost later entries
	case e.System != d.ID:
		return foreign
	case e.Beats < d.Beats:
		return brokerBehind
	case e.Beats == d.Beats:
		return agree
	case isOld(d, e):
		return old
	}
	return databaseBehind
}

// IsMismatch reports whether an error is a [*Mismatch].
func IsMismatch(err error) bool { _, ok := errors.AsType[*Mismatch](err); return ok }

// Mismatch says that a database and a broker do not belong together.
type Mismatch struct {
	Database history.System
	Broker   *Entry // nil: none
	why      string
}

// Advice is what an operator can do, unless the database was restored.
const Advice = "correct the address of the database, or the address, account or prefix of NATS; if the two " +
	"shall be one system from now on, stop all orchestrators of both, and run `rondo migrate --adopt`"

// adviceRestored is what an operator can do if the database is older than what NATS has seen of it.
const adviceRestored = "if it was restored, do what docs/operating.md says under \"After the database was " +
	"restored\": stop all services, delete the streams and buckets of the messages in flight that it names, " +
	"and run `rondo migrate --streams --adopt`; otherwise correct the address of the database or of NATS"

func (e *Mismatch) Error() string {
	if e.Restored() {
		return e.Problem() + "; " + adviceRestored
	}
	return e.Problem() + "; " + Advice
}

// Restored reports whether the database is older than what NATS has seen of it.
func (e *Mismatch) Restored() bool { return e.why == whyOld }

const whyOld = "the database is older than what NATS has seen of it; it was restored from a backup, or is a copy"

// Problem is the error without advice.
func (e *Mismatch) Problem() string {
	return fmt.Sprintf("the database and NATS do not belong together: %s; %s", e.why, e.sides())
}

// sides describes both.
func (e *Mismatch) sides() string {
	there := "no system"
	if e.Broker != nil {
		there = fmt.Sprintf("system %s (beat %d at %s)", Short(e.Broker.System), e.Broker.Beats,
			moment(e.Broker.BeatAt))
	}
	here := "no system"
	if e.Database.ID != "" {
		here = fmt.Sprintf("system %s (beat %d at %s)", Short(e.Database.ID), e.Database.Beats,
			moment(e.Database.BeatAt))
	}
	return fmt.Sprintf("the database has %s, NATS has %s", here, there)
}

// Short is the part of an id that texts show.
func Short(id string) string { return strings.ToLower(id[:min(8, len(id))]) }

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Check compares once, for processes that make no beats, and gives up after a minute. A side that
// is behind is no error: the orchestrators see to it.
func Check(ctx context.Context, store history.Systems, b Broker) error {
	ctx, cancel := context.WithTimeout(ctx, AnswersWithin)
	defer cancel()
	e, err := Read(ctx, b)
	if err != nil {
		return err
	}
	d, err := store.Identity(ctx)
	if err != nil {
		return err
	}
	return Compare(b.Prefix(), d, e)
}

// AwaitUnused returns a [*Mismatch] if a database is in use, although the broker has no entry.
func AwaitUnused(ctx context.Context, store history.Systems, b Broker) error {
	err := awaitQuiet(ctx, store, b)
	inUse, is := errors.AsType[*InUse](err)
	if !is {
		return err
	}
	if inUse.Broker != nil {
		return Compare(b.Prefix(), inUse.Database, inUse.Broker) // an entry was made meanwhile
	}
	return &Mismatch{inUse.Database, nil, "orchestrators use this database with another NATS, which makes beats"}
}

// Compare compares what the broker of a prefix keeps with what the database had shortly after. The
// error is that of a comparison that needs an operator.
func Compare(prefix string, d history.System, e *Entry) error {
	_, of, has := strings.Cut(d.ID, prefixMark)
	r := compare(d, e)
	switch {
	case has && of != prefix:
		return &Mismatch{d, e, fmt.Sprintf("the system of the database has the prefix %q, and this process %q", of,
			prefix)}
	case r == foreign && d.ID == "":
		return &Mismatch{d, e, "the database is new, and NATS is in use with another one"}
	case r == foreign:
		return &Mismatch{d, e, "they are of different systems"}
	case r == old:
		return &Mismatch{d, e, whyOld}
	}
	return nil
}

// InUse says that orchestrators use a database or a broker that is to be adopted.
type InUse struct {
	Database history.System
	Broker   *Entry // nil: none
}

func (e *InUse) Error() string {
	return (&Mismatch{e.Database, e.Broker, ""}).sides() + "; orchestrators make beats in one of them: stop all " +
		"orchestrators of both first, so that a wrong address does not end a system that runs"
}

// awaitQuiet returns an error if beats are made in the database or the broker.
func awaitQuiet(ctx context.Context, store history.Systems, b Broker) error {
	type counts struct{ here, there int64 }
	read := func() (c counts, d history.System, e *Entry, err error) {
		ctx, cancel := context.WithTimeout(ctx, AnswersWithin)
		defer cancel()
		if e, err = Read(ctx, b); err != nil {
			e = nil // it is written anew
		}
		if d, err = store.Identity(ctx); e != nil {
			c.there = e.Beats
		}
		c.here = d.Beats
		return c, d, e, err
	}
	first, _, e, err := read()
	if err != nil || first.here == 0 && e == nil {
		return err
	}
	since, last := time.Now(), time.Now()
	for last.Sub(since) < Every*5/2 {
		select {
		case <-time.After(Every / 10):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now, d, e, err := read()
		if err != nil {
			return err
		}
		if now != first {
			return &InUse{d, e}
		}
		read := time.Now()
		if read.Sub(last) > Every { // this process, or what it asks, stood still, and the others, too
			since = read
		}
		last = read
	}
	return nil
}

// Adopt makes a database and a broker one system, whatever they belonged to. It waits until it is
// certain that no orchestrator uses one of them, and fails with an [*InUse] if one does, and with
// an error if one of them does not answer for a minute. The next orchestrator publishes the
// messages that the broker may lack.
func Adopt(ctx context.Context, store history.Systems, b Broker) (history.System, error) {
	if err := awaitQuiet(ctx, store, b); err != nil {
		return history.System{}, err
	}
	return adopt(ctx, store, b)
}

func adopt(ctx context.Context, store history.Systems, b Broker) (history.System, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswersWithin)
	defer cancel()
	for {
		e, err := Read(ctx, b)
		if err != nil && ctx.Err() != nil {
			return history.System{}, err
		}
		d, err := store.Identity(ctx)
		if err != nil {
			return d, err
		}
		if err := b.Delete(ctx, broker.KeyRecovered); err != nil {
			return d, err
		}
		beats := d.Beats
		if e != nil {
			beats = max(beats, e.Beats)
		}
		now, ok, err := store.SetIdentity(ctx, d, newID(b.Prefix()), beats+1)
		if err != nil {
			return now, err
		}
		if ok {
			return now, entryOf(now).write(ctx, b)
		}
	}
}
