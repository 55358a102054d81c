// Package broker is the contract of the message broker. Package
// [github.com/rondo-run/rondo/internal/broker/nats] implements it on NATS JetStream, and is the
// only package that uses NATS. The suite [github.com/rondo-run/rondo/internal/broker/brokertest]
// checks an implementation.
//
// # Subjects
//
//	to instances    rondo.<verb>.<name>.<instance>                     the inbox, in partitions
//	to workers      rondo.task.<tag>.<activity>.<ref>.<instance>       a task queue for each tag and activity
//	dead letters    rondo.dead.<the former subject>
//	not stored      rondo.notification.…, rondo.api.…                  a subscriber that misses one asks
//
// All messages of an instance are in the same partition of the inbox: the broker computes it from
// the instance id. Publishers need not know the number of partitions, and an operator can change it
// while messages are in flight.
//
// # Guarantees
//
//   - The broker delivers a stored message until a consumer acknowledges it: at least once. The
//     consumer must recognise a message that it has processed before.
//   - The broker delivers the messages of an instance in the order in which it stored them, also
//     after a receiver died with some of them in flight. There are two exceptions. A message with a
//     negative acknowledgement is redelivered after its delay. And results and timers, which
//     running instances wait for, go ahead of messages from clients (see [events.Verb.Ahead]), in
//     an order of their own.
//   - The broker does not deliver a delayed message before its time.
//   - The broker does not deliver a withdrawn message. A worker that holds it already is notified,
//     and can ask.
package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/events"
)

// Delivery is a delivered message, to be settled by Ack or Nak of its Hold.
type Delivery struct {
	// Subject is the one it was published on.
	Subject string
	// Header has the headers that [Received] returns. It does not change.
	Header events.Header
	Body   []byte
	// Partition is the partition that it was received from, if it is for an instance.
	Partition int
	// Sequence identifies the message among those of its kind, and orders the stored messages of a
	// partition.
	Sequence uint64
	// Direct says that it was delivered directly, without being stored.
	Direct bool
	// NumDelivered counts the deliveries of the message, this one included.
	NumDelivered int
	// Nacked is how many of the earlier deliveries the process that handed it over has nacked on
	// purpose, so that they killed no process.
	Nacked int
	// StoredAt is when the broker stored the message, or when a directly delivered message arrived.
	// NotBefore is the earliest time to process it; zero means at once.
	StoredAt, NotBefore time.Time
	// AcceptedAt is when the broker stored a delayed message of a client first, if it has stored
	// the message again since, because its time had come; otherwise zero.
	AcceptedAt time.Time
	// Hold settles the delivery.
	Hold Hold
}

// ID identifies a message without an id of its own. It is the same for each delivery of the
// message.
func (d Delivery) ID() string { return fmt.Sprintf("%d@%d", d.Sequence, d.StoredAt.UnixMicro()) }

// Size is about how many bytes the delivery holds in memory, for bounds in bytes: its subject, its
// headers and its body.
func (d Delivery) Size() int {
	size := len(d.Subject) + len(d.Body)
	for name, values := range d.Header {
		size += len(name) + headerOverhead
		for _, v := range values {
			size += len(v)
		}
	}
	return size
}

// headerOverhead is about what Go holds for a header beside its name and its value.
const headerOverhead = 64

// WasDelayed reports whether the broker had the message before NotBefore.
func (d Delivery) WasDelayed() bool {
	first := d.StoredAt
	if !d.AcceptedAt.IsZero() {
		first = d.AcceptedAt
	}
	return d.NotBefore.After(first)
}

// Moment is when the message counts as sent: when the broker stored it, or the time that it was
// delayed to, however late the broker has stored it again for its receiver.
func (d Delivery) Moment() time.Time {
	if d.WasDelayed() {
		return d.NotBefore
	}
	return d.StoredAt
}

// Hold settles a delivery. Its methods do not block and may be called concurrently. When their
// effect is lost, the broker redelivers the message.
type Hold interface {
	// Ack acknowledges the message, which removes it for good.
	Ack()
	// Nak is the negative acknowledgement: the broker redelivers the message after a delay. A
	// result that was delivered directly is published to the stream at once.
	Nak(after time.Duration)
	// InProgress restarts the ack wait of a stored message.
	InProgress()
	// AckSubject is the subject by which another process can settle the message instead of this
	// one: see [Handovers]. It is empty if no other process can.
	AckSubject() string
}

// DirectHold is the Hold of a task that was delivered directly (see [TaskQueue].Offer). The
// orchestrator that delivered the task has it stored when its execution takes long, or when the
// worker does not respond. The orchestrator's decision and the worker's are serialized, so that a
// single worker executes the task as long as no process dies, no connection breaks, and the worker
// does not freeze for longer than the orchestrator waits.
type DirectHold interface {
	Hold
	// Begin reports, just before the execution, whether the worker may execute the task. If not, it
	// is stored, or will be.
	Begin() bool
	// Finish is Ack, and reports whether that is final. If not, the task is stored, or may be, and
	// the worker must recognise it as done when it is delivered.
	Finish() (final bool)
}

// ---- Publishing.

// Publisher stores messages.
type Publisher interface {
	// Publish stores messages, those for one instance in their order, and returns when all are
	// stored. A result or a task may be delivered directly instead (see [events.Wire]); then
	// Publish returns when the receiver has settled it. A Wire that purges withdraws a stored
	// message. Publish retries transient errors until the context ends, and limits the messages in
	// flight over all callers.
	//
	// A [*Refused] lists the messages that the broker does not store; all others are stored then.
	// After any other error, each message may be stored or not; as their ids are the same,
	// publishing them again is harmless.
	Publish(ctx context.Context, messages ...events.Wire) error
	// Has reports whether a task, or a delayed message, is still stored and not acknowledged.
	Has(ctx context.Context, message events.Wire) (bool, error)
}

// Stock lists stored messages. The checker needs it; services do not.
type Stock interface {
	// StoredUnder lists the messages that are stored under the subject of some messages, which have
	// one subject, and that were not acknowledged. It may stop when it has found the ids of all of
	// them. If more is true, there are more than limit. Delayed events and mailbox messages need
	// not be listed if they have other ids.
	StoredUnder(ctx context.Context, messages []events.Wire, limit int) (list []StoredMessage, more bool,
		err error)
}

// StoredMessage is a message that the broker has stored.
type StoredMessage struct {
	// ID is empty if the publisher has given none.
	ID string
	// NotBefore is the earliest time to process it; zero means at once.
	NotBefore time.Time
}

// Many is an optional interface of a [Publisher] that can look up many messages at once.
type Many interface {
	// HasMany is Has for many messages, with one difference: it may report false for a message that
	// is stored. Ask Has then.
	HasMany(ctx context.Context, messages []events.Wire) ([]bool, error)
}

// Refused is the error about messages that the broker will never store, or, if the reason is
// [ErrMisconfigured], not before an operator has changed a setting.
type Refused struct {
	Messages []events.Wire
	Reasons  []error // one for each message
}

// ErrMisconfigured is the reason of a refusal that a setting of the broker causes: this user lacks
// a permission, or a limit is lower than the services need. The message itself is good.
var ErrMisconfigured = errors.New("a setting of NATS prevents it")

// ReasonFor returns the reason why the broker refuses a message; nil if it does not.
func (e *Refused) ReasonFor(w events.Wire) error {
	id := idOf(w)
	for i, m := range e.Messages {
		if m.Subject == w.Subject && idOf(m) == id && len(m.Body) == len(w.Body) {
			return e.Reasons[i]
		}
	}
	return nil
}

func idOf(w events.Wire) string {
	if id := w.Header[events.HeaderMsgID]; len(id) > 0 {
		return id[0]
	}
	return ""
}

// Misconfigured splits e in two: the messages that the broker refuses because of a setting, and all
// others. Each is nil if it has no messages.
func (e *Refused) Misconfigured() (waits, never *Refused) {
	add := func(to *Refused, i int) *Refused {
		if to == nil {
			to = &Refused{}
		}
		to.Messages, to.Reasons = append(to.Messages, e.Messages[i]), append(to.Reasons, e.Reasons[i])
		return to
	}
	for i, reason := range e.Reasons {
		if errors.Is(reason, ErrMisconfigured) {
			waits = add(waits, i)
		} else {
			never = add(never, i)
		}
	}
	return waits, never
}

func (e *Refused) Error() string {
	return fmt.Sprintf("the broker refuses %s, the first on %q: %v", plural.Count(len(e.Messages), "message"),
		e.Messages[0].Subject, e.Reasons[0])
}

// ---- The inbox of the instances.

// Inbox delivers messages for instances.
type Inbox interface {
	// Partitions returns the partitions of the inbox.
	Partitions(ctx context.Context) (Partitions, error)
	// Receive calls take for the messages of a partition, until the context ends; then it returns
	// nil. It fails when the partition is gone from the broker; the caller may call it again. Two
	// goroutines call take, one for each lane: results and timers, and messages from clients. Each
	// lane is in order. While take blocks, the broker delivers a bounded number of messages of that
	// lane. Several receivers of one partition share its messages.
	Receive(ctx context.Context, partition int, take func(Delivery)) error
	// AwaitWatermark calls reached AFTER take has returned, in both lanes, for all messages of an
	// instance that the broker stored in a partition before a moment. Messages do not count that
	// are settled, delayed beyond that moment, or have got a negative acknowledgement from this
	// receiver; nor do messages of other instances. It passes a context that ends with Receive, and
	// false if that ends first. AwaitWatermark does not block. It returns false, and never calls
	// reached, if this process does not receive from the partition just now.
	AwaitWatermark(partition int, instance string, at time.Time, reached func(ctx context.Context, ok bool)) bool
	// Crowded returns the reason why no new instance should start, or nil: more activity tasks wait
	// than the broker has room for. It wraps [ErrFull].
	Crowded() error
	// Backlog counts the messages of a partition that wait, and those that are delivered and not
	// settled.
	Backlog(ctx context.Context, partition int) (Backlog, error)
}

// Partitions lists the partitions of the inbox.
type Partitions struct {
	// Count is the number of partitions that new messages go to: 0 to Count-1.
	Count int
	// Draining lists further partitions that may still have messages, because their number was
	// reduced.
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

// Backlog counts messages that are not settled.
type Backlog struct {
	// Waiting counts the messages that are not delivered yet, Held those that are.
	Waiting, Held int64
	// Receivers counts the pull requests that wait for messages.
	Receivers int
}

// DeadLetters stores messages that could not be processed.
type DeadLetters interface {
	// StoreDeadLetter stores a message with the reason, and returns when it is stored. The caller
	// acknowledges the delivery afterwards. The error wraps [ErrFull] if there is no room.
	StoreDeadLetter(ctx context.Context, d Delivery, why Cause) error
}

// DeadLetterStore lists, shows, replays and drops dead letters.
type DeadLetterStore interface {
	// DeadLetters returns dead letters after a sequence number, oldest first: 0 for all. There are
	// no more if it returns fewer than limit.
	DeadLetters(ctx context.Context, after uint64, limit int) ([]DeadLetter, error)
	// DeadLetter returns one; [ErrNoLetter] if there is none with that sequence number.
	DeadLetter(ctx context.Context, place uint64) (DeadLetter, error)
	// Replay publishes a dead letter once more as its former message, with its id, and then drops
	// it.
	Replay(ctx context.Context, place uint64) error
	// Drop removes a dead letter.
	Drop(ctx context.Context, place uint64) error
}

// ErrNoLetter reports that no dead letter has a sequence number.
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
	// Reason is a word to count and to search for, Detail a sentence for operators.
	Reason, Detail string
	// By is the process that dead-lettered it.
	By       string
	Attempts int
}

// ---- Activity tasks.

// TaskQueues delivers activity tasks.
type TaskQueues interface {
	// Queues lists the task queues that tasks were published to or taken from.
	ListTaskQueues(ctx context.Context) ([]TaskQueueName, error)
	// OpenTaskQueue opens a task queue. It creates the queue if it is missing; if this user has no
	// permission to do so, the error wraps [ErrNoTaskQueue].
	OpenTaskQueue(ctx context.Context, q TaskQueueName) (TaskQueue, error)
	// Withdrawals calls told with the subject of each task that is withdrawn, from task queues with
	// one of the tags (nil: any), until stop is called. It may miss some.
	Withdrawals(tags []string, told func(subject string)) (stop func(), err error)
	// TaskBacklog counts the tasks of a task queue, and the pull requests for them. It creates
	// nothing.
	TaskBacklog(ctx context.Context, q TaskQueueName) (Backlog, error)
	// DirectLoad returns for each task queue how many of its tasks this process had in direct
	// delivery at once: the mean over the last minute. They are in no stream, and in no backlog.
	DirectLoad() map[TaskQueueName]float64
	// Stored reports whether the message of a delivery is still stored: if not, it was withdrawn or
	// acknowledged.
	Stored(ctx context.Context, d Delivery) (bool, error)
}

// ErrNoTaskQueue reports that a task queue is missing, and that this user has no permission to
// create it.
var ErrNoTaskQueue = errors.New("the queue does not exist yet, and may not be made here")

// Queue names a task queue.
type TaskQueueName struct{ Tag, Activity string }

// TaskQueue takes tasks from one task queue.
type TaskQueue interface {
	// Take asks for up to n deliveries, calls take for each as it arrives, and returns their number
	// when n have arrived, when it has waited long enough, or when the context ends. None is not an
	// error, unless the connection is closed. A task that arrives after the context has ended is
	// returned to the queue at once; in a cluster it may get lost between two servers just then,
	// and is redelivered after its ack wait.
	Take(ctx context.Context, n int, take func(Delivery)) (int, error)
	// Offer calls take for tasks that are delivered directly (see [events.Wire]), until stop is
	// called. The publisher keeps a task until its Hold is acknowledged. It stores a task that take
	// refuses, a task with a negative acknowledgement, and a task that is not acknowledged after
	// [LastsAfter], from when on the Hold has no effect. The stored task has the name of its worker
	// ([events.HeaderHeld]), so that another worker that takes it can hand it over. A broker
	// without direct delivery never calls take.
	Offer(name string, take func(Delivery) (taken bool)) (stop func(), err error)
}

// LastsAfter is how long a task may execute before the publisher that delivered it directly stores
// it.
const LastsAfter = time.Second

// ---- Members.

// Members is the membership of the orchestrators.
type Members interface {
	// Join adds a member, and renews its lease until it leaves or dies.
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
	// Leaving says that it shuts down and owns no partitions from now on.
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
	// Members lists the live members by id, the member itself included.
	Members() []Member
	// Changed receives a value after each change.
	Changed() <-chan struct{}
	// Fault returns the reason why members that join later do not see this one, or nil. Failures
	// count from one lease on.
	Fault() error
	// Leave removes the member at once.
	Leave(ctx context.Context) error
}

// Handovers forward deliveries from one process to another, which settles them.
type Handovers interface {
	// Handover forwards a delivery to the process that receives under a name. If it returns nil,
	// that process settles the delivery.
	Handover(ctx context.Context, to string, d Delivery) error
	// ReceiveHandovers calls take for deliveries of a kind that are forwarded to a name, until stop
	// is called. A delivery that take refuses stays with its sender.
	ReceiveHandovers(kind HandoverKind, name string, take func(Delivery) error) (stop func(), err error)
}

// HandoverKind separates handovers by the role of the processes that forward and receive them. NATS
// permissions name it, so that no process of another role can forward a delivery.
type HandoverKind string

// The kinds of handovers.
const (
	HandoverInbox  HandoverKind = "inbox"  // messages of the inbox, between orchestrators
	HandoverTask   HandoverKind = "task"   // activity tasks, between workers
	HandoverSystem HandoverKind = "system" // activity tasks of the engine, between orchestrators
)

// HandoverKindOf returns the kind of a handover of a message, by its subject. prefix begins all
// subjects of the system.
func HandoverKindOf(prefix, subject string) HandoverKind {
	tag, isTask := strings.CutPrefix(subject, prefix+"."+string(events.VerbTask)+".")
	switch {
	case !isTask:
		return HandoverInbox
	case strings.HasPrefix(tag, systemTags):
		return HandoverSystem
	}
	return HandoverTask
}

// systemTags begins the tags of the engine's own tasks, as subjects have them.
var systemTags = events.EncodeToken(events.ReservedPrefix)

// ErrNoResponders reports that no process receives under a name or handles a method.
var ErrNoResponders = errors.New("no responders")

// ErrFull reports that the broker has no room for a message.
var ErrFull = errors.New("the broker is full")

// ErrNoStream reports that no stream of the broker takes a message: the system does not exist, or
// has another prefix.
var ErrNoStream = errors.New("no stream takes the subject")

// ErrPermission reports that the user of this connection lacks a permission of the broker.
var ErrPermission = errors.New("permissions violation")

// Leases tell which worker holds the lease of which session, and which orchestrator that of which
// job. The names of jobs begin with [events.ReservedPrefix], and no session has such an id. The
// leases of jobs are in the group [KeyLease] of KV, which workers have no permission to write.
type Leases interface {
	// Acquire leases a session to a worker if the session is free, or renews the worker's lease,
	// and returns the session's owner. A lease that is not renewed expires after the time that the
	// bus was set up with.
	Acquire(ctx context.Context, session, worker string) (owner string, err error)
	// Release ends a worker's lease.
	Release(ctx context.Context, session, worker string) error
	// Owner returns the worker that holds the lease of a session, "" if it is free.
	Owner(ctx context.Context, session string) (string, error)
}

// KV is a key-value store for small values that processes share: flags, counts of attempts, the
// progress of activities. If the broker loses its streams, it loses all keys, too; this is how the
// orchestrators notice the loss.
//
// The part of a key before its first slash is its group. A user of the broker may have the
// permission to write the keys of some groups only.
type KV interface {
	// Get returns the value of a key; nil if it has none. An empty value is not nil.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put stores a value. It expires after ttl, which is at least a second; 0: it does not expire.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// Create stores a value that does not expire, unless the key has one: then it reports false.
	Create(ctx context.Context, key string, value []byte) (ok bool, err error)
	// Replace stores a value that does not expire, if the key has another one that the caller has
	// read. Otherwise it reports false.
	Replace(ctx context.Context, key string, read, value []byte) (ok bool, err error)
	// Delete removes a key. A missing key is not an error.
	Delete(ctx context.Context, key string) error
}

// The keys of [KV] that the services use. Users of the broker have permissions by group.
const (
	// KeyRecovered is set to "true" without a TTL once the broker has everything that it should
	// have. During a recovery, it is the moment since when the broker may not have it.
	KeyRecovered = "recovered"
	// KeySystem has the system that the broker belongs to: see package identity.
	KeySystem = "system"
	// KeyAttempts is the group of the counts of attempts of quarantined messages, and KeyTask that
	// of activity tasks.
	KeyAttempts = "attempts/"
	KeyTask     = "task/"
	// KeyLease is the group of the leases of jobs of orchestrators: see [Leases].
	KeyLease = "lease/"
	// KeyTTL is the TTL of the keys of the groups KeyAttempts and KeyTask.
	KeyTTL = 24 * time.Hour
	// MaxTaskValue is the maximum size of a value of the group KeyTask: progress of
	// [events.MaxHeartbeat] bytes fits, as text or in base64. Workers write these values, so the
	// broker also bounds how many it keeps. Beyond that, it drops the oldest.
	MaxTaskValue = 7 << 10
)

// CheckValue returns an error if the value of a key is too large.
func CheckValue(key string, value []byte) error {
	if strings.HasPrefix(key, KeyTask) && len(value) > MaxTaskValue {
		return fmt.Errorf("put key %s: the value has %d bytes, the maximum is %d; keep the data in a store and "+
			"report a position in it", key, len(value), MaxTaskValue)
	}
	return nil
}

// Repairer creates what the broker has lost.
type Repairer interface {
	// Repair creates streams, consumers and buckets that are missing because an operator removed
	// them or a disk was lost.
	Repair(ctx context.Context) error
	// Flaws lists the streams, consumers and buckets that are missing or damaged, as this process
	// has seen them last, while it receives. Those that it may repair, it repairs soon.
	Flaws() []Flaw
	// RedeliverAfterLeap notes that the clock of the broker was ahead until a moment, and by how
	// much. The broker would redeliver messages that it delivered meanwhile much too late. It soon
	// redelivers all unacknowledged messages of the partitions of this process if the oldest one
	// was stored before that moment; and tasks, if this process receives from partition 0.
	RedeliverAfterLeap(until time.Time, by time.Duration)
}

// Flaw is damage of a stream, a consumer or a bucket.
type Flaw struct {
	// Part is "stream RONDO", or "consumer RONDO/p-0".
	Part string
	// Problem lists the differences, and Remedy says what an operator should do.
	Problem, Remedy string
	// Harmful says that messages may be lost, refused or delivered to no process.
	Harmful bool
}

func (f Flaw) String() string { return f.Part + ": " + f.Problem + "; " + f.Remedy }

// ---- Core NATS: nothing is stored.

// Notifications are messages to the subscribers of this moment: delivered at most once, not stored.
type Notifications interface {
	// Notify publishes a notification under some words.
	Notify(words []string, header events.Header, body []byte) error
	// Listen calls heard for each notification under the words, of which [Any] stands for any,
	// until stop is called. It returns when the subscription is in force.
	Listen(ctx context.Context, words []string,
		heard func(words []string, header events.Header, body []byte)) (stop func(), err error)
}

// Requests go to one of the processes that handle a method.
type Requests interface {
	// Request sends a request, and waits for the response. The error is a [*ResponseError] if the
	// handler failed; it wraps ErrNoResponders if no process handles the method, and ErrPermission
	// if this user may not send the request.
	Request(ctx context.Context, method string, request []byte) ([]byte, error)
	// Handle calls handle for requests of a method until stop is called: concurrently, up to a
	// bounded number. In a cluster a moment passes until all servers know the subscription.
	Handle(method string, handle func(ctx context.Context, request []byte) ([]byte, error)) (stop func(), err error)
}

// ForOperators begins the methods of requests that clients may not send: they have other subjects
// than those of clients.
const ForOperators = "operator-"

// Discovery sends requests to all processes that handle a method.
type Discovery interface {
	// Discover sends a discovery request, and returns the responses that arrive until none has
	// arrived for the time quiet, in no order. A handler that fails is left out. The error wraps
	// ErrNoResponders if no process responds, and ErrPermission if this user may not send the
	// request. More than 10,000 responses, or 64 MiB of them, are an error.
	Discover(ctx context.Context, method string, request []byte, quiet time.Duration) ([][]byte, error)
	// HandleDiscovery is [Requests].Handle for discovery requests.
	HandleDiscovery(method string, handle func(ctx context.Context, request []byte) ([]byte, error)) (stop func(),
		err error)
}

// ResponseError is an error of the handler of a request.
type ResponseError struct {
	// Code is a word that programs can tell apart.
	Code    string
	Message string
}

func (e *ResponseError) Error() string { return e.Message }

// Traffic has the counters of the connection to the broker since the process began.
type Traffic struct {
	Connected bool
	// In and Out count messages, InBytes and OutBytes their bytes, those of the protocol included.
	In, Out, InBytes, OutBytes uint64
	// Disconnects and Reconnects count how often the connection broke and was restored.
	Disconnects, Reconnects uint64
	// Direct counts the results and tasks that were delivered directly, DirectRefused those that
	// were refused there and went through a stream.
	Direct, DirectRefused uint64
	// SlowConsumers counts how often the client dropped messages that the process did not take in
	// time, Errors all other errors.
	SlowConsumers, Errors uint64
}

// Connection reports events of the connection to the broker.
type Connection interface {
	// Now returns the time on the clock of the broker, as far as a single one of its servers knows
	// it: the one by which it stores messages.
	Now(ctx context.Context) (time.Time, error)
	// Reconnected calls told each time the connection is restored, until stop is called. The
	// process has missed the notifications of the time between. told must not block.
	Reconnected(told func()) (stop func())
}

// Any stands for any word in [Notifications].Listen.
const Any = "\x00"
