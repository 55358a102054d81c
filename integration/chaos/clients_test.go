//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file is the clients: they start jobs at a steady rate, send the messages that jobs wait for,
// wait for the ends of some, and record acknowledgements.

// atOnce bounds what clients publish at the same time. When that many wait for the broker, no
// further job is started.
const atOnce = 256

// lookEvery is how often the clients list ended and waiting jobs.
const lookEvery = 200 * time.Millisecond

type clients struct {
	t      testing.TB
	bus    *natsbroker.Bus
	client *client.Client
	store  *cockroach.Store
	acks   *acks
	slots  chan struct{}
	all    sync.WaitGroup

	// gate is held for reading during a publication, and for writing while no message may be in
	// flight.
	gate sync.RWMutex

	mu    sync.Mutex
	jobs  []*job
	held  int // how many jobs were not started, because too many waited
	twice int // messages that were sent twice on purpose
	told  int // ends that a client waited for
	doubt []doubtful
	lost  []events.Message // those of them that were lost

	stop context.CancelFunc // ends following
}

// doubtful is a message that was acknowledged, and that was in no history when the broker lost
// everything.
type doubtful struct {
	job     *job
	message events.Message
}

func newClients(t testing.TB, f *fleet, path string) *clients {
	t.Helper()
	c := &clients{t: t, bus: f.bus(), store: f.store(), acks: newAcks(t, path),
		slots: make(chan struct{}, atOnce)}
	c.client = busclient.New[*client.Client](c.bus, busclient.Options{})
	t.Cleanup(func() { c.client.Close() })
	return c
}

// start starts jobs until the context ends; started jobs go on until the test ends.
func (c *clients) start(ctx context.Context, seed uint64, perSecond int) {
	chance := rand.New(rand.NewPCG(seed, 2))
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case c.slots <- struct{}{}:
		default:
			c.mu.Lock()
			c.held++
			c.mu.Unlock()
			continue
		}
		j := makeJob(i, chance)
		i++
		c.mu.Lock()
		c.jobs = append(c.jobs, j)
		c.mu.Unlock()
		c.all.Go(func() {
			defer func() { <-c.slots }()
			c.say(c.t.Context(), j, append([]events.Message{j.Start()}, j.Said...)...)
		})
		if j.awaited {
			c.all.Go(func() { c.await(j) })
		}
	}
}

// say publishes messages of a job until they are acknowledged, and records that.
func (c *clients) say(ctx context.Context, j *job, messages ...events.Message) {
	var wires []events.Wire
	for _, m := range messages {
		w, err := events.Encode(c.bus.Prefix(), m)
		if err != nil {
			c.t.Error(err)
			return
		}
		if wires = append(wires, w); j.twice {
			wires = append(wires, work.Again(w))
		}
	}
	c.gate.RLock()
	defer c.gate.RUnlock()
	if err := c.bus.Publish(ctx, wires...); err != nil {
		if ctx.Err() == nil {
			c.t.Errorf("%s: publishing has failed for good: %v", j.ID, err)
		}
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.begun.IsZero() {
		j.begun = now
	}
	for _, m := range messages {
		if p, ok := check.AcknowledgedBy(m, now); ok && !slices.ContainsFunc(j.acked, func(a events.Message) bool {
			return a.ID == m.ID
		}) {
			c.acks.note(p) // a message that is sent again was recorded before
		}
		j.acked = append(j.acked, m)
	}
	c.twice += len(wires) - len(messages)
}

// await waits for the end of a job, and records the outcome.
func (c *clients) await(j *job) {
	out, err := c.client.Wait(c.t.Context(), j.ID)
	if err != nil {
		if c.t.Context().Err() == nil {
			c.t.Errorf("waiting for %s: %v", j.ID, err)
		}
		return
	}
	p := check.Acknowledged{What: check.AcknowledgedEnd, Instance: j.ID, Status: round.Completed, Output: out.Output,
		At: time.Now()}
	if out.Error != nil {
		p.Status = statusOf(out.Error)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told++
	c.acks.note(p)
}

func statusOf(e *failure.Error) round.Status {
	switch e.Kind {
	case failure.Cancelled:
		return round.Cancelled
	case failure.Terminated:
		return round.Terminated
	default:
	}
	return round.Failed
}

// follow notes which jobs have ended, and sends waiting ones their messages, until the context
// ends.
func (c *clients) follow(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (c *clients) look(ctx context.Context) {
	open := make(map[string]*job)
	c.mu.Lock()
	for _, j := range c.jobs {
		if j.ended.IsZero() && !j.begun.IsZero() {
			open[j.ID] = j
		}
	}
	c.mu.Unlock()
	infos, err := list(ctx, c.store, ids(open))
	if err != nil {
		return // the database is away
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, info := range infos {
		j := open[info.Instance]
		j.incarnation = info.Incarnation
		switch {
		case info.Status.Ended():
			j.ended = now
		case j.Later != nil && !j.saidLater && info.LastEvent >= 2: // it waits
			j.saidLater = true
			c.all.Go(func() { c.say(c.t.Context(), j, *j.Later) })
		}
	}
}

// known are the jobs that have begun, with their incarnations.
func (c *clients) known() (ids, incarnations []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if j.incarnation != "" {
			ids, incarnations = append(ids, j.ID), append(incarnations, j.incarnation)
		}
	}
	return ids, incarnations
}

func ids(jobs map[string]*job) []string {
	all := make([]string, 0, len(jobs))
	for id := range jobs {
		all = append(all, id)
	}
	return all
}

// list reads the rows of instances; those that do not exist are left out.
func list(ctx context.Context, store history.Reader, ids []string) ([]history.Info, error) {
	var all []history.Info
	for len(ids) > 0 {
		n := min(500, len(ids))
		got, err := store.List(ctx, history.Filter{IDs: ids[:n]}, history.Page{Limit: n})
		if err != nil {
			return nil, err
		}
		all = append(all, got.Instances...)
		ids = ids[n:]
	}
	return all, nil
}

// unfinished are the jobs that were acknowledged before a moment and have not ended; with doubted,
// also those that may have lost something.
func (c *clients) unfinished(before time.Time, doubted bool) (open []*job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if !j.begun.IsZero() && j.begun.Before(before) && j.ended.IsZero() && (doubted || !j.doubted) {
			open = append(open, j)
		}
	}
	return open
}

// losing does something with which the broker loses all that it has stored. It notes the messages
// that were acknowledged until then, and are in no history right after it: only these may be lost.
// Meanwhile no client publishes, so that each message either was acknowledged before or will be
// stored after it.
func (c *clients) losing(do func()) {
	c.gate.Lock()
	defer c.gate.Unlock()
	do()
	for _, j := range c.unfinished(time.Now(), true) {
		untaken, err := c.untaken(j)
		if err != nil {
			c.t.Errorf("reading what %s has taken: %v", j.ID, err)
		}
		c.mu.Lock()
		for _, m := range untaken {
			c.doubt = append(c.doubt, doubtful{j, m})
			j.doubted = true
		}
		c.mu.Unlock()
	}
}

// doubted reports whether a message of a job may have been lost.
func (c *clients) doubted(j *job, message string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.doubt, func(d doubtful) bool { return d.job == j && d.message.ID == message })
}

// untaken are the messages of a job that were acknowledged and are not in its history.
func (c *clients) untaken(j *job) (untaken []events.Message, err error) {
	taken, err := takenBy(c.t.Context(), c.store, j.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range j.acked {
		if !taken[m.ID] {
			untaken = append(untaken, m)
		}
	}
	return untaken, err
}

// takenBy returns the ids of all messages from clients that an instance has taken. An ended
// instance takes no more messages.
func takenBy(ctx context.Context, store history.Reader, instance string) (map[string]bool, error) {
	taken := make(map[string]bool)
	info, err := store.Instance(ctx, instance)
	if errors.Is(err, history.ErrNoInstance) {
		return taken, nil
	}
	if err != nil {
		return nil, err
	}
	taken[info.StartMessage] = true
	for x := int64(1); x <= info.Execution; x++ {
		h, err := history.Export(ctx, store, instance, x)
		if err != nil {
			return nil, err
		}
		for _, e := range h.Events {
			switch f := e.Fact.(type) {
			case *events.MessageReceived:
				taken[f.Message] = true
			case *events.EventReceived:
				taken[f.Message] = true
			case *events.CancelRequested:
				taken[f.Message] = true
			default:
			}
		}
	}
	return taken, nil
}

// ---- The log of acknowledgements.

// acks is the log. The messages of a job are sent one call after the other, so that one log
// is enough for all.
type acks struct {
	t     testing.TB
	file  *os.File
	log   *check.Log
	count map[check.AcknowledgedKind]int
}

func newAcks(t testing.TB, path string) *acks {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &acks{t: t, file: f, log: check.NewLog(f), count: make(map[check.AcknowledgedKind]int)}
}

func (p *acks) note(line check.Acknowledged) {
	p.count[line.What]++
	if err := p.log.Add(line); err != nil {
		p.t.Error(err)
	}
}

// read returns the log for the checker.
func (p *acks) read() check.Acknowledgements {
	return check.Acknowledgements{Name: p.file.Name(), Each: func(yield func(check.Acknowledged, error) bool) {
		f, err := os.Open(p.file.Name())
		if err != nil {
			yield(check.Acknowledged{}, err)
			return
		}
		defer f.Close()
		check.ReadLog(f)(yield)
	}}
}
