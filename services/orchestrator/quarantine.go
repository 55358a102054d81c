package orchestrator

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/services/orchestrator/report"
)

// quarantine has quarantined messages decided one at a time, and counts how often an attempt began.
// So a message that kills the process is told from messages that were only in memory then.
type quarantine struct {
	kv         broker.KV
	stuckAfter time.Duration // a message that is not settled by then does not hold up the next one
	texts      texts
	background *background
	log        *slog.Logger

	mu      sync.Mutex
	queue   []*item
	current *item         // whose attempt has begun
	known   map[*item]int // all that are not settled, with the attempt that has begun; 0: none has
	more    signal.Signal
	free    signal.Signal
}

func newQuarantine(kv broker.KV, stuckAfter time.Duration, texts texts, b *background,
	log *slog.Logger) *quarantine {
	return &quarantine{kv: kv, stuckAfter: stuckAfter, texts: texts, background: b, log: log,
		known: make(map[*item]int), more: signal.New(), free: signal.New()}
}

func attemptsKey(d broker.Delivery) string { return broker.KeyAttempts + d.ID() }

func (s *quarantine) add(i *item) {
	s.mu.Lock()
	s.queue = append(s.queue, i)
	s.known[i] = 0
	s.mu.Unlock()
	s.more.Set()
}

// list lists the instances of the messages that are not settled: those with an attempt in progress
// first, and then those with the oldest message.
func (s *quarantine) list() []report.Quarantined {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*report.Quarantined)
	for i, attempt := range s.known {
		x := all[i.message.Instance]
		if x == nil {
			x = &report.Quarantined{Instance: i.message.Instance, Since: i.arrived.UTC()}
			all[x.Instance] = x
		}
		x.Messages++
		x.Start = x.Start || isStart(i)
		x.Attempt = max(x.Attempt, attempt)
		if at := i.arrived.UTC(); at.Before(x.Since) {
			x.Since = at
		}
	}
	out := make([]report.Quarantined, 0, len(all))
	for _, x := range all {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b report.Quarantined) int {
		return cmp.Or(cmp.Compare(min(b.Attempt, 1), min(a.Attempt, 1)), a.Since.Compare(b.Since),
			cmp.Compare(a.Instance, b.Instance))
	})
	return out
}

// maxQuarantined bounds the quarantined messages that wait in memory for their turn.
const maxQuarantined = 500

// crowded reports whether that many wait.
func (s *quarantine) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) >= maxQuarantined
}

// run lets one message after the other be decided, by calling unblock with the number of its
// attempt. Those of an instance are decided in its order, which may not be that of their arrival:
// firstBlocked returns the message of the same instance that is to be decided first.
func (s *quarantine) run(ctx context.Context, firstBlocked func(ctx context.Context, i *item) *item,
	unblock func(ctx context.Context, i *item, attempt int)) {
	for ctx.Err() == nil {
		s.mu.Lock()
		var i *item
		if len(s.queue) > 0 {
			i, s.queue = s.queue[0], s.queue[1:]
		}
		s.mu.Unlock()
		if i == nil {
			select {
			case <-s.more:
			case <-ctx.Done():
			}
			continue
		}
		n := 1 + s.attempts(ctx, i)
		if first := firstBlocked(ctx, i); first != i && s.replace(i, first) {
			i, n = first, 1+s.attempts(ctx, first)
		}
		if !s.begin(ctx, i, n) {
			continue
		}
		unblock(ctx, i, n)
		select {
		case <-s.free:
		case <-time.After(s.stuckAfter): // it waits for something else, or does not return
			s.letGo(i)
			<-s.free
		case <-ctx.Done():
			return
		}
	}
}

// replace takes a message out of the queue and puts another one, which was its first, back. It
// reports false if the message is not in the queue.
func (s *quarantine) replace(i, first *item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.queue, first)
	if at < 0 {
		return false
	}
	s.queue = slices.Insert(slices.Delete(s.queue, at, at+1), 0, i)
	return true
}

// putFirst has the first message of an instance decided next if the attempt of a later one has
// begun, which waits for it: the later one was aside, and the first arrived meanwhile.
func (s *quarantine) putFirst(waiting []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || !slices.Contains(waiting[1:], s.current) {
		return
	}
	if at := slices.Index(s.queue, waiting[0]); at >= 0 {
		s.queue = slices.Insert(slices.Delete(s.queue, at, at+1), 0, waiting[0])
	}
	s.current = nil
	s.free.Set()
}

// begin counts an attempt before it starts. It reports false if the message is settled already.
func (s *quarantine) begin(ctx context.Context, i *item, n int) bool {
	s.mu.Lock()
	began := !i.settled
	if began {
		s.current, s.known[i] = i, n
	}
	s.mu.Unlock()
	if !began {
		return false
	}
	if err := s.store(ctx, i, n); err != nil {
		s.log.Warn("an attempt could not be counted", "instance", i.message.Instance, "subject",
			i.delivery.Subject, "error", err)
	}
	return true
}

// store stores the number of attempts of a message.
func (s *quarantine) store(ctx context.Context, i *item, n int) error {
	return s.kv.Put(ctx, attemptsKey(i.delivery), []byte(strconv.Itoa(n)), broker.KeyTTL)
}

func (s *quarantine) attempts(ctx context.Context, i *item) int {
	value, err := s.kv.Get(ctx, attemptsKey(i.delivery))
	if err != nil {
		s.log.Warn("the attempts of a message could not be read", "instance", i.message.Instance, "subject",
			i.delivery.Subject, "error", err)
	}
	n, _ := strconv.Atoi(string(value)) // an unreadable value counts as no attempts
	return n
}

// settled lets the next message be decided: the process has survived this one. Of a message that
// another orchestrator is to try, only this attempt no longer counts: the earlier ones may have
// killed the other one.
func (s *quarantine) settled(i *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.known[i] - 1
	i.settled = true
	delete(s.known, i)
	current := s.current == i
	if current {
		s.current = nil
		s.free.Set()
	}
	if !current || i.counted {
		i.countIsBack()
		return
	}
	s.background.do(func(ctx context.Context) {
		defer i.countIsBack()
		var err error
		if i.passed != nil && before > 0 {
			err = s.store(ctx, i, before)
		} else {
			err = s.kv.Delete(ctx, attemptsKey(i.delivery))
		}
		if err != nil {
			s.log.Debug("a count of attempts was not removed", "instance", i.message.Instance, "error", err)
		}
	})
}

// letGo lets the next message be decided although this one does not return. Its attempt stays
// counted.
func (s *quarantine) letGo(i *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == i {
		s.current = nil
		s.free.Set()
	}
}

// count counts an attempt that has failed without killing the process.
func (s *quarantine) count(i *item, why string) {
	if i.inside() || i.counted {
		return
	}
	i.counted = true
	s.background.do(func(ctx context.Context) {
		n := s.attempts(ctx, i)
		if !i.quarantined {
			n++ // begin has not counted it
		}
		if err := s.store(ctx, i, n); err != nil {
			s.log.Warn("a failed attempt could not be counted", "instance", i.message.Instance, "subject",
				i.delivery.Subject, "reason", s.texts.text(why), "error", err)
		}
	})
}
