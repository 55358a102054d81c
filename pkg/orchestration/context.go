package orchestration

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Context is an orchestration's hold on the world. It belongs to the code it was given to: it must
// not be used from other goroutines, nor after the function it was given to has returned.
type Context struct {
	p *coro.Program
	s *coro.Scope
}

// Instance is the id of this instance.
func (ctx *Context) Instance() string { return ctx.p.Host().Info().Instance }

// Execution counts from 1 and rises each time the instance continues as new.
func (ctx *Context) Execution() int64 { return ctx.p.Host().Info().Execution }

// Name is the name of the orchestration.
func (ctx *Context) Name() string { return ctx.p.Host().Info().Name }

// Version is the version of the code that this execution was started with, and keeps.
func (ctx *Context) Version() string { return ctx.p.Host().Info().Version }

// Parent is the id of the instance that waits for this one; empty if nobody does.
func (ctx *Context) Parent() string {
	if p := ctx.p.Host().Info().Parent; p != nil {
		return p.Instance
	}
	return ""
}

// Attribute gives what was set at start under a name.
func (ctx *Context) Attribute(name string) string { return ctx.p.Host().Info().Attributes[name] }

// Now is the current time: the moment of whatever the code is reacting to. It is the same in every
// replay, and it stands still between two waits.
func (ctx *Context) Now() time.Time { return ctx.p.Host().Now() }

// NewID gives a fresh random UUID, the same one in every replay. It costs nothing.
func (ctx *Context) NewID() string { return ctx.p.NewID() }

// Rand gives random numbers, the same ones in every replay.
func (ctx *Context) Rand() *rand.Rand { return ctx.p.Random() }

// Logger logs once: while the code is replayed, its records go nowhere.
func (ctx *Context) Logger() *slog.Logger { return slog.New(logHandler{p: ctx.p}) }

// IsReplaying tells whether the code is being brought back to where it was. It is for measuring and
// debugging; code that decides by it does not replay.
func (ctx *Context) IsReplaying() bool { return ctx.p.Host().Replaying() }

// HistorySize tells how many events this execution has so far, and about how many bytes.
func (ctx *Context) HistorySize() (events, bytes int64) { return ctx.p.Host().HistorySize() }

// ShouldContinueAsNew tells that the history has become so long that it is time to continue as new.
func (ctx *Context) ShouldContinueAsNew() bool {
	n, bytes := ctx.HistorySize()
	inherited, inheritedBytes := ctx.p.Host().Inherited() // continuing as new would not make that any shorter
	n, bytes = n-inherited, bytes-inheritedBytes
	return n >= events.HintHistoryEvents || bytes >= events.HintHistoryBytes
}

// Patched guards a change of the code while instances of the old code are running:
//
//	if ctx.Patched("charge-before-pack") {
//		// the new way
//	} else {
//		// the old way, for instances that had passed this point before
//	}
//
// When the last old instance has ended, the guard can be removed, and the old way with it.
func (ctx *Context) Patched(id string) bool { return ctx.p.Patched(id) }

// Err is nil while this context may wait for things, and tells why once it was cancelled.
func (ctx *Context) Err() error {
	ctx.p.Host() // counts, so that a loop around it can be stopped
	return ctx.s.Err()
}

// Sleep waits.
func (ctx *Context) Sleep(d time.Duration) error {
	_, err := ctx.Timer(d).Get(ctx)
	return err
}

// SleepUntil waits for a moment.
func (ctx *Context) SleepUntil(t time.Time) error {
	_, err := ctx.TimerAt(t).Get(ctx)
	return err
}

// Timer gives a future that is ready after a time. A timer is durable, costs nothing while it runs
// and is never early.
func (ctx *Context) Timer(d time.Duration) *Future[time.Time] {
	return ctx.TimerAt(ctx.Now().Add(max(0, d)))
}

// TimerAt gives a future that is ready at a moment; at once, if that moment has passed.
func (ctx *Context) TimerAt(t time.Time) *Future[time.Time] {
	if events.Instant(t).IsZero() || t.UTC().Year() < 1 {
		t = ctx.Now() // it has passed as well, and history can hold it
	}
	return &Future[time.Time]{t: ctx.p.Timer(ctx.s, t), value: func(*coro.Task) (time.Time, error) { return t, nil }}
}

// WithCancel gives a context of its own whose work can be cancelled together. Call cancel when it
// is no longer needed, as with package context.
func (ctx *Context) WithCancel() (scoped *Context, cancel func()) {
	return ctx.scoped(ctx.s.Child())
}

// WithTimeout is WithCancel with a time limit: when it is reached, what is still being waited for
// gives ErrTimeout.
func (ctx *Context) WithTimeout(d time.Duration) (scoped *Context, cancel func()) {
	return ctx.scoped(ctx.s.Limited(d))
}

// Shield gives a context for what must still be done when the instance is cancelled: cleaning up,
// compensating. Once the instance is cancelled, it lasts at most for the given time.
func (ctx *Context) Shield(atMost time.Duration) (shielded *Context, done func()) {
	return ctx.scoped(ctx.s.Shielded(max(1, atMost)))
}

func (ctx *Context) scoped(s *coro.Scope) (*Context, func()) {
	return &Context{p: ctx.p, s: s}, s.Close
}

// must stops the orchestration when its own code asks for the impossible.
func (ctx *Context) must(err error) {
	if err != nil {
		e := events.AsError(err)
		e.Final = true
		ctx.p.Stop(e)
	}
}

func (ctx *Context) codec() events.Codec { return ctx.p.Host().Codec() }
