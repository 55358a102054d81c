package sim

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

// Broker is a broker in memory that keeps the contract of package bus. It outlives the processes that are connected to it.
type Broker struct {
	prefix              string
	inboxWait, workWait time.Duration
	lease, sessionLease time.Duration

	mu         sync.Mutex
	partitions int
	place      uint64
	inbox      map[int][]*message // by partition, oldest first
	work       []*message
	later      map[string]*message // what waits for its time, by subject
	dead       []bus.DeadLetter
	seen       map[string]time.Time // ids of what was stored a moment ago
	queues     map[bus.Queue]int    // how many ask for work just now
	receivers  map[int]int
	members    map[string]*membership
	sessions   map[string]claim
	notes      map[string][]byte
	marks      map[string]bool
	schedules  map[string]bus.Schedule
	listeners  map[*listener]bool
	answerers  map[string][]*answerer
	handovers  map[string]func(bus.Delivery) error
	turn       atomic.Uint64 // whose turn it is to answer
	changed    chan struct{} // closed at each change
}

// Options say how a broker is set up.
type Options struct {
	Partitions                                     int
	InboxWait, WorkWait, MemberLease, SessionLease time.Duration
}

// NewBroker makes one that has nothing.
func NewBroker(o Options) *Broker {
	b := &Broker{
		prefix: "rondo", inboxWait: o.InboxWait, workWait: o.WorkWait, lease: o.MemberLease, sessionLease: o.SessionLease, partitions: o.Partitions,
		queues: make(map[bus.Queue]int), receivers: make(map[int]int), members: make(map[string]*membership), listeners: make(map[*listener]bool),
		answerers: make(map[string][]*answerer), handovers: make(map[string]func(bus.Delivery) error), changed: make(chan struct{}),
	}
	b.Forget()
	return b
}

// Forget loses everything that was stored, as when its files are deleted.
func (b *Broker) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inbox, b.work, b.later, b.dead = make(map[int][]*message), nil, make(map[string]*message), nil
	b.seen, b.sessions, b.notes = make(map[string]time.Time), make(map[string]claim), make(map[string][]byte)
	b.marks, b.schedules = make(map[string]bool), make(map[string]bus.Schedule)
	b.change()
}

// message is what is stored.
type message struct {
	place     uint64
	wire      events.Wire
	stored    time.Time
	notBefore time.Time
	partition int // of the inbox
	isWork    bool
	queue     bus.Queue

	deliveries int
	free       time.Time // when it may be handed out
	holder     *Bus      // who has it; nil for nobody
	returned   bool      // it was given back, and has lost its place in the order
}

// change tells all who wait that something is different. mu is held.
func (b *Broker) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// dedupes is for how long the broker remembers ids.
const dedupes = 10 * time.Second

// near is up to when what is for later is stored with the rest.
const near = 1500 * time.Millisecond

// store stores a message, or what is to be stored later. mu is held.
func (b *Broker) store(w events.Wire) {
	now := time.Now()
	if v := w.Header[events.HeaderMsgID]; len(v) > 0 {
		stream := "inbox/"
		if b.isWork(w.Subject) {
			stream = "work/"
		}
		key := stream + v[0]
		if at, ok := b.seen[key]; ok && now.Sub(at) < dedupes {
			return
		}
		if len(b.seen) > 10_000 {
			maps.DeleteFunc(b.seen, func(_ string, at time.Time) bool { return now.Sub(at) >= dedupes })
		}
		b.seen[key] = now
	}
	m := &message{wire: w, notBefore: w.NotBefore}
	if w.NotBefore.Sub(now) >= near {
		key := w.Subject // the last one counts, but for what people send
		if v := w.Header[events.HeaderMsgID]; len(v) > 0 && (strings.HasPrefix(key, b.prefix+".queue.") || strings.HasPrefix(key, b.prefix+".event.")) {
			key += " " + v[0]
		}
		b.later[key] = m
		b.change()
		return
	}
	b.put(m, now)
}

// put gives a message a place. mu is held.
func (b *Broker) put(m *message, now time.Time) {
	b.place++
	m.place, m.stored, m.free = b.place, now, m.notBefore
	if b.isWork(m.wire.Subject) {
		m.isWork = true
		words := strings.Split(strings.TrimPrefix(m.wire.Subject, b.prefix+".work."), ".")
		m.queue, _ = queueOf(words[0], words[1]) // it was checked
		b.noteQueue(m.queue)
		b.work = append(b.work, m)
	} else {
		m.partition = partitionOf(instanceOf(m.wire.Subject), b.partitions)
		b.inbox[m.partition] = append(b.inbox[m.partition], m)
	}
	b.change()
}

func (b *Broker) isWork(subject string) bool { return strings.HasPrefix(subject, b.prefix+".work.") }

func (b *Broker) noteQueue(q bus.Queue) {
	if _, ok := b.queues[q]; !ok {
		b.queues[q] = 0
	}
}

func instanceOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

func partitionOf(instance string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(instance))
	return int(h.Sum32() % uint32(n))
}

func queueOf(tag, activity string) (q bus.Queue, err error) {
	if tag != "_" {
		if q.Tag, err = events.DecodeToken(tag); err != nil {
			return q, err
		}
	}
	q.Activity, err = events.DecodeToken(activity)
	return q, err
}

// due stores what waits for its time and is due within a second, and tells when the next one is. mu is held.
func (b *Broker) due(now time.Time) (next time.Time) {
	keys := slices.SortedFunc(maps.Keys(b.later), func(x, y string) int {
		return cmp.Or(b.later[x].notBefore.Compare(b.later[y].notBefore), cmp.Compare(x, y))
	})
	for _, key := range keys {
		m := b.later[key]
		at := m.notBefore.Add(-time.Second)
		if !at.After(now) {
			delete(b.later, key)
			b.put(m, now)
			continue
		}
		next = earliest(next, at)
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// nextOf finds the first message of a partition that may be handed out to somebody, or tells when there may be one. mu is held.
func (b *Broker) nextOf(partition int, to *Bus, now time.Time) (m *message, next time.Time) {
	blocked := make(map[string]bool) // instances of which somebody else has an older message
	for _, m := range b.inbox[partition] {
		who := instanceOf(m.wire.Subject)
		switch {
		case m.free.After(now):
			next = earliest(next, m.free)
			if m.deliveries > 0 && m.holder != to && !m.returned {
				blocked[who] = true
			}
		case !blocked[who]:
			return m, next
		}
	}
	return nil, next
}

// nextWork finds the first piece of work of a queue. mu is held.
func (b *Broker) nextWork(q bus.Queue, now time.Time) (m *message, next time.Time) {
	for _, m := range b.work {
		if m.queue != q {
			continue
		}
		if !m.free.After(now) {
			return m, next
		}
		next = earliest(next, m.free)
	}
	return nil, next
}

// handOut gives a message to somebody. mu is held.
func (b *Broker) handOut(m *message, to *Bus, now time.Time) bus.Delivery {
	m.deliveries++
	m.holder, m.returned, m.free = to, false, now.Add(b.wait(m))
	return bus.Delivery{
		Subject: m.wire.Subject, Header: maps.Clone(m.wire.Header), Body: m.wire.Body, Partition: m.partition, Place: m.place, Deliveries: m.deliveries, Stored: m.stored,
		Hold: hold{b, to, m.place},
	}
}

func (b *Broker) wait(m *message) time.Duration {
	if m.isWork {
		return b.workWait
	}
	return b.inboxWait
}

// find finds a stored message. mu is held.
func (b *Broker) find(place uint64) *message {
	at := func(list []*message) *message {
		i, found := slices.BinarySearchFunc(list, place, func(m *message, p uint64) int { return cmp.Compare(m.place, p) })
		if !found {
			return nil
		}
		return list[i]
	}
	for _, list := range b.inbox {
		if m := at(list); m != nil {
			return m
		}
	}
	return at(b.work)
}

// remove removes a stored message. mu is held.
func (b *Broker) remove(place uint64) {
	is := func(m *message) bool { return m.place == place }
	for p, list := range b.inbox {
		b.inbox[p] = slices.DeleteFunc(list, is)
	}
	b.work = slices.DeleteFunc(b.work, is)
	b.change()
}

// Stored counts what is stored for instances and workers.
func (b *Broker) Stored() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due(time.Now())
	for _, list := range b.inbox {
		n += len(list)
	}
	return n + len(b.work) + len(b.later)
}

// hold is the broker's side of a delivery.
type hold struct {
	b     *Broker
	by    *Bus
	place uint64
}

// settle does something with the message if it is still there and who has it can still say so.
func (h hold) settle(what string, do func(m *message)) {
	if !h.by.tells(what) {
		return
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if m := h.b.find(h.place); m != nil {
		do(m)
		h.b.change()
	}
}

// Ack implements bus.Hold.
func (h hold) Ack() { h.settle("ack", func(m *message) { h.b.remove(m.place) }) }

// Return implements bus.Hold.
func (h hold) Return(after time.Duration) {
	h.settle("return", func(m *message) { m.free, m.holder, m.returned = time.Now().Add(after), nil, true })
}

// Extend implements bus.Hold.
func (h hold) Extend() {
	h.settle("extend", func(m *message) { m.free = time.Now().Add(h.b.wait(m)) })
}
