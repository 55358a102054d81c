package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/backoff"
)

// sessions are the sessions of this worker, and the owners of others as far as known. The broker's
// bucket is authoritative. If two workers take a session for theirs for a moment, that does no
// harm: a session is about where a task is executed, not about how often.
type sessions struct {
	me          string // the id of the worker
	max         int
	idle, lease time.Duration
	bus         broker.Leases
	draining    *atomic.Bool // the worker gets no more sessions
	side        *side
	log         *slog.Logger

	mu       sync.Mutex
	own      map[string]*session
	claiming int
	leaving  map[string]bool
	others   map[string]string // the owners, when last looked up
}

type session struct {
	running int
	since   time.Time // when its last task began or ended
	renewed time.Time
}

// maxOthers is the maximum number of remembered owners.
const maxOthers = 10_000

var errSessionsFull = errors.New("the worker has as many sessions as it may have")

func newSessions(c Config, b broker.Leases, draining *atomic.Bool, side *side) *sessions {
	return &sessions{me: c.ID, max: c.MaxSessions, idle: c.SessionIdle, lease: c.SessionLease, bus: b,
		draining: draining, side: side, log: c.Logger, own: make(map[string]*session),
		leaving: make(map[string]bool), others: make(map[string]string)}
}

// sessionDelay grows with the number of deliveries.
func sessionDelay(deliveries int) time.Duration {
	return backoff.Backoff{First: 50 * time.Millisecond, Most: 5 * time.Second}.After(deliveries - 1)
}

// enter begins a task in a session, if this worker has the session or gets it, and returns the
// session's owner.
func (s *sessions) enter(ctx context.Context, id string) (owner string, err error) {
	if s.enterOwn(id) {
		return s.me, nil
	}
	s.mu.Lock()
	other, known := s.others[id]
	full := len(s.own)+s.claiming >= s.max || s.draining.Load()
	busy := s.leaving[id]
	if !known && !full && !busy {
		s.claiming++
	}
	s.mu.Unlock()
	switch {
	case known:
		return other, nil
	case busy:
		return "", errors.New("the session is being given up")
	case full:
		return s.ownerOf(ctx, id)
	}
	owner, err = s.bus.Acquire(ctx, id, s.me)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claiming--
	switch {
	case err != nil:
		return "", err
	case owner != s.me:
		s.remember(id, owner)
		return owner, nil
	}
	now := time.Now()
	if s.own[id] == nil {
		s.own[id] = &session{renewed: now}
	}
	s.own[id].running++
	s.own[id].since = now
	return s.me, nil
}

// enterOwn is enter for a session that the worker has already.
func (s *sessions) enterOwn(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.own[id]
	if own == nil {
		return false
	}
	own.running++
	own.since = time.Now()
	return true
}

// ownerOf looks up the owner of a session, without acquiring it.
func (s *sessions) ownerOf(ctx context.Context, id string) (string, error) {
	owner, err := s.bus.Owner(ctx, id)
	if err == nil && (owner == "" || owner == s.me) {
		err = errSessionsFull
	}
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.remember(id, owner)
	s.mu.Unlock()
	return owner, nil
}

func (s *sessions) remember(id, owner string) {
	if len(s.others) >= maxOthers {
		clear(s.others)
	}
	s.others[id] = owner
}

func (s *sessions) forget(id string) {
	s.mu.Lock()
	delete(s.others, id)
	s.mu.Unlock()
}

// leave ends a task in a session.
func (s *sessions) leave(id string) {
	s.mu.Lock()
	own := s.own[id]
	if own != nil {
		own.running--
		own.since = time.Now()
	}
	empty := own != nil && own.running <= 0
	s.mu.Unlock()
	if empty && s.draining.Load() {
		s.side.run(func(ctx context.Context) { s.release(ctx, id, 0) })
	}
}

// count counts the sessions of this worker.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.own)
}

// names lists the sessions of this worker.
func (s *sessions) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.own))
	for id := range s.own {
		names = append(names, id)
	}
	slices.Sort(names)
	return names
}

// keep renews the sessions until the context ends, and releases those without tasks for long.
func (s *sessions) keep(ctx context.Context) {
	every := min(s.lease/3, max(s.idle/2, 10*time.Millisecond))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, id := range s.names() {
			if !s.release(ctx, id, s.idle) {
				s.renew(ctx, id)
			}
		}
	}
}

// renew renews a session, or notices that it is lost.
func (s *sessions) renew(ctx context.Context, id string) {
	s.mu.Lock()
	own := s.own[id]
	s.mu.Unlock()
	if own == nil || time.Since(own.renewed) < s.lease/4 {
		return
	}
	owner, err := s.bus.Acquire(ctx, id, s.me)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && owner == s.me:
		own.renewed = time.Now()
	case err == nil, time.Since(own.renewed) > s.lease:
		s.log.Warn("worker: session lost; its next tasks go to the worker that owns it", "session", id, "owner",
			owner, "error", err)
		delete(s.own, id)
	}
}

// release releases a session without tasks for so long, and reports whether it did.
func (s *sessions) release(ctx context.Context, id string, idle time.Duration) bool {
	s.mu.Lock()
	own := s.own[id]
	if own == nil || own.running > 0 || time.Since(own.since) < idle {
		s.mu.Unlock()
		return false
	}
	delete(s.own, id)
	s.leaving[id] = true
	s.mu.Unlock()
	if err := s.bus.Release(ctx, id, s.me); err != nil {
		s.log.Debug("worker: a session could not be released; it ends by itself", "session", id, "error", err)
	}
	s.mu.Lock()
	delete(s.leaving, id)
	s.mu.Unlock()
	return true
}

// leaveIdle releases the sessions without running tasks.
func (s *sessions) leaveIdle(ctx context.Context) {
	for _, id := range s.names() {
		s.release(ctx, id, 0)
	}
}

// leaveAll releases all sessions, also those with functions that do not return.
func (s *sessions) leaveAll(ctx context.Context) {
	s.mu.Lock()
	for _, own := range s.own {
		own.running = 0
	}
	s.mu.Unlock()
	s.leaveIdle(ctx)
}

var _ broker.Leases = Broker(nil)
