package orchestrator

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// receive takes a delivery from the broker to the loop. It blocks while the loop has too much, and
// so does the broker then.
func (o *Orchestrator) receive(ctx context.Context, d broker.Delivery, handed bool) {
	m, err := events.Decode(o.broker.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	if err != nil {
		o.deadLetter(d, broker.Cause{Reason: reasonMalformed, Detail: err.Error(), By: o.config.ID})
		return
	}
	if o.startEach(d, m) {
		return
	}
	now := time.Now()
	i := &item{message: m, delivery: d, attempts: 1, handed: handed, arrived: now, extended: now}
	if d.NumDelivered > o.config.SuspectAfter {
		// what was given back on purpose has killed nobody
		i.suspect = d.NumDelivered-o.returned.times(d) > o.config.SuspectAfter
		i.blocked = i.suspect
	}
	if i.suspect && o.suspects.crowded() { // those that wait must not take the room of all others
		after := max(o.broker.InboxWait(), o.returned.spread())
		o.returned.note(d, after)
		d.Hold.Nak(after)
		return
	}
	if d.NumDelivered > 1 {
		o.config.Metrics.Redelivered(m.Content.Verb(), i.suspect)
	}
	if m.Content.Verb() == events.VerbStart && !handed {
		// it has to wait for its turn, and everything behind it waits with it
		select {
		case o.loop.starts <- struct{}{}:
			i.starts = o.loop.starts
		case <-ctx.Done():
			d.Hold.Nak(0)
			return
		}
	}
	select {
	case o.loop.in <- i:
	case <-ctx.Done():
		i.free()
		d.Hold.Nak(0)
		return
	}
	if i.suspect {
		o.suspects.add(i)
	}
}

// wakeUp is a message that this process sends to an instance itself.
func wakeUp(instance, why string) *item {
	return &item{message: events.Message{Instance: instance, Content: &events.Wake{Reason: why}}}
}

// wakeElsewhere has whoever owns an instance's partition look at it. If that gets lost, a sweep
// will.
func (o *Orchestrator) wakeElsewhere(instance string) {
	w, err := events.Encode(o.broker.Prefix(), wakeUp(instance, "moved").message)
	if err != nil {
		o.log.Error("an instance cannot be woken", "instance", instance, "error", err)
		return
	}
	o.aside(func(ctx context.Context) {
		if err := o.broker.Publish(ctx, w); err != nil {
			o.log.Debug("an instance could not be woken where it goes on; a sweep will", "instance",
				instance, "error", err)
		}
	})
}

// suspects have messages that were handed out suspiciously often decided one at a time, and count
// how often that was begun. So a message that kills the process is told from those that only were
// there.
type suspects struct {
	o *Orchestrator

	mu      sync.Mutex
	queue   []*item
	current *item
	more    chan struct{}
	free    chan struct{}
}

func newSuspects(o *Orchestrator) *suspects {
	return &suspects{o: o, more: make(chan struct{}, 1), free: make(chan struct{}, 1)}
}

func attemptsKey(d broker.Delivery) string { return "attempts/" + d.ID() }

func (s *suspects) add(i *item) {
	s.mu.Lock()
	s.queue = append(s.queue, i)
	s.mu.Unlock()
	poke(s.more)
}

// maxSuspects bounds the suspects that wait in memory for their turn.
const maxSuspects = 500

// crowded reports whether enough of them wait.
func (s *suspects) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) >= maxSuspects
}

// run lets one suspect after the other be decided.
func (s *suspects) run(ctx context.Context) {
	for {
		s.mu.Lock()
		var i *item
		if len(s.queue) > 0 {
			i, s.queue = s.queue[0], s.queue[1:]
		}
		s.current = i
		s.mu.Unlock()
		if i == nil {
			select {
			case <-s.more:
				continue
			case <-ctx.Done():
				return
			}
		}
		n := s.begin(ctx, i)
		s.o.loop.tell(ctx, func(l *loop) {
			i.attempts, i.blocked = n, false
			if e := l.entries[i.message.Instance]; e != nil {
				l.advance(e)
			}
			if l.held[i.delivery.Sequence] != i { // it went back meanwhile
				s.settled(i)
			}
		})
		select {
		case <-s.free:
		case <-time.After(s.o.config.StuckAfter): // it waits for something else, or does not come back
			s.letGo(i)
			<-s.free
		case <-ctx.Done():
			return
		}
	}
}

// begin notes that an attempt begins, and gives its number.
func (s *suspects) begin(ctx context.Context, i *item) int {
	n := 1 + s.attempts(ctx, i)
	if err := s.o.broker.SetNote(ctx, attemptsKey(i.delivery), []byte(strconv.Itoa(n))); err != nil {
		s.o.log.Warn("an attempt could not be counted", "instance", i.message.Instance, "subject",
			i.delivery.Subject, "error", err)
	}
	return n
}

func (s *suspects) attempts(ctx context.Context, i *item) int {
	note, err := s.o.broker.Note(ctx, attemptsKey(i.delivery))
	if err != nil {
		s.o.log.Warn("the attempts of a message could not be read", "instance", i.message.Instance, "subject",
			i.delivery.Subject, "error", err)
	}
	n, _ := strconv.Atoi(string(note)) // what cannot be read counts as none
	return n
}

// settled lets the next one be decided: the process has survived this one.
func (s *suspects) settled(i *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != i {
		return
	}
	s.current = nil
	poke(s.free)
	if i.counted {
		return
	}
	s.o.aside(func(ctx context.Context) {
		if err := s.o.broker.DropNote(ctx, attemptsKey(i.delivery)); err != nil {
			s.o.log.Debug("a note was not removed", "instance", i.message.Instance, "error", err)
		}
	})
}

// letGo lets the next one be decided although this one does not come back. That it was tried stays
// counted.
func (s *suspects) letGo(i *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == i {
		s.current = nil
		poke(s.free)
	}
}

// count counts an attempt that has failed without killing the process.
func (s *suspects) count(i *item, why string) {
	if i.inside() || i.counted {
		return
	}
	i.counted = true
	s.o.aside(func(ctx context.Context) {
		n := s.attempts(ctx, i)
		if !i.suspect {
			n++ // begin has not counted it
		}
		if err := s.o.broker.SetNote(ctx, attemptsKey(i.delivery), []byte(strconv.Itoa(n))); err != nil {
			s.o.log.Warn("a failed attempt could not be counted", "instance", i.message.Instance, "subject",
				i.delivery.Subject, "reason", s.o.text(why), "error", err)
		}
	})
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// asideFor bounds what is done aside.
const asideFor = 10 * time.Second

// aside does something beside the loop. What is not done when the process ends comes again.
func (o *Orchestrator) aside(f func(ctx context.Context)) {
	o.asides.Go(func() {
		ctx, cancel := context.WithTimeout(o.lifetime, asideFor)
		defer cancel()
		f(ctx)
	})
}
