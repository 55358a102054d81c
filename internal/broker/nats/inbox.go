package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// prefetch is how many messages of a partition are asked for at once; prefetchBytes bounds
	// their size.
	prefetch      = 1024
	prefetchBytes = 8 << 20
	// pullFor is how long a request for messages of a partition waits in the broker.
	pullFor = 30 * time.Second
	// tend is how often a receiver looks after what it holds.
	tend = 250 * time.Millisecond
	// maxLooks is how often a receiver looks in vain for what was lost, each time for the time of
	// silence. Then it goes on without.
	maxLooks = 3
	// otherWait is how long a receiver waits for another one, which gives the partition up, to be
	// gone.
	otherWait = time.Second
)

// Receive implements broker.Inbox. If the partition is gone from the broker it fails, after making
// it again if it may.
func (b *Bus) Receive(ctx context.Context, partition int, take func(broker.Delivery)) error {
	defer b.forwardDue()()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	for _, l := range lanes {
		go func() { ended <- b.receive(both, l, partition, take) }()
	}
	err := <-ended
	cancel()
	err = errors.Join(err, <-ended)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if gone(err) {
		select {
		case <-time.After(mendAfter):
		case <-ctx.Done():
			return nil
		}
		if _, again := b.Partitions(ctx); again != nil {
			err = errors.Join(err, again)
		}
	}
	return problem(fmt.Sprintf("receive from partition %d", partition), err)
}

func (b *Bus) receive(ctx context.Context, l lane, partition int, take func(broker.Delivery)) error {
	r := b.receiver(l, partition)
	if err := r.begin(ctx); err != nil {
		return err
	}
	status := b.nc.StatusChanged(nats.CONNECTED)
	defer b.nc.RemoveStatusListener(status)
	r.mu.Lock()
	err := r.renew()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	var tending sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	tending.Go(func() { r.tend(stop, status) })
	tending.Go(func() { r.takeOver(stop) })
	if l == ahead {
		defer b.offer(r)()
	}
	err = r.run(ctx, take)
	cancel()
	tending.Wait()
	r.end()
	return err
}

// receiver hands out the messages of one lane of a partition. One goroutine, that of the
// subscription, puts them in order; another, Receive's own, hands them out; a third looks after
// what has to wait.
type receiver struct {
	b         *Bus
	lane      lane
	consumer  string
	partition int
	ready     chan struct{} // gets a value when there is something in queue, or it failed
	todo      chan struct{} // gets a value when there is something in tasks

	mu     sync.Mutex
	failed error
	sub    *nats.Subscription
	round  int       // counts how often it was asked anew: what is said about requests before counts no more
	asked  int       // what the broker still owes
	heard  time.Time // when the broker last said something
	queue  []*waiting
	bytes  int                 // in queue
	early  map[uint64]*waiting // messages whose time has not come
	held   map[string]*waiting // of those, the ones of which one counts for each subject
	tasks  []task              // what is to be done for delayed messages
	order  order
	over   bool

	line    uint64     // which connection is listened to, of those that were made one after the other
	handed  uint64     // how many messages the consumer has handed out, to whomever, as far as is known here
	looking bool       // for what was lost on its way, or handed to somebody else
	shared  bool       // it is looking only because somebody else is handed messages, too
	looked  int        // in vain
	aside   []*waiting // what came meanwhile
}

// waiting is a message that waits to be handed out.
type waiting struct {
	d      broker.Delivery
	since  time.Time // when it came, or was last extended
	handed uint64    // see origin

	// For one whose time has not come, or had not:
	notBefore time.Time
	timer     *time.Timer
	due       bool       // it has waited in the stream for that
	accepted  acceptance // when it was
	again     bool       // it was handed out before
	done      bool       // what was to be done for it is
}

func (b *Bus) receiver(l lane, partition int) *receiver {
	return &receiver{b: b, lane: l, consumer: l.consumer(partition), partition: partition,
		ready: make(chan struct{}, 1), todo: make(chan struct{}, 1),
		line: b.nc.Stats().Reconnects, early: make(map[uint64]*waiting), held: make(map[string]*waiting)}
}

// begin finds out where the partition stands. A receiver before, which is about to end, is waited
// for a little, so that what it holds is known.
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
			r.handed = r.order.handed
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
	c, err := r.b.lookFor(ctx, r.b.names.inbox, r.consumer)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// renew asks anew. The subscription stays the same: what came for the requests before is taken
// first, in its order. What the broker says about those requests counts no more.
func (r *receiver) renew() error {
	if r.sub == nil || !r.sub.IsValid() {
		sub, err := r.b.nc.Subscribe(r.b.nc.NewInbox()+".*", r.hear)
		if err != nil {
			return err
		}
		_ = sub.SetPendingLimits(-1, -1) // what was asked for is bounded
		r.sub = sub
	}
	r.round++
	r.asked, r.heard = 0, time.Now()
	r.more()
	return nil
}

// inbox is where the broker answers the requests of a round.
func (r *receiver) inbox() string {
	return strings.TrimSuffix(r.sub.Subject, "*") + strconv.Itoa(r.round)
}

// more asks for messages if there is room.
func (r *receiver) more() {
	room := prefetch - len(r.queue) - len(r.tasks) - r.asked
	if r.sub == nil || r.over || room < prefetch/2 || r.bytes > prefetchBytes {
		return
	}
	if err := r.b.ask(r.b.names.inbox, r.consumer, r.inbox(),
		request{Batch: room, MaxBytes: max(prefetchBytes, 2*int(r.b.nc.MaxPayload())), Expires: pullFor}); err == nil {
		r.asked += room
	}
}

// hear takes what the broker says.
func (r *receiver) hear(m *nats.Msg) {
	a := read(m)
	line := r.b.nc.Stats().Reconnects
	r.mu.Lock()
	defer r.mu.Unlock()
	if line != r.line { // it may be for a request from before the connection broke
		r.looking = true
	}
	if a.kind == aMessage {
		r.arrive(m)
		return
	}
	if r.over || m.Subject != r.inbox() {
		return
	}
	r.heard = time.Now()
	switch a.kind {
	case aDone:
		r.asked = max(0, r.asked-a.left)
		r.more()
	case aLost, aNobody, aBad:
		r.asked, r.heard = 0, time.Time{} // tend looks what is the matter
	case aGone:
		r.fail(a.err)
	}
}

// arrive takes a message.
func (r *receiver) arrive(m *nats.Msg) {
	d, o, notBefore, err := r.b.delivery(m)
	if err != nil {
		r.b.log.Error("NATS: a message without a place in a stream", "subject", m.Subject, "error", err)
		return
	}
	d.Partition = r.partition
	now := time.Now()
	r.heard = now
	r.asked = max(0, r.asked-1) // also for a request of a round before: then more is asked for than there is room, once
	if r.over {
		d.Hold.Nak(0)
		return
	}
	w := &waiting{d: d, since: now, handed: o.handed, notBefore: notBefore, due: o.due, accepted: o.accepted,
		again: o.deliveries > 1}
	if !w.due {
		w.accepted = acceptanceOf(d)
	}
	r.notice(w)
	rest := notBefore.Sub(now)
	came := func() { r.pushAll(r.order.came(lastWord(d.Subject), d.Sequence)) }
	switch {
	case !notBefore.IsZero() && rest > 0:
		if r.b.config.InboxWait/2 < rest && (w.due || !r.b.goesThroughInbox(d.Subject)) {
			d.Hold.Nak(rest) // clocks differ, or it came before the wait was made shorter: the broker keeps it
		} else {
			r.delayed(w, rest)
		}
		came()
	case w.due && !notBefore.IsZero() && r.lastCounts(w): // it is late: a newer one may have come meanwhile
		r.later(task{w, compareStored})
		came()
	case r.looking:
		r.aside = append(r.aside, w)
	default:
		r.pushAll(r.order.arrive(w))
	}
	r.more()
}

// notice looks whether something was handed to somebody else before a message: to a receiver that
// gives the partition up, or to one that is frozen or cut off, whose requests the broker still
// serves. That is older, so it has to be known first.
func (r *receiver) notice(w *waiting) {
	if w.handed > r.handed+1 && !r.looking {
		r.looking, r.shared = true, true
	}
	r.handed = max(r.handed, w.handed)
}

// due queues a message whose time has come.
func (r *receiver) due(w *waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.early[w.d.Sequence] != w {
		return // it was given back
	}
	if rest := time.Until(w.notBefore); rest > 0 { // the clock was put back a little
		w.timer = time.AfterFunc(rest, func() { r.due(w) })
		return
	}
	now := time.Now()
	due := []*waiting{w}
	if verb, _ := events.Origin(r.b.verbOf(w.d.Subject)); eachCounts(verb) {
		// All of the instance that are due by now, in the order of their times: of two clocks a
		// microsecond apart, the second may be the first.
		who := lastWord(w.d.Subject)
		for _, x := range r.early {
			if x != w && !x.notBefore.After(now) && lastWord(x.d.Subject) == who {
				due = append(due, x)
			}
		}
		slices.SortFunc(due, func(a, b *waiting) int {
			return cmp.Or(a.notBefore.Compare(b.notBefore), cmp.Compare(a.d.Sequence, b.d.Sequence))
		})
	}
	for _, x := range due {
		x.timer.Stop()
		r.release(x)
		if now.Sub(x.since) > r.b.config.InboxWait/8 {
			x.d.Hold.InProgress() // who takes it has the whole time for it
			x.since = now
		}
		if x.due && r.lastCounts(x) {
			r.later(task{x, compareStored})
		} else {
			r.push(x)
		}
	}
}

func (r *receiver) pushAll(all []*waiting) {
	for _, w := range all {
		r.push(w)
	}
}

func (r *receiver) push(w *waiting) {
	r.queue = append(r.queue, w)
	r.bytes += len(w.d.Body)
	r.wake()
}

func (r *receiver) wake() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

func (r *receiver) fail(err error) {
	if r.failed == nil {
		r.failed = err
	}
	r.wake()
}

// run hands messages out until the context ends, or something fails.
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
		case <-r.ready:
		case <-ctx.Done():
		case <-r.b.ctx.Done():
			return nats.ErrConnectionClosed
		}
	}
	return nil
}

// pop takes the first message out of the queue.
func (r *receiver) pop() (d broker.Delivery, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return d, false, r.failed
	}
	if len(r.queue) == 0 {
		return d, false, nil
	}
	d = r.queue[0].d
	r.queue[0] = nil
	r.queue = r.queue[1:]
	r.bytes -= len(d.Body)
	r.more()
	return d, true, nil
}

// tend looks after what waits, until the context ends.
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
			if r.partition == 0 && r.lane == people { // so that of all who receive, one does it
				r.b.dropAnchors(time.Now())
			}
		}
	}
}

// again asks again after the connection was made again, or the broker was silent for long. What it
// has sent meanwhile may be lost, and comes again only after a while: so that it comes before what
// is newer, it has to be known first.
func (r *receiver) again(ctx context.Context) {
	line := r.b.nc.Stats().Reconnects
	r.mu.Lock()
	r.looking, r.shared = true, r.looking && r.shared && line == r.line
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
		r.fail(err)
		return
	}
	if err != nil {
		if ctx.Err() != nil || !r.b.nc.IsConnected() {
			return // looking goes on with the next connection
		}
		r.b.log.Warn("NATS: a partition does not answer; asking on", "partition", r.partition, "error", err)
		if r.looked++; r.looked < maxLooks {
			return // tend tries again
		}
	}
	shared := r.shared
	r.line, r.looking, r.shared, r.looked = line, false, false, 0
	r.reorder(left)
	if shared {
		return // what was asked for is still to come
	}
	if err := r.renew(); err != nil {
		r.fail(err)
	}
}

// reorder begins to wait for what was lost, which is what is left less what is here.
func (r *receiver) reorder(left order) {
	if len(r.order.left) > 0 {
		left.began = r.order.began
	}
	known := r.covered(left.handed)
	waited := append(r.order.release(), r.aside[:known]...)
	r.order, r.aside = left, slices.Clone(r.aside[known:])
	if len(r.aside) > 0 {
		r.looking, r.shared = true, true
	}
	r.handed = max(r.handed, left.handed)
	for _, w := range r.queue {
		r.order.came(lastWord(w.d.Subject), w.d.Sequence)
	}
	for _, w := range r.early {
		r.order.came(lastWord(w.d.Subject), w.d.Sequence)
	}
	for _, t := range r.tasks {
		r.order.came(lastWord(t.w.d.Subject), t.w.d.Sequence)
	}
	slices.SortStableFunc(waited, func(a, b *waiting) int { return cmp.Compare(a.d.Sequence, b.d.Sequence) })
	for _, w := range waited {
		r.pushAll(r.order.arrive(w))
	}
}

// covered tells how many of the messages that were put aside came before anything that was handed
// to somebody else after the look, in which so many had been handed out. If nothing is known of
// that, all are.
func (r *receiver) covered(handed uint64) int {
	if handed == 0 {
		return len(r.aside)
	}
	slices.SortStableFunc(r.aside, func(a, b *waiting) int { return cmp.Compare(a.handed, b.handed) })
	for i, w := range r.aside {
		if w.handed > handed+1 {
			return i
		}
		handed = max(handed, w.handed)
	}
	return len(r.aside)
}

// extend keeps the broker from handing out again what only waits to be taken.
func (r *receiver) extend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	keep := func(w *waiting) {
		if now.Sub(w.since) >= r.b.config.InboxWait/4 {
			w.d.Hold.InProgress()
			w.since = now
		}
	}
	for _, w := range r.queue {
		keep(w)
	}
	for _, w := range r.aside {
		keep(w)
	}
	for _, t := range r.tasks {
		keep(t.w)
	}
	for _, w := range r.held {
		keep(w)
	}
	for _, behind := range r.order.behind {
		for _, w := range behind {
			keep(w)
		}
	}
}

// checkAlive asks anew when the broker has said nothing for long, and fails when there is nobody to
// ask.
func (r *receiver) checkAlive(ctx context.Context) {
	r.mu.Lock()
	silent := r.looking || r.asked == 0 && r.heard.IsZero() || r.asked > 0 && time.Since(r.heard) > silence
	r.mu.Unlock()
	if silent && r.b.nc.IsConnected() {
		r.again(ctx)
	}
}

// end gives back what was not handed out.
func (r *receiver) end() {
	r.mu.Lock()
	r.over = true
	sub := r.sub
	for _, w := range r.queue { // in its order
		w.d.Hold.Nak(0)
	}
	for _, w := range append(r.order.release(), r.aside...) {
		w.d.Hold.Nak(0)
	}
	for _, w := range r.early {
		w.timer.Stop()
		w.d.Hold.Nak(0)
	}
	for _, t := range r.tasks {
		if !t.w.done {
			t.w.d.Hold.Nak(0)
		}
	}
	r.queue, r.aside, r.early, r.held, r.tasks = nil, nil, nil, nil, nil
	r.mu.Unlock()
	if sub == nil {
		return
	}
	drained := make(chan struct{})
	over := sync.OnceFunc(func() { close(drained) }) // it may be told twice
	sub.SetClosedHandler(func(string) { over() })
	if err := sub.Drain(); err != nil || !r.b.nc.IsConnected() {
		return
	}
	select { // what is on its way goes back, too
	case <-drained:
	case <-time.After(otherWait):
	}
}

func (b *Bus) backlog(ctx context.Context, stream, consumer string) (broker.Backlog, error) {
	c, err := b.js.Consumer(ctx, stream, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return broker.Backlog{}, nil
	}
	if err != nil {
		return broker.Backlog{}, problem("look at consumer "+consumer, err)
	}
	i := c.CachedInfo()
	return broker.Backlog{Waiting: int64(i.NumPending), Held: int64(i.NumAckPending), Receivers: i.NumWaiting}, nil
}
