// Package natsbroker keeps the promises of package broker on NATS JetStream. It is the one package
// that imports the NATS client.
//
// # Streams
//
// With the prefix "rondo" (see [Config.Prefix]):
//
//	RONDO        rondo.*.*.*                                    work queue; what comes in is moved to
//	                                                            rondo.p.<partition>.<verb>.<name>.<instance>,
//	                                                            a verb of two words taken apart
//	RONDO_LATER  rondo.later.*.*.*, rondo.due.*.*.*             work queue; what waits for its time
//	RONDO_WORK   rondo.work.*.*.*.*, rondo.later.work.*.*.*.*   work queue
//	RONDO_DEAD   rondo.dead.*.*.*, rondo.dead.work.*.*.*.*      kept for a while
//
// Clients publish into RONDO only. There, none of NATS's own headers can touch what others have
// stored: it has neither rollups nor schedules nor lives of single messages, and the ids by which
// NATS drops duplicates begin with a secret of the process that publishes. See security.md in the
// documentation.
//
// The broker itself computes the partition, by a subject transform over the last word, so that
// whoever publishes need not know of it. Each partition has two consumers, a-<partition> for what
// goes ahead, and p-<partition> for everything else, and each queue of work has one, named after
// its tag and activity (see [ConsumerOf]).
//
// Three buckets hold who is there (RONDO_MEMBERS), which worker has which session (RONDO_SESSIONS),
// and small notes (RONDO_NOTES).
//
// # Delays
//
// A message that is not to be taken before a moment more than a second and a half away waits as a
// schedule under rondo.later.…, which the broker publishes a second early, because it may be up to
// a quarter of a second late. Who receives it holds it for the rest. So no such message is early,
// and those that come in time are late by a few milliseconds only. What is nearer than that is
// published at once and held by the receiver. See later.go.
//
// # Order
//
// A receiver that takes a partition over asks which messages were handed out and not settled: those
// of a receiver that died come again only when their time is over. Newer messages of the same
// instances wait for them, for as long as that takes at most. It asks again when it sees, by the
// count of what the broker has handed out, that somebody else was handed something meanwhile: a
// receiver that is frozen or cut off is, until its requests are over.
//
// # The short way
//
// Results of work need not be stored, because the work is, until it is acknowledged. So they are
// sent to whoever published the work, under rondo.notice.handover.to.results-…, if that process
// receives from their partition, and are stored in RONDO only if they are not taken there: see
// back.go.
//
// # Anchors
//
// In RONDO, RONDO_LATER and RONDO_WORK lies a message each that nobody takes, so that they do not
// run empty: see anchor.go.
//
// # When the broker has lost something
//
// Who comes across a stream, a consumer or a bucket that is gone, after a disk was lost for
// instance, makes everything again if [Config.Setup] is [Make], and says so in the log. What was
// stored is lost then; whoever knows what was outstanding publishes it again.
package natsbroker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Bus is a connection to the broker. It is safe for concurrent use.
type Bus struct {
	config Config
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream
	api    string // begins the subjects of JetStream's API
	names  names

	there      atomic.Pointer[there]
	partitions atomic.Int64 // that the inbox was to have, as far as was said here; 0 if nothing was
	count      atomic.Int64 // how many it has, as was seen last; 0 if nobody has looked
	mending    sync.Mutex   // held while things are made
	mended     time.Time

	nonce     string              // begins the ids by which NATS drops what this process publishes twice
	window    *semaphore.Weighted // what is on its way to the broker
	answers   answers
	shortWait atomic.Int64 // how long to wait for an answer by the short way, if it is another time: for tests
	back      back
	ways      ways
	strain    strain
	queues    sync.Map      // of work, those that are known to exist, by the words "<tag>.<activity>" of their subjects
	passing   sync.Map      // where work is passed on, by the same words
	passedOn  atomic.Uint64 // how much work has come that was
	denied    denied
	events    happened

	mu            sync.Mutex
	joined        map[string]*membership
	anchor        anchor
	forwarding    int    // how many want what is due to be forwarded
	endForwarding func() // ends it

	reconnected map[*func()]bool // who wants to know of that
	closed      bool
	wait        sync.WaitGroup  // what runs in the background
	ctx         context.Context // ends with the bus
	close       context.CancelFunc
}

// there is what there is in the broker. Where this connection may not see something, it is nil.
type there struct {
	inbox, later, work, dead jetstream.Stream
	members, sessions, notes jetstream.KeyValue
	marks                    jetstream.KeyValue
}

var (
	_ broker.Publisher   = (*Bus)(nil)
	_ broker.Inbox       = (*Bus)(nil)
	_ broker.DeadLetters = (*Bus)(nil)
	_ broker.WorkBroker  = (*Bus)(nil)
	_ broker.Members     = (*Bus)(nil)
	_ broker.Handovers   = (*Bus)(nil)
	_ broker.Sessions    = (*Bus)(nil)
	_ broker.Notes       = (*Bus)(nil)
	_ broker.Marks       = (*Bus)(nil)
	_ broker.Notices     = (*Bus)(nil)
	_ broker.Questions   = (*Bus)(nil)
	_ broker.RollCalls   = (*Bus)(nil)
)

// names are those of everything in the broker.
type names struct {
	prefix                    string // of subjects
	inbox, later, work, dead  string // streams
	members, sessions, notes_ string // buckets
	marks                     string
}

func namesOf(prefix string) names {
	up := strings.ToUpper(strings.ReplaceAll(prefix, "-", "_"))
	return names{
		prefix: prefix, inbox: up, later: up + "_LATER", work: up + "_WORK", dead: up + "_DEAD",
		members: up + "_MEMBERS", sessions: up + "_SESSIONS", notes_: up + "_NOTES", marks: up + "_MARKS",
	}
}

// Connect connects to the broker and makes what is missing there, or only checks it: see
// [Config.Setup].
func Connect(ctx context.Context, config Config) (*Bus, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("the settings of NATS:\n%w", err)
	}
	b := &Bus{
		config: config, log: config.Logger, names: namesOf(config.Prefix), nonce: rand.Text(),
		window: semaphore.NewWeighted(window), joined: make(map[string]*membership),
	}
	b.partitions.Store(int64(config.Partitions))
	b.ctx, b.close = context.WithCancel(context.Background())
	if err := b.dial(ctx); err != nil {
		b.close()
		return nil, err
	}
	if err := b.Repair(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// run runs something in the background, until the bus is closed.
func (b *Bus) run(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wait.Go(f)
	}
}

// Close closes the connection. What was handed out and not settled comes again.
func (b *Bus) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	b.wait.Wait()
	b.nc.Close()
	return nil
}

// Server says for people which server this is connected to, and of which version it is.
func (b *Bus) Server() string {
	return fmt.Sprintf("%s, nats-server %s", b.nc.ConnectedUrlRedacted(), b.nc.ConnectedServerVersion())
}

// happened counts what has happened to the connection.
type happened struct{ disconnects, slow, errors atomic.Uint64 }

func (h *happened) note(err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		h.slow.Add(1)
	} else {
		h.errors.Add(1)
	}
}

// Traffic tells what went over the connection, and what has happened to it.
func (b *Bus) Traffic() broker.Traffic {
	s := b.nc.Stats()
	return broker.Traffic{
		Connected: b.nc.IsConnected(), In: s.InMsgs, Out: s.OutMsgs, InBytes: s.InBytes, OutBytes: s.OutBytes,
		ShortWay: b.ways.taken.Load(), PassedOn: b.ways.passed.Load(), Disconnects: b.events.disconnects.Load(),
		Reconnects: s.Reconnects, SlowConsumers: b.events.slow.Load(), Errors: b.events.errors.Load(),
	}
}

// RoundTrip asks the server for an answer, and tells how long that took.
func (b *Bus) RoundTrip(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return 0, fmt.Errorf("ask NATS for an answer: %w", err)
	}
	return time.Since(began), nil
}

// Connected tells whether there is a connection just now. If there is none, it is being made again.
func (b *Bus) Connected() error {
	if b.nc.IsConnected() {
		return nil
	}
	if err := b.nc.LastError(); err != nil {
		return fmt.Errorf("not connected to NATS: %w", err)
	}
	return errors.New("not connected to NATS")
}

// Prefix begins all subjects.
func (b *Bus) Prefix() string { return b.names.prefix }

// InboxWait is how long a message of the inbox stays with whoever took it before it is handed out
// again; WorkWait the same for work.
func (b *Bus) InboxWait() time.Duration { return b.config.InboxWait }

// WorkWait is like InboxWait, for work.
func (b *Bus) WorkWait() time.Duration { return b.config.WorkWait }

// subject puts words behind the prefix. They must not need encoding.
func (b *Bus) subject(words ...string) string {
	return b.names.prefix + "." + strings.Join(words, ".")
}

// token encodes a word for a subject.
func token(word string) string {
	if word == broker.Any {
		return "*"
	}
	return events.EncodeToken(word)
}

// problem wraps an error with what was to be done.
func problem(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nats: %s: %w", what, err)
}
