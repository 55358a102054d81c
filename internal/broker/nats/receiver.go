package natsbroker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
)

// receiver delivers the messages of one lane of a partition. The goroutine of the subscription puts
// them in order, and Receive's own calls take. Two more tend waiting messages and take over delayed
// ones.
type receiver struct {
	*conn
	lane      lane
	consumer  string
	partition int
	ackWait   time.Duration
	reader    reader
	store     *laterStore
	eachTick  func(now time.Time) // is called at each tick of tend, if it is not nil

	mu     sync.Mutex // guards the rest
	state  receiverState
	pulls  pulls
	queue  readyQueue
	delays delays
	marks  marks
	order  order
	aside  []*waiting // messages that arrived while it resyncs, of asideBytes
	line   uint64     // the connection that it listens to, as the number of reconnects
	handed uint64     // deliveries of the consumer to all receivers, as far as this one knows

	asideBytes int
	shared     *sharedRoom
	beyond     int // what it has taken of the shared room

	mayNotAsk bool // the servers have denied the last request for messages
}

func newReceiver(c *conn, l lane, partition int, ackWait time.Duration, reader reader, store *laterStore) *receiver {
	r := &receiver{conn: c, lane: l, consumer: l.consumer(partition), partition: partition, ackWait: ackWait,
		reader: reader, store: store, queue: newReadyQueue(), line: c.nc.Stats().Reconnects, shared: new(sharedRoom)}
	r.delays, r.marks = newDelays(&c.names, r.due), newMarks(r)
	return r
}

// apply applies an event to the state. mu is held.
func (r *receiver) apply(e receiverEvent) { r.state = transition(r.state, e) }

// begin reads the state of the partition. It waits a little for an earlier receiver that is about
// to end, so that the messages which that one holds are known.
func (r *receiver) begin(ctx context.Context) error {
	tick := time.NewTicker(tend / 10)
	defer tick.Stop()
	for began := time.Now(); ; {
		info, err := r.info(ctx)
		if err != nil {
			return err
		}
		if info.NumWaiting == 0 || time.Since(began) > otherWait {
			r.order, err = r.findLeft(ctx, info)
			r.handed, r.marks.place = r.order.handed, info.Delivered.Stream
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *receiver) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	c, err := r.lookFor(ctx, r.names.inbox, r.consumer)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// renew sends a new pull request. The subscription stays the same: the messages for earlier
// requests are taken first, in their order. A status for those requests no longer counts.
func (r *receiver) renew() error {
	if err := r.pulls.renew(r.nc, r.hear); err != nil {
		return err
	}
	r.more()
	return nil
}

// room is how many messages more it may ask for, by their number. Those that wait behind lost ones
// do not count, so that messages of other instances arrive, nor do those that are held until their
// time: thousands of timers may be due in the same second.
func (r *receiver) room() int {
	return prefetch - len(r.queue.all) - len(r.aside) - len(r.delays.tasks) - r.pulls.asked
}

// isFull reports whether it holds as many bytes as it may, and the receivers of the process as many
// as they may have beyond that.
//
// Delayed messages do not count while one of them waits for a message that is still to arrive,
// since that one comes only behind all that were stored before it.
func (r *receiver) isFull() bool {
	bytes := r.queue.bytes + r.asideBytes + r.order.bytes + r.delays.taskBytes
	all := bytes + r.delays.earlyBytes
	r.shared.take(&r.beyond, max(0, all-prefetchBytes))
	return r.shared.isTaken() && (bytes > prefetchBytes || all > prefetchBytes && !r.marks.awaits())
}

// more asks for messages if there is room.
func (r *receiver) more() {
	if !r.isFull() {
		r.askFor(r.room())
	}
}

// moreOfLost asks for one message beyond the bounds if it waits for lost ones, which come only if
// it asks. NATS redelivers before it delivers anything new. So this is a lost message if NATS has
// one to redeliver, and otherwise one message too many.
func (r *receiver) moreOfLost() {
	if r.state.phase == live && len(r.order.left) > 0 && r.isFull() && r.pulls.asked == 0 && !r.pulls.heard.IsZero() {
		r.askFor(1)
	}
}

// isBusy reports whether it waits for no message and has asked for none for a while, because enough
// wait to be taken.
func (r *receiver) isBusy(now time.Time) bool {
	return r.pulls.asked == 0 && now.Sub(r.pulls.last) > busyAfter &&
		(r.room() < prefetch/2 || r.queue.bytes > prefetchBytes)
}

// askFor asks for messages, unless enough wait to be taken.
func (r *receiver) askFor(n int) {
	if r.pulls.sub == nil || r.state.phase == closed || r.room() < prefetch/2 || r.queue.bytes > prefetchBytes {
		return
	}
	if err := r.ask(r.names.inbox, r.consumer, r.pulls.subject(),
		request{Batch: n, MaxBytes: max(prefetchBytes, 2*int(r.nc.MaxPayload())), Expires: pullFor}); err == nil {
		r.pulls.asked += n
		r.pulls.last = time.Now()
	}
}

// hear handles a message or a status from the broker.
func (r *receiver) hear(m *nats.Msg) {
	a := read(m)
	line := r.nc.Stats().Reconnects
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mayNotAsk = false
	if line != r.line { // it may be for a request from before the connection broke
		r.apply(lineChanged)
	}
	if a.kind == aMessage {
		r.arrive(m)
		return
	}
	if r.state.phase == closed || m.Subject != r.pulls.subject() {
		return
	}
	r.pulls.heard = time.Now()
	switch a.kind {
	case aDone:
		r.pulls.asked = max(0, r.pulls.asked-a.left)
		r.more()
	case aLost, aNoConsumer, aBad:
		r.pulls.asked, r.pulls.heard = 0, time.Time{} // tend finds the cause
	case aGone:
		r.queue.fail(a.err)
	case aMessage, aHeartbeat: // arriving is all they do here
	}
}

// arrive accepts a message.
func (r *receiver) arrive(m *nats.Msg) {
	d, o, notBefore, err := r.delivery(m)
	if err != nil {
		r.log.Error("NATS: message without JetStream metadata dropped", "subject", m.Subject, "error", err)
		return
	}
	d.Partition = r.partition
	now := time.Now()
	r.pulls.heard = now
	// Even if an earlier round requested it. Then more is requested than fits: as many messages as
	// earlier rounds have requested, until pullFor ends their requests.
	r.pulls.asked = max(0, r.pulls.asked-1)
	if r.state.phase == closed {
		d.Hold.Nak(0)
		return
	}
	w := &waiting{d: d, since: now, handed: o.handed, notBefore: notBefore, due: o.due, accepted: o.accepted,
		again: o.deliveries > 1}
	if !w.due {
		w.accepted = acceptanceOf(d)
	}
	r.seeHandedOver(w)
	if o.deliveries == 1 && !r.state.resyncs() {
		r.marks.arrived(o.place, o.stored)
	}
	rest := notBefore.Sub(now)
	came := func() { r.queue.pushAll(r.order.came(lastWord(d.Subject), d.Sequence)) }
	switch {
	case !notBefore.IsZero() && rest > 0:
		if r.ackWait/2 < rest && (w.due || !r.goesThroughInbox(d.Subject)) {
			d.Hold.Nak(rest) // clocks differ, or it is older than a reduction of the ack wait: the broker keeps it
		} else {
			r.delays.add(w, rest)
		}
		came()
	case (w.due || notBefore.After(d.StoredAt)) && !notBefore.IsZero() && r.delays.lastCounts(w):
		r.delays.late(w)
		came()
	case r.state.resyncs():
		r.aside, r.asideBytes = append(r.aside, w), r.asideBytes+w.size()
	default:
		r.queue.pushAll(r.order.arrive(w))
	}
	r.more()
	if o.deliveries > 1 { // there may be others
		r.moreOfLost()
	}
}

// arriveDirect accepts a directly delivered message, or returns the outcome of its refusal. It is a
// resultTaker.
func (r *receiver) arriveDirect(d broker.Delivery) (refusal outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state.phase == closed || r.queue.failed != nil:
		return outcomeNotHere
	case len(r.queue.all) >= maxDirect || r.queue.bytes > prefetchBytes:
		return outcomeBusy
	}
	d.Partition = r.partition
	r.queue.push(&waiting{d: d, since: d.StoredAt})
	return outcomeOpen
}

// seeHandedOver notices that the consumer has delivered messages to another receiver before this
// one: a receiver that gives the partition up, or a frozen or disconnected one whose pull requests
// the broker still serves. Those messages are older, so that this receiver must know them first.
func (r *receiver) seeHandedOver(w *waiting) {
	if w.handed > r.handed+1 && !r.state.resyncs() {
		r.apply(otherServed)
	}
	r.handed = max(r.handed, w.handed)
}

// due queues a message whose time has come.
func (r *receiver) due(w *waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.phase == closed || r.delays.early[w.d.Sequence] != w {
		return // it was nacked
	}
	if rest := time.Until(w.notBefore); rest > 0 { // the clock was set back a little
		w.timer = time.AfterFunc(rest, func() { r.due(w) })
		return
	}
	if r.delays.waitsFor(w) { // a newer one may have been stored before this one was due
		told := func(_ context.Context, ok bool) {
			if !ok {
				return
			}
			r.mu.Lock()
			w.known = true
			r.mu.Unlock()
			r.due(w)
		}
		r.marks.add(&mark{who: lastWord(w.d.Subject), at: w.notBefore, delayed: true, told: told})
		return
	}
	now := time.Now()
	for _, x := range r.delays.dueWith(w, now) {
		x.timer.Stop()
		r.delays.release(x)
		if now.Sub(x.since) > r.ackWait/8 {
			x.d.Hold.InProgress() // the caller gets the whole ack wait
			x.since = now
		}
		if (x.due || x.late) && r.delays.lastCounts(x) {
			r.delays.later(task{x, compareStored})
		} else {
			r.queue.push(r.delays.delivering(x))
		}
	}
}

// run delivers messages until the context ends, or the receiver fails.
func (r *receiver) run(ctx context.Context, take func(broker.Delivery)) error {
	for ctx.Err() == nil {
		d, ok, err := r.pop()
		if err != nil {
			return err
		}
		if ok {
			take(d)
			continue
		}
		select {
		case <-r.queue.ready:
		case <-ctx.Done():
		case <-r.ctx.Done():
			return nats.ErrConnectionClosed
		}
	}
	return nil
}

// pop takes the first message out of the queue.
func (r *receiver) pop() (d broker.Delivery, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok, err = r.queue.pop()
	if ok {
		r.more()
	}
	if len(r.marks.passed) > 0 {
		r.marks.tells.Set()
	}
	return d, ok, err
}

// tend tends the waiting messages until the context ends.
func (r *receiver) tend(ctx context.Context, status <-chan nats.Status) {
	tick := time.NewTicker(tend)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-status:
			r.again(ctx)
		case <-tick.C:
			r.extend()
			r.checkLeft(ctx)
			r.checkAlive(ctx)
			r.probe(time.Now())
			r.marks.reviewSoon()
			if r.eachTick != nil {
				r.eachTick(time.Now())
			}
		}
	}
}

// again sends a new pull request after a reconnect, or after a long silence of the broker. The
// messages sent meanwhile may be lost, and are redelivered only after a while. The receiver must
// know them first, so that they go ahead of newer ones.
func (r *receiver) again(ctx context.Context) {
	line := r.nc.Stats().Reconnects
	r.mu.Lock()
	if line == r.line {
		r.apply(lookBegun)
	} else {
		r.apply(lookBegunOnNewLine)
	}
	r.mu.Unlock()
	look, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	info, err := r.info(look)
	var left order
	if err == nil {
		left, err = r.findLeft(look, info)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone(err) {
		r.queue.fail(err)
		return
	}
	if err != nil && (ctx.Err() != nil || !r.nc.IsConnected()) {
		return // the next connection continues the look
	}
	before, event := r.state.phase, lookDone
	if err != nil {
		r.log.Warn("NATS: a partition does not answer; asking on", "partition", r.partition, "error", err)
		event = lookFailed
	}
	if r.apply(event); r.state.resyncs() {
		return // tend tries again
	}
	r.line = line
	r.reorder(left)
	if info != nil {
		r.marks.place = max(r.marks.place, info.Delivered.Stream)
	}
	r.marks.review()
	if before == shared { // the requested messages are still to arrive
		r.more() // for those that were kept aside and wait now for lost ones
		return
	}
	if err := r.renew(); err != nil {
		r.queue.fail(err)
	}
}

// reorder begins to wait for the lost messages: those in left, less those that are here.
func (r *receiver) reorder(left order) {
	if len(r.order.left) > 0 {
		left.began = r.order.began
	}
	known := covered(r.aside, left.handed)
	waited := append(r.order.release(), r.aside[:known]...)
	r.order, r.aside = left, slices.Clone(r.aside[known:])
	r.asideBytes = totalSize(r.aside)
	if len(r.aside) > 0 {
		r.apply(otherServed)
	}
	r.handed = max(r.handed, left.handed)
	for _, w := range r.queue.all {
		r.order.came(lastWord(w.d.Subject), w.d.Sequence)
	}
	for _, w := range r.delays.early {
		r.order.came(lastWord(w.d.Subject), w.d.Sequence)
	}
	for _, t := range r.delays.tasks {
		r.order.came(lastWord(t.w.d.Subject), t.w.d.Sequence)
	}
	slices.SortStableFunc(waited, func(a, b *waiting) int { return cmp.Compare(a.d.Sequence, b.d.Sequence) })
	for _, w := range waited {
		r.queue.pushAll(r.order.arrive(w))
	}
}

// extend keeps the broker from redelivering messages that only wait to be taken.
func (r *receiver) extend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	keep := func(w *waiting) {
		if now.Sub(w.since) >= r.ackWait/4 {
			w.d.Hold.InProgress()
			w.since = now
		}
	}
	for _, w := range r.queue.all {
		keep(w)
	}
	for _, w := range r.aside {
		keep(w)
	}
	for _, t := range r.delays.tasks {
		keep(t.w)
	}
	for _, w := range r.delays.held {
		keep(w)
	}
	for _, behind := range r.order.behind {
		for _, w := range behind {
			keep(w)
		}
	}
}

// checkAlive looks again if the broker is silent for long, and fails the receiver if its consumer
// is gone.
func (r *receiver) checkAlive(ctx context.Context) {
	r.mu.Lock()
	silent := r.state.resyncs() || r.pulls.isSilent(time.Now())
	r.mu.Unlock()
	if silent && r.nc.IsConnected() {
		r.again(ctx)
	}
}

// probe asks for a lost message although the receiver is full, but only so often that few others
// come before that one is redelivered. If other receivers have made room, it asks for more.
func (r *receiver) probe(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.more()
	if now.Sub(r.pulls.probe) >= min(r.ackWait/maxProbes, busyAfter) {
		r.pulls.probe = now
		r.moreOfLost()
	}
}

// end nacks the messages that were not taken.
func (r *receiver) end() {
	r.mu.Lock()
	r.apply(ended)
	sub := r.pulls.sub
	for _, w := range r.queue.all { // in order
		w.d.Hold.Nak(0)
	}
	for _, w := range append(r.order.release(), r.aside...) {
		w.d.Hold.Nak(0)
	}
	for _, w := range r.delays.early {
		w.timer.Stop()
		w.d.Hold.Nak(0)
	}
	for _, t := range r.delays.tasks {
		if !t.w.done {
			t.w.d.Hold.Nak(0)
		}
	}
	r.queue.clear()
	r.aside, r.asideBytes = nil, 0
	r.shared.take(&r.beyond, 0)
	r.delays.early, r.delays.held, r.delays.of, r.delays.tasks = nil, nil, nil, nil
	r.mu.Unlock()
	if sub == nil {
		return
	}
	drained := make(chan struct{})
	over := sync.OnceFunc(func() { close(drained) }) // the handler may run twice
	sub.SetClosedHandler(func(string) { over() })
	if err := sub.Drain(); err != nil || !r.nc.IsConnected() {
		return
	}
	select { // nacks the messages in flight, too
	case <-drained:
	case <-time.After(otherWait):
	}
}
