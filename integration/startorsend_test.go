package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// A lock that is started by those who want it, and ends when nobody waits for it. Most requests
// meet it as it runs, and many as it ends: each is either read by the lock that runs, or begins
// another one.
func TestALockThatIsStartedByItsUsers(t *testing.T) {
	t.Parallel()
	type none = struct{}
	var (
		lock     = orchestration.Define[none, none]("lock")
		user     = orchestration.Define[none, none]("user")
		requests = orchestration.DefineQueue[string]("requests")
		releases = orchestration.DefineQueue[string]("releases")
		granted  = orchestration.DefineQueue[string]("granted")
	)
	var c *client.Client
	s := newSystem(t, openSQLite(t), lock.With(func(ctx *orchestration.Context, _ none) (none, error) {
		for {
			id, ok, err := requests.TryReceive(ctx) // the first one has come with the start
			if err != nil || !ok {
				return none{}, err
			}
			if err := granted.Send(ctx, id, ctx.Instance()); err != nil {
				return none{}, err
			}
			if _, err := releases.Receive(ctx); err != nil {
				return none{}, err
			}
		}
	}), user.With(func(ctx *orchestration.Context, _ none) (none, error) {
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
		return none{}, releases.Send(ctx, "printer", me)
	}))
	c = client.New(s.bus, client.Options{})
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
