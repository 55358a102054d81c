package brokertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
)

var loadTests = []test{
	{"partitions change while messages travel", Settings{Partitions: 4, InboxAckWait: short}, changePartitions},
	{"many publish more than fits on the way at once", Settings{}, manyPublish},
	{"publishing while the broker restarts loses nothing", Settings{InboxAckWait: 5 * time.Second, Restarts: true},
		publishWhileRestarting},
	{"work goes on after the broker was restarted", Settings{Restarts: true}, workAfterRestart},
	{"delayed messages come though the broker was restarted", Settings{Restarts: true}, delayedAfterRestart},
	{"what was returned comes at once after the broker was restarted", Settings{Restarts: true}, returnedAfterRestart},
}

// stream publishes numbered messages to instances until stop is called, which returns their number
// for each instance.
type stream struct {
	stop func() map[string]int
}

func (t *T) stream(b Bus, name string, instances int) stream {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan map[string]int)
	go func() {
		sent := make(map[string]int)
		for n := 0; ctx.Err() == nil; n++ {
			var messages []events.Wire
			for i := range instances {
				instance := fmt.Sprint(name, i)
				messages = append(messages, event(b, instance, fmt.Sprintf("%s/%d", instance, n)))
			}
			limited, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
			if err := b.Publish(limited, messages...); err != nil {
				t.Error(err)
			} else {
				for i := range instances {
					sent[fmt.Sprint(name, i)]++
				}
			}
			stop()
			pause(ctx, 2*time.Millisecond)
		}
		done <- sent
	}()
	return stream{func() map[string]int {
		cancel()
		return <-done
	}}
}

// collect acknowledges deliveries until each instance has received all different messages that were
// sent to it. The deliveries in before count, too.
func (r *receiving) collect(sent map[string]int, before []got) []got {
	r.t.Helper()
	missing := make(map[string]bool)
	for instance, n := range sent {
		for i := range n {
			missing[fmt.Sprintf("%s/%d", instance, i)] = true
		}
	}
	for _, g := range before {
		delete(missing, id(g.Delivery))
	}
	var all []got
	deadline := time.After(patience)
	for len(missing) > 0 {
		select {
		case g := <-r.came:
			g.Hold.Ack()
			delete(missing, id(g.Delivery))
			all = append(all, g)
		case <-deadline:
			some := ""
			for m := range missing {
				some += " " + m
				if len(some) > 200 {
					break
				}
			}
			r.t.Fatalf("%d of %d messages are lost, and %d are stored:%s", len(missing), len(all)+len(missing),
				r.t.Stored(r.t.T), some)
		}
	}
	return all
}

// emptied waits until nothing is stored, and acknowledges the redeliveries.
func (r *receiving) emptied() {
	r.t.Helper()
	r.t.eventually("nothing is stored", func() bool {
		for len(r.came) > 0 {
			(<-r.came).Hold.Ack()
		}
		return r.t.Stored(r.t.T) == 0
	})
}

// nothingWaits acknowledges messages until no partition has a message to deliver. It is for tests
// that stop the server while acknowledgements are on their way: when the server starts again, its
// consumer has the acknowledgement, and the stream may still have the message, which no consumer
// gets.
func (r *receiving) nothingWaits(b Bus) {
	r.t.Helper()
	ps, err := b.Partitions(r.t.Context())
	r.t.must(err)
	r.t.eventually("no message waits", func() bool {
		for len(r.came) > 0 {
			(<-r.came).Hold.Ack()
		}
		for p := range ps.Count {
			if l, err := b.Backlog(r.t.Context(), p); err != nil || l.Waiting+l.Held > 0 {
				return false
			}
		}
		return true
	})
}

func changePartitions(t *T) {
	b, other := t.bus(), t.bus()
	var streams []stream
	for _, name := range []string{"a", "b"} {
		streams = append(streams, t.stream(b, name, 20))
	}
	known := make(map[int]bool)
	var receivers []*receiving
	came := make(chan got, 1_000_000)
	ctx, cancel := context.WithCancel(t.Context())
	var forwarding sync.WaitGroup
	follow := func() { // as an orchestrator does
		ps, err := other.Partitions(t.Context())
		t.must(err)
		for _, p := range ps.All() {
			if !known[p] {
				known[p] = true
				r := t.receive(other, p)
				receivers = append(receivers, r)
				forwarding.Go(func() {
					for {
						select {
						case g := <-r.came:
							g.Hold.Ack()
							came <- g
						case <-ctx.Done():
							return
						}
					}
				})
			}
		}
	}
	follow()
	for _, n := range []int{8, 3} {
		before := len(came)
		t.eventually("messages travel", func() bool { return len(came) > before+500 })
		t.must(b.SetPartitions(t.Context(), n))
		follow()
		ps, err := other.Partitions(t.Context())
		t.must(err)
		if ps.Count != n || len(ps.All()) < n {
			t.Errorf("partitions %+v, want %d", ps, n)
		}
		before = len(came)
		t.eventually("messages travel", func() bool { return len(came) > before+500 })
	}
	t.eventually("the partitions of before are drained and gone", func() bool {
		ps, err := other.Partitions(t.Context())
		t.must(err)
		return ps.Equal(broker.Partitions{Count: 3})
	})
	sent := make(map[string]int)
	for _, s := range streams {
		for instance, n := range s.stop() {
			sent[instance] += n
		}
	}
	all := &receiving{t: t, came: came}
	for _, g := range all.collect(sent, nil) {
		if g.Partition >= 8 {
			t.Errorf("%s is in partition %d", g.Subject, g.Partition)
		}
	}
	t.empty()
	cancel()
	forwarding.Wait()
	for _, r := range receivers {
		r.stop()
	}
}

func manyPublish(t *T) {
	publishers, calls, each := racetest.Short(24, 8), racetest.Short(4, 2), racetest.Size(250, 60)
	large := racetest.Short(50, 7) // one in so many; together they exceed the window
	b := t.bus()
	r := t.receive(b)
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for c := range calls {
				var messages []events.Wire
				for i := range each {
					w := event(b, fmt.Sprint(p, "-", i), fmt.Sprintf("%d-%d/%d", p, i, c))
					if i%large == 0 {
						w.Body = make([]byte, 256<<10)
					}
					messages = append(messages, w)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if err := b.Publish(ctx, messages...); err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	sent := make(map[string]int)
	for p := range publishers {
		for i := range each {
			sent[fmt.Sprintf("%d-%d", p, i)] = calls
		}
	}
	t.must(perInstance(r.collect(sent, nil)))
	r.emptied()
}

func publishWhileRestarting(t *T) {
	if t.Restart == nil {
		t.Skip("the broker cannot be restarted")
	}
	a, b := t.bus(), t.bus()
	r := t.receive(b)
	s := t.stream(a, "x", 20)
	all := r.take(200)
	t.Restart(t.T, func() { pause(t.Context(), short/2) })
	all = append(all, r.take(200)...) // it goes on
	sent := s.stop()
	t.must(perInstance(append(all, r.collect(sent, all)...)))
	r.nothingWaits(a)
}

// returnedAfterRestart nacks the deliveries of a process that shuts down in order. When the broker
// and the receivers start again, they get these messages without waiting for the ack wait.
func returnedAfterRestart(t *T) {
	if t.Restart == nil {
		t.Skip("the broker cannot be restarted")
	}
	a, b := t.bus(), t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	t.publish(a, event(a, "i", "first"), event(a, "i", "second"), event(a, "i", "third"), work(a, q, "i", "work"),
		work(a, q, "i", "other work"))
	r := t.receive(a)
	events, tasks := r.expect("first", "second", "third"), t.takeWork(a, q, 2)
	r.stop()
	for _, g := range append(events[:2:2], tasks[0]) {
		g.Hold.Nak(0)
	}
	// A broker processes the acknowledgements and nacks of a consumer in their order.
	events[2].Hold.Ack()
	tasks[1].Hold.Ack()
	t.eventually("the broker knows of all", func() bool {
		e, err := a.Backlog(t.Context(), events[0].Partition)
		t.must(err)
		w, err := a.TaskBacklog(t.Context(), q)
		t.must(err)
		return e.Waiting+e.Held == 2 && w.Waiting+w.Held == 1
	})
	t.must(a.Close())
	t.Restart(t.T, func() {})
	for _, g := range append(t.receive(b).expect("first", "second"), t.takeWork(b, q, 1)...) {
		g.Hold.Ack()
	}
	t.empty()
}

// workAfterRestart restarts the broker while a worker waits for tasks. The worker gets the next
// tasks, and not by a redelivery: the ack wait is longer than the patience of the test.
func workAfterRestart(t *T) {
	if t.Restart == nil {
		t.Skip("the broker cannot be restarted")
	}
	b := t.bus()
	q := broker.TaskQueueName{Activity: "a"}
	w := t.open(b, q)
	t.publish(b, work(b, q, "held", "held"))
	held := t.takeWork(b, q, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	came := make(chan string, 100)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := w.Take(ctx, 4, func(d broker.Delivery) {
					d.Hold.Ack()
					came <- id(d)
				})
				if err != nil {
					t.Log(err)
					pause(ctx, 50*time.Millisecond)
				}
			}
		})
	}
	t.eventually("somebody asks", func() bool {
		l, err := b.TaskBacklog(t.Context(), q)
		return err == nil && l.Receivers > 0
	})
	t.Restart(t.T, func() {})
	t.publish(b, work(b, q, "i", "1"), work(b, q, "j", "2"))
	deadline := time.After(patience)
	for missing := map[string]bool{"1": true, "2": true}; len(missing) > 0; {
		select {
		case got := <-came:
			delete(missing, got)
		case <-deadline:
			l, err := b.TaskBacklog(t.Context(), q)
			t.Fatalf("after %v the worker has not got the tasks %v; the backlog is %+v, %v", patience, missing, l, err)
		}
	}
	held.Hold.Ack() // as if the broker had not restarted
	t.empty()
}

func delayedAfterRestart(t *T) {
	if t.Restart == nil {
		t.Skip("the broker cannot be restarted")
	}
	b := t.bus()
	r := t.receive(b)
	due := make(map[string]time.Time)
	var messages []events.Wire
	for i := range 40 {
		name := fmt.Sprint("i", i)
		due[name] = time.Now().Add(time.Duration(i+1) * 100 * time.Millisecond)
		messages = append(messages, timer(b, name, name, due[name]))
	}
	t.publish(b, messages...)
	t.Restart(t.T, func() { pause(t.Context(), short/2) })
	seen := make(map[string]bool)
	for len(seen) < len(messages) {
		g := r.next()
		g.Hold.Ack()
		seen[id(g.Delivery)] = true
		if g.at.Before(due[id(g.Delivery)]) {
			t.Errorf("%s is %v early", id(g.Delivery), due[id(g.Delivery)].Sub(g.at))
		}
	}
	r.settleRest(func(g got) { g.Hold.Ack() })
}
