package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	answers "github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// again is a broker that delivers each message as if for the fifth time.
type again struct{ *probe }

func (b again) Receive(ctx context.Context, p int, take func(broker.Delivery)) error {
	return b.probe.Receive(ctx, p, func(d broker.Delivery) {
		d.NumDelivered += 4
		take(d)
	})
}

// TestAStuckQuarantinedMessageHoldsUpNoOther: a quarantined message whose code does not return does
// not hold up others.
func TestAStuckQuarantinedMessageHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	code, entered := stuckCode(t)
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{code}, basics...)...)
	v := s.prepare()
	c := s.hasty()
	c.RunawayAfter, c.StuckAfter = 200*time.Millisecond, 400*time.Millisecond
	v.uses(again{v.broker}, c)
	v.start()
	s.start("stuck", "stuck", "")
	s.await(entered, "the code is stuck")
	s.start("sleeper", "good", 1)
	s.endsSoon("good")
}

// reversed is a broker that delivers as again does, and each four mailbox messages in reverse
// order, as after nacks with different delays.
type reversed struct{ again }

func (b reversed) Receive(ctx context.Context, p int, take func(broker.Delivery)) error {
	var mu sync.Mutex
	var kept []broker.Delivery
	return b.again.Receive(ctx, p, func(d broker.Delivery) {
		if !strings.Contains(d.Subject, ".mailbox.") {
			take(d)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if kept = append(kept, d); len(kept) < 4 {
			return
		}
		slices.Reverse(kept)
		for _, d := range kept {
			take(d)
		}
		kept = nil
	})
}

// TestQuarantinedMessagesInAnyOrderHoldUpNoOther: mailbox messages for unknown instances come to
// the quarantine in reverse order. Each of them is dead-lettered when it is known that no older
// message starts its instance, and none waits for an older one until it counts as stuck.
func TestQuarantinedMessagesInAnyOrderHoldUpNoOther(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	v := s.prepare()
	c := s.hasty()
	c.StuckAfter = time.Hour
	v.uses(reversed{again{v.broker}}, c)
	const instances, each = 20, 4
	for i := range instances {
		var all []events.Message
		for n := range each {
			all = append(all, events.Message{ID: fmt.Sprint("m", i, "-", n), Instance: fmt.Sprint("unknown-", i),
				Content: &events.MailboxMessage{Mailbox: "letters", Data: codec.Payload(fmt.Sprint(n))}})
		}
		s.say(all...)
	}
	v.start()
	s.eventually("all messages are dead-lettered", func() error {
		all, err := s.bus.DeadLetters(t.Context(), 0, 1000)
		if err == nil && len(all) != instances*each {
			err = fmt.Errorf("%d of %d are", len(all), instances*each)
		}
		return err
	})
}

// TestQuarantinedStartsAreNamed: an orchestrator names the instances that it has in quarantine,
// which the database does not have: the one that it tries, and one that waits for its turn.
func TestQuarantinedStartsAreNamed(t *testing.T) {
	t.Parallel()
	code, entered := stuckCode(t)
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{code}, basics...)...)
	v := s.prepare()
	v.uses(again{v.broker}, s.hasty())
	v.start()
	s.start("stuck", "stuck", "")
	s.await(entered, "the code is stuck")
	s.start("sleeper", "waits", 1)
	s.eventually("the instances in quarantine are listed", func() error {
		all, err := answers.All(t.Context(), s.bus)
		if err != nil {
			return err
		}
		var got []string
		for _, p := range all {
			for _, x := range p.Quarantined {
				got = append(got, fmt.Sprintf("%s: start %v, attempt %d", x.Instance, x.Start, x.Attempt))
			}
		}
		if !slices.Equal(got, []string{"stuck: start true, attempt 1", "waits: start true, attempt 0"}) {
			return fmt.Errorf("listed are %q", got)
		}
		return nil
	})
}
