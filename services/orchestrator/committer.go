package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
)

const (
	// maxCommits bounds the concurrent commits, which have no instance in common. With two, the CPU
	// is busy while the database waits for its disk or for the network.
	maxCommits = 2
	// secondFrom is the number of waiting turns from which a second commit begins. With fewer, it
	// is cheaper to wait for the first and to commit more turns at once, unless the first is heavy.
	secondFrom = 48
)

// turnStore commits turns. [history.Rounds] implements it.
type turnStore interface {
	Commit(ctx context.Context, batch history.Batch) (history.Result, error)
}

// turnPublisher publishes the messages of committed turns. [outbox.Publisher] implements it.
type turnPublisher interface {
	// Publish blocks while the publisher is busy.
	Publish(ctx context.Context, x outbox.Committed) error
	// Kept returns outbox entries that a commit can remove, Keep returns them after a failure.
	Kept() []history.OutboxKey
	Keep(keys []history.OutboxKey)
}

// committed is the outcome of a batch.
type committed struct {
	decisions []*decision
	heavy     bool // one of its turns has heavyTurn bytes or more
	result    history.Result
	err       error

	begun, at, published time.Time // when the commit began and ended, and when all its messages were published
}

// commitFault is the error for which commits fail, and since when.
type commitFault struct {
	since time.Time
	err   error
}

// committer commits the decided turns of many instances as batches, and publishes their messages
// AFTER the commit. It plans on the goroutine of the loop, which calls its methods, and commits on
// others.
type committer struct {
	limits    batchLimits
	timeout   time.Duration // of one attempt
	store     turnStore
	publisher turnPublisher
	measure   func(x *committed)
	after     func(d time.Duration, f func()) // calls f on the goroutine of the loop, after a delay
	log       *slog.Logger
	done      chan *committed // batches, to the loop

	waiting  []*decision
	inFlight int
	heavy    int // of the commits in flight
	delayed  int // turns with a delay of their own
	backoff  commitBackoff
	group    groupCommit
	armed    bool                    // a timer will wake the loop
	failed   map[*decision]time.Time // turns that are tried again: when their first attempt began
	unknown  time.Time               // the same of turns that were not stored for certain; until the next success
	shared   atomic.Pointer[commitFault]
}

// busy reports whether turns wait for a commit or are being committed.
func (c *committer) busy() bool { return c.inFlight+c.delayed+len(c.waiting) > 0 }

// add has a turn committed.
func (c *committer) add(d *decision) { c.waiting = append(c.waiting, d) }

// start commits waiting turns, if no commit is in flight, or if enough turns wait for a second one.
// While a heavy commit is in flight, the second one takes light turns, however few: instances that
// write much do not hold up the others. While commits fail, a single commit is in flight. At the
// end of the service, no commit is delayed.
func (c *committer) start(ctx context.Context, ending bool) {
	switch n := len(c.waiting); {
	case n == 0 || c.inFlight >= maxCommits:
		return
	case c.inFlight > 0 && (n < secondFrom && c.heavy == 0 || c.backoff.failing()):
		return
	case c.inFlight == 0 && !ending:
		if left := c.group.left(n, time.Now()); left > 0 {
			c.wakeAfter(left)
			return
		}
	}
	decisions := c.next()
	if len(decisions) == 0 {
		return
	}
	x := &committed{decisions: decisions}
	batch := history.Batch{Turns: make([]history.Decided, len(decisions))}
	delay := c.backoff.delay
	if delay == 0 {
		batch.Published = c.publisher.Kept() // not in a retry, so that it cannot fail because of their removal
	}
	for i, d := range decisions {
		batch.Turns[i] = history.Decided{Turn: &d.turn, Messages: d.messages}
		x.heavy = x.heavy || d.bytes >= heavyTurn
	}
	c.inFlight++
	if x.heavy {
		c.heavy++
	}
	go func() {
		x.begun, x.result, x.err = c.commit(ctx, batch, delay)
		x.at = time.Now()
		if x.err == nil {
			c.publish(ctx, decisions, x.result)
			x.published = time.Now()
		} else {
			c.publisher.Keep(batch.Published) // a sweep publishes the entries again that are not removed
		}
		c.measure(x)
		c.done <- x
	}()
}

// next takes the turns of the next commit from the waiting ones.
func (c *committer) next() (decisions []*decision) {
	limits := c.limits
	limits.turns = c.backoff.most(limits.turns)
	if c.heavy > 0 {
		decisions, c.waiting = limits.light(c.waiting)
		return decisions
	}
	n := limits.cut(c.waiting)
	decisions = append([]*decision(nil), c.waiting[:n]...)
	c.waiting = c.waiting[n:]
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	return decisions
}

// wakeAfter wakes the loop after a delay.
func (c *committer) wakeAfter(d time.Duration) {
	if c.armed {
		return
	}
	c.armed = true
	c.after(d, func() { c.armed = false })
}

// commit tries to commit a batch, after a delay.
func (c *committer) commit(ctx context.Context, batch history.Batch, delay time.Duration) (begun time.Time,
	_ history.Result, _ error) {
	if !wait(ctx, delay) {
		// the service shuts down, so there is no other attempt
		return time.Now(), history.Result{},
			&history.Error{Class: history.Ambiguous, Op: "commit", Err: context.Cause(ctx)}
	}
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	begun = time.Now()
	result, err := c.store.Commit(within, batch)
	return begun, result, err
}

// wait waits for a time, and reports false if the context ends first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// publish sends the messages of the committed turns to the publisher. While the publisher is busy,
// it blocks, and so does the next commit.
func (c *committer) publish(ctx context.Context, decisions []*decision, result history.Result) {
	var x outbox.Committed
	for i, d := range decisions {
		if result.Outcomes[i].Status == history.Committed {
			x.Messages = append(x.Messages, d.messages...)
		}
	}
	x.Keys = result.Entries
	if len(x.Messages) > 0 || len(x.Keys) > 0 {
		_ = c.publisher.Publish(ctx, x) // it fails only when the process ends; a sweep publishes the messages then
	}
}

// land records that a batch is not in flight any more.
func (c *committer) finish(x *committed) {
	c.inFlight--
	if x.heavy {
		c.heavy--
	}
	c.group = groupCommit{ended: time.Now(), turns: len(x.decisions)}
}

// succeed records that the store has taken a batch.
func (c *committer) succeed(x *committed) {
	c.backoff.succeed(len(x.decisions), c.limits.turns, time.Now())
	c.unknown = time.Time{}
	c.forget(x.decisions)
}

// doubt notes that turns which may be stored are decided again. If they have failed before, the
// fault lasts until the store takes a batch.
func (c *committer) doubt(x *committed) {
	for _, d := range x.decisions {
		if since, is := c.failed[d]; is && (c.unknown.IsZero() || since.Before(c.unknown)) {
			c.unknown = since
		}
	}
	c.forget(x.decisions)
}

// resolve notes that a turn of unknown outcome was found to be stored.
func (c *committer) resolve() {
	c.unknown = time.Time{}
	c.forget(nil)
}

// forget notes that turns are not tried again. The fault ends with the last one that has failed:
// the store may take small batches, and refuse others.
func (c *committer) forget(decisions []*decision) {
	f := c.shared.Load()
	if f == nil {
		return
	}
	for _, d := range decisions {
		delete(c.failed, d)
	}
	c.shared.Store(c.faultWith(f.err))
}

// faultWith returns a fault with an error, nil if no turn that has failed is tried again.
func (c *committer) faultWith(err error) *commitFault {
	all := slices.Collect(maps.Values(c.failed))
	if !c.unknown.IsZero() {
		all = append(all, c.unknown)
	}
	if len(all) == 0 {
		return nil
	}
	return &commitFault{since: slices.MinFunc(all, time.Time.Compare), err: err}
}

// retry has the turns of a failed batch committed again. It returns a turn that is not tried again.
func (c *committer) retry(x *committed) (refused *decision) {
	n := len(x.decisions)
	if c.shared.Load() == nil {
		c.failed = make(map[*decision]time.Time)
		c.log.Warn("a commit failed; trying again", "turns", n, "class", history.ClassOf(x.err).String(),
			"error", x.err)
	}
	for _, d := range x.decisions {
		if _, again := c.failed[d]; !again {
			c.failed[d] = x.begun
		}
	}
	c.shared.Store(c.faultWith(x.err))
	c.backoff.fail(n)
	if n > 1 {
		c.waiting = append(x.decisions, c.waiting...)
		return nil
	}
	d := x.decisions[0]
	switch d.retry.refuse(c.backoff.succeeded, time.Now()) {
	case retryFirst:
		c.waiting = append(x.decisions, c.waiting...)
	case retryLast:
		c.waiting = append(c.waiting, d)
	case retryLater:
		c.delayed++
		c.after(d.retry.delay(), func() {
			c.delayed--
			c.waiting = append(c.waiting, d)
		})
	case retryNever:
		c.forget(x.decisions)
		return d
	}
	return nil
}

// failing returns the error for which commits fail, if turns have been tried in vain for 5 seconds.
// Any goroutine may call it.
func (c *committer) failing() error {
	if f := c.shared.Load(); f != nil && time.Since(f.since) > 5*time.Second {
		return fmt.Errorf("commits have failed since %s: %w", f.since.UTC().Format(time.RFC3339), f.err)
	}
	return nil
}
