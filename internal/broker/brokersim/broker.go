package brokersim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Broker is a broker in memory that keeps the contract of package broker. It outlives the processes
// that are connected to it.
type Broker struct {
	prefix              string
	inboxWait, workWait time.Duration
	lease, sessionLease time.Duration
	dedupes             time.Duration // for how long it remembers ids

	mu          sync.Mutex
	partitions  int
	skew        time.Duration // how far its clock is ahead
	place       uint64
	inbox       map[int][]*message // by partition, oldest first
	work        []*message
	later       map[string]*message // what waits for its time, by subject
	dead        []broker.DeadLetter
	gone        []gone               // what was removed a moment ago
	seen        map[string]time.Time // ids of what was stored a moment ago
	seenMost    int                  // from how many on those are looked for that are older
	queues      map[broker.Queue]int // how many ask for work just now
	receivers   map[int]int
	members     map[string]*membership
	sessions    map[string]claim
	notes       map[string][]byte
	marks       map[string]bool
	schedules   map[string]broker.Schedule
	listeners   map[*listener]bool
	answerers   map[string][]*answerer
	handovers   map[string]*receiverOf
	offers      map[broker.Queue][]*offer // room for tasks that are not stored
	named       map[string]*Bus           // the connections, by name
	turn        atomic.Uint64             // whose turn it is to answer
	directs     uint64                    // what went past the broker
	connections uint64
	changed     chan struct{} // closed at each change
}

// Options say how a broker is set up.
type Options struct {
	Partitions                                     int
	InboxWait, WorkWait, MemberLease, SessionLease time.Duration
	// Dedupes is for how long ids are remembered; 0 means 10 seconds, negative not at all.
	Dedupes time.Duration
}

// NewBroker makes one that has nothing.
func NewBroker(o Options) *Broker {
	b := &Broker{
		prefix: "rondo", inboxWait: o.InboxWait, workWait: o.WorkWait, lease: o.MemberLease,
		sessionLease: o.SessionLease, partitions: o.Partitions, dedupes: o.Dedupes,
		queues: make(map[broker.Queue]int), receivers: make(map[int]int), members: make(map[string]*membership),
		listeners: make(map[*listener]bool),
		answerers: make(map[string][]*answerer), handovers: make(map[string]*receiverOf), changed: make(chan struct{}),
		offers: make(map[broker.Queue][]*offer), named: make(map[string]*Bus),
	}
	if b.dedupes == 0 {
		b.dedupes = 10 * time.Second
	}
	b.Forget()
	return b
}

// now is the time on the broker's clock. mu is held.
func (b *Broker) now() time.Time { return time.Now().Add(b.skew) }

// Skew says how far the broker's clock is ahead from now on.
func (b *Broker) Skew(by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skew = by
	b.change()
}

// gone is a message that was removed.
type gone struct {
	m  *message
	at time.Time
}

// remembers is for how long what was removed can come back.
const remembers = 30 * time.Second

// away keeps what is removed for [Broker.PowerLoss]. mu is held.
func (b *Broker) away(m *message) {
	now, old := b.now(), 0
	for old < len(b.gone) && now.Sub(b.gone[old].at) > remembers {
		old++
	}
	b.gone = append(b.gone[old:], gone{m, now})
}

// PowerLoss takes the broker back to what it had a moment ago, as when a disk loses what was not
// yet forced onto it: what was stored since is lost, what was removed is there again. It was
// acknowledged all the same.
func (b *Broker) PowerLoss(moment time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := b.now().Add(-moment)
	young := func(m *message) bool { return m.stored.After(since) }
	for p := range b.inbox {
		b.inbox[p] = slices.DeleteFunc(b.inbox[p], young)
	}
	b.work = slices.DeleteFunc(b.work, young)
	maps.DeleteFunc(b.later, func(_ string, m *message) bool { return young(m) })
	for _, g := range b.gone {
		if g.at.After(since) && !young(g.m) && b.find(g.m.place) == nil {
			b.back(g.m)
		}
	}
	b.gone = nil
	clear(b.seen)
	b.change()
}

// back puts a message back where it was. mu is held.
func (b *Broker) back(m *message) {
	m.holder = nil
	insert := func(list []*message) []*message {
		i, _ := at(list, m.place)
		return slices.Insert(list, i, m)
	}
	switch {
	case m.place == 0:
		b.later[m.key] = m
	case m.isWork:
		b.work = insert(b.work)
	default:
		b.inbox[m.partition] = insert(b.inbox[m.partition])
	}
}

// Forget loses everything that was stored, as when its files are deleted.
func (b *Broker) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inbox, b.work, b.later, b.dead = make(map[int][]*message), nil, make(map[string]*message), nil
	b.seen, b.sessions, b.notes = make(map[string]time.Time), make(map[string]claim), make(map[string][]byte)
	b.marks, b.schedules = make(map[string]bool), make(map[string]broker.Schedule)
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
	queue     broker.Queue
	who       string // the instance
	ahead     bool   // it goes ahead of starts
	key       string // of what is for later

	deliveries int
	free       time.Time // when it may be handed out
	holder     *receiver // who has it and keeps the order; nil for anybody else
	returned   bool      // it was given back, and has lost its place in the order
}

// change tells all who wait that something is different. mu is held.
func (b *Broker) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// near is up to when what is for later is stored with the rest.
const near = 1500 * time.Millisecond

// store stores a message, or what is to be stored later. mu is held.
func (b *Broker) store(w events.Wire) {
	now := b.now()
	if v := w.Header[events.HeaderMsgID]; len(v) > 0 {
		stream := "inbox/"
		if b.isWork(w.Subject) {
			stream = "work/"
		}
		key := stream + w.Subject + " " + v[0]
		if at, ok := b.seen[key]; ok && now.Sub(at) < b.dedupes {
			return
		}
		if len(b.seen) > b.seenMost {
			maps.DeleteFunc(b.seen, func(_ string, at time.Time) bool { return now.Sub(at) >= b.dedupes })
			b.seenMost = max(10_000, 2*len(b.seen))
		}
		b.seen[key] = now
	}
	m := &message{wire: w, notBefore: w.NotBefore, stored: now}
	verb, each := b.kindOf(w.Subject)
	if w.NotBefore.After(now) && (verb == events.VerbStart || verb == events.VerbControl) {
		b.replace(w.Subject, now)
	}
	if w.NotBefore.Sub(now) >= near {
		key := w.Subject // the last one counts
		if v := w.Header[events.HeaderMsgID]; len(v) > 0 && each {
			key += " " + v[0]
		}
		m.key = key
		b.later[key] = m
		b.change()
		return
	}
	b.put(m, now)
}

// kindOf tells the verb of a subject, and whether each of several delayed messages under it counts.
func (b *Broker) kindOf(subject string) (verb events.Verb, each bool) {
	word, _, _ := strings.Cut(strings.TrimPrefix(subject, b.prefix+"."), ".")
	verb, _ = events.Origin(word)
	return verb, verb == events.VerbEvent || verb == events.VerbQueue
}

// replace removes what is delayed under a subject and not due yet. mu is held.
func (b *Broker) replace(subject string, now time.Time) {
	delete(b.later, subject)
	p := partitionOf(instanceOf(subject), b.partitions)
	b.inbox[p] = slices.DeleteFunc(b.inbox[p], func(m *message) bool {
		return m.wire.Subject == subject && m.notBefore.After(now)
	})
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
		m.who, m.ahead = instanceOf(m.wire.Subject), b.isAhead(m.wire.Subject)
		m.partition = partitionOf(m.who, b.partitions)
		b.inbox[m.partition] = append(b.inbox[m.partition], m)
	}
	b.change()
}

func (b *Broker) isWork(subject string) bool { return strings.HasPrefix(subject, b.prefix+".work.") }

func (b *Broker) noteQueue(q broker.Queue) {
	if _, ok := b.queues[q]; !ok {
		b.queues[q] = 0
	}
}

func (b *Broker) isAhead(subject string) bool {
	verb, _, _ := strings.Cut(strings.TrimPrefix(subject, b.prefix+"."), ".")
	return events.Verb(verb).Ahead()
}

func instanceOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

func partitionOf(instance string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(instance))
	return int(h.Sum32() % uint32(n))
}

func queueOf(tag, activity string) (q broker.Queue, err error) {
	if tag != "_" {
		if q.Tag, err = events.DecodeToken(tag); err != nil {
			return q, err
		}
	}
	q.Activity, err = events.DecodeToken(activity)
	return q, err
}

// due stores what waits for its time and is due within a second, and tells when the next one is. mu
// is held.
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

// A receiver is one lane of one call of Receive: it keeps the messages that it has in order, and
// knows nothing of what a former one had.
type receiver struct {
	c     *Bus
	ahead bool
	came  chan struct{} // something has come without being stored

	mu     sync.Mutex
	direct []broker.Delivery
	over   bool
}

func (r *receiver) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.direct) > 0
}

// nextOf finds the first message of a partition that may be handed out to somebody, or tells when
// there may be one. mu is held.
func (b *Broker) nextOf(partition int, to *receiver, now time.Time) (m *message, next time.Time) {
	var blocked map[string]bool // instances of which somebody else has an older message
	for _, m := range b.inbox[partition] {
		switch {
		case m.ahead != to.ahead:
		case m.free.After(now):
			next = earliest(next, m.free)
			if m.deliveries > 0 && m.holder != to && !m.returned {
				if blocked == nil {
					blocked = make(map[string]bool)
				}
				blocked[m.who] = true
			}
		case !blocked[m.who]:
			return m, next
		}
	}
	return nil, next
}

// nextWork finds the first piece of work of a queue. mu is held.
func (b *Broker) nextWork(q broker.Queue, now time.Time) (m *message, next time.Time) {
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
func (b *Broker) handOut(m *message, to *receiver, now time.Time) broker.Delivery {
	m.deliveries++
	m.holder, m.returned, m.free = to, false, now.Add(b.wait(m))
	d := broker.Delivery{
		Subject: m.wire.Subject, Header: maps.Clone(m.wire.Header), Body: m.wire.Body, Partition: m.partition,
		Sequence: m.place, NumDelivered: m.deliveries, StoredAt: m.stored,
		Hold: hold{b, to.c, m.place, m.wire.Subject},
	}
	if _, again := d.Header[headerAgain]; again {
		delete(d.Header, headerAgain)
		d.NumDelivered++
	}
	return d
}

func (b *Broker) wait(m *message) time.Duration {
	if m.isWork {
		return b.workWait
	}
	return b.inboxWait
}

// find finds a stored message. mu is held.
func (b *Broker) find(place uint64) *message {
	for _, list := range b.inbox {
		if i, found := at(list, place); found {
			return list[i]
		}
	}
	if i, found := at(b.work, place); found {
		return b.work[i]
	}
	return nil
}

// at finds where a message is in a list, or would be.
func at(list []*message, place uint64) (i int, found bool) {
	return slices.BinarySearchFunc(list, place, func(m *message, p uint64) int { return cmp.Compare(m.place, p) })
}

// remove removes a stored message. mu is held.
func (b *Broker) remove(place uint64) {
	without := func(list []*message) []*message {
		if i, found := at(list, place); found {
			b.away(list[i])
			list = slices.Delete(list, i, i+1)
		}
		return list
	}
	for p, list := range b.inbox {
		b.inbox[p] = without(list)
	}
	b.work = without(b.work)
	b.change()
}

// Stored counts what is stored for instances and workers.
func (b *Broker) Stored() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due(b.now())
	for _, list := range b.inbox {
		n += len(list)
	}
	return n + len(b.work) + len(b.later)
}

// hold is the broker's side of a delivery.
type hold struct {
	b       *Broker
	by      *Bus
	place   uint64
	subject string
}

// settle does something with the message if it is still there and who has it can still say so.
func (h hold) settle(what string, do func(m *message)) {
	h.by.tells(what+" "+strconv.FormatUint(h.place, 10)+" "+h.subject, func() {
		h.b.mu.Lock()
		defer h.b.mu.Unlock()
		if m := h.b.find(h.place); m != nil {
			do(m)
			h.b.change()
		}
	})
}

// Ack implements broker.Hold.
func (h hold) Ack() { h.settle("ack", func(m *message) { h.b.remove(m.place) }) }

// Nak implements broker.Hold.
func (h hold) Nak(after time.Duration) {
	h.settle("return", func(m *message) { m.free, m.holder, m.returned = h.b.now().Add(after), nil, true })
}

// InProgress implements broker.Hold.
func (h hold) InProgress() {
	h.settle("extend", func(m *message) { m.free = h.b.now().Add(h.b.wait(m)) })
}

// What lists the subjects of what is stored, for people.
func (b *Broker) What() (subjects []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	add := func(m *message) {
		subjects = append(subjects, fmt.Sprint(m.wire.Subject, " (handed out ", m.deliveries, " times)"))
	}
	for _, list := range b.inbox {
		for _, m := range list {
			add(m)
		}
	}
	for _, m := range b.work {
		add(m)
	}
	for _, m := range b.later {
		add(m)
	}
	slices.Sort(subjects)
	return subjects
}
