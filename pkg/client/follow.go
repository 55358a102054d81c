package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/history"
)

// look looks at a notification, and asks if it should. It reports whether the call is complete. An
// error ends the call, unless it may pass: see passes.
type look func(ctx context.Context, heard []query.Notification, ask bool) (done bool, err error)

// unanswered is the delay before a request without a response is repeated: the orchestrators may be
// back soon.
const unanswered = 2 * time.Second

// waits is the part of a client that waits for instances.
type waits struct {
	hub    *hub
	o      options
	asking chan struct{}   // bounds concurrent requests
	ctx    context.Context // ends with the client
	close  context.CancelFunc
}

func newWaits(ctx context.Context, end context.CancelFunc, b busclient.Broker, o options) *waits {
	return &waits{hub: newHub(b), o: o, asking: make(chan struct{}, maxAsking), ctx: ctx, close: end}
}

// follow calls look until it is done: first to ask, unless the instance was started this very
// moment, then with each notification about an instance, and now and then to ask again. Begun is
// the time of the start; zero if that is not known.
func (w *waits) follow(ctx context.Context, instance string, begun time.Time, look look) error {
	f := w.hub.follow(instance)
	defer f.leave()
	var last error
	var until time.Time // the first question is put off; the zero time: it is not
	wait := w.o.firstAsk
	ask, heard := true, []query.Notification(nil)
	deaf := false // it could not listen
	for first := true; ; first = false {
		if ask {
			err := w.listen(ctx, f)
			deaf = err != nil
			switch {
			case err != nil: // it is tried again with the next question
				last = err
			case first && time.Since(begun) <= w.o.listensWithin:
				ask, until = false, time.Now().Add(w.o.hearsWithin)
			}
		}
		done, err := w.looked(ctx, look, heard, ask)
		switch {
		case ctx.Err() != nil && !done, w.ctx.Err() != nil && !done:
			return w.ended(ctx, instance, cmp.Or(last, err))
		case err != nil && !passes(err):
			return err
		case err != nil:
			last = err
			wait = min(wait, unanswered)
		case done:
			return nil
		}
		pause := wait - time.Duration(rand.Int64N(int64(wait)/5))
		if !until.IsZero() {
			pause = time.Until(until)
		}
		if deaf {
			pause = min(pause, unanswered)
		}
		timer := time.NewTimer(pause)
		ask, heard = false, nil
		select {
		case <-ctx.Done():
			timer.Stop()
			return w.ended(ctx, instance, last)
		case <-w.ctx.Done():
			timer.Stop()
			return ErrClosed
		case <-f.wake:
			timer.Stop()
			heard, ask = f.take()
		case <-timer.C:
			ask = true
		}
		switch {
		case !ask:
		case !until.IsZero():
			until = time.Time{}
		default:
			wait = min(2*wait, w.o.lastAsk)
		}
	}
}

// listen makes sure that a follower hears something.
func (w *waits) listen(ctx context.Context, f *follower) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	return f.listen(ctx)
}

// looked calls look within the bound of concurrent requests.
func (w *waits) looked(ctx context.Context, look look, heard []query.Notification, ask bool) (bool, error) {
	if !ask {
		return look(ctx, heard, false)
	}
	select {
	case w.asking <- struct{}{}:
		defer func() { <-w.asking }()
		return look(ctx, heard, true)
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.ctx.Done():
		return false, ErrClosed
	}
}

// ended is the error with which waiting ends.
func (w *waits) ended(ctx context.Context, instance string, last error) error {
	switch {
	case w.ctx.Err() != nil:
		return ErrClosed
	case last == nil || errors.Is(last, ctx.Err()):
		return fmt.Errorf("waiting for instance %q: %w", instance, ctx.Err())
	}
	return fmt.Errorf("waiting for instance %q: %w (%w)", instance, ctx.Err(), last)
}

// passes reports whether an error may be gone the next time.
func passes(err error) bool {
	switch history.ClassOf(err) {
	case history.Retry, history.Contended, history.Ambiguous:
		return true
	case history.Permanent, history.Corrupt:
		return false
	}
	return false
}

// ---- Subscriptions.

// hub shares subscriptions: one for each instance, however many calls follow it.
type hub struct {
	broker busclient.Broker
	mu     sync.Mutex
	of     map[string]*followed
}

// followed is an instance that at least one call follows.
type followed struct {
	instance  string
	followers map[*follower]bool

	listening chan struct{} // has a value while the subscription is made or ended
	stop      func()        // nil: not made
	ended     bool          // the last follower has left
}

// follower is one of those.
type follower struct {
	hub  *hub
	of   *followed
	wake signal.Signal // has a value if there is something to take

	mu    sync.Mutex
	heard []query.Notification
	ask   bool
}

// maxHeard bounds the notifications that are kept for a busy follower; it then asks.
const maxHeard = 64

func newHub(b busclient.Broker) *hub { return &hub{broker: b, of: make(map[string]*followed)} }

func (h *hub) follow(instance string) *follower {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.of[instance]
	if t == nil {
		t = &followed{instance: instance, followers: make(map[*follower]bool), listening: make(chan struct{}, 1)}
		h.of[instance] = t
	}
	f := &follower{hub: h, of: t, wake: signal.New()}
	t.followers[f] = true
	return f
}

// listen makes sure that the instance is listened to.
func (f *follower) listen(ctx context.Context) error {
	t := f.of
	select {
	case t.listening <- struct{}{}:
		defer func() { <-t.listening }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.stop != nil || t.ended {
		return nil
	}
	stop, err := query.Listen(ctx, f.hub.broker, t.instance, func(n query.Notification) { f.hub.notify(t, n) })
	if err != nil {
		return fmt.Errorf("listen to instance %q: %w", t.instance, err)
	}
	t.stop = stop
	return nil
}

// leave ends following. The last follower unsubscribes.
func (f *follower) leave() {
	h, t := f.hub, f.of
	h.mu.Lock()
	delete(t.followers, f)
	last := len(t.followers) == 0
	if last {
		delete(h.of, t.instance)
	}
	h.mu.Unlock()
	if last {
		t.end()
	}
}

func (t *followed) end() {
	t.listening <- struct{}{}
	defer func() { <-t.listening }()
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
	t.ended = true
}

func (h *hub) notify(t *followed, n query.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range t.followers {
		f.hear(n)
	}
}

// wakeAll lets every follower ask.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.of {
		for f := range t.followers {
			f.mustAsk()
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	all := make([]*followed, 0, len(h.of))
	for _, t := range h.of {
		all = append(all, t)
	}
	h.mu.Unlock()
	for _, t := range all {
		t.end()
	}
}

func (f *follower) hear(n query.Notification) {
	f.mu.Lock()
	if len(f.heard) >= maxHeard {
		f.heard, f.ask = nil, true
	}
	f.heard = append(f.heard, n)
	f.mu.Unlock()
	f.wake.Set()
}

func (f *follower) mustAsk() {
	f.mu.Lock()
	f.ask = true
	f.mu.Unlock()
	f.wake.Set()
}

func (f *follower) take() (heard []query.Notification, ask bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	heard, ask = f.heard, f.ask
	f.heard, f.ask = nil, false
	return heard, ask
}
