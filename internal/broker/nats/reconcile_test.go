package natsbroker_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestRemovedPartsAreMadeAgain removes every stream, bucket and consumer that the setup makes, one
// after the other, while a process receives. Each is made again, and messages come, also delayed
// ones.
func TestRemovedPartsAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 2})
	b.ReconcileEvery(100 * time.Millisecond)
	came := make(chan string, 100)
	for p := range 2 {
		go func() {
			for t.Context().Err() == nil {
				_ = b.Receive(t.Context(), p, func(d broker.Delivery) {
					d.Hold.Ack()
					came <- d.Subject
				})
			}
		}()
	}
	js := rawJetStream(t, s)
	there := func(part string) bool {
		stream, consumer, isConsumer := strings.Cut(part, "/")
		if !isConsumer {
			_, err := js.Stream(t.Context(), stream)
			return err == nil
		}
		_, err := js.Consumer(t.Context(), stream, consumer)
		return err == nil
	}
	works := func(after string) {
		t.Helper()
		want := map[string]bool{"rondo.event.e.i": true, "rondo.event.e.k": true, "rondo.start.o.i": true}
		for subject := range want {
			w := events.Wire{Subject: subject, Header: events.Header{events.HeaderMsgID: {after + subject}}}
			if strings.Contains(subject, "start") {
				w.NotBefore = time.Now().Add(1600 * time.Millisecond) // it goes through RONDO_LATER
			}
			if err := b.Publish(t.Context(), w); err != nil {
				t.Fatalf("after %s: %v", after, err)
			}
		}
		limit := time.After(5 * time.Minute)
		for len(want) > 0 {
			select {
			case subject := <-came:
				delete(want, subject)
			case <-limit:
				t.Fatalf("after %s was removed, these do not come: %v", after, want)
			}
		}
	}
	works("nothing")
	for _, part := range []string{"RONDO/p-0", "RONDO/a-0", "RONDO/p-1", "RONDO/a-1", "RONDO_LATER/due", "RONDO_TASKS",
		"RONDO_DEAD", "KV_RONDO_MEMBERS", "KV_RONDO_SESSIONS", "KV_RONDO_KV", "KV_RONDO_PROGRESS",
		"RONDO_LATER", "RONDO"} {
		stream, consumer, isConsumer := strings.Cut(part, "/")
		remove := func() error { return js.DeleteStream(t.Context(), stream) }
		if isConsumer {
			remove = func() error { return js.DeleteConsumer(t.Context(), stream, consumer) }
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, part+" is there again", func() bool { return there(part) })
		works(part)
	}
}

// damage changes one setting of a stream or a consumer, as an operator might by hand.
type damage struct {
	part     string
	stream   func(c *jetstream.StreamConfig)
	consumer func(c *jetstream.ConsumerConfig)
	mild     bool
	says     string
	stays    bool // orchestrators do not repair it
}

func damages() []damage {
	return []damage{
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[:1] }, says: "subjects is"},
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
			says: "discard policy is DiscardOld"},
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, says: "age is 1h0m0s"},
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) { c.AllowDirect = false },
			says: "direct reading is false"},
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) { c.SubjectTransform = nil },
			says: "transform is none"},
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) { c.MaxBytes = -1 }, says: "its bound in bytes is gone",
			mild: true},
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) {
			c.Metadata = maps.Clone(c.Metadata)
			c.Metadata["rondo.replicas"] = "1"
		}, says: "it has one of 1 replicas", mild: true},
		{part: "RONDO", stream: func(c *jetstream.StreamConfig) { c.NoAck = true },
			says: "storing without acknowledgements"},
		{part: "RONDO_LATER", stream: func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[1:] },
			says: "subjects is"},
		{part: "RONDO_LATER", stream: func(c *jetstream.StreamConfig) { c.MaxMsgs = 100_000 },
			says: "maximum number of messages is 100000"},
		{part: "RONDO_TASKS", stream: func(c *jetstream.StreamConfig) { c.MaxBytes = 64 << 20 },
			says: "bound in bytes is 67108864"},
		{part: "RONDO_TASKS", stream: func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100_000 },
			says: "size of messages is 100000"},
		{part: "RONDO_TASKS", stream: func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
			says: "window for duplicates is 1s", mild: true},
		{part: "RONDO_DEAD", stream: func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, says: "age is 1h0m0s",
			mild: true},
		{part: "RONDO_DEAD", stream: func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[1:] },
			says: "subjects is"},
		{part: "KV_RONDO_MEMBERS", stream: func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
			says: "age is 1h0m0s"},
		{part: "KV_RONDO_KV", stream: func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
			says: "messages for each subject is 5"},
		{part: "KV_RONDO_PROGRESS", stream: func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 },
			says: "maximum number of messages is -1"},
		{part: "KV_RONDO_PROGRESS", stream: func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew },
			says: "discard policy is DiscardNew"},
		{part: "KV_RONDO_PROGRESS", stream: func(c *jetstream.StreamConfig) { c.MaxBytes = 64 << 20 },
			says: "bound in bytes is 67108864"},
		{part: "KV_RONDO_SESSIONS", stream: func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 },
			says: "size of messages is -1"},
		{part: "KV_RONDO_SESSIONS", stream: func(c *jetstream.StreamConfig) { c.MaxAge = 0 }, says: "age is 0s"},
		{part: "RONDO/p-0", consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "rondo.p.0.event.*.*" },
			says: "it is for rondo.p.0.event.*.*"},
		{part: "RONDO/a-1", consumer: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 },
			says: "max_ack_pending is 1,"},
		{part: "RONDO/p-1", consumer: func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour }, mild: true,
			says: "ack_wait is 1h0m0s"},
		{part: "RONDO/a-0", consumer: func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 },
			says: "max_deliver is 3,"},
		{part: "RONDO_LATER/due", consumer: func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 },
			says: "it has limits"},
		{part: "RONDO_TASKS/w___act", consumer: func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour }, mild: true,
			says: "ack_wait is 1h0m0s"},
		{part: "RONDO_TASKS/w___act", consumer: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 },
			says: "max_ack_pending is 1,"},
		{part: "RONDO/p-0", consumer: func(c *jetstream.ConsumerConfig) {
			at := time.Now().Add(time.Hour)
			c.PauseUntil = &at
		}, says: "it is paused until", stays: true},
	}
}

// apply damages the broker, and returns a function that reports whether it is as before.
func (d damage) apply(t *testing.T, js jetstream.JetStream) (whole func() bool, undo func()) {
	t.Helper()
	stream, name, isConsumer := strings.Cut(d.part, "/")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s, %s: %v", d.part, d.says, err)
		}
	}
	if !isConsumer {
		before := streamInfo(t, t.Context(), js, stream).Config
		c := before
		d.stream(&c)
		_, err := js.UpdateStream(t.Context(), c)
		must(err)
		return func() bool { return reflect.DeepEqual(streamInfo(t, t.Context(), js, stream).Config, before) },
			func() { _, err := js.UpdateStream(t.Context(), before); must(err) }
	}
	look := func() jetstream.ConsumerConfig {
		c, err := js.Consumer(t.Context(), stream, name)
		must(err)
		return c.CachedInfo().Config
	}
	before := look()
	c := before
	d.consumer(&c)
	if c.PauseUntil != nil {
		_, err := js.PauseConsumer(t.Context(), stream, name, *c.PauseUntil)
		must(err)
		undo = func() { _, err := js.ResumeConsumer(t.Context(), stream, name); must(err) }
	} else {
		_, err := js.UpdateConsumer(t.Context(), stream, c)
		must(err)
		undo = func() { _, err := js.UpdateConsumer(t.Context(), stream, before); must(err) }
	}
	return func() bool { return reflect.DeepEqual(look(), before) }, undo
}

// flawed reports whether a broker tells of a damage as it should.
func (d damage) flawed(t *testing.T, b *natsbroker.Bus) bool {
	t.Helper()
	for _, f := range b.Flaws() {
		if strings.HasSuffix(f.Part, " "+d.part) && strings.Contains(f.Problem, d.says) {
			if f.Harmful == d.mild {
				t.Errorf("%v: harmful is %t", f, f.Harmful)
			}
			return true
		}
	}
	return false
}

// receiveAll receives from two partitions, and returns the subjects that come.
func receiveAll(t *testing.T, b *natsbroker.Bus) <-chan string {
	t.Helper()
	came := make(chan string, 100)
	for p := range 2 {
		go func() {
			for t.Context().Err() == nil {
				_ = b.Receive(t.Context(), p, func(d broker.Delivery) {
					d.Hold.Ack()
					came <- d.Subject
				})
			}
		}()
	}
	return came
}

// TestDamagedPartsAreRepaired changes one setting after the other by hand, while a process receives
// and messages come. Each is repaired, or told with its remedy.
func TestDamagedPartsAreRepaired(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 2, InboxMaxBytes: 64 << 20, DeadLetterMaxBytes: 8 << 20})
	b.ReconcileEvery(50 * time.Millisecond)
	if _, err := b.OpenTaskQueue(t.Context(), broker.TaskQueueName{Activity: "act"}); err != nil {
		t.Fatal(err)
	}
	came := receiveAll(t, b)
	js := rawJetStream(t, s)
	for i, d := range damages() {
		whole, undo := d.apply(t, js)
		if d.stays {
			natstest.Eventually(t, d.part+" is told: "+d.says, func() bool { return d.flawed(t, b) })
			undo()
		}
		natstest.Eventually(t, d.part+" is whole again: "+d.says, whole)
		natstest.Eventually(t, "nothing is told any more: "+d.says, func() bool { return len(b.Flaws()) == 0 })
		w := events.Wire{Subject: "rondo.event.e.i", Header: events.Header{events.HeaderMsgID: {fmt.Sprint(i)}}}
		if err := b.Publish(t.Context(), w); err != nil {
			t.Fatalf("after %s, %s: %v", d.part, d.says, err)
		}
		<-came
	}
}

// TestDamageIsToldWhereItMayNotBeRepaired does the same where only setup may change streams, with
// the permissions that Rondo ships.
func TestDamageIsToldWhereItMayNotBeRepaired(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "one-circle-of-trust.conf"})
	config := natsbroker.Config{Login: natsbroker.Login{User: "setup", Password: "setup"}, Partitions: 2,
		InboxMaxBytes: 64 << 20, DeadLetterMaxBytes: 8 << 20}
	setup := natstest.Connect(t, s, config)
	if _, err := setup.OpenTaskQueue(t.Context(), broker.TaskQueueName{Activity: "act"}); err != nil {
		t.Fatal(err)
	}
	config.Login, config.Setup, config.InboxPrefix = natsbroker.Login{User: "orchestrator", Password: "orchestrator"},
		natsbroker.Verify, inboxOf("orchestrator")
	b := natstest.Connect(t, s, config)
	b.ReconcileEvery(50 * time.Millisecond)
	receiveAll(t, b)
	nc, err := nats.Connect(s.URL(), nats.UserInfo("setup", "setup"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range damages() {
		whole, undo := d.apply(t, js)
		if strings.HasPrefix(d.part, "RONDO_TASKS/") { // orchestrators may make them
			natstest.Eventually(t, d.part+" is whole again: "+d.says, whole)
			continue
		}
		natstest.Eventually(t, d.part+" is told: "+d.says, func() bool { return d.flawed(t, b) })
		for _, f := range b.Flaws() {
			if !strings.Contains(f.Remedy, "migrate --streams") && !strings.Contains(f.Remedy, "nats consumer resume") {
				t.Errorf("%v: the remedy is %q", f.Part, f.Remedy)
			}
		}
		if undo(); !whole() {
			t.Errorf("%s is not whole", d.part)
		}
		natstest.Eventually(t, "nothing is told any more: "+d.says, func() bool { return len(b.Flaws()) == 0 })
	}
	for _, part := range []string{"RONDO/p-0", "RONDO/a-1", "RONDO_LATER/due", "RONDO_DEAD", "KV_RONDO_KV",
		"KV_RONDO_PROGRESS", "RONDO"} {
		stream, consumer, isConsumer := strings.Cut(part, "/")
		remove := func() error { return js.DeleteStream(t.Context(), stream) }
		if isConsumer {
			remove = func() error { return js.DeleteConsumer(t.Context(), stream, consumer) }
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, part+" is told", func() bool {
			return damage{part: part, says: "it is missing"}.flawed(t, b)
		})
	}
}

// TestDamageThatAnotherProcessRepairs: a process without partition 0 tells of a damaged stream that
// the owner of partition 0 repairs soon.
func TestDamageThatAnotherProcessRepairs(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 2})
	b.ReconcileEvery(20 * time.Millisecond)
	go func() { _ = b.Receive(t.Context(), 1, func(broker.Delivery) {}) }()
	js := rawJetStream(t, s)
	remedy := func(part string) (remedy string) {
		natstest.Eventually(t, part+" is told", func() bool {
			for _, f := range b.Flaws() {
				if f.Part == "stream "+part {
					remedy = f.Remedy
					return true
				}
			}
			return false
		})
		return remedy
	}
	dead := streamInfo(t, t.Context(), js, "RONDO_DEAD").Config
	dead.MaxMsgs = 1000
	if _, err := js.UpdateStream(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KV_RONDO_PROGRESS"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"RONDO_DEAD", "KV_RONDO_PROGRESS"} {
		if got, want := remedy(part), "an orchestrator repairs it within a minute"; got != want {
			t.Errorf("the remedy for %s is %q, want %q", part, got, want)
		}
	}
}

// TestOtherSettingsAreNoDamage: a process with other settings has made its setup meanwhile, as in a
// deployment. The former settings do not come back, and nothing is told; damage of the new ones is.
func TestOtherSettingsAreNoDamage(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 2})
	b.ReconcileEvery(20 * time.Millisecond)
	receiveAll(t, b)
	natstest.Connect(t, s, natsbroker.Config{Partitions: 2, InboxAckWait: time.Minute, DeadLetterTTL: time.Hour})
	js := rawJetStream(t, s)
	told := damage{part: "RONDO_DEAD", says: "maximum number of messages", mild: true}
	dead := streamInfo(t, t.Context(), js, "RONDO_DEAD").Config
	dead.MaxMsgs = 1000
	if _, err := js.UpdateStream(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the damage is told", func() bool { return told.flawed(t, b) })
	if all := b.Flaws(); len(all) != 1 || !strings.Contains(all[0].Remedy, "migrate --streams") {
		t.Errorf("%v", all)
	}
	if now := streamInfo(t, t.Context(), js, "RONDO_DEAD").Config; now.MaxAge != time.Hour || now.MaxMsgs != 1000 {
		t.Errorf("%+v", now)
	}
	if c, err := js.Consumer(t.Context(), "RONDO", "p-0"); err != nil || c.CachedInfo().Config.AckWait != time.Minute {
		t.Errorf("%+v, %v", c, err)
	}
}
