package natsbroker

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
)

// Watermarks. Before a timer fires that is due at a moment, all messages must have been taken that
// were stored for the instance before that moment. A lane delivers its messages in the order in
// which they were stored, so each delivery raises the watermark of the lane. When nothing arrives,
// the receiver asks the stream for the next message of the lane:
//
//	there is none             everything that was stored until the question has arrived
//	it was stored later       everything that was stored before it has arrived
//	it was stored before      the lane is behind, perhaps by minutes: the receiver asks for the next
//	                          message of the instance alone, and waits for that one, if there is one
//
// The stream's leader answers, so that no message is missing that a publisher knows to be stored.

const (
	// lookEvery is the least time between two questions about one lane. Timers that are due
	// meanwhile share the second one.
	lookEvery = 5 * time.Millisecond
	// lookAtOnce is the maximum number of instances that a receiver asks about together.
	lookAtOnce = 16
	// wrongAfter is how much the clock of the broker may be ahead.
	wrongAfter = 10 * time.Second
	// lookAgain is the pause after an error.
	lookAgain = 100 * time.Millisecond
)

// mark waits until all messages of an instance that were stored before a moment have been taken.
type mark struct {
	who  string // the last word of their subjects
	at   time.Time
	told func(ctx context.Context, ok bool)

	delayed bool // a delayed message waits for it, not a timer

	clear  bool   // none of them is still to arrive
	after  uint64 // one of them is still to arrive, the next one at this place; 0: unknown
	behind uint64 // the number of the last of them in the queue; 0: none was there
}

// marks are the marks of a receiver. Its lock guards them, except the signals.
type marks struct {
	of *receiver

	reached time.Time // all messages of the lane have arrived that were stored before
	place   uint64    // and those up to this place
	open    []*mark
	first   time.Time // the earliest moment of an open mark
	passed  []*mark   // wait only for messages in the queue
	changed bool      // an open mark may have passed
	asks    signal.Signal
	tells   signal.Signal // a mark may be told
}

func newMarks(of *receiver) marks { return marks{of: of, asks: signal.New(), tells: signal.New()} }

// arrived notes a message that was never delivered before. mu is held.
func (m *marks) arrived(place uint64, stored time.Time) {
	m.place = max(m.place, place)
	m.raise(stored)
	if len(m.open) > 0 && !m.first.After(m.reached) {
		m.changed = true
		m.tells.Set()
	}
	for _, x := range m.open {
		if x.after == place {
			m.asks.Set()
		}
	}
}

// raise notes that all messages have arrived that were stored before a moment. A moment far in the
// future is from a clock of the broker that is or was wrong: other messages are stored before it
// once the clock is right. mu is held.
func (m *marks) raise(until time.Time) {
	if until.After(m.reached) && time.Until(until) < wrongAfter {
		m.reached = until
	}
}

// reviewSoon looks at all open marks again: what they wait for may have been removed.
func (m *marks) reviewSoon() {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.review()
}

// review is reviewSoon while mu is held.
func (m *marks) review() {
	if len(m.open) == 0 {
		return
	}
	for _, x := range m.open {
		x.after = 0
	}
	m.changed = true
	m.asks.Set()
	m.tells.Set()
}

// add has a mark told when all its messages have been taken. mu is held.
func (m *marks) add(x *mark) {
	if len(m.open) == 0 || x.at.Before(m.first) {
		m.first = x.at
	}
	m.open = append(m.open, x)
	m.changed = true
	m.tells.Set()
	if x.at.After(m.reached) {
		m.asks.Set()
	}
}

// pass finds the marks that wait only for messages in the queue by now. mu is held.
func (m *marks) pass() {
	if !m.changed || m.of.state.resyncs() {
		return
	}
	m.changed, m.first = false, time.Time{}
	m.open = slices.DeleteFunc(m.open, func(x *mark) bool {
		if m.hasArrived(x) {
			x.behind = m.of.queue.last(x.who, x.at)
			m.passed = append(m.passed, x)
			return true
		}
		if m.first.IsZero() || x.at.Before(m.first) {
			m.first = x.at
		}
		return false
	})
}

// hasArrived reports whether all messages that a mark waits for are in the queue, or were taken out
// of it. mu is held.
func (m *marks) hasArrived(x *mark) bool {
	switch {
	case !x.clear && x.at.After(m.reached):
		return false
	case len(m.of.order.left[x.who]) > 0: // they are redelivered
		return false
	case m.of.lane == ahead:
		return true
	}
	early := m.of.delays.of[x.who]
	return len(early) == 0 || !early[0].notBefore.Before(x.at)
}

// takePassed returns the marks whose messages have all been taken. mu is held.
func (m *marks) takePassed() (passed []*mark) {
	m.pass()
	m.passed = slices.DeleteFunc(m.passed, func(x *mark) bool {
		if x.behind > m.of.queue.taken {
			return false
		}
		passed = append(passed, x)
		return true
	})
	return passed
}

// tell tells marks until the context ends.
func (m *marks) tell(ctx context.Context) {
	for {
		select {
		case <-m.tells:
		case <-ctx.Done():
			return
		}
		m.of.mu.Lock()
		passed := m.takePassed()
		m.of.mu.Unlock()
		for _, x := range passed {
			x.told(ctx, true)
		}
	}
}

// end gives up all marks.
func (m *marks) end(ctx context.Context) {
	m.of.mu.Lock()
	all := append(m.passed, m.open...)
	m.passed, m.open = nil, nil
	m.of.mu.Unlock()
	for _, x := range all {
		x.told(ctx, false)
	}
}

// lookAhead asks the stream for what the open marks wait for, until the context ends.
func (m *marks) lookAhead(ctx context.Context) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for {
		select {
		case <-m.asks:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			more, err := m.lookOnce(ctx)
			if err != nil {
				m.of.log.Debug("NATS: a partition does not tell which messages are still to come; asking again",
					"partition", m.of.partition, "error", err)
				pause(lookAgain)
				continue
			}
			pause(lookEvery)
			if !more {
				break
			}
		}
	}
}

// lookOnce asks once for the lane, and for each instance that the answer leaves open. It reports
// whether marks are left that it must ask for again.
func (m *marks) lookOnce(ctx context.Context) (more bool, err error) {
	m.of.mu.Lock()
	open, place := m.unknown(), m.place
	m.of.mu.Unlock()
	if len(open) == 0 {
		return false, nil
	}
	began := time.Now().UTC()
	next, err := m.of.reader.next(ctx, m.of.filter(m.of.lane, m.of.partition), place+1)
	if err != nil {
		return true, err
	}
	until := began
	if next != nil {
		until = next.Time
	}
	m.of.mu.Lock()
	m.raise(until)
	m.changed = true
	open = m.unknown()
	m.tells.Set()
	m.of.mu.Unlock()
	if next == nil {
		return len(open) > 0, nil // their moment is still to come
	}
	for some := range slices.Chunk(open, lookAtOnce) {
		if err := m.lookForEach(ctx, some); err != nil {
			return true, err
		}
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	return len(m.unknown()) > 0, nil
}

// unknown returns the open marks about which the stream must be asked. mu is held.
func (m *marks) unknown() (open []*mark) {
	for _, x := range m.open {
		if !x.clear && x.at.After(m.reached) && x.after <= m.place {
			open = append(open, x)
		}
	}
	return open
}

// lookForEach asks for the next message of each instance of some marks.
func (m *marks) lookForEach(ctx context.Context, some []*mark) error {
	m.of.mu.Lock()
	place := m.place
	m.of.mu.Unlock()
	found := make([]*found, len(some))
	errs := make([]error, len(some))
	var all sync.WaitGroup
	for i, x := range some {
		all.Go(func() {
			found[i], errs[i] = m.of.reader.next(ctx, m.of.instanceFilter(m.of.lane, m.of.partition, x.who), place+1)
		})
	}
	all.Wait()
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	for i, x := range some {
		switch f := found[i]; {
		case errs[i] != nil:
			return errs[i]
		case f == nil, !f.Time.Before(x.at):
			x.clear = true
		default:
			x.after = f.Sequence
		}
	}
	m.changed = true
	m.tells.Set()
	m.of.more()
	return nil
}

// awaits reports whether a delayed message that the receiver holds waits for another one that is
// known to be still to arrive. mu is held.
func (m *marks) awaits() bool {
	return slices.ContainsFunc(m.open, func(x *mark) bool { return x.delayed && x.after > m.place })
}

// instanceFilter returns the filter subject of the messages of one instance in a lane.
func (n *names) instanceFilter(l lane, partition int, who string) string {
	words := "*.*."
	if l == ahead {
		words = "*.*.*."
	}
	return n.subject("p", strconv.Itoa(partition), words+who)
}

// ---- The inbox.

// receivers are the lanes from which this process receives, by partition.
type receivers struct {
	mu  sync.Mutex
	all map[int]map[lane]*receiver
}

// add adds a receiver, until remove is called.
func (s *receivers) add(r *receiver) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[r.partition] == nil {
		if s.all == nil {
			s.all = make(map[int]map[lane]*receiver)
		}
		s.all[r.partition] = make(map[lane]*receiver)
	}
	s.all[r.partition][r.lane] = r
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all[r.partition][r.lane] == r {
			delete(s.all[r.partition], r.lane)
		}
	}
}

// deniedOn notes that this user may not publish on a subject: if a receiver asks for messages on
// it, the servers do not answer.
func (s *receivers) deniedOn(subject string) {
	s.each(func(r *receiver) {
		if subject == r.pullSubject(r.names.inbox, r.consumer) {
			r.mayNotAsk = true
		}
	})
}

// mayNotAsk lists the consumers from which this user may not ask for messages.
func (s *receivers) mayNotAsk() (consumers []string) {
	s.each(func(r *receiver) {
		if r.mayNotAsk {
			consumers = append(consumers, r.consumer)
		}
	})
	slices.Sort(consumers)
	return consumers
}

// each calls f for each receiver, with its lock.
func (s *receivers) each(f func(*receiver)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lanes := range s.all {
		for _, r := range lanes {
			r.mu.Lock()
			f(r)
			r.mu.Unlock()
		}
	}
}

// of returns the receivers of a partition, nil if one is missing.
func (s *receivers) of(partition int) []*receiver {
	s.mu.Lock()
	defer s.mu.Unlock()
	var both []*receiver
	for _, l := range lanes {
		r := s.all[partition][l]
		if r == nil {
			return nil
		}
		both = append(both, r)
	}
	return both
}

// AwaitWatermark implements broker.Inbox.
func (in *inbox) AwaitWatermark(partition int, instance string, at time.Time,
	reached func(ctx context.Context, ok bool)) bool {
	both := in.receivers.of(partition)
	if both == nil {
		return false
	}
	told := broker.OfAll(len(both), reached)
	who := token(instance)
	who = who[strings.LastIndexByte(who, '.')+1:]
	for _, r := range both {
		r.mu.Lock()
		if r.state.phase == closed {
			r.mu.Unlock()
			go told(r.ctx, false)
			continue
		}
		r.marks.add(&mark{who: who, at: at, told: told})
		r.mu.Unlock()
	}
	return true
}
