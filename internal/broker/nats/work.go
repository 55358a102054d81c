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
	// takeFor is how long a request for work waits in the broker.
	takeFor = 10 * time.Second
	// takeAgain is how long to wait when nobody takes the request.
	takeAgain = 100 * time.Millisecond
	// spareInboxes is how many inboxes a queue keeps for the next requests.
	spareInboxes = 16
)

// maxConsumerName is what a server takes, with room to spare.
const maxConsumerName = 200

// ConsumerOf is the name of a queue's consumer: "w_<tag>_<activity>", both as in the subject, where
// / and _ are percent-encoded, too. A name that would be too long is cut, with a hash at its end.
func ConsumerOf(q broker.Queue) string {
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

// queueOf reads a queue from the words of a subject.
func queueOf(tag, activity string) (q broker.Queue, err error) {
	if tag != defaultTag {
		if q.Tag, err = events.DecodeToken(tag); err != nil {
			return q, err
		}
	}
	q.Activity, err = events.DecodeToken(activity)
	return q, err
}

// queueWords are the words of a subject of work that name its queue: the tag and the activity.
func (b *Bus) queueWords(subject string) (words string, isWork bool) {
	rest, isWork := strings.CutPrefix(subject, b.names.prefix+".work.")
	if !isWork {
		return "", false
	}
	end := strings.IndexByte(rest, '.')
	next := strings.IndexByte(rest[end+1:], '.')
	if end < 0 || next < 0 {
		return "", false
	}
	return rest[:end+1+next], true
}

// noteQueue makes the queue of work that was published, the first time that this process sees it,
// so that workers which serve any tag find it.
func (b *Bus) noteQueue(subject string) {
	words, isWork := b.queueWords(subject)
	if !isWork || b.config.Setup == Use {
		return
	}
	if _, known := b.queues.LoadOrStore(words, true); known {
		return
	}
	tag, activity, _ := strings.Cut(words, ".")
	q, err := queueOf(tag, activity)
	if err != nil {
		return
	}
	b.run(func() {
		ctx, cancel := context.WithTimeout(b.ctx, b.config.Timeout)
		defer cancel()
		if _, err := b.queue(ctx, q); err != nil {
			b.queues.Delete(words) // the next one tries again
			if b.ctx.Err() == nil {
				b.log.Warn("NATS: the queue of an activity could not be made; workers will", "activity", q.Activity,
					"tag", q.Tag, "error", err)
			}
		}
	})
}

// queue finds the consumer of a queue, or makes it. How long work stays with a worker is for the
// workers to say.
func (b *Bus) queue(ctx context.Context, q broker.Queue) (c jetstream.Consumer, err error) {
	c, err = b.lookFor(ctx, b.names.work, ConsumerOf(q))
	if !errors.Is(err, jetstream.ErrConsumerNotFound) || b.config.Setup == Use {
		return c, err
	}
	err = b.askAgain(ctx, func(ctx context.Context) error {
		c, err = b.js.CreateConsumer(ctx, b.names.work, b.workConsumer(q))
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerExists) { // somebody was faster
		c, err = b.lookFor(ctx, b.names.work, ConsumerOf(q))
	}
	return c, err
}

// Queues implements broker.WorkBroker.
func (b *Bus) Queues(ctx context.Context) ([]broker.Queue, error) {
	st := b.there.Load().work
	if st == nil {
		return nil, fmt.Errorf("nats: stream %s cannot be seen with these rights", b.names.work)
	}
	list := st.ListConsumers(ctx)
	var queues []broker.Queue
	for i := range list.Info() {
		words := strings.Split(strings.TrimPrefix(i.Config.FilterSubject, b.subject("work.")), ".")
		if len(words) != 3 || words[2] != ">" {
			continue // of somebody else
		}
		if q, err := queueOf(words[0], words[1]); err == nil {
			queues = append(queues, q)
		}
	}
	return queues, problem("list the consumers of "+b.names.work, list.Err())
}

// OpenQueue implements broker.WorkBroker.
func (b *Bus) OpenQueue(ctx context.Context, q broker.Queue) (broker.WorkQueue, error) {
	w := &workQueue{b: b, queue: q, name: ConsumerOf(q)}
	err := w.open(ctx)
	if gone(err) && b.mend(ctx) == nil {
		err = w.open(ctx)
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) || b.config.Setup != Make && err != nil && w.missing(ctx) {
		err = fmt.Errorf("%w: %w", broker.ErrNoQueue, err)
	}
	if err != nil {
		return nil, problem(fmt.Sprintf("open the queue of activity %q, tag %q (consumer %s)", q.Activity,
			q.Tag, w.name), err)
	}
	return w, nil
}

// open finds or makes the consumer, with the wait that this worker wants.
func (q *workQueue) open(ctx context.Context) error {
	c, err := q.b.queue(ctx, q.queue)
	if err != nil || q.b.config.Setup != Make || c.CachedInfo().Config.AckWait == q.b.config.WorkWait {
		return err
	}
	return q.b.askAgain(ctx, func(ctx context.Context) error {
		_, err = q.b.js.UpdateConsumer(ctx, q.b.names.work, q.b.workConsumer(q.queue))
		return err
	})
}

// missing reports whether the consumer does not exist, as far as can be seen.
func (q *workQueue) missing(ctx context.Context) bool {
	_, err := q.b.js.Consumer(ctx, q.b.names.work, q.name)
	return errors.Is(err, jetstream.ErrConsumerNotFound)
}

type workQueue struct {
	b     *Bus
	queue broker.Queue
	name  string

	mu    sync.Mutex
	spare []*inbox
}

// inbox is where the answers to a request for work come. It can be used again when the broker has
// nothing more to say to it.
type inbox struct {
	sub  *nats.Subscription
	came chan *nats.Msg
}

// inbox gives one that nobody uses.
func (q *workQueue) inbox(n int) (*inbox, error) {
	size := n + 64 // messages, and what the broker says besides
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
	sub, err := q.b.nc.ChanSubscribe(q.b.nc.NewInbox(), came)
	if err != nil {
		return nil, err
	}
	return &inbox{sub, came}, nil
}

// keep puts an inbox back.
func (q *workQueue) keep(i *inbox) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.spare) < spareInboxes {
		q.spare = append(q.spare, i)
		return
	}
	_ = i.sub.Unsubscribe() // it fails only if the connection is closed
}

// abandon gives up an inbox to which work may still be coming. That goes back to the broker.
func (q *workQueue) abandon(i *inbox) {
	closed := make(chan struct{})
	over := sync.OnceFunc(func() { close(closed) }) // it may be told twice
	i.sub.SetClosedHandler(func(string) { over() })
	if err := i.sub.Drain(); err != nil {
		return // the connection is closed
	}
	giveBack := func(m *nats.Msg) {
		if read(m).kind == aMessage {
			hold{q.b.nc, m.Reply}.Nak(0)
		}
	}
	q.b.run(func() {
		for {
			select {
			case m := <-i.came:
				giveBack(m)
				continue
			case <-closed:
			case <-q.b.ctx.Done():
			}
			break
		}
		for len(i.came) > 0 {
			giveBack(<-i.came)
		}
	})
}

// Take implements broker.WorkQueue.
func (q *workQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (int, error) {
	if n < 1 || ctx.Err() != nil || !q.b.awaitConnection(ctx, takeFor) {
		return 0, nil
	}
	i, err := q.inbox(n)
	if err != nil {
		return 0, problem("take work from "+q.name, err)
	}
	t := taking{q: q, in: i, take: take, wanted: n, until: time.Now().Add(takeFor)}
	clean, err := t.run(ctx)
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
	q      *workQueue
	in     *inbox
	take   func(broker.Delivery)
	wanted int // still
	taken  int
	until  time.Time
}

// run takes until there is enough, and tells whether the broker has nothing more to say.
func (t *taking) run(ctx context.Context) (clean bool, err error) {
	b := t.q.b
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
		case <-quiet.C: // whoever had the request does not know of it any more
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
			case aLost, aNobody, aGone:
				if done, err := t.lost(ctx, a); done || err != nil {
					return false, err
				}
			default:
				return true, a.err
			}
			quiet.Reset(silence) // now, as take may have taken its time
		}
	}
}

func (t *taking) ask() error {
	expires := max(time.Until(t.until), 10*time.Millisecond)
	return t.q.b.ask(t.q.b.names.work, t.q.name, t.in.sub.Subject, request{Batch: t.wanted, Expires: expires})
}

// message takes one message.
func (t *taking) message(m *nats.Msg) {
	t.wanted--
	d, _, notBefore, err := t.q.b.delivery(m)
	if err != nil {
		t.q.b.log.Error("NATS: work without a place in a stream", "subject", m.Subject, "error", err)
		return
	}
	if rest := time.Until(notBefore); !notBefore.IsZero() && rest > 0 {
		d.Hold.Nak(rest)
		return
	}
	t.taken++
	t.take(d)
}

// lost asks again after the broker has lost the request. If the queue is gone it is made again.
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
		if errors.Is(err, jetstream.ErrStreamNotFound) && t.q.b.mend(ctx) == nil {
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

// WorkBacklog implements broker.WorkBroker.
func (b *Bus) WorkBacklog(ctx context.Context, q broker.Queue) (broker.Backlog, error) {
	return b.backlog(ctx, b.names.work, ConsumerOf(q))
}

// Withdrawals implements broker.WorkBroker.
func (b *Bus) Withdrawals(tags []string, told func(subject string)) (stop func(), err error) {
	begin := b.subject("notice", "withdrawn") + "."
	heard := func(m *nats.Msg) { told(b.subject("work", strings.TrimPrefix(m.Subject, begin))) }
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
		sub, err := b.nc.Subscribe(s, heard)
		if err != nil {
			stop()
			return nil, problem("listen for withdrawn work", err)
		}
		subs = append(subs, sub)
	}
	if err := b.nc.FlushTimeout(b.config.Timeout); err != nil {
		stop()
		return nil, problem("listen for withdrawn work", err)
	}
	return stop, nil
}

// Stored implements broker.WorkBroker.
func (b *Bus) Stored(ctx context.Context, d broker.Delivery) (bool, error) {
	if d.Passed {
		return b.storedLate(ctx, d)
	}
	stream := b.names.inbox
	if strings.HasPrefix(d.Subject, b.subject("work.")) {
		stream = b.names.work
	}
	is, err := b.isThere(ctx, stream, d.Sequence)
	return is, problem("look for "+d.Subject, err)
}
