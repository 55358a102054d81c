// Package brokertest is the suite that checks whether an implementation of package broker keeps its
// contract.
package brokertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/events"
)

// Make makes a new, empty system in a broker. The system is removed when the test ends.
type Make func(t *testing.T, s Settings) Environment

// Settings configure the system of a test.
type Settings struct {
	Partitions                                           int
	InboxAckWait, TaskAckWait, MemberLease, SessionLease time.Duration
	// Restarts says that the test restarts the broker, which then must be the test's own.
	Restarts bool
}

// Environment is a new system.
type Environment struct {
	// Connect makes a connection, which is closed at the end of the test at the latest.
	Connect func(t *testing.T) Bus
	// Stored counts the messages stored for instances and workers, delayed messages included.
	Stored func(t *testing.T) int
	// Dead reads the dead letters as they are stored.
	Dead func(t *testing.T) []events.Wire
	// Restart restarts the broker, which keeps its data; down is called while it does not run. It
	// is nil if the broker cannot be restarted.
	Restart func(t *testing.T, down func())
	// Cluster says that the broker consists of several servers.
	Cluster bool
}

// Bus is a connection.
type Bus interface {
	broker.Publisher
	broker.Stock
	broker.PendingStarts
	broker.AwaitedStarts
	broker.Inbox
	broker.DeadLetters
	broker.DeadLetterStore
	broker.TaskQueues
	broker.Members
	broker.Handovers
	broker.Leases
	broker.KV
	broker.Repairer
	broker.Notifications
	broker.Requests
	broker.Discovery

	// SetPartitions changes the number of partitions of the inbox.
	SetPartitions(ctx context.Context, n int) error
	// Prefix returns the first token of all subjects.
	Prefix() string
	// Close ends the connection. The broker redelivers its unsettled messages.
	Close() error
}

const (
	// patience is how long a test waits for an event that is sure to happen.
	patience = 15 * time.Minute
	// soon limits an operation that should happen at once: a test that waits longer hangs.
	soon = patience
	// short is a wait that a test can afford. A test must not depend on a wait of long: it is
	// longer than patience, after which the test fails.
	short, long = time.Second, 4 * patience
)

func (s Settings) withDefaults() Settings {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&s.InboxAckWait, long)
	set(&s.TaskAckWait, long)
	set(&s.MemberLease, short)
	set(&s.SessionLease, long)
	if s.Partitions == 0 {
		s.Partitions = 4
	}
	return s
}

// test checks one guarantee of the contract.
type test struct {
	name     string
	settings Settings
	run      func(*T)
}

// T is a running test.
type T struct {
	*testing.T
	Environment
	Settings
}

// Run checks all guarantees, each in a system of its own.
func Run(t *testing.T, maker Make) {
	run(t, maker, func(t *testing.T, test func(*testing.T)) { test(t) })
}

// RunVirtual is Run for a broker in this process: each guarantee is checked in a bubble of
// [synctest], where waits take no time.
func RunVirtual(t *testing.T, maker Make) { run(t, maker, synctest.Test) }

func run(t *testing.T, maker Make, in func(*testing.T, func(*testing.T))) {
	for _, c := range slices.Concat(inboxTests, watermarkTests,
		delayTests, pendingTests, taskTests, sideTests, memberTests, loadTests) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T) {
				s := c.settings.withDefaults()
				c.run(&T{t, maker(t, s), s})
			})
		})
	}
}

// ---- What the tests say.

func (t *T) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bus makes a connection.
func (t *T) bus() Bus {
	t.Helper()
	return t.Connect(t.T)
}

// publish publishes messages, and fails the test on an error.
func (t *T) publish(b Bus, messages ...events.Wire) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	t.must(b.Publish(ctx, messages...))
}

// event returns a message for an instance.
func event(b Bus, instance, id string) events.Wire {
	return events.Wire{Subject: b.Prefix() + ".event.e." + events.EncodeToken(instance), Header: headerWith(id),
		Body: []byte(id)}
}

// timer returns a delayed message for an instance.
func timer(b Bus, instance, id string, due time.Time) events.Wire {
	return events.Wire{Subject: b.Prefix() + ".timer-due.1-2." + events.EncodeToken(instance), Header: headerWith(id),
		NotBefore: due, Body: []byte(id)}
}

// work returns an activity task.
func work(b Bus, q broker.TaskQueueName, instance, id string) events.Wire {
	tag := "_"
	if q.Tag != "" {
		tag = events.EncodeToken(q.Tag)
	}
	if q.Tag == "_" {
		tag = "%5F"
	}
	return events.Wire{Subject: b.Prefix() + ".task." + tag + "." + events.EncodeToken(q.Activity) + ".1-2." +
		events.EncodeToken(instance), Header: headerWith(id), Body: []byte(id)}
}

func headerWith(id string) events.Header {
	if id == "" {
		return nil
	}
	return events.Header{events.HeaderMsgID: {id}}
}

// id returns the message id of a delivery.
func id(d broker.Delivery) string {
	if v := d.Header[events.HeaderMsgID]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// got is a delivery with its arrival time on the wall clock, by which the tests compare times.
type got struct {
	broker.Delivery
	at time.Time
}

// receiving receives from some partitions, until stop.
type receiving struct {
	t    *T
	came chan got
	end  context.CancelFunc
	all  sync.WaitGroup

	taken map[string]bool // the messages that take has returned
}

// receive receives from all partitions, or from those given. Deliveries wait in the channel came,
// which is larger than any test needs.
func (t *T) receive(b Bus, partitions ...int) *receiving {
	t.Helper()
	if len(partitions) == 0 {
		ps, err := b.Partitions(t.Context())
		t.must(err)
		partitions = ps.All()
	}
	r := &receiving{t: t, came: make(chan got, 100_000)}
	ctx, cancel := context.WithCancel(t.Context())
	r.end = cancel
	for _, p := range partitions {
		r.all.Go(func() {
			for ctx.Err() == nil { // as a service does it
				err := b.Receive(ctx, p, func(d broker.Delivery) { r.came <- got{d, time.Now().Round(0)} })
				if err != nil {
					t.Logf("receive again: %v", err)
					pause(ctx, 50*time.Millisecond)
				}
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

// stop ends the receiving and waits until it has ended.
func (r *receiving) stop() {
	r.end()
	r.all.Wait()
}

// next waits for the next delivery.
func (r *receiving) next() got {
	r.t.Helper()
	select {
	case g := <-r.came:
		return g
	case <-time.After(patience):
		r.t.Fatalf("nothing came within %v\n%s", patience, slowtest.Goroutines())
		return got{}
	}
}

// take waits for n messages and acknowledges them, and redeliveries of what it has taken before.
func (r *receiving) take(n int) []got {
	r.t.Helper()
	all := make([]got, 0, n)
	for len(all) < n {
		g := r.next()
		g.Hold.Ack()
		which := g.Subject + " " + g.ID()
		if !g.Direct && r.taken[which] { // a slow machine held it for longer than the ack wait
			continue
		}
		if r.taken == nil {
			r.taken = make(map[string]bool)
		}
		r.taken[which] = true
		all = append(all, g)
	}
	return all
}

// takeEach waits for n messages and acknowledges them, and all redeliveries until nothing is
// stored: a slow machine may hold a message for longer than the ack wait.
func (r *receiving) takeEach(n int) (all []got) {
	r.t.Helper()
	seen := make(map[string]bool)
	take := func(g got) {
		g.Hold.Ack()
		all, seen[id(g.Delivery)] = append(all, g), true
	}
	for len(seen) < n {
		take(r.next())
	}
	r.settleRest(take)
	return all
}

// settleRest has take settle redeliveries until nothing is stored.
func (r *receiving) settleRest(take func(got)) {
	r.t.Helper()
	r.t.eventually("nothing is stored", func() bool {
		for {
			select {
			case g := <-r.came:
				take(g)
			default:
				return r.t.Stored(r.t.T) == 0
			}
		}
	})
}

// nothing fails the test if a delivery arrives within a time.
func (r *receiving) nothing(during time.Duration) {
	r.t.Helper()
	select {
	case g := <-r.came:
		r.t.Fatalf("%s (%s) came, time %d; it should not have", g.Subject, id(g.Delivery), g.NumDelivered)
	case <-time.After(during):
	}
}

// expect waits for deliveries with ids, in this order, and leaves them unsettled.
func (r *receiving) expect(ids ...string) []got {
	r.t.Helper()
	var all []got
	for _, want := range ids {
		g := r.next()
		if id(g.Delivery) != want {
			r.t.Fatalf("%q came, want %q (of %q)", id(g.Delivery), want, ids)
		}
		all = append(all, g)
	}
	return all
}

// partitionOf finds the partition of an instance, and leaves no message behind.
func (t *T) partitionOf(b Bus, instance string) int {
	t.Helper()
	r := t.receive(b)
	t.publish(b, event(b, instance, ""))
	g := r.take(1)[0]
	r.stop()
	return g.Partition
}

// instancesOf finds n instances in one partition.
func (t *T) instancesOf(b Bus, n int) (instances []string, partition int) {
	t.Helper()
	r := t.receive(b)
	var messages []events.Wire
	for i := range 16 * n {
		messages = append(messages, event(b, "i"+strconv.Itoa(i), "i"+strconv.Itoa(i)))
	}
	t.publish(b, messages...)
	by := make(map[int][]string)
	for _, g := range r.takeEach(len(messages)) { // a message that is left would stay stored
		if i := id(g.Delivery); !slices.Contains(by[g.Partition], i) {
			by[g.Partition] = append(by[g.Partition], i)
		}
	}
	r.stop()
	for p, of := range by {
		if len(of) >= n {
			return of[:n], p
		}
	}
	t.Fatalf("no partition has %d of %d instances", n, len(messages))
	return nil, 0
}

// eventually waits until a condition is true.
func (t *T) eventually(what string, is func() bool) {
	t.Helper()
	t.within(patience, what, is)
}

func (t *T) within(limit time.Duration, what string, is func() bool) {
	t.Helper()
	if !slowtest.Until(limit, is) {
		t.Fatalf("after %v it is not so that %s\n%s", limit, what, slowtest.Goroutines())
	}
}

// sometimes repeats an attempt until it holds once. On a machine that stalls, an ack wait or a
// lease expires though its holder extends it; then the attempt returns its failure, and proves
// nothing. A broker that ignores extensions fails in each attempt.
func (t *T) sometimes(attempt func(try string) (wrong string)) {
	t.Helper()
	const tries = 10
	for i := range tries {
		wrong := attempt(fmt.Sprint("try", i))
		if wrong == "" {
			return
		}
		t.Logf("attempt %d: %s", i+1, wrong)
	}
	t.Errorf("%d attempts have failed", tries)
}

// bounded calls an operation that must not wait for anything, and has the time of the test.
func (t *T) bounded(operation func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return operation(ctx)
}

// empty waits until nothing is stored.
func (t *T) empty() {
	t.Helper()
	var n int
	t.eventually("nothing is stored", func() bool {
		n = t.Stored(t.T)
		return n == 0
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// counter counts from several goroutines.
type counter struct{ n atomic.Int64 }

func (c *counter) add()    { c.n.Add(1) }
func (c *counter) is() int { return int(c.n.Load()) }

// perInstance checks that the messages of each instance, numbered from 0 in their ids
// "<instance>/<number>", arrived in order, redeliveries aside.
func perInstance(all []got) error {
	next := make(map[string]int)
	for _, g := range all {
		var number int
		instance, n, ok := cutLast(id(g.Delivery))
		if ok {
			number, _ = strconv.Atoi(n)
		}
		switch {
		case number < next[instance]: // a redelivery
		case number > next[instance]:
			return fmt.Errorf("%s: number %d came before number %d", instance, number, next[instance])
		default:
			next[instance]++
		}
	}
	return nil
}

func cutLast(s string) (before, after string, ok bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
