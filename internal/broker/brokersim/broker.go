package brokersim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/events"
)

// Broker is a broker in memory that keeps the contract of package broker. It outlives the processes
// that are connected to it.
type Broker struct {
	settings

	mu   sync.Mutex    // guards all below
	skew time.Duration // how far its clock is ahead
	// denied has the verbs of messages that it refuses because of a setting, and until when.
	denied map[events.Verb]time.Time
	streams
	buckets
	takers
	subscriptions

	named       map[string]*directResults // the open connections, by name
	connections uint64                    // so many were made
	directs     uint64                    // messages delivered directly
	changed     chan struct{}             // closed at each change
}

// settings are those of [Options]. They do not change.
type settings struct {
	prefix              string
	inboxWait, taskWait time.Duration
	lease, sessionLease time.Duration
	dedupes             time.Duration // how long it remembers ids
}

// streams have the stored messages. Each list is in the order of the places, which only grow.
type streams struct {
	partitions int
	place      uint64             // the last one that was assigned
	number     uint64             // the same of the numbers
	inbox      map[int][]*message // by partition, oldest first
	work       []*message
	later      map[string]*message // delayed messages, by subject
	dead       []broker.DeadLetter
	gone       []gone               // messages removed a moment ago
	seen       map[string]time.Time // ids of messages stored a moment ago
	seenMost   int                  // from which size on older ids are removed
}

// forget loses all messages. Places are not assigned again.
func (s *streams) forget() {
	s.inbox, s.work, s.later, s.dead = make(map[int][]*message), nil, make(map[string]*message), nil
	s.seen = make(map[string]time.Time)
}

// buckets have the values that processes share.
type buckets struct {
	members  map[string]*membership
	sessions map[string]claim
	values   map[string]value
}

// forget loses all values but the leases of members.
func (b *buckets) forget() {
	b.sessions, b.values = make(map[string]claim), make(map[string]value)
}

// takers count the takers and receivers that ask for messages at the moment.
type takers struct {
	queues    map[broker.TaskQueueName]int // takers of each task queue that was ever named
	receivers map[int]int                  // by partition
}

// subscriptions are the functions of processes that the broker calls. They are not stored: each
// ends with its connection.
type subscriptions struct {
	listeners map[*listener]bool
	answerers map[string][]*answerer
	handovers map[handoverAt]*receiverOf
	offers    map[broker.TaskQueueName][]*offer // room for tasks that are not stored
	turn      atomic.Uint64                     // selects the next handler
}

// Options configure a broker.
type Options struct {
	Partitions                                           int
	InboxAckWait, TaskAckWait, MemberLease, SessionLease time.Duration
	// Dedupes is how long the broker remembers ids. Default: 10 seconds; negative: not at all.
	Dedupes time.Duration
}

// NewBroker returns an empty broker.
func NewBroker(o Options) *Broker {
	b := &Broker{
		settings: settings{prefix: "rondo", inboxWait: o.InboxAckWait, taskWait: o.TaskAckWait, lease: o.MemberLease,
			sessionLease: o.SessionLease, dedupes: o.Dedupes},
		streams: streams{partitions: o.Partitions},
		buckets: buckets{members: make(map[string]*membership)},
		takers:  takers{queues: make(map[broker.TaskQueueName]int), receivers: make(map[int]int)},
		subscriptions: subscriptions{listeners: make(map[*listener]bool), answerers: make(map[string][]*answerer),
			handovers: make(map[handoverAt]*receiverOf), offers: make(map[broker.TaskQueueName][]*offer)},
		named: make(map[string]*directResults), changed: make(chan struct{}),
	}
	if b.dedupes == 0 {
		b.dedupes = 10 * time.Second
	}
	b.Forget()
	return b
}

// now returns the time on the broker's clock. mu is held.
func (b *Broker) now() time.Time { return time.Now().Add(b.skew) }

// Skew sets how far the broker's clock is ahead from now on.
func (b *Broker) Skew(by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skew = by
	b.change()
}

// Deny has the broker refuse all messages with a verb because of a setting, until a moment.
func (b *Broker) Deny(verb events.Verb, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.denied == nil {
		b.denied = make(map[events.Verb]time.Time)
	}
	b.denied[verb] = until
}

// mayPublish returns an error if a setting prevents a message.
func (b *Broker) mayPublish(w events.Wire) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	verb, _, _ := strings.Cut(strings.TrimPrefix(w.Subject, b.prefix+"."), ".")
	if w.Purge || !time.Now().Before(b.denied[events.Verb(verb)]) {
		return nil
	}
	return fmt.Errorf("%w: %s is denied", broker.ErrMisconfigured, verb)
}

// gone is a message that was removed.
type gone struct {
	m  *message
	at time.Time
}

// remembers is how long PowerLoss can restore a removed message.
const remembers = 30 * time.Second

// away keeps a removed message for [Broker.PowerLoss]. mu is held.
func (b *Broker) away(m *message) {
	now, old := b.now(), 0
	for old < len(b.gone) && now.Sub(b.gone[old].at) > remembers {
		old++
	}
	b.gone = append(b.gone[old:], gone{m, now})
}

// PowerLoss resets the broker to its state a moment ago, as when a disk loses the data that was not
// yet synced. Messages stored since then are lost, although the broker acknowledged them; messages
// removed since then are there again.
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

// back inserts a message at its former position. mu is held.
func (s *streams) back(m *message) {
	m.holder = nil
	insert := func(list []*message) []*message {
		i, _ := at(list, m.place)
		return slices.Insert(list, i, m)
	}
	switch {
	case m.place == 0:
		s.later[m.key] = m
	case m.isTask:
		s.work = insert(s.work)
	default:
		s.inbox[m.partition] = insert(s.inbox[m.partition])
	}
}

// Forget loses all stored data, as when the broker's files are deleted.
func (b *Broker) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams.forget()
	b.buckets.forget()
	b.change()
}

// message is a stored message.
type message struct {
	place     uint64
	number    uint64 // of its first storing
	wire      events.Wire
	stored    time.Time
	notBefore time.Time
	accepted  time.Time // of a delayed message of a client that was stored again: when it was stored first
	partition int       // of the inbox
	isTask    bool
	queue     broker.TaskQueueName
	who       string // the instance
	ahead     bool   // it goes ahead of starts
	key       string // of a delayed message

	deliveries int
	free       time.Time // when the broker may deliver it
	holder     *receiver // the receiver that has it and keeps the order; otherwise nil
	taken      bool      // the holder has taken it
	returned   bool      // nacked: it has lost its place in the order
	returnedBy *receiver // nacked it last
}

// change wakes all waiting goroutines after a change. mu is held.
func (b *Broker) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// near is the delay below which a delayed message is stored with the others.
const near = 1500 * time.Millisecond

// store stores a message, now or when its delay ends. mu is held.
func (b *Broker) store(w events.Wire) {
	now := b.now()
	if v := w.Header[events.HeaderMsgID]; len(v) > 0 {
		stream := "inbox/"
		if b.isWork(w.Subject) {
			stream = "task/"
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
	b.number++
	m := &message{wire: w, notBefore: w.NotBefore, stored: now, number: b.number}
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

// kindOf returns the verb of a subject, and whether each of several delayed messages under it
// counts.
func (b *Broker) kindOf(subject string) (verb events.Verb, each bool) {
	word, _, _ := strings.Cut(strings.TrimPrefix(subject, b.prefix+"."), ".")
	verb, _ = events.Origin(word)
	return verb, verb == events.VerbEvent || verb == events.VerbMailbox
}

// replace removes the message that is delayed under a subject and not due yet. mu is held.
func (b *Broker) replace(subject string, now time.Time) {
	b.due(now) // a due message is not replaced
	delete(b.later, subject)
	p := partitionOf(instanceOf(subject), b.partitions)
	b.inbox[p] = slices.DeleteFunc(b.inbox[p], func(m *message) bool {
		return m.wire.Subject == subject && m.notBefore.After(now)
	})
}

// put assigns a message its place. mu is held.
func (b *Broker) put(m *message, now time.Time) {
	b.place++
	m.place, m.stored, m.free = b.place, now, m.notBefore
	if b.isWork(m.wire.Subject) {
		m.isTask = true
		words := strings.Split(strings.TrimPrefix(m.wire.Subject, b.prefix+".task."), ".")
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

func (b *Broker) isWork(subject string) bool { return strings.HasPrefix(subject, b.prefix+".task.") }

func (t *takers) noteQueue(q broker.TaskQueueName) {
	if _, ok := t.queues[q]; !ok {
		t.queues[q] = 0
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

func queueOf(tag, activity string) (q broker.TaskQueueName, err error) {
	if tag != "_" {
		if q.Tag, err = events.DecodeToken(tag); err != nil {
			return q, err
		}
	}
	q.Activity, err = events.DecodeToken(activity)
	return q, err
}

// due stores the delayed messages that are due within a second, and returns when the next one is
// due. mu is held.
func (b *Broker) due(now time.Time) (next time.Time) {
	var keys []string
	for key, m := range b.later {
		if at := m.notBefore.Add(-time.Second); at.After(now) {
			next = earliest(next, at)
		} else {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(x, y string) int {
		return cmp.Or(b.later[x].notBefore.Compare(b.later[y].notBefore), cmp.Compare(x, y))
	})
	for _, key := range keys {
		m := b.later[key]
		delete(b.later, key)
		switch verb, each := b.kindOf(m.wire.Subject); {
		case each, verb == events.VerbStart, verb == events.VerbControl:
			m.accepted = m.stored
		}
		b.put(m, now)
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// A receiver is one lane of one call of Receive. It keeps its messages in order, and does not know
// the messages of an earlier receiver.
type receiver struct {
	c     *link
	ahead bool
	until time.Time     // it waits for messages delivered before it began, without the skew
	came  chan struct{} // a message has arrived directly
	marks []*mark       // b.mu guards them
	tells signal.Signal // a mark may have passed

	mu     sync.Mutex
	direct []broker.Delivery
	over   bool
}

func (r *receiver) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.direct) > 0
}

// nextOf finds the first message of a partition that a receiver may get now, or returns the time
// when there may be one. mu is held.
func (s *streams) nextOf(partition int, to *receiver, now time.Time) (m *message, next time.Time) {
	var blocked map[string]bool // instances of which another receiver has an older message
	for _, m := range s.inbox[partition] {
		switch {
		case m.ahead != to.ahead:
		case m.free.After(now):
			next = earliest(next, m.free)
			if m.deliveries > 0 && m.holder != to {
				if m.returned {
					rest := restFor(m, to)
					if rest <= 0 {
						continue
					}
					next = earliest(next, now.Add(rest))
				}
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

// restFor is for how long newer messages of an instance wait for a nacked one: a receiver does not
// know what those before it have nacked, and waits for everything that was not settled when it
// began.
func restFor(m *message, to *receiver) time.Duration {
	if m.returnedBy == to {
		return 0
	}
	return time.Until(to.until)
}

// nextWork finds the first task of a task queue. mu is held.
func (s *streams) nextWork(q broker.TaskQueueName, now time.Time) (m *message, next time.Time) {
	for _, m := range s.work {
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

// handOut delivers a message to a receiver. mu is held.
func (b *Broker) handOut(m *message, to *receiver, now time.Time) broker.Delivery {
	m.deliveries++
	m.holder, m.taken, m.returned, m.free = to, false, false, now.Add(b.wait(m))
	d := broker.Delivery{
		Subject: m.wire.Subject, Header: broker.Received(m.wire.Header), Body: m.wire.Body, Partition: m.partition,
		Sequence: m.place, NumDelivered: m.deliveries, StoredAt: m.stored, NotBefore: m.notBefore,
		AcceptedAt: m.accepted,
		Hold:       hold{b, to.c, m.place, m.wire.Subject},
	}
	if _, again := m.wire.Header[headerAgain]; again {
		d.NumDelivered++
	}
	return d
}

func (b *Broker) wait(m *message) time.Duration {
	if m.isTask {
		return b.taskWait
	}
	return b.inboxWait
}

// find finds a stored message. mu is held.
func (s *streams) find(place uint64) *message {
	for _, list := range s.inbox {
		if i, found := at(list, place); found {
			return list[i]
		}
	}
	if i, found := at(s.work, place); found {
		return s.work[i]
	}
	return nil
}

// at finds the index of a message in a list, or the index where it would be.
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

// Stored counts the messages stored for instances and workers.
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
	by      *link
	place   uint64
	subject string
}

// settle changes the message if it is still stored and the holder's connection still works.
func (h hold) settle(what string, do func(m *message)) {
	h.by.tells(fmt.Sprintf("%s %06d %s", what, h.place, h.subject), func() {
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
	h.settle("return", func(m *message) {
		m.returnedBy = m.holder
		m.free, m.holder, m.returned = h.b.now().Add(after), nil, true
	})
}

// InProgress implements broker.Hold.
func (h hold) InProgress() {
	h.settle("extend", func(m *message) { m.free = h.b.now().Add(h.b.wait(m)) })
}

// What lists the subjects of all stored messages, for a test's output.
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
