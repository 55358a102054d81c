package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/x/signal"
)

// A clock is compared with those of the broker and the database. While it differs from one of them
// by more than a bound, the orchestrator decides nothing: its times would be in histories for good,
// timers would fire early, and messages would count as late that came in time. Between two
// comparisons, the clock is compared with the time that has passed in this process, so that a leap
// is noticed before the next round.
//
//	         the comparisons agree              a leap, or one disagrees
//	doubtful ─────────────────────► right    right ─────────────────────► doubtful
//
// A comparison that fails says nothing: without the broker or the database, nothing is decided
// anyway. Only after a leap, one of them has to succeed.
type clock struct {
	config clockConfig
	log    *slog.Logger
	checks signal.Signal // compare soon

	mu     sync.Mutex
	right  chan struct{}   // closed while the clock is right
	wrong  error           // why it is not,
	since  time.Time       // and since when
	base   time.Time       // this clock, when it was compared last,
	passed time.Time       // and the time of the process then
	ahead  []time.Duration // of the others, then
	known  map[string]time.Duration
	leaps  []time.Duration // how far the others were ahead since they were right last; run has them
}

// clockConfig has the settings of the comparison.
type clockConfig struct {
	now    func() time.Time
	most   time.Duration // by which clocks may differ
	every  time.Duration
	others []otherClock
}

// otherClock is the clock of the broker or the database.
type otherClock struct {
	name string
	now  func(ctx context.Context) (time.Time, error)
	// leapt is called when that clock was ahead, and is right again; nil: not needed.
	leapt func(until time.Time, by time.Duration)
}

const (
	// compareEvery is the interval of comparisons, and compareAgain that of a clock that may be
	// wrong.
	compareEvery = 10 * time.Second
	compareAgain = time.Second
	// compareWithin bounds one comparison.
	compareWithin = 5 * time.Second
	// wrongFor is how long the clock may be wrong before the process counts as dead.
	wrongFor = 30 * time.Second
)

func newClock(c clockConfig, log *slog.Logger) *clock {
	return &clock{config: c, log: log, checks: signal.New(), right: make(chan struct{}),
		wrong: errors.New("it was not compared yet"), ahead: make([]time.Duration, len(c.others)),
		known: make(map[string]time.Duration), leaps: make([]time.Duration, len(c.others))}
}

// read returns the time once the clock is right. It fails when the context ends first.
func (c *clock) read(ctx context.Context) (time.Time, error) {
	for {
		now := c.config.now()
		right := c.look(now)
		if right == nil {
			return now, nil
		}
		select {
		case <-right:
		case <-ctx.Done():
			return now, context.Cause(ctx)
		}
	}
}

// look returns nil if the clock is right, and otherwise a channel that is closed when it is.
func (c *clock) look(now time.Time) (right <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong != nil {
		return c.right
	}
	leap := leapt(now, c.base, c.passed)
	for i, other := range c.config.others {
		if ahead := c.ahead[i] + leap; ahead.Abs() > c.config.most {
			c.doubt(fmt.Errorf("the clock of this machine has leapt, and would be %s that of %s now",
				apart(ahead), other.name))
			c.checks.Set()
			return c.right
		}
	}
	return nil
}

// leapt returns how far a clock that shows now has leapt since it showed base, when the time of the
// process was passed.
func leapt(now, base, passed time.Time) time.Duration {
	return now.Round(0).Sub(base.Round(0)) - time.Since(passed)
}

// doubt has the orchestrator decide nothing until the clock is right. mu is held.
func (c *clock) doubt(why error) {
	if c.wrong == nil {
		c.right = make(chan struct{})
	}
	if c.wrong == nil || c.since.IsZero() { // also when the process begins
		c.since = time.Now()
		c.log.Error("nothing is decided while the clock may be wrong: let all machines have the time from NTP",
			"error", why)
	}
	c.wrong = why
}

// trust has it go on. mu is held.
func (c *clock) trust(base, passed time.Time) {
	c.base, c.passed = base.Round(0), passed
	if c.wrong != nil {
		c.wrong = nil
		close(c.right)
	}
}

// err returns why the clock may be wrong, or nil.
func (c *clock) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}

// live returns an error if the clock has been wrong for so long that the partitions of this process
// should be those of another one. When the process begins again, it waits for a right clock before
// it joins the others.
func (c *clock) live() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong == nil || c.base.IsZero() || time.Since(c.since) < wrongFor {
		return nil
	}
	return fmt.Errorf("the clock has been wrong for %v: %w", time.Since(c.since).Round(time.Second), c.wrong)
}

// aheadOf returns how far the clock was ahead of each of the others, when it was compared last.
func (c *clock) aheadOf() map[string]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.known)
}

// run compares the clock until the context ends.
func (c *clock) run(ctx context.Context) {
	for {
		c.compare(ctx)
		after := c.config.every
		if c.err() != nil {
			after = compareAgain
		}
		t := time.NewTimer(after)
		select {
		case <-t.C:
		case <-c.checks:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// compare compares the clock with each of the others.
func (c *clock) compare(ctx context.Context) {
	// They are taken BEFORE the others are asked, so that look notices a leap meanwhile.
	base, passed := c.config.now(), time.Now()
	var wrong error
	known := 0
	differences := make([]*difference, len(c.config.others))
	for i, other := range c.config.others {
		ahead, within, err := c.compareWith(ctx, other)
		if err != nil {
			c.log.Debug("a clock does not tell the time", "what", other.name, "error", err)
			continue
		}
		known++
		c.mu.Lock()
		c.ahead[i], c.known[other.name] = ahead, ahead
		c.mu.Unlock()
		differences[i] = &difference{-ahead, within}
		if ahead.Abs()-within > c.config.most {
			wrong = errors.Join(wrong, fmt.Errorf("the clock of this machine is %s that of %s, which is more than %v",
				apart(ahead), other.name, c.config.most))
		}
	}
	if ctx.Err() != nil {
		return
	}
	if leapt(c.config.now(), base, passed).Abs() <= c.config.most { // else they do not fit together
		for i := range differences {
			c.seeLeap(i, differences)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case wrong != nil:
		c.doubt(wrong)
	case known == 0 && !c.base.IsZero(): // it stays as it was compared last, or doubtful since a leap
	default:
		c.trust(base, passed)
	}
}

// difference is how far another clock is ahead of this one, and how precisely that is known.
type difference struct{ by, within time.Duration }

// seeLeap notes how far another clock is ahead of this one, and reports the end of a leap. If no
// third clock agrees with this one, this one may be behind.
func (c *clock) seeLeap(i int, all []*difference) {
	if all[i] == nil {
		return
	}
	other, by, within := c.config.others[i], all[i].by, all[i].within
	agrees := func(d *difference) bool { return d != nil && d.by.Abs()-d.within <= c.config.most }
	switch {
	case by-within > c.config.most:
		if !slices.ContainsFunc(all, agrees) {
			return
		}
		c.leaps[i] = max(c.leaps[i], by)
	case by+within >= -c.config.most && c.leaps[i] > 0:
		if other.leapt != nil {
			other.leapt(c.config.now(), c.leaps[i].Round(time.Second))
		}
		c.leaps[i] = 0
	}
}

// compareWith returns how far this clock is ahead of another one, and how precisely that is known.
func (c *clock) compareWith(ctx context.Context, other otherClock) (ahead, within time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	before, began := c.config.now().Round(0), time.Now()
	there, err := other.now(ctx)
	took := time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	return before.Add(took / 2).Sub(there.Round(0)).Round(time.Microsecond), took / 2, nil
}

func apart(ahead time.Duration) string {
	if ahead < 0 {
		return (-ahead).Round(time.Millisecond).String() + " behind"
	}
	return ahead.Round(time.Millisecond).String() + " ahead of"
}
