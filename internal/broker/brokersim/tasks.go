package brokersim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// taskQueues implements broker.TaskQueues.
type taskQueues struct {
	*puller
	control *notifications
}

// ListTaskQueues implements broker.TaskQueues.
func (c *taskQueues) ListTaskQueues(ctx context.Context) (queues []broker.TaskQueueName, err error) {
	err = c.do(ctx, "queues", func() error {
		for q := range c.b.queues {
			queues = append(queues, q)
		}
		slices.SortFunc(queues, func(a, b broker.TaskQueueName) int {
			return strings.Compare(a.Tag+"\x00"+a.Activity, b.Tag+"\x00"+b.Activity)
		})
		return nil
	})
	return queues, err
}

// OpenTaskQueue implements broker.TaskQueues.
func (c *taskQueues) OpenTaskQueue(ctx context.Context, q broker.TaskQueueName) (broker.TaskQueue, error) {
	err := c.do(ctx, "open queue "+q.Activity, func() error { c.b.noteQueue(q); return nil })
	return &taskQueue{c, q}, err
}

type taskQueue struct {
	c *taskQueues
	q broker.TaskQueueName
}

// takeFor is how long Take waits for tasks.
const takeFor = 10 * time.Second

// Take implements broker.TaskQueue.
func (w *taskQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (taken int, err error) {
	c := w.c
	ctx, cancel := context.WithTimeout(ctx, takeFor)
	defer cancel()
	c.asking(func() { c.b.queues[w.q]++ })
	defer c.asking(func() { c.b.queues[w.q]-- })
	for taken < n && ctx.Err() == nil {
		all, err := c.await(ctx, &receiver{c: c.link}, "take "+w.q.Activity, n-taken,
			func(now time.Time) (*message, time.Time) {
				return c.b.nextWork(w.q, now)
			})
		for _, d := range all {
			if ctx.Err() != nil { // it came too late
				d.Hold.Nak(0)
				continue
			}
			taken++
			take(d)
			c.path.Pause("take another of " + w.q.Activity) // lets other takers have a turn, too
		}
		switch {
		case ctx.Err() != nil:
			return taken, nil
		case err != nil:
			return taken, err
		}
	}
	return taken, nil
}

// Withdrawals implements broker.TaskQueues.
func (c *taskQueues) Withdrawals(tags []string, told func(subject string)) (stop func(), err error) {
	words := func(tag string) string {
		switch tag {
		case "":
			return "_"
		case "_":
			return "%5F"
		}
		return events.EncodeToken(tag)
	}
	return c.control.listen(func(heard []string) bool {
		return heard[0] == "withdrawn" && (tags == nil || slices.ContainsFunc(tags, func(t string) bool {
			return words(t) == heard[1]
		}))
	}, func(heard []string, _ events.Header, _ []byte) {
		told(c.b.prefix + ".task." + strings.Join(heard[1:], "."))
	}), nil
}

// DirectLoad implements broker.TaskQueues.
func (*taskQueues) DirectLoad() map[broker.TaskQueueName]float64 { return nil }

// TaskBacklog implements broker.TaskQueues.
func (c *taskQueues) TaskBacklog(ctx context.Context, q broker.TaskQueueName) (l broker.Backlog, err error) {
	err = c.do(ctx, "backlog of "+q.Activity, func() error {
		l = backlogOf(c.b.work, c.b.queues[q], func(m *message) bool { return m.queue == q })
		return nil
	})
	return l, err
}

// Stored implements broker.TaskQueues.
func (c *taskQueues) Stored(ctx context.Context, d broker.Delivery) (is bool, err error) {
	err = c.do(ctx, fmt.Sprint("stored ", d.Sequence, " ", d.Subject), func() error {
		is = c.b.find(d.Sequence) != nil || d.Direct && c.b.hasDirect(d)
		return nil
	})
	return is, err
}
