package jobserver

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/x/bounded"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/history"
)

// gatherer does operations. Operations of a queue that arrive while a transaction of that queue is
// in flight are done together in the next one: alone, an operation does not wait, and many share a
// commit.
//
// Most clients send the next request right after an answer. So after a transaction of several
// operations the next one waits until as many have arrived, for a part of the transaction's time at
// most. Otherwise small and large batches would alternate, in more transactions
// (docs/adr/0026-job-queues.md has figures).
type gatherer struct {
	store   jobs.Store
	timeout time.Duration
	slots   chan struct{}

	mu     sync.Mutex
	queues map[string]*line // those with a transaction in flight, or about to have one
	all    sync.WaitGroup
}

// line has the operations that wait for the next transaction of a queue.
type line struct {
	waiting []*waiting
	came    signal.Signal // has a value when an operation has arrived
}

// gatherFor bounds the wait for more operations, and so does half of the time of the last
// transaction.
const gatherFor = 2 * time.Millisecond

// gatherMost bounds the operations of a transaction, gatherBytes the size of their pushes,
// gatherItems the jobs of their pops.
const (
	gatherMost  = 100
	gatherBytes = 4 << 20
	gatherJobs  = 256
)

// waiting is an operation whose request waits for it.
type waiting struct {
	ctx    context.Context
	op     jobs.Operation
	answer *heldAnswer // nil: the result is not held
	body   *heldBody   // nil: the data of the operation is not held
	bytes  int
	items  int
	result jobs.Result
	err    error
	done   chan struct{}
}

func newGatherer(store jobs.Store, timeout time.Duration, parallel int) *gatherer {
	return &gatherer{store: store, timeout: timeout, slots: make(chan struct{}, parallel),
		queues: make(map[string]*line)}
}

// do waits for the turn of an operation, and then for the result. If the context ends before, the
// operation may still hold its data.
func (g *gatherer) do(ctx context.Context, name string, op jobs.Operation, a *heldAnswer,
	b *heldBody) (jobs.Result, error) {
	w := &waiting{ctx: ctx, op: op, answer: a, body: b, bytes: sizeOf(op), items: jobsOf(op),
		done: make(chan struct{})}
	b.keep()
	g.mu.Lock()
	l, busy := g.queues[name]
	if !busy {
		l = &line{came: signal.New()}
		g.queues[name] = l
		g.all.Add(1)
		go g.run(name, l)
	}
	l.waiting = append(l.waiting, w)
	g.mu.Unlock()
	l.came.Set()
	select {
	case <-w.done:
		return w.result, w.err
	case <-ctx.Done():
		return jobs.Result{}, context.Cause(ctx)
	}
}

func sizeOf(op jobs.Operation) (n int) {
	if p, ok := op.(jobs.Push); ok {
		for _, i := range p.Jobs {
			n += len(i.Data)
		}
	}
	return n
}

// jobsOf is how many jobs an operation pops. Of many, there are not more than an answer may have
// bytes.
func jobsOf(op jobs.Operation) int {
	if p, ok := op.(jobs.Pop); ok {
		return min(max(p.Count, 0), maxAnswer/DefaultMaxJob)
	}
	return 0
}

// run does the waiting operations of a queue until none is left.
func (g *gatherer) run(name string, l *line) {
	defer g.all.Done()
	for {
		g.slots <- struct{}{}
		batch := g.next(name, l)
		if batch == nil {
			<-g.slots
			return
		}
		began := time.Now()
		g.together(name, batch)
		<-g.slots
		if len(batch) > 1 {
			g.gather(l, len(batch), min(time.Since(began)/2, gatherFor))
		}
	}
}

// gather waits until so many operations wait, or for so long.
func (g *gatherer) gather(l *line, want int, most time.Duration) {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		g.mu.Lock()
		n := len(l.waiting)
		g.mu.Unlock()
		if n >= want {
			return
		}
		select {
		case <-l.came:
		case <-late.C:
			return
		}
	}
}

// next returns the next operations; nil if there are none, and then the queue is free.
func (g *gatherer) next(name string, l *line) (batch []*waiting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	bytes, items := 0, 0
	for len(l.waiting) > 0 && len(batch) < gatherMost {
		w := l.waiting[0]
		if w.err = w.ready(); w.err != nil {
			w.over()
			l.waiting = l.waiting[1:]
			continue
		}
		if bytes += w.bytes; bytes > gatherBytes && len(batch) > 0 {
			break
		}
		if items += w.items; items > gatherJobs && len(batch) > 0 {
			break
		}
		batch, l.waiting = append(batch, w), l.waiting[1:]
	}
	if batch == nil {
		delete(g.queues, name)
	}
	return batch
}

// ready returns an error if the operation is not to be done: its request has ended, or there is no
// room for its answer.
func (w *waiting) ready() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	p, ok := w.op.(jobs.Pop)
	if !ok || w.answer == nil {
		return nil
	}
	room, err := w.answer.room()
	if err == nil && room < maxAnswer {
		w.op = within(p, room)
	}
	return err
}

// within bounds a pop to a number of bytes: also by its count, because the sizes of few jobs are
// not read before they are popped.
func within(p jobs.Pop, bytes int) jobs.Pop {
	p.Bytes = bytes
	if p.Count <= jobs.MaxCount { // more are refused
		p.Count = min(p.Count, max(1, bytes/DefaultMaxJob))
	}
	return p
}

// over ends the operation, and what it holds of the memory of bodies.
func (w *waiting) over() {
	w.body.release()
	close(w.done)
}

// hold has the answer hold the jobs that were popped.
func (w *waiting) hold() {
	n := 0
	for _, i := range w.result.Items {
		n += len(i.Data)
	}
	if n > 0 && w.answer != nil {
		w.answer.has(n)
	}
}

// turn is the place of an operation in its batch. Clients cannot tell in which order their requests
// arrived, and similar operations are read and written at once.
func turn(op jobs.Operation) int {
	switch op.(type) {
	case jobs.Acknowledge:
		return 0
	case jobs.Push:
		return 2
	case jobs.Pop:
		return 3
	default:
	}
	return 1
}

// together does several operations in one transaction. If the database refuses them, each is tried
// alone, so that one cannot fail the others.
func (g *gatherer) together(name string, batch []*waiting) {
	slices.SortStableFunc(batch, func(a, b *waiting) int { return cmp.Compare(turn(a.op), turn(b.op)) })
	ops := make([]jobs.Operation, len(batch))
	for n, w := range batch {
		ops[n] = w.op
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), g.timeout)
	defer cancel()
	results, err := g.try(ctx, name, ops)
	if err != nil && len(batch) > 1 && history.ClassOf(err) == history.Permanent {
		for _, w := range batch {
			g.together(name, []*waiting{w})
		}
		return
	}
	for n, w := range batch {
		if w.err = err; err == nil {
			w.result = results[n]
			w.hold()
		}
		w.over()
	}
}

// try does operations. A panic becomes an error of these operations only.
func (g *gatherer) try(ctx context.Context, name string, ops []jobs.Operation) (results []jobs.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return g.store.Do(ctx, name, ops...)
}

// wait waits until no transaction is in flight, or for so long, and reports whether none is.
func (g *gatherer) wait(most time.Duration) bool { return bounded.Wait(most, g.all.Wait) }
