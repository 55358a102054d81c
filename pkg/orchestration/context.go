package orchestration

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
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

// Parent is the id of the instance that waits for this one; empty if this one has no parent.
func (ctx *Context) Parent() string {
	if p := ctx.p.Host().Info().Parent; p != nil {
		return p.Instance
	}
	return ""
}

// Attribute gives the value of an attribute that the start has set.
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
	t = storable(ctx, t)
	return &Future[time.Time]{t: ctx.s.Timer(t), value: func(*coro.Task) (time.Time, error) { return t, nil }}
}

// storable replaces a moment before the year 1, which history cannot hold, by one that has passed
// as well.
func storable(ctx *Context, t time.Time) time.Time {
	if events.Instant(t).IsZero() || t.UTC().Year() < 1 {
		return ctx.Now()
	}
	return t
}

// WithCancel gives a context of its own whose work can be cancelled together. Call cancel when it
// is no longer needed, as with package context.
func (ctx *Context) WithCancel() (scoped *Context, cancel func()) {
	return within(ctx.p, ctx.s.Child())
}

// WithTimeout is WithCancel with a time limit. After the limit, each pending wait gives ErrTimeout.
func (ctx *Context) WithTimeout(d time.Duration) (scoped *Context, cancel func()) {
	return within(ctx.p, ctx.s.Until(ctx.Now().Add(d), "the time limit of "+d.String()))
}

// WithDeadline is WithTimeout with a moment in place of a duration. When that moment has passed
// already, the first wait gives ErrTimeout.
func (ctx *Context) WithDeadline(t time.Time) (scoped *Context, cancel func()) {
	return within(ctx.p, ctx.s.Until(storable(ctx, t), "the deadline "+t.UTC().Format(time.RFC3339Nano)))
}

// Shield gives a context for the work that remains after a cancellation: cleaning up, compensating.
// Once the instance is cancelled, the context lasts at most for the given time.
func (ctx *Context) Shield(atMost time.Duration) (shielded *Context, done func()) {
	return within(ctx.p, ctx.s.Shielded(max(1, atMost)))
}

func within(p *coro.Program, s *coro.Scope) (*Context, func()) {
	return &Context{p: p, s: s}, s.Close
}

func codecOf(ctx *Context) codec.Codec { return ctx.p.Host().Codec() }

// must stops the orchestration with err, which is an error in its own code.
func must(p *coro.Program, err error) {
	if err != nil {
		e := failure.From(err)
		e.NonRetryable = true
		p.Stop(e)
	}
}

// note records a fact that a cancelled scope may record, too.
func note(p *coro.Program, f events.Fact) error {
	if _, refused := p.Note(f); refused != nil {
		return refused
	}
	return nil
}
