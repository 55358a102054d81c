package client_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestPendingStarts lists delayed starts, and withdraws one of them.
func TestPendingStarts(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	c := s.client(client.Options{})
	list := func(f client.PendingFilter) (ids []string) {
		t.Helper()
		all, err := client.Collect(c.Instances().Pending(t.Context(), f))
		must(t, err)
		for _, p := range all {
			if p.Why != client.PendingScheduled || p.Due.Before(p.StoredAt) || p.Orchestration == "" {
				t.Errorf("%+v", p)
			}
			if !slices.Contains(ids, p.Instance) { // it may move meanwhile
				ids = append(ids, p.Instance)
			}
		}
		slices.Sort(ids)
		return ids
	}
	for _, id := range []string{"a-1", "a-2", "b-1"} {
		_, err := c.Start(t.Context(), "order", nil, orchestration.ID(id), orchestration.Delay(time.Hour))
		must(t, err)
	}
	natstest.Eventually(t, "the delayed starts are stored for later", func() bool {
		var in int64
		for p := range 2 {
			l, err := s.bus.Backlog(t.Context(), p)
			must(t, err)
			in += l.Waiting + l.Held
		}
		return in == 0
	})
	if ids := list(client.PendingFilter{IDPrefix: "a-", Orchestration: "order"}); !slices.Equal(ids,
		[]string{"a-1", "a-2"}) {
		t.Errorf("pending are %q", ids)
	}
	if n, err := c.Instances().Withdraw(t.Context(), "a-1"); n != 1 || err != nil {
		t.Errorf("withdrawn %d, %v", n, err)
	}
	if n, err := c.Instances().Withdraw(t.Context(), "a-1"); n != 0 || !errors.Is(err, client.ErrNoInstance) {
		t.Errorf("withdrawn %d, %v", n, err)
	}
	if ids := list(client.PendingFilter{}); !slices.Equal(ids, []string{"a-2", "b-1"}) {
		t.Errorf("pending are %q", ids)
	}
}
