package natsbroker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
)

// wants checks that an error has all parts.
func wants(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%v\nwant %q in it", err, p)
		}
	}
}

var everything = []string{"RONDO", "RONDO_LATER", "RONDO_TASKS", "RONDO_DEAD", "KV_RONDO_MEMBERS", "KV_RONDO_SESSIONS",
	"KV_RONDO_KV", "KV_RONDO_PROGRESS"}

func TestSetupByFourAtOnceIsSetupByOne(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := natstest.TryConnect(t, s, natsbroker.Config{Partitions: 3}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	js := rawJetStream(t, s)
	configs := func() (all []string) {
		for _, name := range everything {
			info := streamInfo(t, t.Context(), js, name)
			config, err := json.Marshal(info.Config)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s %d %d", config, info.State.Consumers, info.State.Msgs))
		}
		return all
	}
	before := configs()
	b := natstest.Connect(t, s, natsbroker.Config{})
	if err := b.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := configs(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v\nbefore %v", after, before)
	}
	natstest.Connect(t, s, natsbroker.Config{Setup: natsbroker.Verify})
}

func TestVerifyNamesAllThatIsMissingAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	_, err := natstest.TryConnect(t, s, natsbroker.Config{Setup: natsbroker.Verify})
	wants(t, err, everything...)
	js := rawJetStream(t, s)
	for name := range js.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s was made", name)
	}
}

func TestVerifyNamesAllThatDiffers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	natstest.Connect(t, s, natsbroker.Config{Partitions: 3})
	js := rawJetStream(t, s)
	work := streamInfo(t, t.Context(), js, "RONDO_TASKS").Config
	work.Duplicates = time.Minute
	inbox := streamInfo(t, t.Context(), js, "RONDO").Config
	inbox.SubjectTransform.Destination = "rondo.p.{{partition(3,3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
	if _, err := js.UpdateStream(t.Context(), inbox); err != nil {
		t.Fatal(err)
	}
	if _, err := js.UpdateStream(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), "RONDO", "p-2"); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KV_RONDO_KV"); err != nil {
		t.Fatal(err)
	}
	_, err := natstest.TryConnect(t, s,
		natsbroker.Config{Setup: natsbroker.Verify, InboxAckWait: time.Minute, DeadLetterTTL: time.Hour, Partitions: 4})
	wants(t, err,
		"stream RONDO: transform is rondo.*.*.* to rondo.p.{{partition(3,3)}}.{{wildcard(1)}}",
		"stream RONDO_TASKS: window for duplicates is 1m0s, wanted is 10s",
		"stream RONDO_DEAD: age is 720h0m0s, wanted is 1h0m0s",
		"consumer p-0: ack_wait is 5s, wanted is 1m0s", "consumer p-2: it is missing",
		"stream KV_RONDO_KV: it is missing")
	natstest.Connect(t, s, natsbroker.Config{InboxAckWait: time.Minute, DeadLetterTTL: time.Hour, Partitions: 4})
	natstest.Connect(t, s, natsbroker.Config{InboxAckWait: time.Minute, DeadLetterTTL: time.Hour,
		Setup: natsbroker.Verify})
}

// A deployment that is rolled back has the number of partitions of an earlier revision, and no
// permission to change the stream. Its processes start, and use the partitions of the stream.
func TestVerifyContinuesWithAnotherNumberOfPartitions(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	natstest.Connect(t, s, natsbroker.Config{Partitions: 3})
	for _, setting := range []int{2, 5} {
		var log bytes.Buffer
		b := natstest.Connect(t, s, natsbroker.Config{Setup: natsbroker.Verify, Partitions: setting,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 2 { // Repair verifies again, and does not warn again
			if ps, err := b.Partitions(t.Context()); err != nil || ps.Count != 3 {
				t.Errorf("%+v, %v; want the 3 partitions of the stream", ps, err)
			}
			if err := b.Repair(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if n := strings.Count(log.String(),
			fmt.Sprintf("another number of partitions than the settings; continuing with that of the stream\" "+
				"stream=RONDO partitions=3 wanted=%d", setting)); n != 1 {
			t.Errorf("%d warnings about %d partitions:\n%s", n, setting, log.String())
		}
	}
	if n := streamInfo(t, t.Context(), rawJetStream(t, s), "RONDO").Config.Metadata["rondo.partitions"]; n != "3" {
		t.Errorf("the stream has %s partitions", n)
	}
}

// In an earlier version, partitions had one lane. Its messages are kept, and both lanes are
// created.
func TestPartitionsGetTheirSecondLane(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	js := rawJetStream(t, s)
	if err := js.DeleteConsumer(t.Context(), "RONDO", "a-0"); err != nil {
		t.Fatal(err)
	}
	inbox, err := js.Stream(t.Context(), "RONDO")
	if err != nil {
		t.Fatal(err)
	}
	one, err := inbox.Consumer(t.Context(), "p-0")
	if err != nil {
		t.Fatal(err)
	}
	former := one.CachedInfo().Config
	former.FilterSubject = "rondo.p.0.>"
	if _, err := inbox.UpdateConsumer(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	want := []string{"rondo.start.o.i", "rondo.timer-due.1-2.i"}
	if err := b.Publish(t.Context(), events.Wire{Subject: want[0]}, events.Wire{Subject: want[1]}); err != nil {
		t.Fatal(err)
	}
	if _, err := natstest.TryConnect(t, s, natsbroker.Config{Setup: natsbroker.Verify}); err == nil {
		t.Error("nothing is found to be different")
	}
	b = natstest.Connect(t, s, natsbroker.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	came := make(chan string, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			d.Hold.Ack()
			came <- d.Subject
		})
	}()
	for range want {
		select {
		case got := <-came:
			if !slices.Contains(want, got) {
				t.Errorf("%s came", got)
			}
		case <-ctx.Done():
			t.Fatal("not all has come")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestSystemsOnOneServerDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a, b := natstest.Connect(t, s, natsbroker.Config{Prefix: "shop"}),
		natstest.Connect(t, s, natsbroker.Config{Prefix: "shop2", Partitions: 2})
	if err := a.Publish(t.Context(), events.Wire{Subject: "shop.event.e.i"},
		events.Wire{Subject: "shop.task._.a.1-2.i"}); err != nil {
		t.Fatal(err)
	}
	var refused *broker.Refused
	if err := b.Publish(t.Context(), events.Wire{Subject: "shop.event.e.i"}); err == nil || !errorsAs(err, &refused) {
		t.Errorf("one publishes to the other: %v", err)
	}
	ps, err := b.Partitions(t.Context())
	if err != nil || ps.Count != 2 {
		t.Errorf("%+v, %v", ps, err)
	}
	for p := range ps.Count {
		if l, err := b.Backlog(t.Context(), p); err != nil || l.Waiting != 0 {
			t.Errorf("partition %d: %+v, %v", p, l, err)
		}
	}
	if q, err := b.ListTaskQueues(t.Context()); err != nil || len(q) != 0 {
		t.Errorf("%v, %v", q, err)
	}
	owner, err := a.Acquire(t.Context(), "s", "w")
	other, err2 := b.Owner(t.Context(), "s")
	if owner != "w" || other != "" || err != nil || err2 != nil {
		t.Errorf("%q and %q, %v, %v", owner, other, err, err2)
	}
}

func TestPrefixesThatWouldShareAStreamAreRefused(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	natstest.Connect(t, s, natsbroker.Config{Prefix: "a-b"})
	for _, prefix := range []string{"a_b", "A-b"} {
		_, err := natstest.TryConnect(t, s, natsbroker.Config{Prefix: prefix})
		wants(t, err, "stream A_B: it belongs to somebody else", "choose another prefix")
	}
	natstest.Connect(t, s, natsbroker.Config{Prefix: "a-b", Setup: natsbroker.Verify})
}

func TestPartitionsStayWhenNobodySaysHowMany(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	count := func(b *natsbroker.Bus, want int) {
		t.Helper()
		if ps, err := b.Partitions(t.Context()); err != nil || ps.Count != want {
			t.Errorf("%+v, %v; want %d", ps, err, want)
		}
	}
	count(natstest.Connect(t, s, natsbroker.Config{Partitions: 5}), 5)
	b := natstest.Connect(t, s, natsbroker.Config{})
	count(b, 5)
	if err := b.SetPartitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	count(natstest.Connect(t, s, natsbroker.Config{}), 2)
	six := natstest.Connect(t, s, natsbroker.Config{Partitions: 6})
	count(b, 6)
	if err := b.SetPartitions(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if err := six.Repair(t.Context()); err != nil { // the settings of a process count only at its start
		t.Fatal(err)
	}
	count(six, 3)
	if err := b.SetPartitions(t.Context(), 0); err == nil {
		t.Error("no partition at all")
	}
}

func TestReplicasOfASystemCanBeChanged(t *testing.T) {
	t.Parallel()
	if testing.Short() || racetest.On {
		t.Skip("three servers are too much for the race detector; `make large` runs this")
	}
	servers := natstest.Cluster(t, 3)
	b := natstest.Connect(t, servers, natsbroker.Config{Partitions: 1})
	if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.event.e.i"}); err != nil {
		t.Fatal(err)
	}
	js := rawJetStream(t, servers)
	for _, replicas := range []int{3, 0, 1} {
		config := natsbroker.Config{Replicas: replicas, Timeout: 20 * time.Second}
		natstest.Connect(t, servers, config)
		for _, name := range everything {
			want := max(replicas, 1)
			if replicas == 0 {
				want = 3
			}
			if is := streamInfo(t, t.Context(), js, name).Config.Replicas; is != want {
				t.Errorf("stream %s has %d replicas, want %d", name, is, want)
			}
		}
	}
	got := make(chan bool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = b.Receive(ctx, 0, func(d broker.Delivery) { close(got) }) // it arrived, or the test fails below
	}()
	select {
	case <-got:
	case <-time.After(longEnough):
		t.Error("the message is lost")
	}
}

// ---- Unsuitable servers.

func TestServersThatCannotBeUsedAreExplained(t *testing.T) {
	t.Parallel()
	off := natstest.StartWith(t, embedded.Options{NoJetStream: true})
	_, err := natstest.TryConnect(t, off, natsbroker.Config{})
	wants(t, err, "JetStream is off on this server", "-js")

	small := natstest.StartWith(t, embedded.Options{MaxPayload: 512 << 10})
	_, err = natstest.TryConnect(t, small, natsbroker.Config{})
	wants(t, err, "524288", "max_payload")
	natstest.Connect(t, small, natsbroker.Config{MaxPayload: 256 << 10})

	_, err = natsbroker.Connect(t.Context(),
		natsbroker.Config{URLs: "nats://me:secret@127.0.0.1:1", Timeout: time.Second})
	wants(t, err, "connect to nats://…@127.0.0.1:1", "nats-server -js")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%v shows the password", err)
	}

	s := natstest.StartWith(t, embedded.Options{Config: configFile(t, `
		accounts {
			WITH { jetstream: enabled, users: [ { user: a, password: a } ] }
			WITHOUT { users: [ { user: b, password: b } ] }
		}`)})
	natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: "a", Password: "a"}})
	_, err = natstest.TryConnect(t, s, natsbroker.Config{Login: natsbroker.Login{User: "b", Password: "b"}})
	wants(t, err, "JetStream is off for this account")
	_, err = natstest.TryConnect(t, s, natsbroker.Config{Login: natsbroker.Login{User: "a", Password: "wrong"}})
	wants(t, err, "check the credentials")
	_, err = natstest.TryConnect(t, s, natsbroker.Config{})
	wants(t, err, "check the credentials")
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "server.conf")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestConfigListsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := natsbroker.Connect(t.Context(), natsbroker.Config{
		Prefix: "1 bad", Partitions: -1, Replicas: 2, InboxAckWait: time.Millisecond, TaskAckWait: time.Millisecond,
		SessionLease: time.Millisecond, MemberLease: time.Millisecond,
		DeadLetterTTL: time.Second, Timeout: time.Millisecond, Login: natsbroker.Login{User: "u", Token: "t"},
		TLS: natsbroker.TLS{Certificate: "c"}, MaxPayload: 1,
	})
	wants(t, err, "prefix", "partitions", "replicas", "orchestrator", "worker", "lease of a session",
		"lease of a member", "dead letters", "timeout", "one way to log in", "certificate needs its key", "max payload")
}

// ---- A broker that loses data.

func TestEverythingGoesOnWhenTheBrokerHasLostEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := natstest.StartWith(t, embedded.Options{Dir: dir})
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 3, MemberLease: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	came := make(chan string, 1000)
	failed := make(chan error, 1000)
	again := func(f func() error) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := f(); err != nil {
					failed <- err
					select {
					case <-ctx.Done():
					case <-time.After(100 * time.Millisecond):
					}
				}
			}
		})
	}
	take := func(d broker.Delivery) {
		came <- d.Subject
		d.Hold.Ack()
	}
	for p := range 3 {
		again(func() error { return b.Receive(ctx, p, take) })
	}
	queue, err := b.OpenTaskQueue(ctx, broker.TaskQueueName{Activity: "a"})
	if err != nil {
		t.Fatal(err)
	}
	again(func() error {
		_, err := queue.Take(ctx, 3, take)
		return err
	})
	me, err := b.Join(ctx, broker.Member{ID: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetPartitions(ctx, 2); err != nil {
		t.Fatal(err)
	}
	works := func() {
		t.Helper()
		began := time.Now()
		defer func() { t.Logf("it works after %v", time.Since(began)) }()
		limited, cancel := context.WithTimeout(ctx, longEnough)
		defer cancel()
		for _, subject := range []string{"rondo.event.e.i", "rondo.event.e.j", "rondo.event.e.k", "rondo.event.e.l",
			"rondo.task._.a.1-2.i", "rondo.task._.b.1-2.i"} {
			if err := b.Publish(limited, events.Wire{Subject: subject}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(subject, ".b.") {
				continue
			}
			select {
			case got := <-came:
				if got != subject {
					t.Errorf("%s came, want %s", got, subject)
				}
			case <-limited.Done():
				t.Fatalf("%s did not come", subject)
			}
		}
		natstest.Eventually(t, "the queue nobody takes from is known", func() bool {
			queues, err := b.ListTaskQueues(limited)
			return err == nil && len(queues) == 2
		})
		if _, err := b.Acquire(limited, "s", "w"); err != nil {
			t.Error(err)
		}
		if err := b.Put(limited, "n", []byte("x"), 0); err != nil {
			t.Error(err)
		}
		var other *natsbroker.Bus
		natstest.Eventually(t, "somebody connects", func() bool {
			var err error
			if other, err = natstest.TryConnect(t, s, natsbroker.Config{MemberLease: time.Second}); err != nil {
				t.Log(err)
			}
			return err == nil
		})
		natstest.Eventually(t, "members find each other", func() bool {
			they, err := other.Join(limited, broker.Member{ID: "they"})
			if err != nil || len(they.Members()) != 2 || len(me.Members()) != 2 {
				return false
			}
			return they.Leave(limited) == nil
		})
	}
	works()

	// The server starts again without data.
	restart(t, s, func() {
		if err := os.RemoveAll(filepath.Join(dir, "jetstream")); err != nil {
			t.Fatal(err)
		}
	})
	// Nothing is made anew before a receiver has failed: a publish would do that, and the receivers
	// might then not notice.
	natstest.Eventually(t, "a receiver fails", func() bool { return len(failed) > 0 })
	works()
	if ps, err := b.Partitions(ctx); err != nil || ps.Count != 2 {
		t.Errorf("%+v, %v; want as many as before", ps, err)
	}

	// An operator removes all streams while the server runs.
	js := rawJetStream(t, s)
	for _, name := range everything {
		if err := js.DeleteStream(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	works()

	// An operator removes the consumers.
	for stream, consumer := range map[string]string{"RONDO": "p-0",
		"RONDO_TASKS": natsbroker.ConsumerOf(broker.TaskQueueName{Activity: "a"})} {
		if err := js.DeleteConsumer(ctx, stream, consumer); err != nil {
			t.Fatal(err)
		}
	}
	works()
	if v, err := b.Get(ctx, "x"); v != nil || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

func TestVerifyDoesNotMakeWhatIsLost(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	b := natstest.Connect(t, s, natsbroker.Config{Setup: natsbroker.Verify})
	js := rawJetStream(t, s)
	received := make(chan error, 1)
	go func() { received <- b.Receive(t.Context(), 0, func(broker.Delivery) {}) }()
	natstest.Eventually(t, "it receives", func() bool {
		l, err := b.Backlog(t.Context(), 0)
		return err == nil && l.Receivers == 1
	})
	if err := js.DeleteStream(t.Context(), "RONDO"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-received:
		wants(t, err, "receive from partition 0", "not found")
	case <-time.After(longEnough):
		t.Fatal("who receives is not told")
	}
	wants(t, b.Repair(t.Context()), "stream RONDO: it is missing")
	if _, err := js.Stream(t.Context(), "RONDO"); err != nil &&
		!strings.Contains(err.Error(), jetstream.ErrStreamNotFound.Error()) {
		t.Errorf("the stream: %v", err)
	}
}

// A server that is in no cluster refuses replicas: the setup ends with the first request to make a
// stream, and with what to do.
func TestReplicasOnOneServerAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked, err := nc.SubscribeSync("$JS.API.STREAM.CREATE.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err = natsbroker.Connect(t.Context(), natsbroker.Config{URLs: server.URL(), Replicas: 3})
	wants(t, err, "3 replicas: this NATS server is in no cluster, so its streams have no replicas; connect to a "+
		"cluster, or set --replicas 1")
	if !errors.Is(err, natsbroker.ErrOneServer) {
		t.Errorf("the setup returns %v", err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := asked.Pending(); n != 1 {
		t.Errorf("%d requests to make a stream, want 1", n)
	}
}
