package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// clocksOf are three clocks that tests put wrong.
type clocksOf struct {
	mu             sync.Mutex
	own, nats, sql time.Duration   // ahead
	away           bool            // the others do not answer
	leaps          []time.Duration // of NATS
}

func (c *clocksOf) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *clocksOf) clock() *clock {
	ahead := func(by *time.Duration) time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Now().Add(*by).Round(0)
	}
	other := func(name string, by *time.Duration) otherClock {
		return otherClock{name, func(ctx context.Context) (time.Time, error) {
			c.mu.Lock()
			away := c.away
			c.mu.Unlock()
			if away {
				return time.Time{}, errors.New("it is away")
			}
			return ahead(by), nil
		}, func(until time.Time, by time.Duration) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if name == "nats" {
				c.leaps = append(c.leaps, by)
			}
		}}
	}
	return newClock(clockConfig{now: func() time.Time { return ahead(&c.own) }, most: 10 * time.Second,
		every: compareEvery, others: []otherClock{other("nats", &c.nats), other("database", &c.sql)}},
		slog.New(slog.DiscardHandler))
}

// inClock runs a test with a clock that is compared, on virtual time. reads returns how long a read
// takes; a read that takes longer than an hour is given up, and counts as one.
func inClock(t *testing.T, test func(t *testing.T, c *clocksOf, x *clock, reads func() time.Duration)) {
	synctest.Test(t, func(t *testing.T) {
		c := &clocksOf{}
		x := c.clock()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { x.run(ctx) })
		defer all.Wait()
		defer cancel()
		test(t, c, x, func() time.Duration {
			within, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			began := time.Now()
			if _, err := x.read(within); err != nil {
				return time.Hour
			}
			return time.Since(began)
		})
	})
}

// TestALeapIsNoticedBeforeTheNextRound puts the clock ten years ahead for a while.
func TestALeapIsNoticedBeforeTheNextRound(t *testing.T) {
	inClock(t, func(t *testing.T, c *clocksOf, x *clock, reads func() time.Duration) {
		if d := reads(); d > time.Second {
			t.Fatalf("the first read takes %v", d)
		}
		c.set(func() { c.own = 10 * 365 * 24 * time.Hour })
		go func() {
			<-time.After(time.Minute)
			c.set(func() { c.own = 0 })
		}()
		if err := x.live(); err != nil {
			t.Errorf("it has just leapt: %v", err)
		}
		go func() {
			<-time.After(wrongFor + time.Second)
			if x.live() == nil {
				t.Error("a process whose clock is wrong for long is to begin again")
			}
		}()
		if d := reads(); d < time.Minute || d > time.Minute+2*compareAgain {
			t.Errorf("a clock that is wrong for a minute stops rounds for %v", d)
		}
		if err := x.live(); err != nil {
			t.Errorf("it is right again: %v", err)
		}
		if err := x.err(); err != nil {
			t.Errorf("the clock is right again: %v", err)
		}
	})
}

// TestAWrongClockIsLoggedAtTheStart: an orchestrator that begins with a wrong clock waits, and logs
// why, once.
func TestAWrongClockIsLoggedAtTheStart(t *testing.T) {
	c := &clocksOf{}
	c.set(func() { c.own = time.Hour })
	x := c.clock()
	var log bytes.Buffer
	x.log = slog.New(slog.NewTextHandler(&log, nil))
	x.compare(t.Context())
	x.compare(t.Context())
	if n := strings.Count(log.String(), "1h0m0s ahead of that of nats"); n != 1 || x.err() == nil {
		t.Errorf("it is logged %d times:\n%s", n, log.String())
	}
}

// TestClocksThatDiffer tries how far clocks may differ, and each clock that may be wrong.
func TestClocksThatDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *clocksOf)
		wrong  string
	}{
		"a little": {func(c *clocksOf) {
			c.own, c.nats, c.sql = 3*time.Second, -4*time.Second, 9*time.Second
		}, ""},
		"NATS is behind":         {func(c *clocksOf) { c.nats = -time.Minute }, "1m0s ahead of that of nats"},
		"the database is ahead":  {func(c *clocksOf) { c.sql = time.Minute }, "1m0s behind that of database"},
		"this machine is behind": {func(c *clocksOf) { c.own = -time.Hour }, "1h0m0s behind that of nats"},
	} {
		t.Run(name, func(t *testing.T) {
			inClock(t, func(t *testing.T, o *clocksOf, x *clock, reads func() time.Duration) {
				reads()
				o.set(func() { c.change(o) })
				<-time.After(2 * compareEvery)
				d, err := reads(), x.err()
				switch {
				case c.wrong == "" && (d > time.Second || err != nil):
					t.Errorf("a read takes %v: %v", d, err)
				case c.wrong != "" && (d < time.Hour || err == nil || !strings.Contains(err.Error(), c.wrong)):
					t.Errorf("a read takes %v: %v; want %q", d, err, c.wrong)
				}
				o.set(func() { o.own, o.nats, o.sql = 0, 0, 0 })
				if d := reads(); d > 2*compareAgain {
					t.Errorf("the clocks agree again, and a read takes %v", d)
				}
			})
		})
	}
}

// TestTheBrokerHearsOfItsLeaps puts the clocks ahead and behind for a while. NATS is told of each
// leap ahead of its own clock, once, when that is right again.
func TestTheBrokerHearsOfItsLeaps(t *testing.T) {
	inClock(t, func(t *testing.T, o *clocksOf, x *clock, reads func() time.Duration) {
		for _, c := range []struct {
			change func()
			want   string
		}{
			{func() { o.nats = time.Hour }, "[1h0m0s]"},
			{func() { o.nats = -time.Hour }, "[]"},
			{func() { o.sql = time.Hour }, "[]"},
			{func() { o.nats = 9 * time.Second }, "[]"},
			{func() { o.nats = 24 * time.Hour }, "[24h0m0s]"},
			{func() { o.own = -time.Hour }, "[]"}, // it is this clock that is wrong
			{func() { o.own, o.nats = -time.Hour, 2*time.Hour }, "[]"},
		} {
			o.set(func() { c.change() })
			<-time.After(2 * compareEvery)
			o.set(func() {
				if len(o.leaps) > 0 {
					t.Errorf("told of %v while the clock is ahead", o.leaps)
				}
				o.nats, o.sql, o.own = 0, 0, 0
			})
			<-time.After(3 * compareEvery)
			o.set(func() {
				if got := fmt.Sprint(o.leaps); got != c.want {
					t.Errorf("told of %s, want %s", got, c.want)
				}
				o.leaps = nil
			})
		}
	})
}

// TestClocksThatCannotBeCompared loses NATS and the database. A clock that was right stays so, one
// that leaps meanwhile is not believed.
func TestClocksThatCannotBeCompared(t *testing.T) {
	inClock(t, func(t *testing.T, c *clocksOf, x *clock, reads func() time.Duration) {
		c.set(func() { c.away = true })
		<-time.After(time.Minute)
		if d := reads(); d > 0 {
			t.Errorf("a read takes %v", d)
		}
		c.set(func() { c.own = time.Hour })
		if d := reads(); d < time.Hour {
			t.Errorf("the clock has leapt, and a read takes %v", d)
		}
		c.set(func() { c.own, c.away = 0, false })
		if d := reads(); d > 2*compareAgain {
			t.Errorf("the clock can be compared again, and a read takes %v", d)
		}
	})
}

// TestAClockThatLeapsDuringAComparison has the clock leap while the others are asked, after one of
// them has answered. A round looks at the clock meanwhile, or afterwards.
func TestAClockThatLeapsDuringAComparison(t *testing.T) {
	for _, away := range []bool{false, true} {
		for _, meanwhile := range []bool{false, true} {
			t.Run(fmt.Sprintf("away=%v,meanwhile=%v", away, meanwhile), func(t *testing.T) {
				c := &clocksOf{}
				x := c.clock()
				x.compare(t.Context())
				if err := x.err(); err != nil {
					t.Fatal(err)
				}
				c.set(func() { c.away = away })
				last := &x.config.others[1]
				now := last.now
				last.now = func(ctx context.Context) (time.Time, error) {
					there, err := now(ctx)
					c.set(func() { c.own += time.Hour })
					if meanwhile && x.look(x.config.now()) == nil {
						t.Error("the leap is not noticed during the comparison")
					}
					return there, err
				}
				x.compare(t.Context())
				if x.look(x.config.now()) == nil {
					t.Error("the leap is not noticed after the comparison")
				}
			})
		}
	}
}
