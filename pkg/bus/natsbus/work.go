package natsbus

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

// takeFor is how long a request for work waits in the broker.
const takeFor = 10 * time.Second

// maxConsumerName is what a server takes, with room to spare.
const maxConsumerName = 200

// ConsumerOf is the name of a queue's consumer: "w_<tag>_<activity>", both as in the subject, where / and _ are percent-encoded, too. A name that would
// be too long is cut, with a hash at its end.
func ConsumerOf(q bus.Queue) string {
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
func queueOf(tag, activity string) (q bus.Queue, err error) {
	if tag != defaultTag {
		if q.Tag, err = events.DecodeToken(tag); err != nil {
			return q, err
		}
	}
	q.Activity, err = events.DecodeToken(activity)
	return q, err
}

// noteQueue makes the queue of work that was published, the first time that this process sees it, so that workers which serve any tag find it.
func (b *Bus) noteQueue(subject string) {
	rest, isWork := strings.CutPrefix(subject, b.subject("work."))
	if !isWork || b.config.Setup != Make {
		return
	}
	words := strings.Split(rest, ".")
	if len(words) != 4 {
		return
	}
	q, err := queueOf(words[0], words[1])
	if err != nil {
		return
	}
	b.mu.Lock()
	known := b.queues[q]
	b.queues[q] = true
	b.mu.Unlock()
	if known {
		return
	}
	b.wait.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, b.config.Timeout)
		defer cancel()
		if _, err := b.work.CreateOrUpdateConsumer(ctx, b.workConsumer(q)); err != nil && b.ctx.Err() == nil {
			b.log.Warn("NATS: the queue of an activity could not be made; workers will", "activity", q.Activity, "tag", q.Tag, "error", err)
		}
	})
}

// Queues implements bus.WorkBroker.
func (b *Bus) Queues(ctx context.Context) ([]bus.Queue, error) {
	list := b.work.ListConsumers(ctx)
	var queues []bus.Queue
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

// OpenQueue implements bus.WorkBroker.
func (b *Bus) OpenQueue(ctx context.Context, q bus.Queue) (bus.WorkQueue, error) {
	name := ConsumerOf(q)
	var c jetstream.Consumer
	var err error
	if b.config.Setup == Make {
		c, err = b.work.CreateOrUpdateConsumer(ctx, b.workConsumer(q))
	} else {
		c, err = b.js.Consumer(ctx, b.names.work, name)
	}
	if err != nil {
		return nil, problem(fmt.Sprintf("open the queue of activity %q, tag %q (consumer %s)", q.Activity, q.Tag, name), err)
	}
	return &workQueue{b, c, name}, nil
}

type workQueue struct {
	b        *Bus
	consumer jetstream.Consumer
	name     string
}

// Take implements bus.WorkQueue.
func (q *workQueue) Take(ctx context.Context, n int, take func(bus.Delivery)) (int, error) {
	fetch, cancel := context.WithTimeout(ctx, takeFor)
	defer cancel()
	batch, err := q.consumer.Fetch(n, jetstream.FetchContext(fetch))
	if err != nil {
		return 0, q.taken(ctx, err)
	}
	taken := 0
	for m := range batch.Messages() {
		d, err := q.b.delivery(m)
		if err != nil {
			_ = m.Nak()
			continue
		}
		if rest := untilDue(d.Header); rest > 0 {
			d.Hold.Return(rest)
			continue
		}
		taken++
		take(d)
	}
	return taken, q.taken(ctx, batch.Error())
}

// taken makes the error of Take: none, if it just waited long enough.
func (q *workQueue) taken(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return problem("take work from "+q.name, err)
}

// WorkBacklog implements bus.WorkBroker.
func (b *Bus) WorkBacklog(ctx context.Context, q bus.Queue) (bus.Backlog, error) {
	return b.backlog(ctx, b.names.work, ConsumerOf(q))
}

// Withdrawals implements bus.WorkBroker.
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
	return stop, nil
}

// Stored implements bus.WorkBroker.
func (b *Bus) Stored(ctx context.Context, d bus.Delivery) (bool, error) {
	st, _ := b.streamOf(d.Subject)
	_, err := st.GetMsg(ctx, d.Place)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, problem("look for "+d.Subject, err)
}
