package natsbroker

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Direct delivery sends a message to its receiver without storing it in a stream: the result of a
// task to the orchestrator that published the task, and a task to a worker with a free slot. It
// needs no stream, because the message is stored elsewhere until the receiver has settled it: the
// result with its task in the stream, the task with its outbox entry in the database.
//
// # Messages
//
//	subject                             published by, and heard by
//	rondo.direct.result.to.<random>b    workers, orchestrators → the orchestrator of that name
//	rondo.direct.task.to.<consumer>     orchestrators → one of the workers of the task queue
//	rondo.direct.system.to.<consumer>   orchestrators → one of the orchestrators, for the engine's own tasks
//	rondo.direct.answer.result.<random>.<number>   the orchestrator → the sender of the results
//	rondo.direct.answer.task.<random>.<number>     the worker → the orchestrator that sent the tasks
//	rondo.direct.answer.system.<random>.<number>   the orchestrator → the orchestrator that sent the tasks
//
// A message to one of the first three has its reply subject among the others: a receiver answers
// nowhere else. So it needs no permission for the inbox of the sender, where the answers of NATS
// arrive. An orchestrator that publishes a task and receives from partitions writes its own results
// subject into the task ([events.HeaderDirectReply]).
//
// A message has a single result, with its subject in Rondo-Subject, or a bundle. A results subject
// without the b at its end takes no bundles. The answer is about one result, or has a byte for each
// message of the bundle.
//
// A bundle saves NATS dozens of messages. Its body has for each message its subject, the number of
// its headers, their names and values, and its body. The length of each text precedes it; lengths
// and counts are uvarints. Rondo-Results has the number of messages, and a bundle of tasks has in
// Rondo-Direct-At the time at which it was sent. While some messages of a bundle are not settled,
// its receiver answers at intervals if one more is, so that no message waits for a slow instance.
//
// # Outcomes
//
// The sender learns one outcome of each message, from a byte of the answer; the answer about a
// single result is a text, such as +OK:
//
//	outcome        the receiver                         the sender
//	settled   O    has committed it; has its result     is done
//	returned  G    nacks it                             publishes it
//	notHere   N    does not receive the partition       publishes it
//	busy      B    has no room                          publishes it, and avoids the subject for a while
//	lasts     L    executes the task, which takes long  publishes it, with the name of the worker
//	lost      ?    (gone, or its answer is late)        publishes it as redelivered
//
// A receiver may have processed a message for which its sender learns no outcome, and a result that
// it nacks: the sender publishes these with Rondo-Again, so that they count as redelivered.
// Orchestrators drop duplicate results. A worker that takes a lasting task from the stream hands it
// to the worker that executes it. So no message waits for longer than publishWait, and no long
// execution depends on the orchestrator that published its task.
//
// # States of a message at its receiver
//
//	            offer             take
//	 idle ─────────────▶ offered ──────▶ taken ──────────▶ settled, returned, notHere, busy
//	    │                   │  refuse      │  overdue
//	    │ overdue           ▼              ▼
//	    └───────────────▶ busy           lasts   (a later settle does not change it)
//
// A result is never offered; the receiver settles it from any state. The first outcome counts. The
// state changes under the lock of its bundle together with the answer, so that a task which is
// reported as executing is with this worker. See [advance].

// The constants of direct delivery.
const (
	// maxResultsName bounds the last word of the subjects on which orchestrators take results.
	// takesBundles ends those whose receiver accepts bundles: no random name has it, because such
	// names are in capitals.
	maxResultsName = 64
	takesBundles   = "b"
	// tasksGroup is the group of the workers of a queue.
	tasksGroup = "workers"

	// headerSubject is the subject of a single directly delivered result.
	headerSubject = "Rondo-Subject"
	// headerResults marks a bundle, and has the number of its messages.
	headerResults = "Rondo-Results"
	// headerDirectAt is the time at which the publisher sent a bundle of tasks.
	headerDirectAt = "Rondo-Direct-At"
	// headerAgain says of a message in a stream that it may have been taken before, by direct
	// delivery.
	headerAgain = "Rondo-Again"

	// maxBundle and maxBundleBytes bound a bundle. A result larger than largeResult gets a message
	// of its own; a task larger than that is stored.
	maxBundle, maxBundleBytes, largeResult = 128, 64 << 10, 8 << 10
	// maxReceived bounds the body of a bundle that a receiver reads, and maxHeaders the values of
	// headers of each message in it. A sender does not bundle a message that would exceed them.
	maxReceived, maxHeaders = 4 * maxBundleBytes, 64
	// Received messages that wait for a handler. The NATS client drops messages beyond these: the
	// sender of a direct delivery waits in vain for the answer, and then publishes to the stream.
	maxPendingDirect, maxPendingAnswers, maxPendingBytes = 4096, 1 << 16, 64 << 20
	// maxDirect bounds the directly delivered messages of a partition that wait to be processed.
	maxDirect = 512
	// firstDirect begins the sequence numbers of directly delivered messages: far behind those of
	// the stream.
	firstDirect = 1 << 62

	// answerEvery is the interval of answers while some messages of a bundle are not settled.
	answerEvery = 250 * time.Millisecond
	// maxAhead is how far the publisher's clock may be ahead of the worker's.
	maxAhead = time.Second / 2

	// How long a sender avoids a subject: one without an answer; one whose receiver is busy or
	// absent just now; one to which this user has no permission to answer; a task queue that no
	// worker listens to. maxAvoided bounds how many subjects are remembered.
	avoidFor, avoidBriefly, avoidDenied = 30 * time.Second, 100 * time.Millisecond, time.Hour
	avoidUnserved                       = time.Second
	maxAvoided                          = 1000
)

// directLimits are the time limits of direct delivery. Each has its default while it is 0; only
// tests change them.
type directLimits struct {
	answer atomic.Int64 // how long a sender waits for an answer. Default: publishWait
	lasts  atomic.Int64 // how long a task may execute before its publisher stores it. Default: broker.LastsAfter
}

// answerWithin is how long a sender waits for an answer.
func (l *directLimits) answerWithin() time.Duration {
	return cmp.Or(time.Duration(l.answer.Load()), publishWait)
}

// lastsAfter is how long a task may execute before its publisher stores it.
func (l *directLimits) lastsAfter() time.Duration {
	return cmp.Or(time.Duration(l.lasts.Load()), broker.LastsAfter)
}

// beginWithin is the age up to which a worker may begin a task. Its publisher learns soon after
// lastsAfter that the execution takes long, and gives the task up only after answerWithin.
func (l *directLimits) beginWithin() time.Duration { return l.lastsAfter() + 2*answerEvery }

// directKind is what a direct delivery has, as in its subjects.
type directKind string

// The kinds of direct deliveries.
const (
	aboutResults     directKind = "result"
	aboutTasks       directKind = "task"
	aboutSystemTasks directKind = "system" // the engine's own tasks, which orchestrators execute
)

// kindOf is the kind of the tasks of a queue.
func kindOf(q broker.TaskQueueName) directKind {
	if strings.HasPrefix(q.Tag, events.ReservedPrefix) {
		return aboutSystemTasks
	}
	return aboutTasks
}

// outcome is the byte of an answer about one message.
type outcome = byte

// The outcomes.
const (
	outcomeOpen     outcome = '.' // there is none yet
	outcomeSettled  outcome = 'O'
	outcomeReturned outcome = 'G'
	outcomeNotHere  outcome = 'N'
	outcomeBusy     outcome = 'B'
	outcomeLasts    outcome = 'L'
	outcomeLost     outcome = '?' // is never sent: the answer is late, or wrong
)

// The answers about a single result.
const (
	saidSettled  = "+OK"
	saidReturned = "-GIVEN BACK"
	saidNotHere  = "-NOT HERE"
	saidBusy     = "-BUSY"
)

var (
	errReturned = errors.New("who was sent a result has given it back")
	errNotHere  = errors.New("who was sent a result does not take it")
	errBusy     = errors.New("who was sent a result has too much to do")
)

// lasts is the reason to publish a task that a worker is executing: the execution takes long.
type lasts struct{ by string }

func (l lasts) Error() string { return fmt.Sprintf("%q has it, and takes its time", l.by) }

// answerOf is the answer with an outcome about a single result.
func answerOf(o outcome) string {
	switch o {
	case outcomeSettled:
		return saidSettled
	case outcomeReturned:
		return saidReturned
	case outcomeNotHere:
		return saidNotHere
	}
	return saidBusy
}

// readDirect parses the answer about a single result.
func readDirect(said []byte) error {
	switch string(said) {
	case saidSettled:
		return nil
	case saidReturned:
		return errReturned
	case saidNotHere:
		return errNotHere
	case saidBusy:
		return errBusy
	}
	return errBadAnswer
}

// readBundled parses the byte of an answer for one message of a bundle. by is the worker that
// answered.
func readBundled(o outcome, by string) error {
	switch o {
	case outcomeLasts:
		return lasts{by}
	case outcomeSettled:
		return nil
	case outcomeReturned:
		return errReturned
	case outcomeNotHere:
		return errNotHere
	case outcomeBusy:
		return errBusy
	}
	return errBadAnswer
}

// answered is the Hold of a directly delivered message.
type answered interface {
	broker.Hold
	say(o outcome)
}

// directResultHold settles a result that was delivered alone.
type directResultHold struct {
	nc    *nats.Conn
	reply string
}

func (h directResultHold) say(o outcome) {
	_ = h.nc.Publish(h.reply, []byte(answerOf(o))) // if it is lost, the sender publishes the message
}

// Ack implements broker.Hold.
func (h directResultHold) Ack() { h.say(outcomeSettled) }

// Nak implements broker.Hold. The sender publishes the message to the stream at once.
func (h directResultHold) Nak(time.Duration) { h.say(outcomeReturned) }

// InProgress implements broker.Hold. It does nothing: the sender of the result does not wait for
// longer, so that nothing else has to wait with it.
func (h directResultHold) InProgress() {}

// AckSubject implements broker.Hold. No other process can settle it.
func (h directResultHold) AckSubject() string { return "" }
