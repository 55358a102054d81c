package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// shared is the store of a database that several processes can write to.
type shared struct{ history.Store }

func (s shared) Identity(ctx context.Context) (history.System, error) {
	now, err := s.Store.Identity(ctx)
	now.Exclusive = false
	return now, err
}

// sharing lets all services of a system use such a store.
func sharing(open func() history.Store) func() history.Store {
	return func() history.Store { return shared{open()} }
}

// refused runs an orchestrator that must not join: the error has to say why.
func (s *system) refused(v *service, says string) {
	s.t.Helper()
	err := v.Run(s.t.Context())
	if !identity.IsMismatch(err) || !strings.Contains(err.Error(), says) ||
		!strings.Contains(err.Error(), "`rondo migrate --adopt`") {
		s.t.Fatalf("the orchestrator ends with %v; want that %q", err, says)
	}
	if len(v.Owned()) > 0 {
		s.t.Errorf("it has owned the partitions %v", v.Owned())
	}
}

// TestAnotherDatabaseDoesNotJoin: an orchestrator with another database gets no partition, and the
// instances of the system go on.
func TestAnotherDatabaseDoesNotJoin(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate()
	other := newSystem(t, openSQLite(t), basics...) // it has a NATS of its own
	o := other.orchestrate()
	if err := o.end(); err != nil {
		t.Fatal(err)
	}
	of, empty := other.open, openSQLite(t)
	for says, open := range map[string]func() history.Store{"they are of different systems": of,
		"the database is new, and NATS is in use with another one": empty} {
		own := s.open
		s.open = open
		v := s.prepare()
		s.open = own
		s.refused(v, says)
	}
	s.start("once", "goes-on", "")
	d, m, _ := s.take("ping")
	s.say(done(m, "yes"))
	d.Hold.Ack()
	if x := s.ended("goes-on"); string(x.Output) != `"yes"` {
		t.Errorf("the instance: %s %s", x.Status, x.Output)
	}
}

// TestAnotherNATSDoesNotGetTheWork: an orchestrator with another NATS, on the database of a system
// that runs, publishes nothing there.
func TestAnotherNATSDoesNotGetTheWork(t *testing.T) {
	t.Parallel()
	s := newSystem(t, sharing(openSQLite(t)), basics...)
	s.orchestrate()
	s.start("once", "waits", "")
	s.reaches("waits", events.KindActivityScheduled)
	other := newSystem(t, s.open, basics...)
	v := other.prepare(func(c *orchestrator.Config) { c.Sweep.BeatEvery = identity.Every }) // it waits longer for beats
	other.refused(v, "orchestrators use this database with another NATS")
	n, err := other.bus.TaskBacklog(t.Context(), broker.TaskQueueName{Activity: "ping"})
	if err != nil || n.Waiting > 0 {
		t.Errorf("the other NATS has %+v, %v", n, err)
	}
}

// TestNewOnesBecomeOneSystem: two processes use one new database with two new NATS, or two new
// databases with one new NATS, at the same time. One of them joins.
func TestNewOnesBecomeOneSystem(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		for _, one := range []string{"database", "NATS"} {
			t.Run(database.name+", one "+one, func(t *testing.T) {
				t.Parallel()
				first := newSystem(t, sharing(database.open(t)), basics...)
				stores, buses := [2]history.Store{first.open(), nil}, [2]*natsbroker.Bus{first.bus, first.bus}
				if one == "database" {
					stores[1], buses[1] = first.open(), newSystem(t, first.open, basics...).bus
				} else {
					stores[1] = sharing(database.open(t))()
				}
				begin, ended := make(chan struct{}), make(chan error, 2)
				ctx, cancel := context.WithCancel(t.Context())
				for i := range stores {
					w := identity.New(identity.Config{Store: stores[i], Broker: buses[i],
						Beats: func() bool { return true }, Log: quiet()})
					go func() {
						<-begin
						err := w.Join(ctx)
						if err == nil {
							err = w.Run(ctx)
						}
						ended <- err
					}()
				}
				close(begin)
				if err := <-ended; !identity.IsMismatch(err) {
					t.Errorf("one ends with %v", err)
				}
				cancel()
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("the other one ends with %v", err)
				}
			})
		}
	}
}

// TestAnAdoptedDatabaseReplacesTheFormer: an operator has given NATS another database. The former
// one is refused then.
func TestAnAdoptedDatabaseReplacesTheFormer(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	former := s.orchestrate()
	adopted := openSQLite(t)
	entry := s.eventuallyBeats(0)
	stop := func() error { return former.end() }
	if entry.System == "" || stop() != nil {
		t.Fatal("no system")
	}
	if _, err := identity.Adopt(t.Context(), adopted(), s.bus); err != nil {
		t.Fatal(err)
	}
	s.refused(s.prepare(), "they are of different systems")
	s.open, s.store = adopted, adopted()
	s.orchestrate()
	s.start("once", "new", "")
	d, m, _ := s.take("ping")
	s.say(done(m, "yes"))
	d.Hold.Ack()
	s.ended("new")
}

// TestAnOlderNATSGetsWhatItLost: NATS comes back from a backup, or without what it had not yet
// written when the power failed. What the instances wait for is published once more.
func TestAnOlderNATSGetsWhatItLost(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate(func(c *orchestrator.Config) { c.NoDirectDelivery = true })
	entry := s.eventuallyBeats(0)
	s.start("once", "waits", "")
	s.reaches("waits", events.KindActivityScheduled)
	d, _, _ := s.take("ping")
	d.Hold.Ack() // as if it had never been stored
	s.eventuallyBeats(entry.Beats + 1)
	if err := s.bus.Put(t.Context(), broker.KeySystem, entry.raw, 0); err != nil {
		t.Fatal(err)
	}
	d, m, _ := s.take("ping")
	s.say(done(m, "yes"))
	d.Hold.Ack()
	s.ended("waits")
}

// beatOf is what NATS had after some beat.
type beatOf struct {
	identity.Entry
	raw []byte
}

// eventuallyBeats waits until orchestrators have made more than n beats.
func (s *system) eventuallyBeats(n int64) (b beatOf) {
	s.t.Helper()
	s.eventually("the count is increased", func() error {
		raw, err := s.bus.Get(s.t.Context(), broker.KeySystem)
		if err != nil {
			return err
		}
		e, err := identity.Read(s.t.Context(), s.bus)
		if err != nil || e == nil || e.Beats <= n {
			return errors.New("it is not")
		}
		b = beatOf{*e, raw}
		return nil
	})
	return b
}

// TestAMismatchEndsAnOrchestratorAtOnce: it does not wait until the rounds end that wait for
// permission to decide.
func TestAMismatchEndsAnOrchestratorAtOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	v := s.orchestrate(func(c *orchestrator.Config) {
		c.Sweep.BeatEvery, c.ShutdownTimeout = 2*time.Second, time.Hour
	})
	entry := s.eventuallyBeats(0).Entry
	beat := func() { // as of a system with a copy of the database
		entry.Beats += 10
		raw, err := json.Marshal(entry)
		if err == nil {
			err = s.bus.Put(t.Context(), broker.KeySystem, raw, 0)
		}
		if err != nil {
			t.Error(err)
		}
	}
	beat()
	s.eventually("nothing is decided", func() error {
		if err := v.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "the database is behind") {
			return fmt.Errorf("ready: %w", err)
		}
		return nil
	})
	s.start("once", "waits", "")
	s.eventually("a round waits", func() error {
		if st, err := v.Status(t.Context()); err != nil || st.Deciding == 0 {
			return fmt.Errorf("%+v, %w", st, err)
		}
		return nil
	})
	s.eventually("the orchestrator ends", func() error {
		select {
		case err := <-v.ended:
			v.ended <- err
			if !identity.IsMismatch(err) || strings.Contains(err.Error(), "timeout") {
				t.Errorf("it ends with %v", err)
			}
			return nil
		default:
			beat()
			return errors.New("it runs")
		}
	})
}
