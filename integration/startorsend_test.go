package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestALockThatIsStartedByItsUsers has a lock that its users start, and that ends when no user
// waits for it. Most requests meet it as it runs, and many as it ends: each is either read by the
// lock that runs, or begins another one.
func TestALockThatIsStartedByItsUsers(t *testing.T) {
	t.Parallel()
	type none = struct{}
	var (
		lock     = orchestration.Define[none, none]("lock")
		user     = orchestration.Define[none, none]("user")
		requests = orchestration.DefineMailbox[string]("requests")
		releases = orchestration.DefineMailbox[string]("releases")
		granted  = orchestration.DefineMailbox[string]("granted")
	)
	var c *client.Client
	s := newSystem(t, openSQLite(t), lock.Bind(func(ctx *orchestration.Context, _ none) (none, error) {
		for {
			id, ok, err := requests.TryReceive(ctx) // the first one has come with the start
			if err != nil || !ok {
				return none{}, err
			}
			if err := granted.SendFrom(ctx, id, ctx.Instance()); err != nil {
				return none{}, err
			}
			if _, err := releases.Receive(ctx); err != nil {
				return none{}, err
			}
		}
	}), user.Bind(func(ctx *orchestration.Context, _ none) (none, error) {
		me := ctx.Instance()
		if _, err := orchestration.Step(ctx, "request", func(ctx context.Context) (none, error) {
			_, err := lock.Start(ctx, c, none{}, orchestration.ID("printer"), orchestration.RestartFinished(),
				orchestration.RequestID("of "+me), orchestration.WithMessage(requests, me))
			return none{}, err
		}); err != nil {
			return none{}, err
		}
		if _, err := granted.Receive(ctx); err != nil {
			return none{}, err
		}
		return none{}, releases.SendFrom(ctx, "printer", me)
	}))
	c = busclient.New[*client.Client](s.bus, busclient.Options{})
	t.Cleanup(func() { _ = c.Close() })
	s.orchestrate()
	const users, turns = 8, 20
	for turn := range turns {
		for i := range users {
			s.start("user", fmt.Sprintf("user-%d-%d", turn, i), none{})
		}
		for i := range users {
			s.ended(fmt.Sprintf("user-%d-%d", turn, i))
		}
	}
	incarnations, err := s.store.Instance(t.Context(), "printer")
	if err != nil || incarnations.Execution < 2 {
		t.Errorf("the lock has had %d incarnations (%v): it never ended", incarnations.Execution, err)
	}
	t.Logf("%d incarnations for %d requests", incarnations.Execution, users*turns)
}
