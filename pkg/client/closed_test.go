package client_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
)

// TestAClosedClient calls the methods of a client that was closed: each returns ErrClosed. Some
// clients have a connection of their own, others share one that stays open, or read from a store.
func TestAClosedClient(t *testing.T) {
	s := newSystem(t, code()...)
	connected, err := client.Connect(t.Context(), "", client.InProcess(s))
	must(t, err)
	clients := map[string]*client.Client{"its own connection": connected, "shared": s.client(client.Options{}),
		"a store": client.New(s.bus, client.Options{Store: s.store})}
	for name, c := range clients {
		must(t, c.Close())

		i, sch, sys := c.Instances(), c.Schedules(), c.System()
		for method, call := range map[string]func(context.Context) error{
			"Start":  func(ctx context.Context) error { _, err := c.Start(ctx, "echo", nil); return err },
			"Raise":  func(ctx context.Context) error { return c.Raise(ctx, "x", "e", nil) },
			"Cancel": func(ctx context.Context) error { return c.Cancel(ctx, "x", "") },
			"Wait":   func(ctx context.Context) error { _, err := c.Wait(ctx, "x"); return err },
			"Get":    func(ctx context.Context) error { _, err := i.Get(ctx, "x"); return err },
			"All":    func(ctx context.Context) error { return collected(i.All(ctx, client.Filter{})) },
			"List": func(ctx context.Context) error {
				_, err := i.List(ctx, client.Filter{}, client.Page{})
				return err
			},
			"Count":        func(ctx context.Context) error { _, err := i.Count(ctx, client.Filter{}, 0); return err },
			"Tree":         func(ctx context.Context) error { _, err := i.Tree(ctx, "x"); return err },
			"Waiting":      func(ctx context.Context) error { _, err := i.Waiting(ctx, "x"); return err },
			"Stats":        func(ctx context.Context) error { _, err := i.Stats(ctx, "x"); return err },
			"Executions":   func(ctx context.Context) error { return collected(i.Executions(ctx, "x")) },
			"Events":       func(ctx context.Context) error { return collected(i.Events(ctx, "x", 0, 0)) },
			"History":      func(ctx context.Context) error { _, err := i.History(ctx, "x", 0); return err },
			"Value":        func(ctx context.Context) error { _, _, err := i.Value(ctx, "x", "k"); return err },
			"Values":       func(ctx context.Context) error { _, err := i.Values(ctx, "x"); return err },
			"CustomStatus": func(ctx context.Context) error { _, _, err := i.CustomStatus(ctx, "x", 0); return err },
			"Delete": func(ctx context.Context) error {
				_, err := i.Delete(ctx, []string{"x"}, client.DeleteOptions{})
				return err
			},
			"DeleteEnded": func(ctx context.Context) error { return collected(i.DeleteEnded(ctx, client.Filter{})) },
			"Prune":       func(ctx context.Context) error { _, err := i.Prune(ctx, "x", client.Keep{}); return err },
			"PruneAll": func(ctx context.Context) error {
				return collected(i.PruneAll(ctx, client.Filter{}, client.Keep{}))
			},
			"Schedules.Put": func(ctx context.Context) error {
				_, err := sch.Put(ctx, client.Schedule{ID: "x", Orchestration: "echo", Cron: "@daily"})
				return err
			},
			"Schedules.All":     func(ctx context.Context) error { return collected(sch.All(ctx)) },
			"Schedules.Get":     func(ctx context.Context) error { _, err := sch.Get(ctx, "x"); return err },
			"Schedules.Pause":   func(ctx context.Context) error { return sch.Pause(ctx, "x", "") },
			"Schedules.Delete":  func(ctx context.Context) error { return sch.Delete(ctx, "x") },
			"Schedules.Resume":  func(ctx context.Context) error { return sch.Resume(ctx, "x") },
			"Schedules.Trigger": func(ctx context.Context) error { return sch.Trigger(ctx, "x", "") },
			"Schedules.Backfill": func(ctx context.Context) error {
				return sch.Backfill(ctx, "x", time.Unix(0, 0), time.Now(), "")
			},
			"Status":    func(ctx context.Context) error { _, err := sys.Status(ctx); return err },
			"Metrics":   func(ctx context.Context) error { _, err := sys.Metrics(ctx); return err },
			"Processes": func(ctx context.Context) error { _, err := sys.Processes(ctx); return err },
			"LogLevels": func(ctx context.Context) error { _, err := sys.LogLevels(ctx); return err },
			"Recover":   func(ctx context.Context) error { _, err := sys.Recover(ctx); return err },
		} {
			if err := call(soon(t)); !errors.Is(err, client.ErrClosed) {
				t.Errorf("%s, %s: got %v", name, method, err)
			}
		}
	}
}

func collected[T any](all iter.Seq2[T, error]) error {
	_, err := client.Collect(all)
	return err
}
