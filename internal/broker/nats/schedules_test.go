package natsbroker_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file tests schedules together with other operations at the same time.

const nightly = "rondo.start.report.nightly"

// everySecond is a schedule; with another pattern, one of another kind.
func everySecond(pattern ...string) broker.Schedule {
	s := broker.Schedule{ID: "nightly", Pattern: "* * * * * *", Message: events.Wire{Subject: nightly},
		Changed: time.Now()}
	if len(pattern) > 0 {
		s.Pattern = pattern[0]
	}
	return s
}

// starts receives, counts the starts of the schedule, and sends the ids of those that have one.
func starts(t *testing.T, b *natsbroker.Bus) (n *atomic.Int64, withID <-chan string) {
	t.Helper()
	n, ids := new(atomic.Int64), make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			d.Hold.Ack()
			if d.Subject != nightly {
				return
			}
			if v := d.Header[events.HeaderMsgID]; len(v) > 0 && !d.Scheduled {
				ids <- v[0]
				return
			}
			n.Add(1)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return n, ids
}

// entries counts the messages that NATS publishes repeatedly for the schedule.
func entries(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	const subject = "rondo.later.schedule.>"
	n := 0
	for _, k := range streamInfo(t, t.Context(), js, "RONDO_LATER",
		jetstream.WithSubjectFilter(subject)).State.Subjects {
		n += int(k)
	}
	return n
}

// TestSchedulesAndDelayedStartsOfOneID publishes a delayed start with the id of a schedule for the
// same orchestration. Both are delivered.
func TestSchedulesAndDelayedStartsOfOneID(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	n, ids := starts(t, b)
	later := events.Wire{Subject: nightly, NotBefore: time.Now().Add(6 * time.Second),
		Header: events.Header{events.HeaderMsgID: {"once more"}}}
	if err := b.Publish(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	if err := b.PutSchedule(t.Context(), everySecond()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the schedule fires while the start waits", func() bool { return n.Load() > 2 })
	if id := <-ids; id != "once more" {
		t.Errorf("%q came", id)
	}
	before := n.Load()
	natstest.Eventually(t, "the schedule still fires", func() bool { return n.Load() > before+2 })
	if found, err := b.DropSchedule(t.Context(), "nightly"); err != nil || !found {
		t.Errorf("%v, %v", found, err)
	}
	later.NotBefore = time.Now().Add(3 * time.Second)
	later.Header = events.Header{events.HeaderMsgID: {"and again"}}
	if err := b.Publish(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	if err := b.PutSchedule(t.Context(), everySecond("@yearly")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.DropSchedule(t.Context(), "nightly"); err != nil {
		t.Fatal(err)
	}
	if id := <-ids; id != "and again" {
		t.Errorf("%q came", id)
	}
}

// TestADroppedScheduleStaysDropped drops schedules while an orchestrator heals them. None has an
// entry afterwards.
func TestADroppedScheduleStaysDropped(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	people, orchestrator := natstest.Connect(t, s, natsbroker.Config{Partitions: 1}),
		natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	js := rawJetStream(t, s)
	for try := range racetest.Short(200, 40) {
		if err := people.PutSchedule(t.Context(), everySecond("@every 1h")); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := orchestrator.HealSchedules(t.Context()); err != nil {
				t.Error(err)
			}
		})
		<-time.After(time.Duration(try%40) * 50 * time.Microsecond)
		if _, err := people.DropSchedule(t.Context(), "nightly"); err != nil {
			t.Fatal(err)
		}
		both.Wait()
		if n := entries(t, js); n != 0 {
			t.Fatalf("try %d: it was dropped, and has %d entries", try, n)
		}
	}
}

// TestAnEntryWithoutItsRowStartsNothing: a process died between the change of a row and that of its
// entry. The messages of the entry are dropped, and HealSchedules removes it.
func TestAnEntryWithoutItsRowStartsNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, b *natsbroker.Bus, kv jetstream.KeyValue) error{
		"dropped": func(t *testing.T, _ *natsbroker.Bus, kv jetstream.KeyValue) error {
			return kv.Purge(t.Context(), "nightly")
		},
		"paused": func(t *testing.T, _ *natsbroker.Bus, kv jetstream.KeyValue) error {
			_, err := kv.Put(t.Context(), "nightly",
				[]byte(`{"id":"nightly","pattern":"* * * * * *","paused":true,"message":{"Subject":"`+nightly+`"}}`))
			return err
		},
		"foreign": func(t *testing.T, _ *natsbroker.Bus, kv jetstream.KeyValue) error {
			// an acknowledgement that a client made NATS send there
			_, err := kv.Put(t.Context(), "nightly", []byte(`{"stream":"RONDO", "seq":7}`))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
			js := rawJetStream(t, s)
			n, ids := starts(t, b)
			if err := b.PutSchedule(t.Context(), everySecond()); err != nil {
				t.Fatal(err)
			}
			natstest.Eventually(t, "it fires", func() bool { return n.Load() > 1 })
			kv, err := js.KeyValue(t.Context(), "RONDO_SCHEDULES")
			if err == nil {
				err = change(t, b, kv)
			}
			if err != nil {
				t.Fatal(err)
			}
			// A start with a delay of four seconds arrives after four that the entry would have
			// made.
			came := make(map[string]bool)
			barrier := func(id string) {
				t.Helper()
				w := events.Wire{Subject: nightly, NotBefore: time.Now().Add(4 * time.Second),
					Header: events.Header{events.HeaderMsgID: {id}}}
				if err := b.Publish(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				for got := <-ids; got != id; got = <-ids {
					if !came[got] { // otherwise it was not acknowledged in time, and is redelivered
						t.Errorf("%q came", got)
					}
				}
				came[id] = true
			}
			barrier("settled") // messages that the entry published before may still be in flight
			if n := entries(t, js); n != 1 {
				t.Errorf("there are %d entries", n)
			}
			before := n.Load()
			barrier("four seconds later")
			if n := n.Load() - before; n > 0 {
				t.Errorf("it was %s, and has started %d", name, n)
			}
			if healed, err := b.HealSchedules(t.Context()); err != nil || healed != 1 {
				t.Errorf("%d, %v", healed, err)
			}
			if n := entries(t, js); n != 0 {
				t.Errorf("there are %d entries after healing", n)
			}
			all, err := b.Schedules(t.Context())
			if err != nil || len(all) > 1 || len(all) == 1 && !all[0].Paused {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}

// TestAPauseThatIsNotFinished: the user that pauses a schedule may not remove its entry. The user
// gets an error, and the schedule is paused.
func TestAPauseThatIsNotFinished(t *testing.T) {
	t.Parallel()
	conf, err := os.ReadFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(conf), `"$JS.API.STREAM.PURGE.RONDO_LATER", `, "", 1)
	s := natstest.StartWith(t, embedded.Options{Config: configFile(t, changed)})
	setup := natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: "setup", Password: "setup"},
		Partitions: 1})
	if _, err := setup.HealSchedules(t.Context()); err != nil { // creates the bucket
		t.Fatal(err)
	}
	n, ids := starts(t, setup)
	if err := setup.PutSchedule(t.Context(), everySecond()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it fires", func() bool { return n.Load() > 1 })
	person := natstest.Connect(t, s, natsbroker.Config{
		Login:       natsbroker.Login{User: "orchestrator", Password: "orchestrator"},
		InboxPrefix: inboxOf("orchestrator"), Setup: natsbroker.Verify, Timeout: 2 * time.Second})
	paused := everySecond()
	paused.Paused = true
	if err := person.PutSchedule(t.Context(), paused); err == nil || !strings.Contains(err.Error(), "within a minute") {
		t.Fatalf("%v, want that it is not finished", err)
	}
	for _, id := range []string{"on its way", "later"} {
		before := n.Load()
		w := events.Wire{Subject: nightly, NotBefore: time.Now().Add(4 * time.Second),
			Header: events.Header{events.HeaderMsgID: {id}}}
		if err := setup.Publish(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		<-ids
		if n := n.Load() - before; id == "later" && n > 0 {
			t.Errorf("it is paused, and has started %d", n)
		}
	}
	if healed, err := setup.HealSchedules(t.Context()); err != nil || healed != 1 {
		t.Errorf("%d, %v", healed, err)
	}
	if n := entries(t, rawJetStreamAs(t, s, "setup")); n != 0 {
		t.Errorf("there are %d entries after healing", n)
	}
}

// TestARefusedScheduleChangesNothing replaces a good pattern by one that NATS does not understand.
func TestARefusedScheduleChangesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	n, _ := starts(t, b)
	if err := b.PutSchedule(t.Context(), everySecond()); err != nil {
		t.Fatal(err)
	}
	var refused *broker.Refused
	if err := b.PutSchedule(t.Context(), everySecond("whenever you like")); !errors.As(err, &refused) {
		t.Fatalf("%v, want that it is refused", err)
	}
	all, err := b.Schedules(t.Context())
	if err != nil || len(all) != 1 || all[0].Pattern != "* * * * * *" {
		t.Errorf("%v, %v", all, err)
	}
	before := n.Load()
	natstest.Eventually(t, "the one before goes on", func() bool { return n.Load() > before+2 })
}

// rawJetStreamAs is a connection of a user without Rondo's code.
func rawJetStreamAs(t *testing.T, s *embedded.Server, user string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(userConnection(t, s, user, ""), jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}
