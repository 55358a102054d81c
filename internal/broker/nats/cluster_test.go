package natsbroker_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestLeadersMayDie publishes, receives and takes work while one server after the other is stopped
// and started: those that lead the streams.
func TestLeadersMayDie(t *testing.T) {
	t.Parallel()
	if testing.Short() || racetest.On {
		t.Skip("three servers are too much for the race detector; `make large` runs this")
	}
	servers := natstest.Cluster(t, 3)
	config := natsbroker.Config{Partitions: 2, Replicas: 3, InboxAckWait: 3 * time.Second, TaskAckWait: 3 * time.Second}
	to, from := natstest.Connect(t, servers, config), natstest.Connect(t, servers, config)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()

	var mu sync.Mutex
	got := make(map[string]bool)
	var gap time.Duration // the longest time without anything
	last := time.Now()
	take := func(d broker.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		got[d.Header[events.HeaderMsgID][0]] = true
		gap, last = max(gap, time.Since(last)), time.Now()
		d.Hold.Ack()
	}
	for p := range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := from.Receive(ctx, p, take); err != nil {
					t.Log(err)
				}
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			queue, err := from.OpenTaskQueue(ctx, broker.TaskQueueName{Activity: "a"})
			for err == nil && ctx.Err() == nil {
				_, err = queue.Take(ctx, 16, take)
			}
			if err != nil && ctx.Err() == nil {
				t.Log(err)
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}
	})
	sent := 0
	publish, stop := context.WithCancel(ctx)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for publish.Err() == nil {
			limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
			err := to.Publish(limited, message("rondo.task-done.1-2.i", sent), message("rondo.task._.a.1-2.i", sent+1),
				message("rondo.event.e.i", sent+2))
			cancel()
			if err != nil {
				t.Error(err)
				return
			}
			sent += 3
			select {
			case <-publish.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	for _, stream := range []string{"RONDO", "RONDO_TASKS"} {
		mu.Lock()
		gap, last = 0, time.Now()
		before := len(got)
		mu.Unlock()
		leader := servers.Leader(t, stream)
		if err := leader.Close(); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "messages travel again", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(got) > before+300
		})
		mu.Lock()
		t.Logf("the leader of %s was stopped: nothing came for %v", stream, gap)
		mu.Unlock()
		if err := leader.Restart(); err != nil {
			t.Fatal(err)
		}
		servers.WaitReady(t)
	}
	stop()
	publishing.Wait()
	natstest.Eventually(t, "all has come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == sent
	})
	js := rawJetStream(t, servers)
	natstest.Eventually(t, "all is acknowledged", func() bool {
		return stored(t, ctx, js, "rondo", "RONDO", "RONDO_TASKS") == 0
	})
}

// TestManyMakeTheSameQueue opens new task queues from several connections at the same moment. A
// cluster answers only the first request for a consumer that is being created.
func TestManyMakeTheSameQueue(t *testing.T) {
	t.Parallel()
	if testing.Short() || racetest.On {
		t.Skip("three servers are too much for the race detector; `make large` runs this")
	}
	servers := natstest.Cluster(t, 3)
	var buses []*natsbroker.Bus
	for range 4 {
		buses = append(buses, natstest.Connect(t, servers, natsbroker.Config{Partitions: 1, Replicas: 3}))
	}
	for i := range 10 {
		var all sync.WaitGroup
		for _, b := range buses {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if _, err := b.OpenTaskQueue(ctx, broker.TaskQueueName{Activity: fmt.Sprint("a", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// TestAnInterruptedChangeOfPartitionsKeepsTheReplicas ends a process while it changes the number of
// partitions, when the inbox has one replica. The next setup, or a process that receives, gives the
// inbox its replicas again.
func TestAnInterruptedChangeOfPartitionsKeepsTheReplicas(t *testing.T) {
	t.Parallel()
	if testing.Short() || racetest.On {
		t.Skip("three servers are too much for the race detector; `make large` runs this")
	}
	servers := natstest.Cluster(t, 3)
	changes := natstest.Connect(t, servers, natsbroker.Config{Partitions: 20, Replicas: 3})
	js := rawJetStream(t, servers)
	is := func(replicas int, key string) bool {
		c := streamInfo(t, t.Context(), js, "RONDO").Config
		return c.Replicas == replicas && c.Metadata["rondo.replicas"] == key
	}
	n := 20
	interrupt := func() {
		natstest.Eventually(t, "a change is interrupted", func() bool {
			n--
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sub, err := js.Conn().Subscribe("$JS.API.STREAM.UPDATE.RONDO", func(*nats.Msg) { cancel() })
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			if err := js.Conn().Flush(); err != nil {
				t.Fatal(err)
			}
			return changes.SetPartitions(ctx, n) != nil
		})
	}

	interrupt()
	natstest.Eventually(t, "the stream has one replica", func() bool { return is(1, "3") })
	natstest.Connect(t, servers, natsbroker.Config{})
	natstest.Eventually(t, "setup restores the replicas", func() bool { return is(3, "") })

	receives := natstest.Connect(t, servers, natsbroker.Config{InboxAckWait: time.Second})
	receives.ReconcileEvery(100 * time.Millisecond)
	receiveAll(t, receives)
	interrupt()
	natstest.Eventually(t, "a receiver ends the change", func() bool {
		c := streamInfo(t, t.Context(), js, "RONDO").Config
		return c.Metadata["rondo.partitions"] == strconv.Itoa(n) && is(3, "")
	})
}

// message makes one that can be told from all others.
func message(subject string, n int) events.Wire {
	return events.Wire{Subject: fmt.Sprint(subject, n%97),
		Header: events.Header{events.HeaderMsgID: {fmt.Sprint("m", n)}}, Body: []byte(subject)}
}
