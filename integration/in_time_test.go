package integration_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// oneLane is a broker of which one lane delivers nothing before open is closed.
type oneLane struct {
	*probe
	ahead bool // the lane that delivers is that of results and timers
	open  chan struct{}
	taken sync.Map // counts the deliveries of each verb, as *atomic.Int64
}

func (b *oneLane) Receive(ctx context.Context, p int, take func(broker.Delivery)) error {
	return b.probe.Receive(ctx, p, func(d broker.Delivery) {
		verb := events.Verb(verbOf(d.Subject))
		if verb.Ahead() != b.ahead {
			select {
			case <-b.open:
			case <-ctx.Done():
			}
		}
		take(d)
		b.count(verb).Add(1)
	})
}

func (b *oneLane) count(verb events.Verb) *atomic.Int64 {
	n, _ := b.taken.LoadOrStore(verb, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// resume begins an orchestrator that first gets the messages of one lane only.
func (s *system) resume(ahead bool) *oneLane {
	s.t.Helper()
	v := s.prepare()
	b := &oneLane{probe: v.broker, ahead: ahead, open: make(chan struct{})}
	v.uses(b, s.hasty())
	v.start()
	return b
}

// gets waits until an orchestrator has taken messages of a verb.
func (b *oneLane) gets(s *system, verb events.Verb, n int64) {
	s.t.Helper()
	s.eventually("messages of "+string(verb)+" are taken", func() error {
		if b.count(verb).Load() < n {
			return errors.New("they are not")
		}
		return nil
	})
}

// TestWhatCameInTimeCounts: the orchestrators are away over deadlines. What NATS stored before a
// deadline counts, and what it stored after it is late, whatever the next orchestrator gets first.
func TestWhatCameInTimeCounts(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	mails := orchestration.DefineMailbox[string]("mails")
	patient := orchestration.Define[int, string]("patient")
	hasty := orchestration.Define[int, string]("hasty")
	parts := append([]orchestration.Binding{
		patient.Bind(func(ctx *orchestration.Context, ms int) (string, error) {
			m, err := mails.ReceiveWithin(ctx, time.Duration(ms)*time.Millisecond)
			if errors.Is(err, orchestration.ErrTimeout) {
				return "late", nil
			}
			return m, err
		}),
		hasty.Bind(func(ctx *orchestration.Context, ms int) (string, error) {
			result, late := ping.Start(ctx, "x"), ctx.Timer(time.Duration(ms)*time.Millisecond)
			if ctx.Race(result, late) == late {
				return "late", nil
			}
			return result.Get(ctx)
		}),
	}, append(timing, basics...)...)
	event := func(id, instance, name string) events.Message {
		return events.Message{ID: id, Instance: instance,
			Content: &events.EventRaised{Name: name, Data: encode(t, "yes")}}
	}
	begin := func(t *testing.T, deadlines map[string]string, others ...string) (s *system, over time.Time) {
		s = newCalmSystem(t, openSQLite(t), parts...)
		o := s.orchestrate()
		for _, id := range others {
			s.start("once", id, "")
			s.reaches(id, events.KindActivityScheduled)
		}
		for id, name := range deadlines {
			s.start(name, id, limit.Milliseconds())
		}
		for id := range deadlines {
			s.reaches(id, events.KindTimerCreated)
		}
		over = time.Now().Add(limit)
		if err := o.end(); err != nil {
			t.Fatal(err)
		}
		return s, over
	}
	result := func(t *testing.T, s *system, instance, want string) {
		t.Helper()
		if x := s.ended(instance); string(x.Output) != `"`+want+`"` {
			t.Errorf("%s: %s %s, want %q", instance, x.Status, x.Output, want)
		}
	}
	t.Run("events and letters behind timers", func(t *testing.T) {
		t.Parallel()
		s, over := begin(t, map[string]string{"event": "impatient", "letter": "patient", "late": "impatient"}, "other")
		inTime := func() bool {
			s.say(event("yes-event", "event", approval.Name()), events.Message{ID: "yes-letter", Instance: "letter",
				Content: &events.MailboxMessage{Mailbox: mails.Name(), Data: encode(t, "yes")}})
			return time.Now().Before(over.Add(-limit / 10))
		}()
		<-time.After(time.Until(over)) // the deadlines are real time
		s.say(event("yes-late", "late", approval.Name()))
		b := s.resume(true)
		b.gets(s, events.VerbTimer, 3)
		d, m, _ := s.take("ping")
		s.say(done(m, "other"))
		d.Hold.Ack()
		result(t, s, "other", "other") // the timers would have fired by now
		close(b.open)
		if inTime { // otherwise the machine stalled
			result(t, s, "event", "yes")
			result(t, s, "letter", "yes")
		}
		result(t, s, "late", "late")
	})
	t.Run("events and letters ahead of timers", func(t *testing.T) {
		t.Parallel()
		s, over := begin(t, map[string]string{"event": "impatient", "late": "impatient"})
		s.say(event("yes-event", "event", approval.Name()))
		inTime := time.Now().Before(over.Add(-limit / 10))
		<-time.After(time.Until(over)) // the deadlines are real time
		s.say(event("yes-late", "late", approval.Name()))
		b := s.resume(false)
		b.gets(s, events.VerbEvent, 2)
		close(b.open)
		if inTime {
			result(t, s, "event", "yes")
		}
		result(t, s, "late", "late")
	})
	t.Run("results behind something else", func(t *testing.T) {
		t.Parallel()
		s, over := begin(t, map[string]string{"paid": "hasty"})
		d, m, _ := s.take("ping")
		s.say(done(m, "paid"))
		d.Hold.Ack()
		inTime := time.Now().Before(over.Add(-limit / 10))
		s.say(event("how", "paid", "nobody-waits"))
		<-time.After(time.Until(over)) // the deadlines are real time
		b := s.resume(false)
		b.gets(s, events.VerbEvent, 1)
		s.start("childless", "other", "x")
		result(t, s, "other", "child of x")
		close(b.open)
		if inTime {
			result(t, s, "paid", "paid")
		}
	})
}

var _ orchestrator.Broker = (*oneLane)(nil)

// TestALeapOfTheClockStopsNoTimer: an orchestrator decides nothing while its clock is ten years
// ahead. Otherwise the history would be ahead for good, and a sleep of a second would end in ten
// years.
func TestALeapOfTheClockStopsNoTimer(t *testing.T) {
	t.Parallel()
	napper := orchestration.Define[string, string]("napper")
	s := newSystem(t, openSQLite(t), napper.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		if _, err := approval.Wait(ctx); err != nil {
			return "", err
		}
		return "slept", ctx.Sleep(time.Second)
	}))
	var years atomic.Int64
	v := s.orchestrate(func(c *orchestrator.Config) {
		c.Clocks.Now = func() time.Time { return time.Now().AddDate(int(years.Load()), 0, 0) }
	})
	s.start("napper", "i", "")
	s.reaches("i", events.KindEventAwaited)
	years.Store(10)
	s.say(events.Message{ID: "yes", Instance: "i",
		Content: &events.EventRaised{Name: approval.Name(), Data: encode(t, "yes")}})
	s.eventually("the orchestrator says that its clock is wrong", func() error {
		if err := v.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "clock of this machine") {
			return fmt.Errorf("it says %w", cmp.Or(err, errors.New("nothing")))
		}
		return nil
	})
	if n := len(s.events("i", 0)); n != 2 {
		t.Errorf("it has decided something: there are %d events", n)
	}
	years.Store(0)
	if x := s.ended("i"); string(x.Output) != `"slept"` || x.EndedAt.After(time.Now().Add(time.Hour)) {
		t.Errorf("%s at %v with %s", x.Status, x.EndedAt, x.Output)
	}
	s.eventually("the orchestrator is ready", func() error { return v.Ready(t.Context()) })
}
