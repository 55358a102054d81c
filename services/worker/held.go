package worker

import (
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/process"
)

// held has all tasks that a worker holds, from the delivery to the acknowledgement.
type held struct {
	mu      sync.Mutex
	byName  map[string]*attempt // by subject; attempts with the same subject are linked
	n       int
	waiters []chan struct{} // closed when nothing is held

	stuckMu sync.Mutex // may be locked while an attempt is locked
	stuck   map[*attempt]struct{}
}

func newHeld() *held {
	return &held{byName: make(map[string]*attempt), stuck: make(map[*attempt]struct{})}
}

type added int

const (
	kept added = iota
	joined
)

// add adds an attempt. If the worker already holds the same task, add joins the delivery, which
// then needs an acknowledgement, but no execution.
func (h *held) add(a *attempt) added {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.byName[a.d.Subject]
	for b := first; b != nil; b = b.next {
		if a.sameAs(b) && b.join(a.d.Hold) {
			return joined
		}
	}
	a.next = first
	h.byName[a.d.Subject] = a
	h.n++
	return kept
}

// remove removes an attempt.
func (h *held) remove(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.byName[a.d.Subject]
	if at == a {
		if a.next == nil {
			delete(h.byName, a.d.Subject)
		} else {
			h.byName[a.d.Subject] = a.next
		}
	} else {
		for at != nil && at.next != a {
			at = at.next
		}
		if at == nil {
			return
		}
		at.next = a.next
	}
	a.next = nil
	if h.n--; h.n == 0 {
		for _, c := range h.waiters {
			close(c)
		}
		h.waiters = nil
	}
}

// all lists all held tasks.
func (h *held) all() []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*attempt, 0, h.n)
	for _, a := range h.byName {
		for ; a != nil; a = a.next {
			all = append(all, a)
		}
	}
	return all
}

// of lists the held tasks of a subject.
func (h *held) of(subject string) (all []*attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for a := h.byName[subject]; a != nil; a = a.next {
		all = append(all, a)
	}
	return all
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// waitEmpty waits until the worker holds no task, and reports whether that is so.
func (h *held) waitEmpty(patience time.Duration) bool {
	h.mu.Lock()
	if h.n == 0 {
		h.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	h.waiters = append(h.waiters, empty)
	h.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-empty:
		return true
	case <-timer.C:
		return false
	}
}

// ---- Functions that do not return.

// lost lists a function that was given up and still runs.
func (h *held) lost(a *attempt) {
	h.stuckMu.Lock()
	h.stuck[a] = struct{}{}
	h.stuckMu.Unlock()
}

// returned removes a function that has returned after all.
func (h *held) returned(a *attempt) {
	h.stuckMu.Lock()
	delete(h.stuck, a)
	h.stuckMu.Unlock()
}

func (h *held) countStuck() int {
	h.stuckMu.Lock()
	defer h.stuckMu.Unlock()
	return len(h.stuck)
}

// stuckOnes lists the functions that were given up and still run, the oldest first.
func (h *held) stuckOnes() []process.Held {
	h.stuckMu.Lock()
	stuck := make([]*attempt, 0, len(h.stuck))
	for a := range h.stuck {
		stuck = append(stuck, a)
	}
	h.stuckMu.Unlock()
	out := make([]process.Held, len(stuck))
	for i, a := range stuck {
		out[i] = a.status()
	}
	slices.SortFunc(out, func(a, b process.Held) int { return a.Since.Compare(b.Since) })
	return out
}
