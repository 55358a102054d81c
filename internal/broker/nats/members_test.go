package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/slowtest"
)

// TestAMemberThatIsNotStoredHasAFault: NATS answers, and stores nothing in the bucket of members.
// The fault ends when it stores again.
func TestAMemberThatIsNotStoredHasAFault(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{MemberLease: time.Second})
	m, err := b.Join(t.Context(), broker.Member{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	js := rawJetStream(t, s)
	limit := func(bytes int32) {
		t.Helper()
		c := streamInfo(t, t.Context(), js, "KV_RONDO_MEMBERS").Config
		c.MaxMsgSize = bytes
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	none := func(when string) {
		t.Helper()
		if !slowtest.Until(longEnough, func() bool { return m.Fault() == nil }) { // NATS may respond late
			t.Errorf("%s, and there is a fault: %v", when, m.Fault())
		}
	}
	none("NATS stores")
	limit(1)
	if !slowtest.Until(longEnough, func() bool { return m.Fault() != nil }) {
		t.Error("no fault, though NATS stores nothing")
	}
	limit(-1)
	none("NATS stores again")
}

// TestTakingWithoutPermission: a worker that may not ask for tasks learns it, and does not count as
// ready while it receives none.
func TestTakingWithoutPermission(t *testing.T) {
	t.Parallel()
	b := lacking(t, "$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS.*", "worker")
	q, err := b.OpenTaskQueue(t.Context(), broker.TaskQueueName{Tag: "gpu", Activity: "a"})
	if err != nil {
		t.Fatal(err)
	}
	const subject = "$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS."
	if n, err := q.Take(t.Context(), 1, func(broker.Delivery) {}); n != 0 ||
		!errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
		t.Errorf("taking %d: %v", n, err)
	}
}

// TestReceivingWithoutPermission: the same for an orchestrator and its messages.
func TestReceivingWithoutPermission(t *testing.T) {
	t.Parallel()
	b := lacking(t, "$JS.API.CONSUMER.MSG.NEXT.RONDO.*", "orchestrator")
	ctx, cancel := context.WithCancel(t.Context())
	var receiving sync.WaitGroup
	receiving.Go(func() {
		if err := b.Receive(ctx, 0, func(broker.Delivery) {}); err != nil {
			t.Errorf("receiving ends: %v", err)
		}
	})
	defer receiving.Wait()
	defer cancel()
	natstest.Eventually(t, "it is a flaw that the user may not ask for messages", func() bool {
		return slices.ContainsFunc(b.Flaws(), func(f broker.Flaw) bool {
			return f.Harmful && strings.HasPrefix(f.Part, "consumer RONDO/") &&
				strings.Contains(f.Problem, "does not let")
		})
	})
}

// lacking connects a user that lacks a permission of the shipped configuration.
func lacking(t *testing.T, subject, user string) *natsbroker.Bus {
	t.Helper()
	config, err := os.ReadFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	lacks := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(lacks, []byte(strings.ReplaceAll(string(config), fmt.Sprintf("%q, ", subject), "")),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := natstest.StartWith(t, embedded.Options{Config: lacks})
	made(t, s, "setup", "rondo")
	return natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: user, Password: user},
		InboxPrefix: inboxOf(user), Setup: natsbroker.Verify, Timeout: time.Hour})
}

// TestJoiningWithoutPermission: a user lacks a permission that joining needs. The orchestrator
// learns which one, and does not take the silence for a broker that is slow.
func TestJoiningWithoutPermission(t *testing.T) {
	t.Parallel()
	const subject = "$JS.API.STREAM.MSG.GET.KV_RONDO_MEMBERS"
	b := lacking(t, subject, "orchestrator")
	if _, err := b.Join(t.Context(), broker.Member{ID: "a"}); !errors.Is(err, nats.ErrPermissionViolation) ||
		!strings.Contains(err.Error(), subject) {
		t.Errorf("joining: %v", err)
	}
}
