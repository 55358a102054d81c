package ownership_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/services/orchestrator/ownership"
)

// replica is an orchestrator that takes no messages. It knows which partitions it owns.
type replica struct {
	*ownership.Ownership
	bus  *brokersim.Bus
	stop context.CancelFunc
}

func (replica) Receive(context.Context, broker.Delivery) {}
func (replica) TakeOver(broker.Delivery) error           { return nil }
func (replica) SetOwned(map[int]bool) bool               { return true }

type noCode struct{}

func (noCode) Names() []string          { return nil }
func (noCode) Versions(string) []string { return nil }

// ownersWithin checks that so many replicas own all partitions, each at least one, at the latest
// after some virtual time.
func ownersWithin(t *testing.T, most time.Duration, partitions int, replicas []*replica) {
	t.Helper()
	const step = 10 * time.Millisecond
	for began := time.Now(); ; <-time.After(step) {
		owned, idle := make(map[int]int), 0
		for _, r := range replicas {
			mine := r.Owned()
			if len(mine) == 0 {
				idle++
			}
			for _, p := range mine {
				owned[p]++
			}
		}
		if len(owned) == partitions && idle == 0 {
			return
		}
		if time.Since(began) > most {
			t.Fatalf("after %v, the partitions have these numbers of owners: %v; %d replicas own none", most,
				owned, idle)
		}
	}
}

// TestPartitionsOfADeadReplicaMove: when a replica dies, the others own its partitions as soon as
// its lease has expired; when it leaves in order, at once. Both have virtual time.
func TestPartitionsOfADeadReplicaMove(t *testing.T) {
	const partitions, lease = 8, time.Second
	for name, c := range map[string]struct {
		end  func(*replica)
		most time.Duration
	}{
		"dies": {func(r *replica) { _ = r.bus.Close() }, lease * 3 / 2},
		"leaves": {func(r *replica) {
			r.Leave(context.Background(), lease)
			r.stop()
		}, lease / 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := brokersim.NewBroker(brokersim.Options{Partitions: partitions, InboxAckWait: time.Minute,
					TaskAckWait: time.Minute, MemberLease: lease, SessionLease: time.Minute})
				var all sync.WaitGroup
				defer all.Wait()
				var replicas []*replica
				for i := range 4 {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					r := &replica{bus: brokersim.Connect(b, nil), stop: stop}
					defer r.bus.Close()
					r.Ownership = ownership.New(fmt.Sprint("orchestrator-", i), "", noCode{}, r.bus,
						slog.New(slog.DiscardHandler))
					if err := r.Join(ctx, r); err != nil {
						t.Fatal(err)
					}
					all.Go(func() { r.Run(ctx, r) })
					replicas = append(replicas, r)
				}
				ownersWithin(t, lease, partitions, replicas)
				<-time.After(10 * lease) // nothing moves while all run
				ownersWithin(t, 0, partitions, replicas)
				c.end(replicas[0])
				ownersWithin(t, c.most, partitions, replicas[1:])
			})
		})
	}
}
