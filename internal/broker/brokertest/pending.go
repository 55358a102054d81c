package brokertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

var pendingTests = []test{
	{"starts are listed in pages, wherever they wait", Settings{}, pendingPages},
	{"starts are listed by orchestration and instance", Settings{}, pendingFilter},
	{"a start is listed until it is acknowledged", Settings{}, pendingMoves},
	{"a withdrawn start does not come, and a newer one does", Settings{}, withdrawnStart},
	{"a start is withdrawn wherever it has moved", Settings{}, withdrawnMoved},
}

// startOf returns a start of an orchestration, as clients or as instances publish it.
func startOf(b Bus, verb, name, instance, id string, delay time.Duration) events.Wire {
	w := events.Wire{Subject: b.Prefix() + "." + verb + "." + events.EncodeToken(name) + "." +
		events.EncodeToken(instance), Header: headerWith(id), Body: []byte(`{}`)}
	if delay > 0 {
		w.NotBefore = time.Now().Add(delay)
	}
	return w
}

const internalStart = "internal_start"

// pendingStarts reads all pages of a listing.
func (t *T) pendingStarts(b Bus, f broker.StartFilter, limit int) (list []broker.PendingStart) {
	t.Helper()
	for from, more := (broker.StartCursor{}), true; more; {
		t.must(t.bounded(func(ctx context.Context) error {
			page, err := b.PendingStarts(ctx, f, from, limit)
			if len(page.Starts) > limit {
				t.Errorf("a page has %d starts, more than %d", len(page.Starts), limit)
			}
			list, from, more = append(list, page.Starts...), page.Next, page.More
			return err
		}))
	}
	return list
}

// pendingAre waits until the listed starts are these, by their subjects without the prefix.
func (t *T) pendingAre(b Bus, what string, f broker.StartFilter, want ...string) (list []broker.PendingStart) {
	t.Helper()
	var got []string
	t.eventually(fmt.Sprintf("%s: the starts are %v", what, want), func() bool {
		list, got = t.pendingStarts(b, f, 10), nil
		for _, s := range list {
			got = append(got, strings.TrimPrefix(s.Subject, b.Prefix()+"."))
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
	return list
}

// takenOver waits until a receiver has stored all delayed messages for later. It must have got
// nothing else.
func (t *T) takenOver(b Bus) {
	t.Helper()
	t.eventually("the delayed messages are stored for later", func() bool {
		for p := range t.Partitions {
			if l, err := b.Backlog(t.Context(), p); err != nil || l.Waiting+l.Held > 0 {
				t.must(err)
				return false
			}
		}
		return true
	})
}

// pendingPages: each of 2,500 starts is on one page, whatever the length of the pages.
func pendingPages(t *T) {
	const delayed, atOnce = 1250, 1250
	b, other := t.bus(), t.bus()
	var messages []events.Wire
	for i := range delayed {
		messages = append(messages, startOf(b, "start", "o", fmt.Sprint("later-", i), fmt.Sprint("l", i), time.Hour))
	}
	t.publish(b, messages...)
	r := t.receive(b)
	t.takenOver(b)
	r.stop()
	messages = nil
	for i := range atOnce {
		verb := []string{"start", internalStart}[i%2]
		messages = append(messages, startOf(b, verb, "o", fmt.Sprint("now-", i), fmt.Sprint("n", i), 0))
	}
	t.publish(b, append(messages, event(b, "now-1", "e"))...)
	for _, limit := range []int{80, 1000} {
		t.eventually(fmt.Sprintf("%d starts are listed", delayed+atOnce), func() bool { // a replica may be behind
			list := t.pendingStarts(other, broker.StartFilter{}, limit)
			seen := make(map[string]bool)
			for _, s := range list {
				seen[id(s.Delivery)] = true
				isLater := strings.Contains(s.Subject, "later")
				if isLater == s.NotBefore.IsZero() || s.StoredAt.IsZero() {
					t.Fatalf("%s: not before %v, stored at %v", s.Subject, s.NotBefore, s.StoredAt)
				}
			}
			return len(list) == delayed+atOnce && len(seen) == len(list)
		})
	}
}

// pendingFilter: a filter has the exact name and the exact id. Other messages are no starts.
func pendingFilter(t *T) {
	b := t.bus()
	t.pendingAre(b, "nothing", broker.StartFilter{})
	t.publish(b, startOf(b, "start", "order", "a.b", "1", 0), startOf(b, internalStart, "order", "c", "2", 0),
		startOf(b, "start", "or", "a.b", "3", time.Hour), startOf(b, internalStart, "or", "d", "4", time.Hour),
		event(b, "a.b", "5"), timer(b, "a.b", "6", time.Now().Add(time.Hour)))
	check := func() {
		t.Helper()
		t.pendingAre(b, "all", broker.StartFilter{}, "internal_start.or.d", "internal_start.order.c", "start.or.a%2Eb",
			"start.order.a%2Eb")
		t.pendingAre(b, "a name", broker.StartFilter{Name: "or"}, "internal_start.or.d", "start.or.a%2Eb")
		t.pendingAre(b, "an instance", broker.StartFilter{Instance: "a.b"}, "start.or.a%2Eb", "start.order.a%2Eb")
		t.pendingAre(b, "both", broker.StartFilter{Instance: "a.b", Name: "order"}, "start.order.a%2Eb")
		t.pendingAre(b, "none", broker.StartFilter{Instance: "a"})
		t.pendingAre(b, "any word", broker.StartFilter{Name: "*"})
	}
	check()
	r := t.receive(b) // it stores the delayed ones elsewhere
	partitionOf := make(map[string]int)
	for range 3 {
		g := r.next()
		partitionOf[g.Subject[strings.LastIndexByte(g.Subject, '.')+1:]] = g.Partition
	}
	check()
	now := time.Now()
	later := now.Add(2 * time.Hour)
	for _, x := range []struct {
		instance string
		before   time.Time
		other    bool // the question is about the inbox without the partition of the instance
		waits    bool
	}{{"a.b", now, false, false}, {"a.b", later, false, true}, {"d", later, false, true}, {"d", now, true, false},
		{"c", later, false, false}, {"c", now, true, true}, {"x", later, true, false}} {
		q := broker.StartQuestion{DueBefore: x.before, MovedSince: now, Partition: broker.NoPartition}
		if !x.other {
			q.Partition = partitionOf[x.instance]
		}
		t.eventually(fmt.Sprintf("a start of %s waits, by %+v: %t", x.instance, q, x.waits), func() bool {
			waits, err := b.StartWaits(t.Context(), x.instance, q)
			t.must(err)
			return waits == x.waits
		})
	}
}

// pendingMoves: a delayed start keeps its key and when it was accepted until it is acknowledged.
func pendingMoves(t *T) {
	b := t.bus()
	one := func(what string) broker.PendingStart {
		t.Helper()
		return t.pendingAre(b, what, broker.StartFilter{}, "internal_start.o.i")[0]
	}
	began := time.Now().Add(-time.Minute) // the servers of a cluster have other clocks
	t.publish(b, startOf(b, internalStart, "o", "i", "x", 3*time.Second))
	first := one("a delayed start")
	r := t.receive(b)
	g := r.next()
	last := one("a delivered start")
	accepted := func(s broker.PendingStart) time.Time {
		if s.AcceptedAt.IsZero() {
			return s.StoredAt
		}
		return s.AcceptedAt
	}
	if first.Key == "" || first.Key != last.Key || !first.NotBefore.Equal(last.NotBefore) ||
		accepted(first).Sub(accepted(last)).Abs() > time.Millisecond || accepted(last).Before(began) ||
		id(first.Delivery) != "x" || id(last.Delivery) != "x" {
		t.Errorf("first %+v, last %+v", first, last)
	}
	g.Hold.Ack()
	t.pendingAre(b, "an acknowledged start", broker.StartFilter{})
}

// withdrawStart withdraws a listed start.
func (t *T) withdrawStart(b Bus, s broker.PendingStart) {
	t.Helper()
	t.must(t.bounded(func(ctx context.Context) error { return b.WithdrawStart(ctx, s) }))
}

// withdrawnStart: starts of the same subject that are stored after the listed one stay, and so do
// those of other instances, and other messages.
func withdrawnStart(t *T) {
	b, other := t.bus(), t.bus()
	t.publish(b, startOf(b, "start", "o", "i", "old", 0), startOf(b, "start", "o", "j", "kept", 0),
		startOf(b, "start", "p", "i", "kept-too", 0), event(b, "i", "event"))
	old := t.pendingAre(other, "an old start", broker.StartFilter{Instance: "i", Name: "o"}, "start.o.i")[0]
	t.publish(b, startOf(b, "start", "o", "i", "newer", 0))
	for range 2 { // again, as after a lost answer
		t.withdrawStart(other, old)
	}
	t.pendingAre(other, "the others", broker.StartFilter{}, "start.o.i", "start.o.j", "start.p.i")
	r := t.receive(b)
	var got []string
	for _, g := range r.take(4) {
		got = append(got, id(g.Delivery))
	}
	if slices.Sort(got); !slices.Equal(got, []string{"event", "kept", "kept-too", "newer"}) {
		t.Errorf("%q came", got)
	}
	t.empty()
}

// withdrawnMoved: a start that was listed before it moved is withdrawn, and no later one.
func withdrawnMoved(t *T) {
	b := t.bus()
	one := func(what, instance string) broker.PendingStart {
		t.Helper()
		return t.pendingAre(b, what, broker.StartFilter{Instance: instance}, "start.o."+instance)[0]
	}
	for _, instance := range []string{"i", "j", "k"} {
		t.publish(b, startOf(b, "start", "o", instance, "first-"+instance, time.Hour))
	}
	first, replaced, stored := one("a delayed start", "i"), one("a delayed start", "j"), one("a delayed start", "k")
	r := t.receive(b)
	t.takenOver(b)
	t.publish(b, startOf(b, "start", "o", "j", "second-j", 2*time.Hour))
	t.takenOver(b)
	t.publish(b, startOf(b, "start", "o", "k", "at-once", 0))
	if g := r.next(); id(g.Delivery) != "at-once" {
		t.Fatalf("%s came", id(g.Delivery))
	}
	for _, s := range []broker.PendingStart{first, replaced, stored} {
		t.withdrawStart(b, s)
	}
	t.pendingAre(b, "a withdrawn start", broker.StartFilter{Instance: "i"})
	if s := one("a start that has replaced the listed one", "j"); id(s.Delivery) != "second-j" {
		t.Errorf("%s is left", id(s.Delivery))
	}
	if s := one("a start beside the withdrawn one", "k"); id(s.Delivery) != "at-once" {
		t.Errorf("%s is left", id(s.Delivery))
	}
}
