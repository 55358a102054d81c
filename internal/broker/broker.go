// Package broker is how messages travel: the contract of the broker.
// [github.com/rondo-run/rondo/internal/broker/nats] keeps it on NATS JetStream, and is the one
// package that knows NATS. The suite [github.com/rondo-run/rondo/internal/broker/brokertest] says
// whether an implementation keeps it.
//
// # What travels
//
//	to instances   rondo.<verb>.<name>.<instance>                         the inbox, in partitions
//	to workers     rondo.work.<tag>.<activity>.<place>.<instance>         a queue for each tag and activity
//	to people      rondo.dead.<the subject it had>                        dead letters
//	on the side    rondo.notice.…, rondo.api.…                            not stored: who missed them asks
//
// All messages of one instance are in one partition of the inbox, whoever publishes them: the
// broker computes it. Nobody else has to know how many partitions there are, and their number can
// be changed while messages travel.
//
// # What is promised
//
//   - A message that was stored is handed out until somebody acknowledges it: at least once, and
//     sometimes more often. Whoever takes it must be able to tell that it was taken before.
//   - The messages of an instance are handed out in the order in which they were stored, also when
//     the receiver before has died holding some of them. An exception is what was given back: it
//     comes again when its delay is over. And what instances that run wait for goes ahead (see
//     [events.Verb.Ahead]): in its own order, however much of what people say waits.
//   - A message that is not to be taken before a moment is not handed out before it.
//   - What is withdrawn is not handed out any more. Who holds it already is told, and can ask.
package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Delivery is a message that was handed out, to be settled by exactly one of the methods Ack,
// Nak and DeadLetter of its Hold.
type Delivery struct {
	// Subject is the one it was published on.
	Subject string
	Header  events.Header
	Body    []byte
	// Partition is where it waited, if it is for an instance.
	Partition int
	// Sequence identifies the message among those of its kind, and orders the stored messages of a
	// partition.
	Sequence uint64
	// Scheduled tells that the broker has published it itself, as it does again and again.
	Scheduled bool
	// Passed tells that it has come without being stored.
	Passed bool
	// NumDelivered counts the deliveries of the message, this one included.
	NumDelivered int
	// StoredAt is when the broker stored the message, or when a directly delivered message arrived.
	// NotBefore is the earliest time to process it; zero means at once.
	StoredAt, NotBefore time.Time
	// Hold settles the delivery.
	Hold Hold
}

// ID identifies a message that brings no id. It is the same for each delivery of the message.
func (d Delivery) ID() string { return fmt.Sprintf("%d@%d", d.Sequence, d.StoredAt.UnixMicro()) }

// Hold is the broker's side of a delivery. Its methods do not block and may be called concurrently.
// When their effect is lost, the message comes again.
type Hold interface {
	// Ack removes the message for good.
	Ack()
	// Nak gives it back, to come again after a delay. A result that has come past the broker
	// comes again through it at once.
	Nak(after time.Duration)
	// InProgress keeps it from being handed out again for as long as when it was handed out, if it
	// is stored.
	InProgress()
	// AckSubject is with what another process can settle it instead of this one: see [Handovers].
	// It is empty if none can.
	AckSubject() string
}

// PassedHold is the Hold of work that was passed on without being stored (see [WorkQueue].Offer).
// Whoever has passed it on has it stored when it takes its time, or when nobody says what becomes
// of it. What is said and what the worker does are decided in one place, so that it is executed by
// one worker only as long as no process dies, no connection breaks, and the worker does not stand
// still for longer than it is waited for.
type PassedHold interface {
	Hold
	// Begin tells, just before the work is executed, whether it may be. If not, it is stored, or
	// will be.
	Begin() bool
	// Finish is Ack, and tells whether that is final. If not, the work is stored, or may be, and
	// must be known as done when it comes.
	Finish() (final bool)
}

// ---- Publishing.

// Publisher stores messages.
type Publisher interface {
	// Publish stores messages, those for one instance in their order, and returns when all are
	// stored. A result may be passed to whoever waits for it instead (see [events.Wire]); then it
	// returns when that one has settled it. So may work, to a worker. A Wire that purges withdraws
	// what was stored before. It tries again what may work, until the context ends, and limits how
	// much is on its way at once, over all callers.
	//
	// A [*Refused] lists what the broker will never take; everything else was stored then. After
	// any other error, each message may be stored or not; as their ids are the same, publishing
	// them again is harmless.
	Publish(ctx context.Context, messages ...events.Wire) error
	// Has tells whether a message for a worker, or one that is delayed, is still stored and not
	// acknowledged.
	Has(ctx context.Context, message events.Wire) (bool, error)
}

// Many is what a publisher may be besides, that can tell of many messages at once.
type Many interface {
	// HasMany is Has for many messages, with one difference: it may say of a message that is there
	// that it is not. Ask Has then.
	HasMany(ctx context.Context, messages []events.Wire) ([]bool, error)
}

// Refused is the error about messages that the broker will never take.
type Refused struct {
	Messages []events.Wire
	Reasons  []error // one for each message
}

func (e *Refused) Error() string {
	return fmt.Sprintf("the broker refuses %d messages, the first on %q: %v", len(e.Messages),
		e.Messages[0].Subject, e.Reasons[0])
}

// ---- The inbox of the instances.

// Inbox hands out messages for instances.
type Inbox interface {
	// Partitions tells which partitions there are.
	Partitions(ctx context.Context) (Partitions, error)
	// Receive hands the messages of a partition to take, until the context ends; then it returns
	// nil. It fails when the partition is gone from the broker; who wants to go on calls it again.
	// What goes ahead comes one after the other, and so does everything else, beside it: take is
	// called by two goroutines. While it blocks for one of them, nothing more of its lane is handed
	// out beyond a bounded number. Several may receive from one partition; each message then goes
	// to one of them.
	Receive(ctx context.Context, partition int, take func(Delivery)) error
	// Backlog tells how many messages of a partition wait, and how many are handed out and not
	// settled.
	Backlog(ctx context.Context, partition int) (Backlog, error)
}

// Partitions tells which partitions of the inbox there are.
type Partitions struct {
	// Count is how many new messages are spread over: 0 to Count-1.
	Count int
	// Draining are further ones, from when there were more, that may hold messages still.
	Draining []int
}

// All lists all partitions.
func (p Partitions) All() []int {
	all := make([]int, 0, p.Count+len(p.Draining))
	for i := range p.Count {
		all = append(all, i)
	}
	return append(all, p.Draining...)
}

// Equal reports whether two are the same.
func (p Partitions) Equal(q Partitions) bool {
	return p.Count == q.Count && slices.Equal(p.Draining, q.Draining)
}

// Backlog tells what has not been settled.
type Backlog struct {
	// Waiting were not handed out yet. Held are handed out.
	Waiting, Held int64
	// Receivers counts those who are asking for messages.
	Receivers int
}

// DeadLetters stores messages that could not be processed.
type DeadLetters interface {
	// StoreDeadLetter stores a message with the reason, and returns when it is stored. The caller
	// acknowledges the delivery afterwards.
	StoreDeadLetter(ctx context.Context, d Delivery, why Cause) error
}

// DeadLetterStore lists, shows, replays and drops dead letters.
type DeadLetterStore interface {
	// DeadLetters gives dead letters, oldest first, those behind a place: 0 for all. There are no
	// more if fewer come than were asked for.
	DeadLetters(ctx context.Context, after uint64, limit int) ([]DeadLetter, error)
	// DeadLetter gives one; [ErrNoLetter] if there is none at that place.
	DeadLetter(ctx context.Context, place uint64) (DeadLetter, error)
	// Replay publishes a dead letter once more as the message that it was, with its id, and drops
	// it then.
	Replay(ctx context.Context, place uint64) error
	// Drop removes a dead letter.
	Drop(ctx context.Context, place uint64) error
}

// ErrNoLetter says that there is no dead letter at a place.
var ErrNoLetter = errors.New("there is no such dead letter")

// DeadLetter is a message that could not be processed.
type DeadLetter struct {
	// Sequence identifies the dead letter in its stream.
	Sequence uint64
	// Subject, ID, Header and Body are those that the message had. Lost says that header and body
	// were too large to be kept.
	Subject, ID string
	Header      events.Header
	Body        []byte
	Lost        bool
	// Why is the reason, and DeadLetteredAt the time of dead-lettering. StoredAt is when the
	// message was first stored.
	Why                      Cause
	StoredAt, DeadLetteredAt time.Time
}

// Cause is why a message was dead-lettered.
type Cause struct {
	// Reason is a word that can be counted and searched for, Detail says it for people.
	Reason, Detail string
	// By is who says so.
	By       string
	Attempts int
}

// ---- Work.

// WorkBroker hands out work.
type WorkBroker interface {
	// Queues lists the queues that somebody has put work into or taken work from.
	Queues(ctx context.Context) ([]Queue, error)
	// OpenQueue gives the work of a queue. It makes the queue if need be; if it may not, the error
	// wraps [ErrNoQueue].
	OpenQueue(ctx context.Context, q Queue) (WorkQueue, error)
	// Withdrawals calls told with the subject of each piece of work that is withdrawn, from queues
	// with one of the tags (nil: any), until stop is called. It may miss some.
	Withdrawals(tags []string, told func(subject string)) (stop func(), err error)
	// WorkBacklog tells what waits in a queue, and whether anybody asks for it. It makes nothing.
	WorkBacklog(ctx context.Context, q Queue) (Backlog, error)
	// Stored tells whether a delivery is still there: if not, it was withdrawn, or somebody has
	// acknowledged it.
	Stored(ctx context.Context, d Delivery) (bool, error)
}

// ErrNoQueue says that a queue of work does not exist yet, and may not be made here.
var ErrNoQueue = errors.New("the queue does not exist yet, and may not be made here")

// Queue names a queue of work.
type Queue struct{ Tag, Activity string }

// WorkQueue is the work of one queue.
type WorkQueue interface {
	// Take asks for up to n deliveries, hands them to take as they come, and returns when there
	// were n, or when it has waited long enough, or when the context ends; then it returns how many
	// there were. It is not an error that there were none. What comes when the context has ended
	// goes to somebody else at once; in a cluster it may be lost between two servers just then, and
	// comes again when its time with this worker is over.
	Take(ctx context.Context, n int, take func(Delivery)) (int, error)
	// Offer calls take for work that is passed on without being stored (see [events.Wire]), until
	// stop is called. Who has published it keeps it until its hold is acknowledged. What take does
	// not want, or gives back, is stored, and so is what is not acknowledged after [LastsAfter]: by
	// then nobody waits for it any more, and the hold does nothing. What is stored then says under
	// which name it is held ([events.HeaderHeld]), so that whoever takes it can hand it over. A
	// broker that knows no such way calls nobody.
	Offer(name string, take func(Delivery) (taken bool)) (stop func(), err error)
}

// LastsAfter is after how long work that was passed on is stored after all, because it takes its
// time.
const LastsAfter = time.Second

// ---- Who is there.

// Members tells orchestrators of each other.
type Members interface {
	// Join makes a member known to the others, and keeps it known until it leaves or dies.
	Join(ctx context.Context, self Member) (Membership, error)
}

// Member is an orchestrator that is alive.
type Member struct {
	ID string `json:"id"`
	// Engine is the version of its engine.
	Engine int `json:"engine"`
	// Code lists the orchestrations that it can run, with their versions.
	Code map[string][]string `json:"code"`
	// Build says which binary it is.
	Build string `json:"build,omitempty"`
	// Host is where it runs.
	Host string `json:"host,omitempty"`
	// Leaving says that it takes up nothing new.
	Leaving bool `json:"leaving,omitempty"`
}

// Knows reports whether the member can run a version of an orchestration; an empty version stands
// for any.
func (m Member) Knows(name, version string) bool {
	versions, ok := m.Code[name]
	return ok && (version == "" || slices.Contains(versions, version))
}

// Membership is a member's view of the others.
type Membership interface {
	// Members lists who is alive, the member itself included, by id.
	Members() []Member
	// Changed gets a value after each change.
	Changed() <-chan struct{}
	// Leave makes the member unknown at once.
	Leave(ctx context.Context) error
}

// Handovers pass deliveries from one process to another, which settles them.
type Handovers interface {
	// Handover passes a delivery to whoever receives under a name. If it returns nil, the delivery
	// is the other's.
	Handover(ctx context.Context, to string, d Delivery) error
	// ReceiveHandovers calls take for what is handed over to a name, until stop is called. What
	// take refuses stays with whom it came from.
	ReceiveHandovers(name string, take func(Delivery) error) (stop func(), err error)
}

// ErrNobody says that nobody receives under a name.
var ErrNobody = errors.New("nobody of that name is there")

// ErrPermission says that the broker does not let the user of this connection do something.
var ErrPermission = errors.New("permissions violation")

// Sessions tell which worker has which session.
type Sessions interface {
	// Claim takes a session for a worker if nobody has it, or renews what the worker has, and tells
	// who has it then. A claim that is not renewed ends by itself after the lease that the bus was
	// set up with.
	Claim(ctx context.Context, session, worker string) (owner string, err error)
	// Release gives up a worker's claim.
	Release(ctx context.Context, session, worker string) error
	// Owner tells who has a session, "" for nobody.
	Owner(ctx context.Context, session string) (string, error)
}

// Notes are small things worth remembering for a day across processes: how often something was
// tried, how far it had got. They may be lost.
type Notes interface {
	Note(ctx context.Context, key string) ([]byte, error) // nil if there is none
	SetNote(ctx context.Context, key string, value []byte) error
	DropNote(ctx context.Context, key string) error
}

// Marks remember something for as long as the broker remembers anything.
type Marks interface {
	// Marked tells whether a mark was set since the broker was made, SetMark sets it, ClearMark
	// removes it.
	Marked(ctx context.Context, name string) (bool, error)
	SetMark(ctx context.Context, name string) error
	ClearMark(ctx context.Context, name string) error
	// Repair makes again what is missing in the broker: somebody may have removed it, or all of it
	// may have been lost.
	Repair(ctx context.Context) error
}

// ---- On the side.

// Notices are messages to whoever listens just now. They are not stored.
type Notices interface {
	// Announce publishes a notice under some words.
	Announce(words []string, header events.Header, body []byte) error
	// Listen calls heard for each notice under the words, of which [Any] stands for any, until stop
	// is called. It returns when it is sure to hear what is announced from then on.
	Listen(ctx context.Context, words []string,
		heard func(words []string, header events.Header, body []byte)) (stop func(), err error)
}

// Questions are answered by one of those who answer.
type Questions interface {
	// Ask asks, and waits for the answer. The error is a [*AnswerError] if it was the one who
	// answered that failed, wraps ErrNobody if nobody answers, and ErrPermission if this user may
	// not ask.
	Ask(ctx context.Context, method string, question []byte) ([]byte, error)
	// Answer answers the questions of a method until stop is called. Answers are made concurrently,
	// up to a bounded number. In a cluster it takes a moment until all servers know of it.
	Answer(method string, answer func(ctx context.Context, question []byte) ([]byte, error)) (stop func(), err error)
}

// RollCalls are answered by all who answer.
type RollCalls interface {
	// AskAll asks everybody, and gives the answers that come until none has come for the time
	// quiet, in no order. Whoever fails to answer is left out. The error wraps ErrNobody if nobody
	// answers, and ErrPermission if this user may not ask.
	AskAll(ctx context.Context, method string, question []byte, quiet time.Duration) ([][]byte, error)
	// AnswerToo is [Questions].Answer for roll calls.
	AnswerToo(method string, answer func(ctx context.Context, question []byte) ([]byte, error)) (stop func(), err error)
}

// AnswerError is an error of the one who answered.
type AnswerError struct {
	// Code is a word that programs can tell apart.
	Code    string
	Message string
}

func (e *AnswerError) Error() string { return e.Message }

// Traffic is what went over the connection to the broker since it was made first, and what has
// happened to it.
type Traffic struct {
	Connected bool
	// In and Out count messages, InBytes and OutBytes their bytes, what the protocol needs
	// included.
	In, Out, InBytes, OutBytes uint64
	// Disconnects and Reconnects count how often the connection was lost and made again.
	Disconnects, Reconnects uint64
	// ShortWay counts the results that went to who receives them at once, and the work that went to
	// a worker, PassedOn what was refused there and went through the broker.
	ShortWay, PassedOn uint64
	// SlowConsumers counts how often messages were dropped because they were not taken in time,
	// Errors everything else that went wrong.
	SlowConsumers, Errors uint64
}

// Connection tells of the connection to the broker.
type Connection interface {
	// Reconnected calls told each time the connection was lost and is there again, until stop is
	// called: what was announced meanwhile was not heard. It must not block.
	Reconnected(told func()) (stop func())
}

// Any stands for any word where [Notices] listens.
const Any = "\x00"
