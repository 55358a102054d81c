package maintenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
)

// flagBroker is a broker whose flag recovered cannot be read at first.
type flagBroker struct {
	Broker
	errs    []error // of the next reads
	repairs int
}

func (b *flagBroker) Get(context.Context, string) ([]byte, error) {
	if len(b.errs) == 0 {
		return []byte("true"), nil
	}
	err := b.errs[0]
	b.errs = b.errs[1:]
	return nil, err
}

func (b *flagBroker) Repair(context.Context) error { b.repairs++; return nil }

// A timeout is not taken for a loss: nothing is repaired, and no log says that something was
// missing.
func TestATimeoutIsNotALoss(t *testing.T) {
	for _, c := range []struct {
		err     error
		repairs int
	}{
		{fmt.Errorf("nats: read flag recovered: %w", context.DeadlineExceeded), 0},
		{errors.New("nats: bucket not found"), 1},
	} {
		var log bytes.Buffer
		b := &flagBroker{errs: []error{c.err}}
		k := &Keeper{broker: b, log: slog.New(slog.NewTextHandler(&log, nil))}
		err := k.recover(t.Context())
		if b.repairs != c.repairs || (err == nil) != (c.repairs == 1) ||
			strings.Contains(log.String(), "missing") != (c.repairs == 1) {
			t.Errorf("%v: %d repairs, %v, log %q", c.err, b.repairs, err, log.String())
		}
	}
}

// valueBroker keeps the flag recovered. Something may happen just before the flag is set.
type valueBroker struct {
	Broker
	value     []byte
	meanwhile func()
}

func (*valueBroker) Prefix() string { return "rondo" }

func (b *valueBroker) Get(context.Context, string) ([]byte, error) { return b.value, nil }

func (b *valueBroker) Create(_ context.Context, _ string, value []byte) (bool, error) {
	return b.putIf(value, func() bool { return b.value == nil })
}

func (b *valueBroker) Replace(_ context.Context, _ string, read, value []byte) (bool, error) {
	return b.putIf(value, func() bool { return b.value != nil && bytes.Equal(b.value, read) })
}

func (b *valueBroker) putIf(value []byte, may func() bool) (bool, error) {
	if meanwhile := b.meanwhile; meanwhile != nil && string(value) == recoveredValue {
		b.meanwhile = nil
		meanwhile()
	}
	if !may() {
		return false, nil
	}
	b.value = value
	return true, nil
}

// A recovery that a user asks for is not taken for a loss, unless something is lost before it
// begins.
func TestAnAskedRecoveryIsNotALoss(t *testing.T) {
	b := &valueBroker{value: []byte(recoveredValue)}
	k := &Keeper{broker: b, log: slog.New(slog.DiscardHandler)}
	asks := func(want bool) {
		t.Helper()
		if at, wasAsked, ok := parseLost(b.value); !ok || wasAsked != want || at.IsZero() {
			t.Errorf("%q is read as %v, asked: %t, %t", b.value, at, wasAsked, ok)
		}
		if at, _, err := k.lost(t.Context()); err != nil || at.IsZero() {
			t.Errorf("got %v, %v", at, err)
		}
	}
	if _, err := k.RecoverSoon(t.Context()); err != nil {
		t.Fatal(err)
	}
	asks(true)
	if err := k.LostSince(t.Context(), time.Now().Add(time.Hour)); err != nil { // it goes on with the earlier moment
		t.Fatal(err)
	}
	asks(true)
	if err := k.LostSince(t.Context(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	asks(false)
}

func (b *valueBroker) Acquire(_ context.Context, _, owner string) (string, error) { return owner, nil }

func (b *valueBroker) Release(context.Context, string, string) error { return nil }

// busyStore is a store without instances. Something happens while a recovery reads it.
type busyStore struct {
	history.Store
	last      time.Time // turn
	meanwhile func()
}

func (s *busyStore) List(context.Context, history.Filter, history.Page) (history.InstanceList, error) {
	s.meanwhile()
	s.meanwhile = func() {}
	return history.InstanceList{}, nil
}

func (s *busyStore) LastUpdate(context.Context, time.Time) (time.Time, error) { return s.last, nil }

// A recovery may have found what the broker loses, or what a user asks for, while it runs, or just
// before it sets the flag. So another one follows.
func TestALossDuringARecoveryIsRecovered(t *testing.T) {
	now := time.Now().UTC()
	began := now.Add(-time.Hour)
	early := began.Add(-1) // nothing changes but the value
	askedTwice := string(askedAgain([]byte(lostAt(began, true))))
	forget := func(_ *Keeper, b *valueBroker) { b.value = nil }
	lose := func(k *Keeper, _ *valueBroker) {
		if err := k.LostSince(t.Context(), time.Now()); err != nil {
			t.Error(err)
		}
	}
	ask := func(k *Keeper, _ *valueBroker) {
		if _, err := k.RecoverSoon(t.Context()); err != nil {
			t.Error(err)
		}
	}
	both := func(first, second func(*Keeper, *valueBroker)) func(*Keeper, *valueBroker) {
		return func(k *Keeper, b *valueBroker) {
			first(k, b)
			second(k, b)
		}
	}
	for what, c := range map[string]struct {
		value     string // of the flag, before the recovery
		meanwhile func(k *Keeper, b *valueBroker)
		done      bool
		since     time.Time // the next recovery begins there
	}{
		"nothing happens":              {lostAt(began, false), func(*Keeper, *valueBroker) {}, true, began},
		"everything is lost":           {lostAt(began, false), forget, false, began},
		"a user asks":                  {lostAt(began, false), ask, false, now},
		"a user asks a second time":    {lostAt(began, true), ask, false, now},
		"a user asks a third time":     {askedTwice, ask, false, now},
		"a user asks again and again":  {askedTwice, both(ask, ask), false, now},
		"the latest messages are lost": {lostAt(began, false), lose, false, early},
		"a user asks after a loss":     {askedTwice, both(lose, ask), false, early},
		"a user asks before a loss":    {askedTwice, both(ask, lose), false, early},
	} {
		for _, atOnce := range []bool{true, false} {
			what := fmt.Sprintf("%s, at once: %t", what, atOnce)
			b, s := &valueBroker{value: []byte(c.value)}, &busyStore{last: began, meanwhile: func() {}}
			log := slog.New(slog.DiscardHandler)
			k := &Keeper{broker: b, store: s, log: log, healer: outbox.Healer{Broker: b, Store: s, Log: log},
				config: Config{By: "me", Background: func(f func(context.Context)) { f(t.Context()) },
					Clock: func(context.Context) (time.Time, error) { return now, nil }}}
			if meanwhile := func() { c.meanwhile(k, b) }; atOnce {
				s.meanwhile = meanwhile
			} else {
				b.meanwhile = meanwhile
			}
			if err := k.recover(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if done := string(b.value) == recoveredValue; done != c.done {
				t.Errorf("%s: the flag is %q after the recovery", what, b.value)
			}
			if c.done {
				continue
			}
			if at, _, err := k.lost(t.Context()); err != nil || !at.Equal(c.since) {
				t.Errorf("%s: the next recovery begins at %v, %v; want %v", what, at, err, c.since)
			}
			if err := k.recover(t.Context()); err != nil || string(b.value) != recoveredValue {
				t.Errorf("%s: the flag is %q after the second recovery, %v", what, b.value, err)
			}
		}
	}
}

// Not every request is logged: a client may ask in a loop.
func TestFewRequestsForARecoveryAreLogged(t *testing.T) {
	var log bytes.Buffer
	k := New(&valueBroker{value: []byte(recoveredValue)}, nil,
		Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 100 {
		if _, err := k.RecoverSoon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "a user asks"); n != 1 {
		t.Errorf("%d requests of 100 are logged, want the first one", n)
	}
}

// leasedBroker is a broker whose leases have one owner.
type leasedBroker struct {
	Broker
	owner string
}

func (b *leasedBroker) Acquire(context.Context, string, string) (string, error) { return b.owner, nil }

func (*leasedBroker) Release(context.Context, string, string) error { return nil }

// A lease that another orchestrator holds for long is logged once, with the owner. One that it
// holds again and again, and others in between, is not.
func TestALeaseThatIsHeldForLongIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := &leasedBroker{}
		k := &Keeper{broker: b, log: slog.New(slog.NewTextHandler(&log, nil)),
			config: Config{By: "me", Background: func(f func(context.Context)) { f(t.Context()) }}}
		did := 0
		do := k.alone(retainLease, func(context.Context) error { did++; return nil })
		attempts := func(want int, owners ...string) {
			t.Helper()
			log.Reset()
			for range 30 {
				for _, owner := range owners {
					b.owner = owner
					if err := do(t.Context()); err != nil {
						t.Error(err)
					}
					<-time.After(time.Minute)
				}
			}
			if got := strings.Count(log.String(), "lease="+retainLease); got != want ||
				strings.Count(log.String(), "owner="+owners[0]) != want {
				t.Errorf("%v: %d logs, want %d: %s", owners, got, want, log.String())
			}
		}
		attempts(0, "you", "me")
		attempts(0, "you", "others")
		if did != 30 {
			t.Errorf("it was done %d times", did)
		}
		attempts(1, "you")
		attempts(0, "you")
		attempts(1, "they")
	})
}
