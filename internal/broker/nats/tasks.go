package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// takeFor is how long a pull request for tasks waits in the broker.
	takeFor = 10 * time.Second
	// takeAgain is the delay after a request without a responder.
	takeAgain = 100 * time.Millisecond
	// spareInboxes is the maximum number of inboxes that a task queue keeps for the next requests.
	spareInboxes = 16
)

// maxConsumerName is the maximum length of a consumer's name; servers accept a little more.
const maxConsumerName = 200

// ConsumerOf returns the name of a task queue's consumer: "w_<tag>_<activity>", both as in the
// subject, where / and _ are percent-encoded, too. A name that would be too long is cut, with a
// hash at its end.
func ConsumerOf(q broker.TaskQueueName) string {
	plain := strings.NewReplacer("/", "%2F", "_", "%5F").Replace
	tag := tagToken(q.Tag)
	if q.Tag != "" && q.Tag != defaultTag {
		tag = plain(tag)
	}
	name := "w_" + tag + "_" + plain(events.EncodeToken(q.Activity))
	if len(name) <= maxConsumerName {
		return name
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return fmt.Sprintf("%s_%016x", name[:maxConsumerName-17], h.Sum64())
}

// queueOf parses the words of a subject that name its task queue.
func queueOf(tag, activity string) (q broker.TaskQueueName, err error) {
	if tag != defaultTag {
		if q.Tag, err = events.DecodeToken(tag); err != nil {
			return q, err
		}
	}
	q.Activity, err = events.DecodeToken(activity)
	return q, err
}

// taskQueues are the task queues: each is a consumer of the stream of tasks.
type taskQueues struct {
	*resources
	reader reader
	direct *directTasks
	known  sync.Map // the task queues that exist, by the tokens "<tag>.<activity>" of their subjects
}

// forget forgets which task queues exist, because the broker has lost data.
func (t *taskQueues) forget() { t.known.Clear() }

// noteQueue creates the task queue of a published task, the first time that this process sees it,
// so that workers which serve any tag find it.
func (t *taskQueues) noteQueue(subject string) {
	words, isWork := t.queueWords(subject)
	if !isWork || t.plan.config.Setup == Use {
		return
	}
	if _, known := t.known.LoadOrStore(words, true); known {
		return
	}
	tag, activity, _ := strings.Cut(words, ".")
	q, err := queueOf(tag, activity)
	if err != nil {
		return
	}
	t.run(func() {
		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		defer cancel()
		if _, err := t.queue(ctx, q); err != nil {
			t.known.Delete(words) // the next one tries again
			if t.ctx.Err() == nil {
				t.log.Warn("NATS: the queue of an activity could not be made; workers will", "activity", q.Activity,
					"tag", q.Tag, "error", err)
			}
		}
	})
}

// queue finds the consumer of a task queue, or creates it. Workers set its ack wait: see
// taskQueue.open.
func (t *taskQueues) queue(ctx context.Context, q broker.TaskQueueName) (c jetstream.Consumer, err error) {
	c, err = t.lookFor(ctx, t.names.work, ConsumerOf(q))
	if !errors.Is(err, jetstream.ErrConsumerNotFound) || t.plan.config.Setup == Use {
		return c, err
	}
	err = t.askAgain(ctx, func(ctx context.Context) error {
		c, err = t.js.CreateConsumer(ctx, t.names.work, t.plan.taskConsumer(q))
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerExists) { // another process was faster
		c, err = t.lookFor(ctx, t.names.work, ConsumerOf(q))
	}
	return c, err
}

// ListTaskQueues implements broker.TaskQueues.
func (t *taskQueues) ListTaskQueues(ctx context.Context) ([]broker.TaskQueueName, error) {
	st := t.there.Load().work
	if st == nil {
		return nil, fmt.Errorf("nats: stream %s cannot be seen with these rights", t.names.work)
	}
	list := st.ListConsumers(ctx)
	var queues []broker.TaskQueueName
	for i := range list.Info() {
		words := strings.Split(strings.TrimPrefix(i.Config.FilterSubject, t.subject("task.")), ".")
		if len(words) != 3 || words[2] != ">" {
			continue // not a consumer of a task queue
		}
		if q, err := queueOf(words[0], words[1]); err == nil {
			queues = append(queues, q)
		}
	}
	return queues, problem("list the consumers of "+t.names.work, list.Err())
}

// OpenTaskQueue implements broker.TaskQueues.
func (t *taskQueues) OpenTaskQueue(ctx context.Context, q broker.TaskQueueName) (broker.TaskQueue, error) {
	w := &taskQueue{queues: t, queue: q, name: ConsumerOf(q)}
	err := w.open(ctx)
	if gone(err) && t.mend(ctx) == nil {
		err = w.open(ctx)
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) || t.plan.config.Setup != Make && err != nil && w.missing(ctx) {
		err = fmt.Errorf("%w: %w", broker.ErrNoTaskQueue, err)
	}
	if err != nil {
		return nil, problem(fmt.Sprintf("open the queue of activity %q, tag %q (consumer %s)", q.Activity,
			q.Tag, w.name), err)
	}
	return w, nil
}

// open finds or creates the consumer, with the ack wait of this worker.
func (q *taskQueue) open(ctx context.Context) error {
	c, err := q.queues.queue(ctx, q.queue)
	config := &q.queues.plan.config
	if err != nil || config.Setup != Make || c.CachedInfo().Config.AckWait == config.TaskAckWait {
		return err
	}
	return q.queues.askAgain(ctx, func(ctx context.Context) error {
		_, err = q.queues.js.UpdateConsumer(ctx, q.queues.names.work, q.queues.plan.taskConsumer(q.queue))
		return err
	})
}

// missing reports whether the consumer does not exist, as far as can be seen.
func (q *taskQueue) missing(ctx context.Context) bool {
	_, err := q.queues.js.Consumer(ctx, q.queues.names.work, q.name)
	return errors.Is(err, jetstream.ErrConsumerNotFound)
}

type taskQueue struct {
	queues *taskQueues
	queue  broker.TaskQueueName
	name   string

	mu    sync.Mutex
	spare []*replies
}

// replies receives the responses to a pull request for tasks. It can be used again when the broker
// sends nothing more to it.
type replies struct {
	sub  *nats.Subscription
	came chan *nats.Msg
}

// replies returns an unused inbox.
func (q *taskQueue) replies(n int) (*replies, error) {
	size := n + 64 // messages and statuses
	q.mu.Lock()
	if last := len(q.spare) - 1; last >= 0 && cap(q.spare[last].came) >= size {
		i := q.spare[last]
		q.spare = q.spare[:last]
		q.mu.Unlock()
		if i.sub.IsValid() {
			return i, nil
		}
	} else {
		q.mu.Unlock()
	}
	came := make(chan *nats.Msg, max(size, 256))
	sub, err := q.queues.nc.ChanSubscribe(q.queues.nc.NewInbox(), came)
	if err != nil {
		return nil, err
	}
	return &replies{sub, came}, nil
}

// keep stores an inbox for the next request.
func (q *taskQueue) keep(i *replies) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.spare) < spareInboxes {
		q.spare = append(q.spare, i)
		return
	}
	_ = i.sub.Unsubscribe() // it fails only if the connection is closed
}

// abandon gives up an inbox that may still receive tasks. It nacks those tasks.
func (q *taskQueue) abandon(i *replies) {
	closed := make(chan struct{})
	over := sync.OnceFunc(func() { close(closed) }) // the handler may run twice
	i.sub.SetClosedHandler(func(string) { over() })
	if err := i.sub.Drain(); err != nil {
		return // the connection is closed
	}
	giveBack := func(m *nats.Msg) {
		if read(m).kind == aMessage {
			hold{q.queues.nc, m.Reply}.Nak(0)
		}
	}
	q.queues.run(func() {
		for {
			select {
			case m := <-i.came:
				giveBack(m)
				continue
			case <-closed:
			case <-q.queues.ctx.Done():
			}
			break
		}
		for len(i.came) > 0 {
			giveBack(<-i.came)
		}
	})
}

// Offer implements broker.TaskQueue.
func (q *taskQueue) Offer(name string, take func(broker.Delivery) bool) (stop func(), err error) {
	return q.queues.direct.offer(q.queue, name, take)
}

// Take implements broker.TaskQueue.
func (q *taskQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (int, error) {
	if n < 1 || ctx.Err() != nil {
		//lint:ignore nilerr Take returns no task when its context ends
		return 0, nil
	}
	if !q.queues.awaitConnection(ctx, takeFor) {
		if q.queues.ctx.Err() != nil { // without an error, the caller would take again at once
			return 0, problem("take work from "+q.name, nats.ErrConnectionClosed)
		}
		return 0, nil
	}
	i, err := q.replies(n)
	if err != nil {
		return 0, problem("take work from "+q.name, err)
	}
	t := taking{q: q, in: i, take: take, wanted: n, until: time.Now().Add(takeFor)}
	clean := false
	err = q.queues.denied.requesting(ctx, q.queues.pullSubject(q.queues.names.work, q.name),
		func(ctx context.Context) (err error) {
			if clean, err = t.run(ctx); err == nil {
				err = context.Cause(ctx) // of a denial
			}
			return err
		})
	if clean {
		q.keep(i)
	} else {
		q.abandon(i)
	}
	if ctx.Err() != nil {
		err = nil
	}
	return t.taken, problem("take work from "+q.name, err)
}

// taking is one call of Take.
type taking struct {
	q      *taskQueue
	in     *replies
	take   func(broker.Delivery)
	wanted int // still to take
	taken  int
	until  time.Time
}

// run takes tasks until there are enough, and reports whether the broker sends nothing more.
func (t *taking) run(ctx context.Context) (clean bool, err error) {
	b := t.q.queues
	if err := t.ask(); err != nil {
		return false, err
	}
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-b.ctx.Done():
			return false, nats.ErrConnectionClosed
		case <-quiet.C: // no server knows the request any more
			return false, nil
		case m := <-t.in.came:
			switch a := read(m); a.kind {
			case aMessage:
				if t.message(m); t.wanted == 0 {
					return true, nil
				}
			case aHeartbeat:
			case aDone:
				return true, nil
			case aLost, aNoConsumer, aGone:
				if done, err := t.lost(ctx, a); done || err != nil {
					return false, err
				}
			default:
				return true, a.err
			}
			quiet.Reset(silence) // now, because take may have taken long
		}
	}
}

func (t *taking) ask() error {
	expires := max(time.Until(t.until), 10*time.Millisecond)
	return t.q.queues.ask(t.q.queues.names.work, t.q.name, t.in.sub.Subject, request{Batch: t.wanted, Expires: expires})
}

// message takes one message.
func (t *taking) message(m *nats.Msg) {
	t.wanted--
	d, _, notBefore, err := t.q.queues.delivery(m)
	if err != nil {
		t.q.queues.log.Error("NATS: task without JetStream metadata dropped", "subject", m.Subject, "error", err)
		return
	}
	if rest := time.Until(notBefore); !notBefore.IsZero() && rest > 0 {
		d.Hold.Nak(rest)
		return
	}
	t.taken++
	t.take(d)
}

// lost sends the request again after the broker has lost it. If the queue is gone, lost creates it
// again.
func (t *taking) lost(ctx context.Context, a answer) (done bool, err error) {
	if t.taken > 0 {
		return true, nil
	}
	if a.kind == aGone {
		select {
		case <-time.After(mendAfter):
		case <-ctx.Done():
			return true, nil
		}
	}
	if a.kind != aLost {
		look, cancel := context.WithTimeout(ctx, silence) // the connection may break just now
		defer cancel()
		err := t.q.open(look)
		if errors.Is(err, jetstream.ErrStreamNotFound) && t.q.queues.mend(ctx) == nil {
			err = t.q.open(ctx)
		}
		if err != nil && look.Err() == nil {
			return true, err
		}
	}
	select {
	case <-ctx.Done():
		return true, nil
	case <-time.After(takeAgain):
	}
	if time.Now().After(t.until) {
		return true, nil
	}
	return false, t.ask()
}

// TaskBacklog implements broker.TaskQueues.
func (t *taskQueues) TaskBacklog(ctx context.Context, q broker.TaskQueueName) (broker.Backlog, error) {
	return t.backlog(ctx, t.names.work, ConsumerOf(q))
}

// Withdrawals implements broker.TaskQueues.
func (t *taskQueues) Withdrawals(tags []string, told func(subject string)) (stop func(), err error) {
	begin := t.subject("notification", "withdrawn") + "."
	heard := func(m *nats.Msg) { told(t.subject("task", strings.TrimPrefix(m.Subject, begin))) }
	subjects := []string{begin + ">"}
	if tags != nil {
		subjects = nil
		for _, tag := range tags {
			subjects = append(subjects, begin+tagToken(tag)+".>")
		}
	}
	var subs []*nats.Subscription
	stop = func() {
		for _, s := range subs {
			_ = s.Unsubscribe() // it fails only if the connection is closed
		}
	}
	for _, s := range subjects {
		sub, err := t.nc.Subscribe(s, heard)
		if err != nil {
			stop()
			return nil, problem("listen for withdrawn work", err)
		}
		subs = append(subs, sub)
	}
	if err := t.flush(t.ctx); err != nil {
		stop()
		return nil, problem("listen for withdrawn work", err)
	}
	return stop, nil
}

// Stored implements broker.TaskQueues.
func (t *taskQueues) Stored(ctx context.Context, d broker.Delivery) (bool, error) {
	if d.Direct {
		return t.storedLate(ctx, d)
	}
	stream := t.names.inbox
	if strings.HasPrefix(d.Subject, t.subject("task.")) {
		stream = t.names.work
	}
	is, err := t.reader.isThere(ctx, stream, d.Sequence)
	return is, problem("look for "+d.Subject, err)
}

// storedLate reports whether a directly delivered task is stored. Until it must be, its publisher
// keeps it, and storedLate reports true.
func (t *taskQueues) storedLate(ctx context.Context, d broker.Delivery) (bool, error) {
	if time.Since(d.StoredAt) < t.direct.direct.lastsAfter()+2*answerEvery {
		return true, nil
	}
	st, _, err := t.streamOf(d.Subject)
	if err != nil {
		return false, err
	}
	f, err := t.reader.lastOf(ctx, st.CachedInfo().Config.Name, d.Subject)
	return f != nil, problem("look for "+d.Subject, err)
}
