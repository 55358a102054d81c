package natsbroker

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
)

// directTasks is the worker's side of the direct delivery of tasks, for all of its queues. A worker
// takes tasks while it says that it has a free slot, and answers AFTER the result of a task is
// settled, or when the execution takes long.
type directTasks struct {
	*conn
	sender  *directSender
	results *directResults
	count   atomic.Uint64 // counts the tasks that arrived
}

// offer takes tasks of a queue, until stop is called. name is that of the worker.
func (t *directTasks) offer(q broker.TaskQueueName, name string, take func(broker.Delivery) bool) (stop func(),
	err error) {
	o := &taskOffer{t: t, queue: q, name: name, take: take}
	sub, err := t.nc.QueueSubscribe(t.tasksSubject(q), tasksGroup, o.hear)
	if err != nil {
		return nil, problem("offer room for work of "+ConsumerOf(q), err)
	}
	_ = sub.SetPendingLimits(maxPendingDirect, maxPendingBytes)
	stop = func() { _ = sub.Unsubscribe() } // it fails only if the connection is closed
	if err := t.flush(t.ctx); err != nil {
		stop()
		return nil, problem("offer room for work of "+ConsumerOf(q), err)
	}
	return stop, nil
}

// taskOffer is a worker's room for tasks of a queue.
type taskOffer struct {
	t     *directTasks
	queue broker.TaskQueueName
	name  string
	take  func(broker.Delivery) bool
}

// hear accepts tasks, or refuses them at once. With the shipped permissions, only orchestrators
// send any.
func (o *taskOffer) hear(m *nats.Msg) {
	t := o.t
	if !t.mayAnswerDirect(kindOf(o.queue), m) || t.results.isDenied() {
		return
	}
	work, err := readBundle(m.Header.Get(headerResults), m.Data)
	if err != nil { // the number of tasks is unknown, so that no answer fits
		t.odd.tasks.do(func(dropped int) {
			t.log.Warn("NATS: directly delivered tasks cannot be read; their orchestrator stores them", "error", err,
				"dropped", dropped)
		})
		return
	}
	now, here := time.Now(), t.tasksSubject(o.queue)
	came, fresh := t.directAt(m, now)
	all := newBundle(t.conn, m.Reply, len(work), o.name, came)
	for i, w := range work {
		hold := bundledHold{all, i}
		switch {
		case !fresh:
			hold.say(outcomeBusy)
		case !all.offer(i): // its publisher stores it
		case t.canTake(w.Subject) != nil || t.sender.subjectOf(w.Subject) != here:
			t.odd.taskOfOthers.do(func(dropped int) {
				t.log.Warn("NATS: directly delivered task of another task queue refused",
					"queue", ConsumerOf(o.queue), "subject", w.Subject, "dropped", dropped)
			})
			hold.say(outcomeNotHere)
		default:
			d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body,
				Sequence: firstDirect + t.count.Add(1),
				Direct:   true, NumDelivered: 1, StoredAt: now, Hold: hold}
			if o.take(d) {
				all.took(i)
			} else {
				hold.say(outcomeBusy)
			}
		}
	}
}

// directAt is when a task was sent, by the local clock. A process that was frozen gets tasks that
// the publisher has meanwhile published to the stream: these are not fresh.
func (t *directTasks) directAt(m *nats.Msg, now time.Time) (at time.Time, fresh bool) {
	said, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerDirectAt))
	if err != nil {
		return now, true // an older publisher sends no time
	}
	age := now.Sub(said)
	return now.Add(-max(age, 0)), -maxAhead < age && age < t.direct.lastsAfter()
}
