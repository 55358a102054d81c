package rondotest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// TestQueue does random things with a queue and checks its invariants after each.
func TestQueue(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := &queue{now: time.Unix(0, 0), purged: make(map[string]int)}
		held := make(map[*envelope]bool)
		for range 60 {
			switch r.IntN(7) {
			case 0, 1, 2:
				id := fmt.Sprint("i", r.IntN(3))
				v := &envelope{owner: id, message: events.Message{Instance: id, Content: &events.Wake{}},
					due: q.now.Add(time.Duration(r.IntN(5)-1) * time.Second)}
				q.add(v)
				held[v] = true
			case 3:
				if len(q.ready) > 0 {
					v := q.take(r.IntN(len(q.ready)))
					if r.IntN(2) == 0 {
						q.park(v, "no code")
						break
					}
					delete(held, v)
				}
			case 4:
				if at := q.nextDue(); !at.IsZero() {
					q.moveTo(at)
					q.release()
				}
			case 5:
				q.unpark()
			default:
				taken := q.takeFor("i1", 2)
				for i, v := range taken {
					if v.message.Instance != "i1" || i >= 2 {
						t.Fatalf("seed %d: took %d envelopes, this one for %s", seed, len(taken), v.message.Instance)
					}
				}
				q.putBack(taken)
			}
			if bad := violation(q, held); bad != "" {
				t.Fatalf("seed %d: %s", seed, bad)
			}
		}
		q.unpark()
		q.drop("i2")
		for _, v := range append(q.ready, q.delayed...) {
			if v.owner == "i2" {
				t.Errorf("seed %d: an envelope of a crashed instance is left", seed)
			}
		}
	}
}

// violation describes an invariant of a queue that does not hold, "" if all do.
func violation(q *queue, held map[*envelope]bool) string {
	places, numbers := make(map[*envelope]int), make(map[int]bool)
	for _, place := range [][]*envelope{q.ready, q.delayed, q.parked} {
		for _, v := range place {
			places[v]++
			numbers[v.sequence] = true
		}
	}
	for v := range held {
		if places[v] != 1 {
			return fmt.Sprintf("envelope %d is in %d places", v.sequence, places[v])
		}
	}
	if len(places) != len(held) || len(numbers) != len(held) {
		return fmt.Sprintf("%d envelopes with %d numbers, want %d", len(places), len(numbers), len(held))
	}
	for _, v := range q.ready {
		if v.due.After(q.now) {
			return fmt.Sprintf("envelope %d is ready too early", v.sequence)
		}
	}
	for _, v := range q.delayed {
		if !v.due.After(q.now) {
			return fmt.Sprintf("envelope %d is delayed, and due", v.sequence)
		}
	}
	return ""
}
