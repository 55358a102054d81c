package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// Watch compares the database and the broker of a process again and again.
type Watch struct {
	config Config
	lag    lag
	warned time.Time
	last   history.System // when the two agreed last
	state  atomic.Pointer[state]
	agreed chan struct{} // closed when the two have agreed for the first time
	id     atomic.Pointer[string]
}

// state is what other goroutines know of a watch.
type state struct {
	agreed  bool      // the two have agreed at least once
	behind  bool      // the database is behind: it may be a copy of the one in use
	err     error     // why the two could not be compared last
	failing time.Time // since when; zero: they could be
}

// Decides returns an error until the database and the broker have agreed, while the database is
// behind, and once the two do not belong together. The database may be a copy then: its decisions
// and changes would be lost, and its data may be old.
func (w *Watch) Decides() error {
	s := w.state.Load()
	switch {
	case s != nil && IsMismatch(s.err):
		return s.err
	case s == nil || !s.agreed:
		return errors.New("whether the database and NATS belong together is not known yet")
	case s.behind:
		return errors.New("the database is behind what NATS has seen of it: it may be a copy of the one in use; " +
			"nothing is decided until that is known")
	}
	return nil
}

// decidesAgain is the interval at which Await looks, once the two have agreed.
const decidesAgain = 100 * time.Millisecond

// Await returns nil once Decides does, or an error when the context ends first.
func (w *Watch) Await(ctx context.Context) error {
	select {
	case <-w.agreed:
	case <-ctx.Done():
	}
	for {
		err := w.Decides()
		if err == nil {
			return nil
		}
		if !w.wait(ctx, decidesAgain) {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// Err returns why the process is not ready: it does not decide, or the two could not be compared
// for long.
func (w *Watch) Err() error {
	if s := w.state.Load(); s != nil && !s.failing.IsZero() && time.Since(s.failing) > 3*w.config.Every {
		return fmt.Errorf("whether the database and NATS belong together is not known since %v: %w",
			s.failing.UTC().Format(time.RFC3339), s.err)
	}
	return w.Decides()
}

// noted keeps what a comparison has shown.
func (w *Watch) noted(agreed bool, err error) {
	former, now := w.state.Load(), &state{behind: w.lag.which == databaseBehind, err: err}
	was := former != nil && former.agreed
	now.agreed = agreed || was
	if err != nil && !IsMismatch(err) {
		if now.failing = time.Now(); former != nil && !former.failing.IsZero() {
			now.failing = former.failing
		}
	}
	if now.behind && (former == nil || !former.behind) {
		w.config.Log.Error("nothing is decided while the database is behind what NATS has seen of it: it may be a copy")
	}
	w.state.Store(now)
	if now.agreed && !was {
		close(w.agreed)
	}
}

// ID returns the id of the system, as it was seen last; empty before that.
func (w *Watch) ID() string {
	if id := w.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Config has what a watch needs.
type Config struct {
	Store  history.Systems
	Broker Broker
	// Every is the interval of comparisons: 10 seconds, unless set.
	Every time.Duration
	// Beats reports whether this process makes the beats.
	Beats func() bool
	// Lost is told when the broker may lack messages, and since when.
	Lost func(ctx context.Context, since time.Time) error
	Log  *slog.Logger
}

// lag is a side that is behind.
//
//	     no beat of the other side was seen for quietFor        it is set to the other side's count
//	lag ─────────────────────────────────────────────────► none
//	     the other side has made two beats meanwhile
//	lag ─────────────────────────────────────────────────► Mismatch
//	     both have the same count
//	lag ─────────────────────────────────────────────────► none
type lag struct {
	which  relation  // brokerBehind, databaseBehind, or 0 for none
	behind int64     // its count; -1: the broker has none
	ahead  int64     // that of the other side
	moved  int       // how often that has changed
	since  time.Time // since when it has not, as far as this process has looked
	seen   time.Time // the last comparison
}

// foreignBeats is the number of beats that a side makes while the other one stands still, after
// which it is in use with a third one. One beat may have been in flight.
const foreignBeats = 2

// quietFor is how long a side makes no beat when it is not in use.
func (w *Watch) quietFor() time.Duration { return w.config.Every * 5 / 2 }

// New returns a watch.
func New(c Config) *Watch {
	if c.Every <= 0 {
		c.Every = Every
	}
	return &Watch{config: c, agreed: make(chan struct{})}
}

// Join returns when the database and the broker agree. The error is a [*Mismatch] if they do not
// belong together, or that of the context.
func (w *Watch) Join(ctx context.Context) error {
	disagreed := 0
	for {
		agreed, err := w.Step(ctx)
		if agreed || IsMismatch(err) || ctx.Err() != nil {
			return err
		}
		if err == nil {
			disagreed++
		}
		switch {
		case err != nil:
			w.warn(fmt.Errorf("trying again: %w", err))
		case disagreed == 1:
			continue // another process may have made them one system between the two reads
		case disagreed == 2:
			w.config.Log.Warn("the database and NATS do not agree; waiting to see whether one of them is in use with "+
				"another one", "for", w.quietFor())
		}
		w.wait(ctx, w.soon())
	}
}

// Run compares until the context ends, or the two do not belong together: then the error is a
// [*Mismatch].
func (w *Watch) Run(ctx context.Context) error {
	for {
		after := w.config.Every
		if w.lag.which != 0 {
			after = w.soon()
		}
		if !w.wait(ctx, after) {
			return nil
		}
		if _, err := w.Step(ctx); IsMismatch(err) {
			return err
		}
		w.warn(w.Err())
	}
}

// warnEvery is the interval of warnings about one thing.
const warnEvery = time.Minute

// warn logs why the two could not be compared, if they could not for some time.
func (w *Watch) warn(err error) {
	if err != nil && time.Since(w.warned) >= warnEvery {
		w.warned = time.Now()
		w.config.Log.Warn("the database and NATS could not be compared", "error", err)
	}
}

// soon is the interval while one side is behind.
func (w *Watch) soon() time.Duration { return w.config.Every / 10 }

// wait reports false if the context ends before the time has passed.
func (w *Watch) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Step compares once, and does what follows from it. It reports whether the two agree.
func (w *Watch) Step(ctx context.Context) (agreed bool, err error) {
	agreed, err = w.step(ctx)
	if err != nil {
		w.lag.seen = time.Time{} // the other side may have failed, too, and made no beat because of that
	}
	w.noted(agreed, err)
	return agreed, err
}

func (w *Watch) step(ctx context.Context) (agreed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(w.config.Every, Every))
	defer cancel()
	for {
		e, err := Read(ctx, w.config.Broker) // BEFORE the database, whose count is increased first
		if err != nil {
			return false, err
		}
		d, err := w.config.Store.Identity(ctx)
		if err != nil {
			return false, err
		}
		if err := Compare(w.config.Broker.Prefix(), d, e); err != nil {
			return false, err
		}
		w.id.Store(&d.ID)
		r := compare(d, e)
		switch {
		case r == fresh:
			if _, _, err := w.config.Store.SetIdentity(ctx, d, newID(w.config.Broker.Prefix()), 0); err != nil {
				return false, err
			}
			continue // another process may have been faster
		case r == unsaid:
			first := entryOf(d)
			first.Next = newID(w.config.Broker.Prefix())
			if err := first.create(ctx, w.config.Broker); err != nil {
				return false, err
			}
			continue // another database may have been faster
		case r == unclaimed:
			if _, _, err := w.config.Store.SetIdentity(ctx, d, e.Next, 1); err != nil {
				return false, err
			}
			continue // another broker may have been faster
		case r == unconfirmed:
			if err := entryOf(d).write(ctx, w.config.Broker); err != nil {
				return false, err
			}
			continue
		case r == agree:
			w.lag, w.last = lag{}, d
			return true, w.beat(ctx, d)
		}
		w.lag = w.lag.see(r, d, e, time.Now(), w.config.Every)
		one := r == brokerBehind && e != nil && d.Beats == e.Beats+1 // as between the halves of a beat
		switch {
		case w.lag.moved >= foreignBeats && !one:
			return false, w.lag.conflict(d, e)
		case e == nil && (d.Exclusive || d.ID == w.last.ID && d.Beats == w.last.Beats):
			// The broker has lost its files: nothing else was in use with this database since.
		case time.Since(w.lag.since) < w.quietFor():
			return one, nil
		}
		if err := w.settle(ctx, r, d, e); err != nil {
			return one, err
		}
		w.lag = lag{}
	}
}

// beat increments both counts.
func (w *Watch) beat(ctx context.Context, d history.System) error {
	if w.config.Beats == nil || !w.config.Beats() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.config.Every) // a late beat would set the broker's count back
	defer cancel()
	now, ok, err := w.config.Store.SetIdentity(ctx, d, d.ID, d.Beats+1)
	if err != nil || !ok {
		return err
	}
	w.last = now
	return entryOf(now).write(ctx, w.config.Broker)
}

// see is the lag after one more comparison. If the one before is further away than a beat, beats
// may have been missed: the time between does not count.
func (l lag) see(r relation, d history.System, e *Entry, now time.Time, every time.Duration) lag {
	behind, ahead := int64(-1), d.Beats
	if e != nil {
		behind = e.Beats
	}
	if r == databaseBehind {
		behind, ahead = d.Beats, e.Beats
	}
	switch {
	case l.which != r || l.behind != behind:
		return lag{which: r, behind: behind, ahead: ahead, since: now, seen: now}
	case l.ahead != ahead:
		l.ahead, l.since = ahead, now
		l.moved++
	case now.Sub(l.seen) > every:
		l.since = now
	}
	l.seen = now
	return l
}

// conflict is the error when the side ahead is in use with a third one.
func (l lag) conflict(d history.System, e *Entry) error {
	if l.which == brokerBehind {
		return &Mismatch{d, e, "orchestrators use this database with another NATS, which makes beats"}
	}
	return &Mismatch{d, e, "orchestrators use NATS with another copy of this database, which makes beats"}
}

// settle sets the side that is behind to the count of the other side, which is not in use with a
// third one.
func (w *Watch) settle(ctx context.Context, r relation, d history.System, e *Entry) error {
	switch {
	case r == databaseBehind:
		w.config.Log.Error("the database has lost its latest commits, as after a failover; publishing again "+
			"what the instances wait for", "for",
			e.BeatAt.Sub(d.BeatAt))
		if err := w.config.Lost(ctx, d.BeatAt); err != nil {
			return err
		}
		_, _, err := w.config.Store.SetIdentity(ctx, d, d.ID, e.Beats)
		return err
	case e != nil:
		w.config.Log.Error("NATS has lost its latest messages; publishing again what the instances wait for",
			"for", d.BeatAt.Sub(e.BeatAt))
		if err := w.config.Lost(ctx, e.BeatAt); err != nil {
			return err
		}
	case e == nil:
		w.config.Log.Warn("NATS has no system id; storing that of the database", "system", Short(d.ID))
		return entryOf(d).create(ctx, w.config.Broker) // another database may have been faster
	}
	return entryOf(d).write(ctx, w.config.Broker)
}
