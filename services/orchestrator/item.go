package orchestrator

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// item is a message for an instance, from its delivery until it is settled.
type item struct {
	message events.Message
	// delivery has the facts from the broker. Its Hold is nil if this process sends the message to
	// itself.
	delivery    broker.Delivery
	attempts    int
	handed      bool // forwarded by another orchestrator, which cannot run it
	quarantined bool // quarantined: it may kill the process, so it is decided alone
	blocked     bool // quarantined, and its turn has not come
	settled     bool // quarantined, and settled; the lock of the quarantine guards it
	counted     bool // the attempt is counted against it
	// passed is closed, by pass, when the count of attempts is what it was before this one. It is
	// nil unless the message is quarantined, and another orchestrator is to try it.
	passed     <-chan struct{}
	pass       func()
	doubtful   bool // a commit of unknown outcome may have taken it
	void       bool // the broker has lost it, and counts from one again: settling it would settle another one
	arrived    time.Time
	extended   time.Time
	starts     <-chan struct{}     // of a start, which takes room from others: the semaphore to release
	way        *semaphore.Weighted // of a message that the loop has not taken: likewise
	watermark  *watermark          // an answer about an instance, and no message
	startWaits bool                // the broker has a start of its instance
	aside      bool                // it waits for the watermark of the instance
	bytes      int64               // see size
}

// toOther notes that another orchestrator is to try a quarantined message, and countIsBack that its
// count of attempts is what it was before this one.
func (i *item) toOther() {
	passed := make(chan struct{})
	i.passed, i.pass = passed, sync.OnceFunc(func() { close(passed) })
}

func (i *item) countIsBack() {
	if i.pass != nil {
		i.pass()
	}
}

// moment is the place of the message in time: see [round.Delivery].
func (i *item) moment() time.Time {
	switch c := i.message.Content.(type) {
	case *events.TimerDue:
		return c.Due
	default:
	}
	if i.inside() {
		return i.arrived
	}
	return i.delivery.Moment()
}

// isStored reports whether the moment of the message is when the broker stored it.
func (i *item) isStored() bool {
	_, timer := i.message.Content.(*events.TimerDue)
	return !timer && !i.inside() && !i.delivery.Direct && !i.delivery.WasDelayed()
}

// moments returns the places of messages in time. The broker stores messages in the order of their
// sequences, so none is before one with a lower sequence, even if the clock of the broker was set
// back between the two.
func moments(items []*item) []time.Time {
	at := make([]time.Time, len(items))
	stored := make([]int, 0, len(items))
	for n, i := range items {
		if at[n] = i.moment(); i.isStored() {
			stored = append(stored, n)
		}
	}
	slices.SortFunc(stored, func(a, b int) int {
		return cmp.Compare(items[a].delivery.Sequence, items[b].delivery.Sequence)
	})
	var last time.Time
	for _, n := range stored {
		if at[n].Before(last) {
			at[n] = last
		}
		last = at[n]
	}
	return at
}

// free makes room for another start.
func (i *item) free() {
	if i.starts != nil {
		<-i.starts
		i.starts = nil
	}
}

// arrive makes room for another message on the way to the loop.
func (i *item) arrive() {
	if i.way != nil {
		i.way.Release(min(i.size(), maxArrivalBytes))
		i.way = nil
	}
}

// inside reports whether the message never was in the broker.
func (i *item) inside() bool { return i.delivery.Hold == nil }

// hold returns the handle that settles the message.
func (i *item) hold() broker.Hold {
	if i.void {
		return noHold{}
	}
	return i.delivery.Hold
}

// settling returns the delivery with that handle.
func (i *item) settling() broker.Delivery {
	d := i.delivery
	d.Hold = i.hold()
	return d
}

// noHold settles nothing.
type noHold struct{}

func (noHold) Ack()               {}
func (noHold) Nak(time.Duration)  {}
func (noHold) InProgress()        {}
func (noHold) AckSubject() string { return "" }

// size is about how much memory the message takes. It computes that once, before the loop has the
// message.
func (i *item) size() int64 {
	if i.bytes == 0 {
		i.bytes = int64(i.delivery.Size()) + 512
	}
	return i.bytes
}

// wakeUp is a message that this process sends to an instance itself.
func wakeUp(instance, why string) *item {
	return &item{message: events.Message{Instance: instance, Content: &events.Wake{Reason: why}}}
}

// heldMessages are the messages from the broker that are in memory, from their arrival until they
// are settled. The goroutine of the loop owns them.
type heldMessages struct {
	most       int   // messages, from which the loop takes no more
	mostBytes  int64 // likewise
	bySequence map[uint64]*item
	bytes      int64

	// Of these, the messages that are set aside. They do not count for full: the messages that they
	// wait for must be able to arrive.
	aside      int
	asideBytes int64
}

func newHeldMessages(most int, mostBytes int64) *heldMessages {
	return &heldMessages{most: most, mostBytes: mostBytes, bySequence: make(map[uint64]*item)}
}

// full reports whether as many messages are held as may be.
func (h *heldMessages) full() bool {
	return len(h.bySequence)-h.aside >= h.most || h.bytes-h.asideBytes >= h.mostBytes
}

// asideFull reports whether as many messages are set aside as may be.
func (h *heldMessages) asideFull() bool { return h.aside >= h.most || h.asideBytes >= h.mostBytes }

// refusedShare is the share of the room that an instance may take whose turn is not published.
const refusedShare = 8

// overShare reports whether messages take more than that share.
func (h *heldMessages) overShare(items []*item) bool {
	if len(items) <= 1 || len(items) > h.most/refusedShare {
		return len(items) > 1
	}
	var bytes int64
	for _, i := range items {
		bytes += i.size()
	}
	return bytes > h.mostBytes/refusedShare
}

// setAside sets a held message aside, or brings it back.
func (h *heldMessages) setAside(i *item, aside bool) {
	if i.aside == aside || i.inside() || !h.has(i) {
		return
	}
	i.aside = aside
	n := 1
	if !aside {
		n = -1
	}
	h.aside += n
	h.asideBytes += int64(n) * i.size()
}

// isDuplicate reports whether a message is held already: the first delivery will be settled. A held
// message with the same sequence and another time of storage is void from then on.
func (h *heldMessages) isDuplicate(i *item) bool {
	before := h.bySequence[i.delivery.Sequence]
	if before == nil {
		return false
	}
	if before.delivery.StoredAt.Equal(i.delivery.StoredAt) {
		return true
	}
	h.setAside(before, false)
	h.bytes -= before.size()
	before.void = true
	delete(h.bySequence, i.delivery.Sequence)
	return false
}

// add holds a message that is no duplicate.
func (h *heldMessages) add(i *item) {
	h.bySequence[i.delivery.Sequence] = i
	h.bytes += i.size()
}

// has reports whether a message is held.
func (h *heldMessages) has(i *item) bool { return h.bySequence[i.delivery.Sequence] == i }

// remove makes room for other messages. A message that is not held changes nothing.
func (h *heldMessages) remove(i *item) {
	if !i.inside() && h.has(i) {
		h.setAside(i, false)
		delete(h.bySequence, i.delivery.Sequence)
		h.bytes -= i.size()
	}
}

// touch extends the ack wait of the messages that were not extended for a while, but not of those
// that are set aside.
func (h *heldMessages) touch(now time.Time, after time.Duration) {
	for _, i := range h.bySequence {
		if !i.aside && now.Sub(i.extended) >= after {
			i.extended = now
			i.delivery.Hold.InProgress()
		}
	}
}
