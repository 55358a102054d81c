package natsbroker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/brokertest"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "8") // most of the tests wait most of the time
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	shared := natstest.Start(t)
	brokertest.Run(t, func(t *testing.T, s brokertest.Settings) brokertest.Environment {
		if !s.Restarts {
			return environment(t, shared, 0, s)
		}
		own := natstest.Start(t)
		e := environment(t, own, 0, s)
		e.Restart = func(t *testing.T, down func()) { restart(t, own, down) }
		return e
	})
}

func TestConformanceOnCluster(t *testing.T) {
	if testing.Short() || racetest.On {
		t.Skip("three servers are too much for the race detector; `make large` runs this, and one is tested here")
	}
	servers := natstest.Cluster(t, 3)
	slots := make(chan bool, 4) // three servers on one machine have enough to do
	brokertest.Run(t, func(t *testing.T, s brokertest.Settings) brokertest.Environment {
		slots <- true
		t.Cleanup(func() { <-slots })
		// A message lost between two servers is redelivered within the patience of the test.
		s.InboxAckWait, s.TaskAckWait = min(s.InboxAckWait, time.Minute), min(s.TaskAckWait, time.Minute)
		return environment(t, servers, 3, s)
	})
}

func restart(t testing.TB, s *embedded.Server, down func()) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	down()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

// systems counts the systems that were made, so that each has its own prefix.
var systems atomic.Int64

// environment makes a system of its own on servers that may have other systems.
func environment(t *testing.T, to interface{ URL() string }, replicas int,
	s brokertest.Settings) brokertest.Environment {
	prefix := fmt.Sprintf("sys%d", systems.Add(1))
	config := natsbroker.Config{
		Prefix: prefix, Partitions: s.Partitions, Replicas: replicas, InboxAckWait: s.InboxAckWait,
		TaskAckWait:  s.TaskAckWait,
		MemberLease:  s.MemberLease,
		SessionLease: s.SessionLease, Timeout: time.Minute,
		Memory: testing.Short() && replicas == 0 && !s.Restarts,
		// a hundred systems share the storage of the servers
		InboxMaxBytes: -1, DeadLetterMaxBytes: -1,
	}
	js := rawJetStream(t, to)
	t.Cleanup(func() { removeSystem(t, js, prefix) })
	natstest.Connect(t, to, config)
	config.Partitions = 0
	up := strings.ToUpper(prefix)
	return brokertest.Environment{
		Cluster: replicas > 1,
		Connect: func(t *testing.T) brokertest.Bus { return natstest.Connect(t, to, config) },
		Stored: func(t *testing.T) (n int) {
			ctx, cancel := context.WithTimeout(context.Background(), longEnough)
			defer cancel()
			return stored(t, ctx, js, prefix, up, up+"_LATER", up+"_TASKS")
		},
		Dead: func(t *testing.T) (dead []events.Wire) { return deadLetters(t, js, up+"_DEAD") },
	}
}

// stored counts the messages in streams, without the anchors.
func stored(t testing.TB, ctx context.Context, js jetstream.JetStream, prefix string, streams ...string) (n int) {
	t.Helper()
	for _, name := range streams {
		n += int(streamInfo(t, ctx, js, name).State.Msgs)
		for _, subject := range []string{prefix + ".anchor", prefix + ".later.anchor._._",
			prefix + ".later.task._.anchor._._"} {
			n -= int(streamInfo(t, ctx, js, name, jetstream.WithSubjectFilter(subject)).State.Subjects[subject])
		}
	}
	return n
}

// rawJetStream is a connection without Rondo's code.
func rawJetStream(t testing.TB, to interface{ URL() string }) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(to.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func streamInfo(t testing.TB, ctx context.Context, js jetstream.JetStream, name string,
	opts ...jetstream.StreamInfoOpt) *jetstream.StreamInfo {
	t.Helper()
	st, err := js.Stream(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if len(opts) == 0 {
		return st.CachedInfo()
	}
	info, err := st.Info(ctx, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func deadLetters(t testing.TB, js jetstream.JetStream, name string) (dead []events.Wire) {
	t.Helper()
	st, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range st.CachedInfo().State.LastSeq {
		m, err := st.GetMsg(t.Context(), i+1)
		if err != nil {
			t.Fatal(err)
		}
		dead = append(dead, events.Wire{Subject: m.Subject, Header: events.Header(m.Header), Body: m.Data})
	}
	return dead
}

// removeSystem deletes the streams of a system, to free the servers.
func removeSystem(t testing.TB, js jetstream.JetStream, prefix string) {
	up := strings.ToUpper(prefix)
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	for _, name := range []string{up, up + "_LATER", up + "_TASKS", up + "_DEAD", "KV_" + up + "_MEMBERS",
		"KV_" + up + "_SESSIONS", "KV_" + up + "_KV", "KV_" + up + "_PROGRESS"} {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Logf("remove stream %s: %v", name, err)
		}
	}
}

func errorsAs[T error](err error, to *T) bool { return errors.As(err, to) }

// TestQueueOfWorkThatNobodyHasMade: the publisher of a task dies, or NATS does not respond, before
// the task queue is created. A look for the task creates the task queue, so that workers which
// serve any tag find it.
func TestQueueOfWorkThatNobodyHasMade(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	b := natstest.Connect(t, server, natsbroker.Config{})
	dying := natstest.Connect(t, server, natsbroker.Config{Setup: natsbroker.Use}) // it creates nothing
	ref := events.Ref{Incarnation: "aa", Execution: 1, Event: 2}
	work, err := events.Encode(b.Prefix(), events.Message{ID: events.MessageID(events.VerbTask, "i", ref),
		Instance: "i", Content: &events.Task{Ref: ref, Activity: "charge", Tag: "gpu", Attempt: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := dying.Publish(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if q, err := b.ListTaskQueues(t.Context()); err != nil || len(q) != 0 {
		t.Fatalf("there are the queues %v, %v", q, err)
	}
	if has, err := b.Has(t.Context(), work); err != nil || !has {
		t.Fatalf("the work is there: %v, %v", has, err)
	}
	natstest.Eventually(t, "the queue is there", func() bool {
		q, err := b.ListTaskQueues(t.Context())
		return err == nil && slices.Equal(q, []broker.TaskQueueName{{Tag: "gpu", Activity: "charge"}})
	})
}
