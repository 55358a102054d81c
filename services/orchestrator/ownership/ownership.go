// Package ownership decides which partitions an orchestrator receives from, and knows which
// messages the other orchestrators can take.
//
// Each orchestrator renews its entry in the members' bucket, and all compute from the members, by
// rendezvous hashing, which of them owns which partition.
package ownership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// lookEvery is the interval of reading the partitions; changes of the members arrive at once.
	lookEvery = 5 * time.Second
	// receiveAgain is the delay after a receiver has failed.
	receiveAgain = 500 * time.Millisecond
)

// Broker is the part of the broker that ownership needs.
type Broker interface {
	broker.Members
	broker.Handovers
	Partitions(ctx context.Context) (broker.Partitions, error)
	Receive(ctx context.Context, partition int, take func(broker.Delivery)) error
}

// Code lists the orchestrations that an orchestrator can run.
type Code interface {
	Names() []string
	Versions(name string) []string
}

// Consumer takes the messages of the owned partitions.
type Consumer interface {
	// Receive takes a message of an owned partition. It blocks while there are too many.
	Receive(ctx context.Context, d broker.Delivery)
	// TakeOver takes a message that another orchestrator forwards because it cannot take it, or
	// returns why it does not.
	TakeOver(d broker.Delivery) error
	// SetOwned sets the owned partitions, before messages of new ones arrive. It reports false if
	// the service has ended.
	SetOwned(owned map[int]bool) bool
}

// Ownership receives from the partitions that are this orchestrator's, as long as they are.
type Ownership struct {
	self    broker.Member
	broker  Broker
	log     *slog.Logger
	members broker.Membership
	stopped func() // ends the forwarding of messages to this one
	leaving atomic.Bool

	mu         sync.Mutex // never held while the consumer is waited for
	partitions broker.Partitions
	known      bool // the partitions were read at least once
	fault      error
	receivers  map[int]*receiving
	unknown    map[string]Unknown
}

// receiving is a receiver of one partition.
type receiving struct {
	stop context.CancelFunc
	done chan struct{}
}

// New returns the ownership of an orchestrator with an id, which has not joined the members.
func New(id, build string, code Code, b Broker, log *slog.Logger) *Ownership {
	self := broker.Member{ID: id, Engine: events.Engine, Code: make(map[string][]string), Build: build}
	for _, name := range code.Names() {
		self.Code[name] = code.Versions(name)
	}
	return &Ownership{self: self, broker: b, log: log, receivers: make(map[int]*receiving),
		unknown: make(map[string]Unknown)}
}

// Join adds this orchestrator to the members, and has the consumer take the messages that others
// forward. After an error it can be called again.
func (w *Ownership) Join(ctx context.Context, c Consumer) (err error) {
	take := func(d broker.Delivery) error {
		if w.leaving.Load() {
			return errors.New("it is leaving")
		}
		return c.TakeOver(d)
	}
	if w.stopped, err = w.broker.ReceiveHandovers(broker.HandoverInbox, w.self.ID, take); err != nil {
		return err
	}
	w.self.Host, _ = os.Hostname() // only for operators
	if w.members, err = w.broker.Join(ctx, w.self); err != nil {
		w.stopped()
		w.members, w.stopped = nil, nil
	}
	return err
}

// Run has the consumer receive from this orchestrator's partitions until the context ends.
func (w *Ownership) Run(ctx context.Context, c Consumer) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	defer w.take(ctx, c, nil)
	w.look(ctx)
	for ctx.Err() == nil {
		w.decide(ctx, c)
		if w.await(ctx, look.C) && ctx.Err() == nil {
			w.look(ctx)
		}
	}
}

// await waits until the members or, perhaps, the partitions have changed, and reports whether it is
// time to look at the partitions. If both is so, as after decide has waited for a receiver, it is
// time to look: otherwise decide would assign outdated partitions.
func (w *Ownership) await(ctx context.Context, look <-chan time.Time) (isTime bool) {
	select {
	case <-look:
		return true
	default:
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.members.Changed():
		return false
	case <-look:
		return true
	}
}

// look reads the partitions from the broker.
func (w *Ownership) look(ctx context.Context) {
	p, err := w.broker.Partitions(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = err
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("which partitions there are cannot be seen", "error", err)
		}
		return
	}
	w.partitions, w.known = p, true
}

// decide computes which partitions are this orchestrator's.
func (w *Ownership) decide(ctx context.Context, c Consumer) {
	w.mu.Lock()
	partitions, known := w.partitions.All(), w.known
	w.mu.Unlock()
	if !known || w.leaving.Load() {
		return
	}
	var mine []int
	for p, id := range assign(w.members.Members(), partitions) {
		if id == w.self.ID {
			mine = append(mine, p)
		}
	}
	slices.Sort(mine)
	w.take(ctx, c, mine)
}

// take receives from these partitions and no others.
func (w *Ownership) take(ctx context.Context, c Consumer, mine []int) {
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
	w.log.Info("the partitions of this orchestrator", "partitions", mine)
	for _, r := range before {
		r.stop()
	}
	if !c.SetOwned(owned) { // before new receivers start
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
			w.receive(receive, c, p)
		}()
	}
	w.mu.Lock()
	w.receivers = after
	w.mu.Unlock()
}

// receive receives from a partition, again and again, until the context ends.
func (w *Ownership) receive(ctx context.Context, c Consumer, partition int) {
	for ctx.Err() == nil {
		err := w.broker.Receive(ctx, partition, func(d broker.Delivery) { c.Receive(ctx, d) })
		if ctx.Err() != nil {
			return
		}
		w.log.Warn("receiving from a partition ended; trying again", "partition", partition, "error", err)
		select {
		case <-time.After(receiveAgain):
		case <-ctx.Done():
		}
	}
}

// Leave tells the members that this orchestrator leaves, so that they take over at once, and stops
// receiving. most bounds the wait for the broker: the started rounds need the rest of the time.
func (w *Ownership) Leave(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	w.leaving.Store(true)
	if w.stopped != nil {
		w.stopped()
	}
	if w.members != nil {
		if err := w.members.Leave(ctx); err != nil {
			w.log.Warn("other orchestrators were not notified of the shutdown; they take over when the lease expires",
				"error", err)
		}
	}
}

// Ready returns the reason why this orchestrator receives no messages, or nil.
func (w *Ownership) Ready() error {
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
	if err := w.members.Fault(); err != nil {
		return fmt.Errorf("others that start cannot see this orchestrator: %w", err)
	}
	return nil
}

// Owned lists the partitions that this orchestrator receives from.
func (w *Ownership) Owned() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.receivers))
}

// First reports whether this orchestrator is the first to do something with a number. For each
// number, it is mostly one of those that are running.
func (w *Ownership) First(number uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.partitions.Count == 0 {
		return false
	}
	_, ok := w.receivers[int(number%uint32(w.partitions.Count))] //nolint:gosec // it is positive and small
	return ok
}

// ---- Messages that cannot be taken here.

// WhoCan finds another orchestrator that can take a message.
func (w *Ownership) WhoCan(instance string, row round.Row, c events.Content, why round.Reason) (string, bool) {
	name, version := row.Name, row.Version
	if s, ok := c.(*events.Start); ok {
		name, version = s.Orchestration, s.Version
	}
	var able []string
	for _, m := range w.members.Members() {
		if m.ID == w.self.ID || m.Leaving {
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

// AnybodyKnows reports whether an orchestrator that is running can run some code.
func (w *Ownership) AnybodyKnows(name, version string) bool {
	return slices.ContainsFunc(w.members.Members(), func(m broker.Member) bool { return m.Knows(name, version) })
}

// MayRun reports whether an orchestrator that is running may run some code, as far as is known.
func (w *Ownership) MayRun(name, version string) bool {
	return w.Ready() != nil || w.AnybodyKnows(name, version)
}

// Knows reports whether an orchestrator that is running can run some code; an empty version stands
// for any.
func (w *Ownership) Knows(name, version string) bool {
	return w.Ready() == nil && w.AnybodyKnows(name, version) // once ready, it knows the members
}

// Layout returns the partitions, their owners, and the members.
func (w *Ownership) Layout() (partitions broker.Partitions, owners map[int]string, members []broker.Member) {
	w.mu.Lock()
	partitions = w.partitions
	w.mu.Unlock()
	members = w.members.Members()
	return partitions, assign(members, partitions.All()), members
}

// Members lists the live members.
func (w *Ownership) Members() []broker.Member { return w.members.Members() }

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
	// is remembered without a further message.
	maxUnknown = 1000
	unknownFor = 5 * time.Minute
)

// NoteUnknown remembers that an instance waits, and says so the first time.
func (w *Ownership) NoteUnknown(instance string, row round.Row, r round.Receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	u, ok := w.unknown[instance]
	if !ok {
		maps.DeleteFunc(w.unknown, func(_ string, u Unknown) bool { return now.Sub(u.Last) > unknownFor })
		if len(w.unknown) >= maxUnknown {
			return
		}
		telemetry.LogOf(w.log, instance,
			row).Warn("no orchestrator that is running can take a message; it waits for one", "reason", r.Reason,
			"detail", r.Detail)
		u = Unknown{Instance: instance, Since: now}
	}
	u.Reason, u.Detail, u.Last = r.Reason, r.Detail, now
	w.unknown[instance] = u
}

// Unknown lists the instances whose messages wait for an orchestrator that can take them, as far as
// this one has seen them lately.
func (w *Ownership) Unknown() []Unknown {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Unknown
	for _, id := range slices.Sorted(maps.Keys(w.unknown)) {
		if u := w.unknown[id]; time.Since(u.Last) <= unknownFor {
			out = append(out, u)
		}
	}
	return out
}
