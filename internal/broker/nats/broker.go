// Package natsbroker implements package broker on NATS JetStream. It is the only package that
// imports the NATS client.
//
// # Streams
//
// With the prefix "rondo" (see [Config.Prefix]):
//
//	RONDO        rondo.*.*.*                                    WorkQueue retention; a subject transform moves
//	                                                            messages to rondo.p.<partition>.<verb>.
//	                                                            <name>.<instance>
//	RONDO_LATER  rondo.later.*.*.*, rondo.due.*.*.*             delayed messages, with WorkQueue retention
//	RONDO_TASKS  rondo.task.*.*.*.*, rondo.later.task.*.*.*.*   activity tasks, with WorkQueue retention
//	RONDO_DEAD   rondo.dead.*.*.*, rondo.dead.task.*.*.*.*      dead letters, with a maximum age
//
// Clients publish into RONDO only. No NATS header of a client acts on the messages of others there:
// the stream has neither rollups nor schedules nor per-message TTLs, and the ids by which NATS
// drops duplicates begin with a secret of the publishing process. See security.md in the
// documentation.
//
// The server computes the partition from the last token of the subject, so that publishers need not
// know the number of partitions. Each partition has two consumers: a-<partition> for results and
// timers, which go ahead, and p-<partition> for all other messages. Each task queue has one
// consumer, named after its tag and activity (see [ConsumerOf]).
//
// Four buckets hold the members (RONDO_MEMBERS), the leases of sessions (RONDO_SESSIONS), and small
// values (RONDO_KV, and RONDO_PROGRESS for the progress of activities): see [broker.KV].
//
// # Acknowledgements
//
//   - The orchestrator acknowledges a message AFTER the transaction with its effects has committed.
//     BEFORE that, it may extend the ack wait, or nack the message.
//   - The worker acknowledges a task AFTER its result is stored in RONDO, or AFTER an orchestrator
//     has answered that the result is committed.
//   - A publisher removes an outbox entry AFTER the streams have stored its messages, or AFTER the
//     worker has settled a task that was delivered directly.
//
// So the broker may deliver a message twice, and loses none. If a process dies, its messages are
// redelivered after the ack wait ([Config.InboxAckWait], [Config.TaskAckWait]).
//
// # Delays
//
// A message with a delay of more than a second and a half waits as a schedule under rondo.later.….
// The server publishes it a second early, because the server may be up to a quarter of a second
// late. The receiver holds it for the rest of the time. So no such message is early, and one that
// arrives in time is late by a few milliseconds only. A message with a shorter delay is published
// at once, and the receiver holds it. See later.go.
//
// # Order
//
// An orchestrator that takes over a partition asks which messages are delivered and not
// acknowledged: those of a dead receiver are redelivered only after their ack wait. Newer messages
// of the same instances wait for them, at most for that time. The orchestrator asks again when the
// count of delivered messages shows that another receiver got some meanwhile: a frozen or
// disconnected receiver gets messages until its pull requests expire.
//
// # Direct delivery
//
// NATS need not store the result of a task, because it stores the task until the worker
// acknowledges it. So the worker sends the result to the orchestrator that published the task,
// under rondo.direct.result.to.…, if that orchestrator receives from the partition
// of the instance. The worker publishes to RONDO only the results that are not taken there: see
// direct.go. Tasks are delivered directly to workers in the same way.
//
// # Anchors
//
// RONDO, RONDO_LATER and RONDO_TASKS each keep a message without a receiver, so that they never run
// empty: see anchor.go.
//
// # Lost streams
//
// If a process finds that a stream, a consumer or a bucket is missing, because a disk was lost for
// instance, it creates all of them if [Config.Setup] is [Make], and logs it. The messages in them
// are lost. Orchestrators publish again, from the histories, the tasks, timers and results that are
// outstanding.
//
// # Damage
//
// Each process that receives compares the streams, buckets and consumers regularly with the setup.
// It repairs or reports those that an operator has removed or changed by hand: see reconcile.go.
package natsbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
)

// Bus is a connection to the broker. It is safe for concurrent use. Each of its parts implements
// one contract of package broker, or a few, and knows the parts below it only:
//
//	conn           the connection, and requests to JetStream
//	resources      the streams, consumers and buckets: creates, verifies and repairs them
//	directSender   direct delivery: tasks to workers, and results to orchestrators
//	publisher      publishes messages, and withdraws them
//	taskQueues     the task queues of the workers
//	inbox          the partitions, and receiving from them
//	deadLetters    the dead-letter queue
//	pendingStarts  the starts that no orchestrator has taken
//	members, handovers, leases, keyValue          coordination
//	notifications, requests                       control
type Bus struct {
	*conn
	*resources
	*publisher
	*taskQueues
	*inbox
	*deadLetters
	*pendingStarts
	*members
	*handovers
	*leases
	*keyValue
	*notifications
	*requests
}

var (
	_ broker.Publisher     = (*Bus)(nil)
	_ broker.Inbox         = (*Bus)(nil)
	_ broker.DeadLetters   = (*Bus)(nil)
	_ broker.PendingStarts = (*Bus)(nil)
	_ broker.AwaitedStarts = (*Bus)(nil)
	_ broker.TaskQueues    = (*Bus)(nil)
	_ broker.Members       = (*Bus)(nil)
	_ broker.Handovers     = (*Bus)(nil)
	_ broker.Leases        = (*Bus)(nil)
	_ broker.KV            = (*Bus)(nil)
	_ broker.Repairer      = (*Bus)(nil)
	_ broker.Notifications = (*Bus)(nil)
	_ broker.Requests      = (*Bus)(nil)
	_ broker.Discovery     = (*Bus)(nil)
	_ broker.Connection    = (*Bus)(nil)
)

// Connect connects to NATS, and creates the missing streams, consumers and buckets or only verifies
// them: see [Config.Setup].
func Connect(ctx context.Context, config Config) (*Bus, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("the settings of NATS:\n%w", err)
	}
	b := newBus(config)
	if err := b.dial(ctx, config); err != nil {
		b.stop()
		return nil, err
	}
	if err := b.Repair(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// newBus makes the parts of a Bus, the lower ones first. They are not connected yet.
func newBus(config Config) *Bus {
	c := newConn(config)
	res := newResources(c, config)
	results := &directResults{conn: c}
	sender := &directSender{names: &c.names, replyTo: results.offered, limits: &c.direct}
	reader := reader{c, config.Replicas}
	queues := &taskQueues{resources: res, reader: reader,
		direct: &directTasks{conn: c, sender: sender, results: results}}
	res.repairing = queues.forget
	p := newPublisher(res, reader, sender, queues)
	dead := &deadLetters{resources: res, reader: reader, publisher: p}
	in := newInbox(res, reader, p, dead, results)
	c.hooks = hooks{broken: func() { p.lost(nats.ErrDisconnected) }, denied: func(subject string) {
		p.deniedOn(subject)
		results.deniedAnswer(subject)
		in.receivers.deniedOn(subject)
	}}
	return &Bus{
		conn: c, resources: res, publisher: p, taskQueues: queues, deadLetters: dead,
		pendingStarts: &pendingStarts{res, reader},
		inbox:         in,
		members:       newMembers(res), handovers: &handovers{c, reader},
		leases: &leases{res, &keyValue{res}}, keyValue: &keyValue{res},
		notifications: &notifications{c}, requests: &requests{c},
	}
}

// Traffic returns the counters of the connection.
func (b *Bus) Traffic() broker.Traffic {
	s, direct := b.nc.Stats(), &b.publisher.direct.routes
	return broker.Traffic{
		Connected: b.nc.IsConnected(), In: s.InMsgs, Out: s.OutMsgs, InBytes: s.InBytes, OutBytes: s.OutBytes,
		Direct: direct.taken.Load(), DirectRefused: direct.passed.Load(), Disconnects: b.events.disconnects.Load(),
		Reconnects: s.Reconnects, SlowConsumers: b.events.slow.Load(), Errors: b.events.errors.Load(),
	}
}

// InboxAckWait is the time after which NATS redelivers a message of the inbox that is neither
// acknowledged nor extended.
func (b *Bus) InboxAckWait() time.Duration { return b.plan.config.InboxAckWait }

// TaskAckWait is the same for activity tasks.
func (b *Bus) TaskAckWait() time.Duration { return b.plan.config.TaskAckWait }
