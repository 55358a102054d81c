package natsbroker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestReceiverTakesOverThousands takes a partition over from a receiver that has died with 4,096
// messages.
func TestReceiverTakesOverThousands(t *testing.T) {
	t.Parallel()
	const n = 4096
	s := natstest.Start(t)
	config := natsbroker.Config{Partitions: 1, InboxAckWait: time.Hour}
	first, second := natstest.Connect(t, s, config), natstest.Connect(t, s, config)
	var messages []events.Wire
	for i := range n {
		messages = append(messages,
			events.Wire{Subject: fmt.Sprint("rondo.task-done.1-2.i", i), Body: make([]byte, 200)})
	}
	if err := first.Publish(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	held := 0
	if err := first.Receive(ctx, 0, func(broker.Delivery) {
		if held++; held == n {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := second.Publish(t.Context(), events.Wire{Subject: "rondo.task-failed.1-2.i7"},
		events.Wire{Subject: "rondo.task-failed.1-2.new"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	came := make(chan broker.Delivery, n)
	began := time.Now()
	go func() {
		if err := second.Receive(ctx, 0, func(d broker.Delivery) { came <- d }); err != nil {
			t.Error(err)
		}
	}()
	select {
	case d := <-came:
		if d.Subject != "rondo.task-failed.1-2.new" {
			t.Errorf("%s came, which should wait", d.Subject)
		}
		t.Logf("what has not to wait came after %v", time.Since(began))
	case <-time.After(longEnough):
		t.Fatal("nothing came")
	}
}

// delayed publishes messages with random delays up to most, and returns how late they arrived,
// sorted.
func delayed(t testing.TB, n int, most time.Duration) []time.Duration {
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 8})
	random := rand.New(rand.NewPCG(1, 2))
	due, came := make([]time.Time, n), make([]bool, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex // of due and came, too
	var late []time.Duration
	var all sync.WaitGroup
	for p := range 8 {
		all.Go(func() {
			err := b.Receive(ctx, p, func(d broker.Delivery) {
				now := time.Now().Round(0)
				var i int
				if _, err := fmt.Sscanf(d.Subject, "rondo.timer-due.1-2.%d", &i); err != nil {
					t.Error(err)
				}
				d.Hold.Ack()
				mu.Lock()
				defer mu.Unlock()
				if came[i] { // NATS delivers it again if the first delivery takes long
					return
				}
				came[i] = true
				if late = append(late, now.Sub(due[i])); len(late) == n {
					cancel()
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for begin := 0; begin < n; begin += 100 {
		var messages []events.Wire
		mu.Lock()
		for i := begin; i < min(begin+100, n); i++ {
			// the wall clock counts
			due[i] = time.Now().Add(10*time.Millisecond + time.Duration(random.Int64N(int64(most)))).Round(0)
			messages = append(messages, events.Wire{Subject: fmt.Sprint("rondo.timer-due.1-2.", i), NotBefore: due[i]})
		}
		mu.Unlock()
		if err := b.Publish(ctx, messages...); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	slices.Sort(late)
	return late
}

func TestThousandsOfDelayedMessagesAreNotEarly(t *testing.T) {
	t.Parallel()
	n := racetest.Short(racetest.Size(10_000, 2_000), 1_000)
	late := delayed(t, n, 5*time.Second)
	t.Logf("%d messages, late by: p50 %v, p99 %v, most %v", len(late), late[n/2], late[n*99/100], late[n-1])
	if late[0] < 0 {
		t.Errorf("one is %v early", -late[0])
	}
}

// BenchmarkDelayed measures how late delayed messages arrive.
func BenchmarkDelayed(b *testing.B) {
	late := delayed(b, b.N, 5*time.Second)
	b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkSchedules measures the memory for a message with a delay of an hour, in the server and
// in this process together.
func BenchmarkSchedules(b *testing.B) {
	s := natstest.Start(b)
	to := natstest.Connect(b, s, natsbroker.Config{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	due := time.Now().Add(time.Hour)
	for begin := 0; begin < b.N; begin += benchBatch {
		var messages []events.Wire
		for i := begin; i < min(begin+benchBatch, b.N); i++ {
			messages = append(messages, events.Wire{Subject: fmt.Sprint("rondo.timer-due.1-2.", i), NotBefore: due})
		}
		if err := to.Publish(b.Context(), messages...); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	after := heap()
	b.ReportMetric(float64(int64(after)-int64(before))/float64(b.N), "heap-B/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// TestWithdrawnTimersAreForgotten: withdrawn timers that are far off cost the server nothing. The
// server would remember the times of messages that are only purged.
func TestWithdrawnTimersAreForgotten(t *testing.T) { // not parallel: it counts what the process allocates
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	b := natstest.Connect(t, natstest.Start(t), natsbroker.Config{Partitions: 1})
	due := time.Now().Add(time.Hour)
	timers := func(round int, withdraw bool) (list []events.Wire) {
		for i := range 200 {
			list = append(list, events.Wire{Subject: fmt.Sprintf("rondo.timer-due.1-2.i%d-%d", round, i),
				NotBefore: due, Purge: withdraw})
		}
		return list
	}
	publish := func(list []events.Wire) {
		t.Helper()
		if err := b.Publish(t.Context(), list...); err != nil {
			t.Fatal(err)
		}
	}
	rounds := racetest.Short(20, 8)
	waiting := int64(0)
	for n := range rounds {
		publish(timers(n, false))
		if n == 0 {
			waiting = scheduled()
		}
		publish(timers(n, true))
	}
	left := scheduled()
	t.Logf("what it remembers of 200 timers takes %d bytes, and %d when they and %d others are withdrawn",
		waiting, left, 200*(rounds-1))
	if waiting < 200*50 {
		t.Error("that is too little: it is somewhere else")
	}
	// Its tables stay as large as they were, and grow by themselves depending on their random seed:
	// by less than half. If it remembered them, they would take a multiple, one for each round.
	if left > 2*waiting {
		t.Error("they are remembered")
	}
	for _, w := range timers(rounds-1, false) {
		if has, err := b.Has(t.Context(), w); has || err != nil {
			t.Fatalf("%s is there: %t, %v", w.Subject, has, err)
		}
	}
}

// scheduled returns the bytes with which a server in this process remembers the times of delayed
// messages.
func scheduled() (bytes int64) {
	runtime.GC()
	runtime.GC() // the second one counts the memory that the first one has freed
	records := make([]runtime.MemProfileRecord, 100_000)
	n, ok := runtime.MemProfile(records, false)
	if !ok {
		panic("the profile is too large")
	}
	for _, r := range records[:n] {
		frames := runtime.CallersFrames(r.Stack())
		for {
			f, more := frames.Next()
			if strings.Contains(f.Function, "MsgScheduling).init") {
				bytes += r.InUseBytes()
				break
			}
			if !more {
				break
			}
		}
	}
	return bytes
}
