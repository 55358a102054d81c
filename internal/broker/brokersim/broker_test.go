package sim_test

import (
	"testing"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/broker/brokertest"
	"github.com/rondo-run/rondo/pkg/events"
)

// The simulated broker keeps what the real one keeps.
func TestConformance(t *testing.T) {
	bustest.Run(t, func(t *testing.T, s bustest.Settings) bustest.Environment {
		b := sim.NewBroker(sim.Options{Partitions: s.Partitions, InboxWait: s.InboxWait, WorkWait: s.WorkWait,
			MemberLease: s.MemberLease, SessionLease: s.SessionLease})
		return bustest.Environment{
			Connect: func(t *testing.T) bustest.Bus {
				c := sim.Connect(b, nil)
				t.Cleanup(func() { _ = c.Close() })
				return c
			},
			Stored: func(*testing.T) int { return b.Stored() },
			Dead:   func(*testing.T) []events.Wire { return b.Dead() },
		}
	})
}
