package natsbroker

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
)

// waiting is a message that waits to be taken.
type waiting struct {
	d      broker.Delivery
	since  time.Time // when it arrived, or was last extended
	handed uint64    // see origin
	bytes  int       // see size

	// For a delayed message:
	notBefore time.Time
	timer     *time.Timer
	due       bool       // it has waited in the stream for delayed messages
	accepted  acceptance // when it was
	again     bool       // it was delivered before
	done      bool       // its task is done
	known     bool       // all messages have arrived that were stored before it was due
	late      bool       // it was due when it arrived

	// In the queue:
	number uint64
	before *waiting // of its instance; it may just have been taken out
}

// size is the size of the message in memory. It is the same whenever the message is added to what a
// receiver holds, and taken away.
func (w *waiting) size() int {
	if w.bytes == 0 {
		w.bytes = w.d.Size() + waitingOverhead
	}
	return w.bytes
}

// waitingOverhead is about what a receiver has in memory for a message beside its contents.
const waitingOverhead = 512

// totalSize is the size of some messages.
func totalSize(all []*waiting) (bytes int) {
	for _, w := range all {
		bytes += w.size()
	}
	return bytes
}

// readyQueue are the messages that wait only to be taken, in order. The lock of its receiver guards
// it, except ready.
type readyQueue struct {
	ready  signal.Signal // gets a value when there is a message, or the receiver failed
	all    []*waiting
	bytes  int
	failed error // why the receiver ends

	// Messages have numbers. Those up to popped were taken out, and take has returned for those up
	// to taken. next is the message that it was called for last.
	popped, taken uint64
	next          *waiting
	newest        map[string]*waiting // of each instance, by the last word of its subject
}

// last returns the number of the last message of an instance that was stored before a moment and
// for which take has not returned; 0 if there is none.
func (q *readyQueue) last(who string, before time.Time) uint64 {
	is := func(w *waiting) bool {
		return w != nil && lastWord(w.d.Subject) == who && w.d.Moment().Before(before)
	}
	for w := q.newest[who]; w != nil && w.number > q.popped; w = w.before {
		if is(w) {
			return w.number
		}
	}
	if q.taken < q.popped && is(q.next) {
		return q.popped
	}
	return 0
}

func newReadyQueue() readyQueue {
	return readyQueue{ready: signal.New(), newest: make(map[string]*waiting)}
}

// clear removes all messages.
func (q *readyQueue) clear() { q.all, q.bytes, q.newest = nil, 0, make(map[string]*waiting) }

func (q *readyQueue) pushAll(all []*waiting) {
	for _, w := range all {
		q.push(w)
	}
}

func (q *readyQueue) push(w *waiting) {
	q.all = append(q.all, w)
	q.bytes += w.size()
	who := lastWord(w.d.Subject)
	w.number, w.before = q.popped+uint64(len(q.all)), q.newest[who]
	q.newest[who] = w
	q.wake()
}

func (q *readyQueue) wake() { q.ready.Set() }

// fail ends the receiver with an error. The first one counts.
func (q *readyQueue) fail(err error) {
	if q.failed == nil {
		q.failed = err
	}
	q.wake()
}

// pop takes the first message out of the queue, unless the receiver failed. take has returned for
// the message before.
func (q *readyQueue) pop() (d broker.Delivery, ok bool, err error) {
	q.taken = q.popped
	if q.failed != nil {
		return d, false, q.failed
	}
	if len(q.all) == 0 {
		return d, false, nil
	}
	q.next = q.all[0]
	d = q.next.d
	q.all[0] = nil
	q.all = q.all[1:]
	q.bytes -= q.next.size()
	q.popped++
	q.next.before = nil
	if who := lastWord(d.Subject); q.newest[who] == q.next {
		delete(q.newest, who)
	}
	return d, true, nil
}

// pulls are the pull requests of a receiver, and the subscription for their responses. The lock of
// the receiver guards it.
type pulls struct {
	sub   *nats.Subscription
	round int       // counts the renewals: status messages for earlier requests no longer count
	asked int       // messages that the broker still owes
	heard time.Time // when the broker last sent a message or a status
	last  time.Time // when it last asked
	probe time.Time // when tend last asked for a lost message beyond the bounds
}

// renew begins a new round.
func (p *pulls) renew(nc *nats.Conn, hear nats.MsgHandler) error {
	if p.sub == nil || !p.sub.IsValid() {
		sub, err := nc.Subscribe(nc.NewInbox()+".*", hear)
		if err != nil {
			return err
		}
		_ = sub.SetPendingLimits(-1, -1) // the requests bound the messages
		p.sub = sub
	}
	p.round++
	p.asked, p.heard = 0, time.Now()
	return nil
}

// subject is the subject on which the broker responds to the requests of this round.
func (p *pulls) subject() string {
	return strings.TrimSuffix(p.sub.Subject, "*") + strconv.Itoa(p.round)
}

// isSilent reports whether the broker should have sent something by now, or has lost the requests.
func (p *pulls) isSilent(now time.Time) bool {
	return p.asked == 0 && p.heard.IsZero() || p.asked > 0 && now.Sub(p.heard) > silence
}

// covered counts the messages in aside that were delivered before any other receiver got one after
// the look, at which the consumer had made so many deliveries. If that number is unknown (0),
// covered counts all.
func covered(aside []*waiting, handed uint64) int {
	if handed == 0 {
		return len(aside)
	}
	slices.SortStableFunc(aside, func(a, b *waiting) int { return cmp.Compare(a.handed, b.handed) })
	for i, w := range aside {
		if w.handed > handed+1 {
			return i
		}
		handed = max(handed, w.handed)
	}
	return len(aside)
}
