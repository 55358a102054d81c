package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// sessions are those that the worker has, and what it knows about who has others. The broker's
// bucket has the say; a session that two workers take for theirs for a moment harms nobody: it is
// about where work is done, not about how often.
type sessions struct {
	w *Worker

	mu       sync.Mutex
	own      map[string]*session
	claiming int
	leaving  map[string]bool
	others   map[string]string // who had it when it was last looked at
}

type session struct {
	running int
	since   time.Time // when it last had something to do
	renewed time.Time
}

// maxOthers bounds what is remembered about others.
const maxOthers = 10_000

var errSessionsFull = errors.New("the worker has as many sessions as it may have")

func newSessions(w *Worker) *sessions {
	return &sessions{w: w, own: make(map[string]*session), leaving: make(map[string]bool),
		others: make(map[string]string)}
}

// sessionDelay grows with how often work was handed out.
func sessionDelay(deliveries int) time.Duration {
	return min(50*time.Millisecond<<min(max(deliveries-1, 0), 7), 5*time.Second)
}

// inSession brings work to the worker that has its session. It reports false when that is another
// one, or when nobody can have it just now.
func (w *Worker) inSession(a *attempt) bool {
	id := a.work.Session
	a.mu.Lock()
	inside := a.inSession
	a.mu.Unlock()
	if id == "" || inside {
		return true
	}
	owner, err := w.sessions.enter(w.publishing, id)
	switch {
	case err != nil:
		a.log().Debug("worker: work waits for its session", "session", id, "error", err)
		a.giveBack(sessionDelay(a.d.NumDelivered))
		return false
	case owner == w.config.ID:
		a.mu.Lock()
		a.inSession = true
		a.mu.Unlock()
		return true
	}
	if err := w.bus.Handover(w.publishing, owner, a.d); err != nil {
		a.log().Debug("worker: work could not be handed over", "session", id, "to", owner, "error", err)
		w.sessions.forget(id)
		a.giveBack(sessionDelay(a.d.NumDelivered))
		return false
	}
	a.settleAside(dropped)
	return false
}

// enter begins to do something in a session, if this worker has it or gets it, and tells who has
// it.
func (s *sessions) enter(ctx context.Context, id string) (owner string, err error) {
	me := s.w.config.ID
	if s.enterOwn(id) {
		return me, nil
	}
	s.mu.Lock()
	other, known := s.others[id]
	full := len(s.own)+s.claiming >= s.w.config.MaxSessions || s.w.draining.Load()
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
	owner, err = s.w.bus.Claim(ctx, id, me)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claiming--
	switch {
	case err != nil:
		return "", err
	case owner != me:
		s.remember(id, owner)
		return owner, nil
	}
	now := time.Now()
	if s.own[id] == nil {
		s.own[id] = &session{renewed: now}
	}
	s.own[id].running++
	s.own[id].since = now
	return me, nil
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

// ownerOf looks who has a session, without claiming it.
func (s *sessions) ownerOf(ctx context.Context, id string) (string, error) {
	owner, err := s.w.bus.Owner(ctx, id)
	if err == nil && (owner == "" || owner == s.w.config.ID) {
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

// leave ends something that was done in a session.
func (s *sessions) leave(id string) {
	s.mu.Lock()
	own := s.own[id]
	if own != nil {
		own.running--
		own.since = time.Now()
	}
	empty := own != nil && own.running <= 0
	s.mu.Unlock()
	if empty && s.w.draining.Load() {
		s.w.aside(func(ctx context.Context) { s.release(ctx, id, 0) })
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

// keep renews the sessions until the context ends, and gives up those that nobody has used for
// long.
func (s *sessions) keep(ctx context.Context) {
	every := min(s.w.config.SessionLease/3, max(s.w.config.SessionIdle/2, 10*time.Millisecond))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, id := range s.names() {
			if !s.release(ctx, id, s.w.config.SessionIdle) {
				s.renew(ctx, id)
			}
		}
	}
}

// renew keeps a session, or notices that it is lost.
func (s *sessions) renew(ctx context.Context, id string) {
	s.mu.Lock()
	own := s.own[id]
	s.mu.Unlock()
	if own == nil || time.Since(own.renewed) < s.w.config.SessionLease/4 {
		return
	}
	owner, err := s.w.bus.Claim(ctx, id, s.w.config.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && owner == s.w.config.ID:
		own.renewed = time.Now()
	case err == nil, time.Since(own.renewed) > s.w.config.SessionLease:
		s.w.log.Warn("worker: a session is lost; its further work goes to whoever has it", "session", id, "owner",
			owner, "error", err)
		delete(s.own, id)
	}
}

// release gives a session up if it has had nothing to do for so long, and reports whether it did.
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
	if err := s.w.bus.Release(ctx, id, s.w.config.ID); err != nil {
		s.w.log.Debug("worker: a session could not be released; it ends by itself", "session", id, "error", err)
	}
	s.mu.Lock()
	delete(s.leaving, id)
	s.mu.Unlock()
	return true
}

// leaveIdle gives up the sessions that have nothing to do.
func (s *sessions) leaveIdle(ctx context.Context) {
	for _, id := range s.names() {
		s.release(ctx, id, 0)
	}
}

// leaveAll gives up all sessions, also those with functions that do not return.
func (s *sessions) leaveAll(ctx context.Context) {
	s.mu.Lock()
	for _, own := range s.own {
		own.running = 0
	}
	s.mu.Unlock()
	s.leaveIdle(ctx)
}

var _ broker.Sessions = Broker(nil)
