package orchestrator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

const (
	// lookEvery is how often it is looked which partitions there are; who is there is told at once.
	lookEvery = 5 * time.Second
	// receiveAgain is how long a receiver that failed waits.
	receiveAgain = 500 * time.Millisecond
)

// ownership receives from the partitions that are this orchestrator's, as long as they are.
type ownership struct {
	o       *Orchestrator
	members broker.Membership
	stopped func() // no more is handed over
	leaving atomic.Bool

	mu         sync.Mutex // never held while the loop is waited for
	partitions broker.Partitions
	known      bool // what there is was seen at least once
	fault      error
	receivers  map[int]*receiving
	unknown    map[string]Unknown
}

// receiving is a receiver of one partition.
type receiving struct {
	stop context.CancelFunc
	done chan struct{}
}

func newOwnership(o *Orchestrator) *ownership {
	return &ownership{o: o, receivers: make(map[int]*receiving), unknown: make(map[string]Unknown)}
}

// join tells the others that this one is there, and takes what they hand over.
func (w *ownership) join(ctx context.Context) (err error) {
	if w.stopped, err = w.o.broker.ReceiveHandovers(w.o.config.ID, w.takeOver); err != nil {
		return err
	}
	code := make(map[string][]string)
	for _, name := range w.o.config.Round.Code.Names() {
		code[name] = w.o.config.Round.Code.Versions(name)
	}
	host, _ := os.Hostname() // only for people
	w.members, err = w.o.broker.Join(ctx,
		broker.Member{ID: w.o.config.ID, Engine: events.Engine, Code: code, Build: w.o.config.Build, Host: host})
	return err
}

// takeOver takes a message that another orchestrator cannot take.
func (w *ownership) takeOver(d broker.Delivery) error {
	if w.leaving.Load() {
		return errors.New("it is leaving")
	}
	if len(w.o.loop.in) == cap(w.o.loop.in) {
		return errors.New("it has too much to do")
	}
	w.o.receive(w.o.lifetime, d, true)
	return nil
}

// run receives from what is this orchestrator's until the context ends.
func (w *ownership) run(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	defer w.take(ctx, nil)
	w.look(ctx)
	for {
		w.decide(ctx)
		select {
		case <-ctx.Done():
			return
		case <-w.members.Changed():
		case <-look.C:
			w.look(ctx)
		}
	}
}

// look sees which partitions there are.
func (w *ownership) look(ctx context.Context) {
	p, err := w.o.broker.Partitions(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = err
	if err != nil {
		if ctx.Err() == nil {
			w.o.log.Warn("which partitions there are cannot be seen", "error", err)
		}
		return
	}
	w.partitions, w.known = p, true
}

// decide computes which partitions are this orchestrator's.
func (w *ownership) decide(ctx context.Context) {
	w.mu.Lock()
	partitions, known := w.partitions.All(), w.known
	w.mu.Unlock()
	if !known || w.leaving.Load() {
		return
	}
	var mine []int
	for p, id := range assign(w.members.Members(), partitions) {
		if id == w.o.config.ID {
			mine = append(mine, p)
		}
	}
	slices.Sort(mine)
	w.take(ctx, mine)
}

// take receives from these partitions and no others.
func (w *ownership) take(ctx context.Context, mine []int) {
	w.mu.Lock()
	before := maps.Clone(w.receivers)
	w.mu.Unlock()
	after := make(map[int]*receiving, len(mine))
	owned := make(map[int]bool, len(mine))
	var fresh []int
	for _, p := range mine {
		owned[p] = true
		if r := before[p]; r != nil {
			after[p] = r
			delete(before, p)
		} else {
			fresh = append(fresh, p)
		}
	}
	if len(before)+len(fresh) == 0 {
		return
	}
	w.o.log.Info("the partitions of this orchestrator", "partitions", mine)
	for _, r := range before {
		r.stop()
	}
	if !w.o.loop.ask(w.o.lifetime, func(l *loop) { l.setOwned(owned) }) { // before anything comes from a new one
		return
	}
	for _, r := range before {
		<-r.done
	}
	for _, p := range fresh {
		receive, stop := context.WithCancel(context.WithoutCancel(ctx))
		r := &receiving{stop: stop, done: make(chan struct{})}
		after[p] = r
		go func() {
			defer close(r.done)
			w.receive(receive, p)
		}()
	}
	w.mu.Lock()
	w.receivers = after
	w.mu.Unlock()
}

// receive receives from a partition, again and again, until the context ends.
func (w *ownership) receive(ctx context.Context, partition int) {
	for ctx.Err() == nil {
		err := w.o.broker.Receive(ctx, partition, func(d broker.Delivery) { w.o.receive(ctx, d, false) })
		if ctx.Err() != nil {
			return
		}
		w.o.log.Warn("receiving from a partition ended; trying again", "partition", partition, "error", err)
		select {
		case <-time.After(receiveAgain):
		case <-ctx.Done():
		}
	}
}

// leave tells the others that this one goes, so that they take over at once, and stops receiving.
// If the broker does not answer, that must not take the time that is needed for what was begun.
func (w *ownership) leave(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	w.leaving.Store(true)
	if w.stopped != nil {
		w.stopped()
	}
	if w.members != nil {
		if err := w.members.Leave(ctx); err != nil {
			w.o.log.Warn("the others could not be told that this one leaves; they will notice", "error", err)
		}
	}
}

// ready tells why nothing is received, if so.
func (w *ownership) ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.leaving.Load():
		return errors.New("it is leaving")
	case w.fault != nil:
		return fmt.Errorf("which partitions there are cannot be seen: %w", w.fault)
	case !w.known:
		return errors.New("it has not seen yet which partitions there are")
	}
	return nil
}

// Owned lists the partitions that this orchestrator receives from.
func (o *Orchestrator) Owned() []int {
	o.own.mu.Lock()
	defer o.own.mu.Unlock()
	return slices.Sorted(maps.Keys(o.own.receivers))
}

// ---- Messages that cannot be taken here.

// whoCan finds another orchestrator that can take a message.
func (w *ownership) whoCan(instance string, row round.Row, c events.Content, why round.Reason) (string, bool) {
	name, version := row.Name, row.Version
	if s, ok := c.(*events.Start); ok {
		name, version = s.Orchestration, s.Version
	}
	var able []string
	for _, m := range w.members.Members() {
		if m.ID == w.o.config.ID || m.Leaving {
			continue
		}
		if m.Engine >= row.Engine && (why == round.NewerEngine || m.Knows(name, version)) {
			able = append(able, m.ID)
		}
	}
	if len(able) == 0 {
		return "", false
	}
	// All messages of an instance go to the same one: it has it in memory then.
	return slices.MaxFunc(able, func(a, b string) int {
		return cmp.Compare(likingOf(instance, a), likingOf(instance, b))
	}), true
}

// anybodyKnows reports whether an orchestrator that is running can run some code.
func (w *ownership) anybodyKnows(name, version string) bool {
	return slices.ContainsFunc(w.members.Members(), func(m broker.Member) bool { return m.Knows(name, version) })
}

// mayRun reports whether an orchestrator that is running may run some code, as far as is known.
func (w *ownership) mayRun(name, version string) bool {
	return w.ready() != nil || w.anybodyKnows(name, version)
}

// Knows reports whether an orchestrator that is running can run some code; an empty version stands
// for any.
func (o *Orchestrator) Knows(name, version string) bool {
	return o.own.ready() == nil && o.own.anybodyKnows(name, version) // who is there is known once it is ready
}

// Takes tells why it takes no messages just now, if so.
func (o *Orchestrator) Takes() error { return o.own.ready() }

// Unknown is an instance whose messages wait for an orchestrator that can take them.
type Unknown struct {
	Instance string
	Reason   round.Reason
	Detail   string
	Since    time.Time
	Last     time.Time
}

const (
	// maxUnknown bounds the instances that are remembered to be waiting; unknownFor is how long one
	// is without a further message.
	maxUnknown = 1000
	unknownFor = 5 * time.Minute
)

// noteUnknown remembers that an instance waits, and says so the first time.
func (w *ownership) noteUnknown(instance string, row round.Row, r round.Receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	u, ok := w.unknown[instance]
	if !ok {
		maps.DeleteFunc(w.unknown, func(_ string, u Unknown) bool { return now.Sub(u.Last) > unknownFor })
		if len(w.unknown) >= maxUnknown {
			return
		}
		telemetry.LogOf(w.o.log, instance,
			row).Warn("no orchestrator that is running can take a message; it waits for one", "reason", r.Reason,
			"detail", r.Detail)
		u = Unknown{Instance: instance, Since: now}
	}
	u.Reason, u.Detail, u.Last = r.Reason, r.Detail, now
	w.unknown[instance] = u
}

// Unknown lists the instances whose messages wait for an orchestrator that can take them, as far as
// this one has seen them lately.
func (o *Orchestrator) Unknown() []Unknown {
	o.own.mu.Lock()
	defer o.own.mu.Unlock()
	var out []Unknown
	for _, id := range slices.Sorted(maps.Keys(o.own.unknown)) {
		if u := o.own.unknown[id]; time.Since(u.Last) <= unknownFor {
			out = append(out, u)
		}
	}
	return out
}

func randomWord() string {
	var b [5]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
