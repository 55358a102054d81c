package natsbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	"github.com/rondo-run/rondo/pkg/events"
)

// partitioned starts a server, and returns a function that makes connections to it. Twice the ack
// wait after a change of the number of partitions, drained ones may go.
func partitioned(t *testing.T, ackWait time.Duration) (connect func() *Bus) {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return func() *Bus {
		t.Helper()
		b, err := Connect(t.Context(), Config{URLs: server.URL(), InboxAckWait: ackWait,
			Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
}

func setPartitions(t *testing.T, b *Bus, n int) {
	t.Helper()
	if err := b.SetPartitions(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// partitionConsumers lists the consumers of partitions, in order.
func partitionConsumers(t *testing.T, b *Bus) (names []string) {
	t.Helper()
	st, err := b.inbox.js.Stream(t.Context(), b.inbox.names.inbox)
	if err != nil {
		t.Fatal(err)
	}
	have, err := lanesOf(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for i, there := range have {
		for _, l := range there {
			names = append(names, l.consumer(i))
		}
	}
	slices.Sort(names)
	return names
}

// A process has found a former partition drained, and was frozen before it removed the consumers.
// Meanwhile, an operator has raised the number of partitions.
func TestARaisedPartitionKeepsItsConsumers(t *testing.T) {
	t.Parallel()
	connect := partitioned(t, time.Hour)
	frozen, operator := connect(), connect()
	setPartitions(t, operator, 2)
	setPartitions(t, operator, 3)
	if frozen.inbox.dropDrained(t.Context(), 2, lanes) {
		t.Error("the consumers are removed")
	}
	setPartitions(t, operator, 2) // messages that came meanwhile may be in flight
	if frozen.inbox.dropDrained(t.Context(), 2, lanes) {
		t.Error("the consumers are removed at once")
	}
	if got, want := fmt.Sprint(partitionConsumers(t, operator)), "[a-0 a-1 a-2 a-3 p-0 p-1 p-2 p-3]"; got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
}

// A process that looks at the partitions between the steps of a change must not remove the
// consumers that it has made: it knows from the stream that the number changes. Setup changes the
// number as [inbox.SetPartitions] does.
func TestPartitionsAreAnnounced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, b *Bus){
		"SetPartitions": func(t *testing.T, b *Bus) { setPartitions(t, b, 6) },
		"setup": func(t *testing.T, b *Bus) {
			b.inbox.resources.partitions.Store(6)
			b.inbox.there.Store(nil) // as for a process that connects
			if err := b.Repair(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			announcesPartitions(t, change)
		})
	}
}

func announcesPartitions(t *testing.T, change func(t *testing.T, b *Bus)) {
	connect := partitioned(t, time.Hour)
	b := connect()
	requests, err := b.inbox.nc.SubscribeSync("$JS.API.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.inbox.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	change(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	announced := false
	made := make(map[string]bool) // consumers
	for {
		m, err := requests.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal("nothing is changed", err)
		}
		if _, consumer, ok := strings.Cut(m.Subject, ".CONSUMER.CREATE.RONDO."); ok {
			if made[consumer] = true; !announced {
				t.Fatalf("%s is sent before the change is announced", m.Subject)
			}
		}
		if !strings.HasSuffix(m.Subject, ".STREAM.UPDATE.RONDO") {
			continue
		}
		var c jetstream.StreamConfig
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Fatal(err)
		}
		if announced {
			if partitionsOf(c) != 6 || len(made) != 4 {
				t.Errorf("messages come into %d partitions after %v were made", partitionsOf(c), made)
			}
			break
		}
		if c.Metadata[mostKey] != "6" || partitionsOf(c) == 6 || b.inbox.plan.settled(c) {
			t.Errorf("the announcement is %d partitions, %v", partitionsOf(c), c.Metadata)
		}
		announced = true
	}
	if c := infoOf(t, b); partitionsOf(c) != 6 || most(c) != 6 || b.inbox.plan.settled(c) {
		t.Errorf("in the end there are %d partitions, %v", partitionsOf(c), c.Metadata)
	}
}

func infoOf(t *testing.T, b *Bus) jetstream.StreamConfig {
	t.Helper()
	st, err := b.inbox.js.Stream(t.Context(), b.inbox.names.inbox)
	if err != nil {
		t.Fatal(err)
	}
	return st.CachedInfo().Config
}

// The messages of former partitions come, although their consumers are gone: both, or one of them.
func TestFormerPartitionsWithoutConsumersAreDrained(t *testing.T) {
	t.Parallel()
	connect := partitioned(t, time.Second)
	b := connect()
	setPartitions(t, b, 6)
	// Each partition has messages of both lanes, but for the last one.
	missing := make(map[string]bool)
	for i := 0; len(missing) < 60; i++ {
		instance := fmt.Sprint("i", i)
		start, done := "rondo.start.o."+instance, "rondo.task-done.1-2."+instance
		p := b.partitionOfInstance(t, instance)
		if p == 5 {
			continue
		}
		missing[start], missing[done] = true, true
		if err := b.Publish(t.Context(), events.Wire{Subject: start}, events.Wire{Subject: done}); err != nil {
			t.Fatal(err)
		}
	}
	setPartitions(t, b, 2)
	for _, name := range []string{"p-2", "a-2", "p-3", "a-4", "a-5"} {
		if err := b.inbox.js.DeleteConsumer(t.Context(), b.inbox.names.inbox, name); err != nil {
			t.Fatal(err)
		}
	}
	other := connect()
	p, err := other.Partitions(t.Context())
	if err != nil || p.Count != 2 || !strings.HasPrefix(fmt.Sprint(p.Draining), "[2 3 4") { // 5 may be gone
		t.Fatalf("there are %v, %v; want 2 and the former 2 to 4", p, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	came := make(chan string, 100)
	for i := range 5 {
		go func() {
			_ = other.Receive(ctx, i, func(d broker.Delivery) {
				d.Hold.Ack()
				came <- d.Subject
			})
		}()
	}
	for len(missing) > 0 {
		select {
		case subject := <-came:
			delete(missing, subject)
		case <-ctx.Done():
			t.Fatalf("%d messages do not come: %v", len(missing), missing)
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for p.Count != 2 || len(p.Draining) > 0 {
		<-tick.C
		if p, err = other.Partitions(ctx); err != nil {
			t.Fatalf("there are still %v: %v", p, err)
		}
	}
	if got, want := fmt.Sprint(partitionConsumers(t, b)), "[a-0 a-1 p-0 p-1]"; got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
}

// partitionOfInstance asks the server.
func (b *Bus) partitionOfInstance(t *testing.T, instance string) int {
	t.Helper()
	st, err := b.inbox.js.Stream(t.Context(), b.inbox.names.inbox)
	if err != nil {
		t.Fatal(err)
	}
	probe := "rondo.event.probe." + instance
	if err := b.Publish(t.Context(), events.Wire{Subject: probe}); err != nil {
		t.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(t.Context(), b.inbox.names.storedAs(probe))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.DeleteMsg(t.Context(), m.Sequence); err != nil {
		t.Fatal(err)
	}
	i, err := strconv.Atoi(strings.Split(m.Subject, ".")[2])
	if err != nil {
		t.Fatal(err)
	}
	return i
}
