package natsbroker_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
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
