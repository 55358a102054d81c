package brokersim_test

import (
	"testing"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/broker/brokertest"
	"github.com/rondo-run/rondo/pkg/events"
)

// The simulated broker keeps the contract of the real one, in virtual time.
func TestConformance(t *testing.T) {
	brokertest.RunVirtual(t, func(t *testing.T, s brokertest.Settings) brokertest.Environment {
		b := brokersim.NewBroker(brokersim.Options{Partitions: s.Partitions, InboxAckWait: s.InboxAckWait,
			TaskAckWait: s.TaskAckWait,
			MemberLease: s.MemberLease, SessionLease: s.SessionLease})
		return brokertest.Environment{
			Connect: func(t *testing.T) brokertest.Bus {
				c := brokersim.Connect(b, nil)
				t.Cleanup(func() { _ = c.Close() })
				return c
			},
			Stored: func(*testing.T) int { return b.Stored() },
			Dead:   func(*testing.T) []events.Wire { return b.Dead() },
		}
	})
}
