package app_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// bare is a store with nothing but the contract.
type bare struct{ history.Store }

// openBare opens a store in memory that has no job queues.
func openBare(ctx context.Context, address string, o app.StoreOptions) (history.Store, error) {
	if address != "own:one" {
		return nil, &history.Error{Class: history.Permanent, Op: "open", Err: errors.New("unknown " + address)}
	}
	s, err := sqlite.Open(ctx, sqlite.Memory, sqlite.Options{Observer: o.Observer, Log: o.Log})
	if err != nil {
		return nil, err
	}
	return bare{s}, nil
}

// TestSettingsOfOwnStores: --database takes a scheme that the program adds, and an error about
// another one names it.
func TestSettingsOfOwnStores(t *testing.T) {
	own := app.Store("own", openBare)
	for address, says := range map[string]string{
		"own:one": "", "own:": "", "postgres://h/x": "", "mysql://h/x": "own:", "owm:one": "own:",
	} {
		c := app.Defaults(app.Orchestrator)
		c.Database.URL = address
		_, err := app.New(c, append(parts, own)...)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), "also opens "+says) {
			t.Errorf("%s: %v", address, err)
		}
	}
	for says, wrong := range map[string][]app.Part{
		"lower-case": {app.Store("Own", openBare)}, "cannot be a scheme": {app.Store("c", openBare)},
		"belongs to Rondo": {app.Store("sqlite", openBare)}, "no function": {app.Store("own", nil)},
		"twice": {own, own},
	} {
		if _, err := app.New(app.Defaults(app.Dev), append(parts, wrong...)...); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestHelpNamesOwnStores: the help of --database names the schemes that the program adds.
func TestHelpNamesOwnStores(t *testing.T) {
	all := append(slices.Clip(parts), app.Store("own", openBare), app.Store("another", openBare))
	for _, args := range [][]string{{"help", "orchestrator"}, {"migrate", "--help"}, {"dev", "-h"}} {
		code, out, problems := app.RunInside(t.Context(), environment(), args, all...)
		text := strings.Join(strings.Fields(out), " ")
		if code != 0 || !strings.Contains(text, "; this program also opens another:, own: ") {
			t.Errorf("%q: code %d: %s%s", args, code, out, problems)
		}
	}
	if _, out, _ := app.RunInside(t.Context(), environment(), []string{"help", "dev"}, parts...); strings.Contains(out,
		"also opens") {
		t.Errorf("a program without stores of its own: %s", out)
	}
}

// onOwn runs dev on a store of the program's, and the demo once it has started.
func onOwn(t *testing.T, address, queues string, demo func(context.Context, app.System) error,
	more ...app.Part) error {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	c := app.Defaults(app.Dev)
	c.Dir, c.Database.URL, c.NATSListen, c.Listen = t.TempDir(), address, "127.0.0.1:0", "off"
	c.JobQueues.Listen, c.Demo = queues, true
	c.Stdout, c.Stderr = t.Output(), t.Output()
	show := app.Demo(func(ctx context.Context, s app.System) error {
		defer end()
		return demo(ctx, s)
	})
	a, err := app.New(c, append(more, app.Store("own", openBare), show)...)
	if err != nil {
		t.Fatal(err)
	}
	return a.Run(ctx)
}

// TestAStoreWithoutQueues: dev runs on it and serves no queues. It says so if it is told to serve
// them, and to an orchestration that pushes.
func TestAStoreWithoutQueues(t *testing.T) {
	push := orchestration.Define[string, string]("push")
	pushing := push.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		return "", jobpush.Push(ctx, "queue", jobpush.Job{Data: 1})
	})
	err := onOwn(t, "own:one", "", func(ctx context.Context, s app.System) error {
		if s.JobQueues != "" {
			t.Errorf("queues are served at %s", s.JobQueues)
		}
		if _, err := push.Run(ctx, s.Client, ""); err == nil || !strings.Contains(err.Error(), "no job queues") {
			t.Errorf("a push: %v", err)
		}
		return nil
	}, pushing)
	if err != nil {
		t.Error(err)
	}
	none := func(context.Context, app.System) error { return nil }
	if err := onOwn(t, "own:one", "127.0.0.1:0", none, pushing); err == nil ||
		!strings.Contains(err.Error(), "--jobs-listen") {
		t.Errorf("with an address of queues: %v", err)
	}
	if err := onOwn(t, "own:other", "", none, pushing); err == nil ||
		!strings.Contains(err.Error(), "unknown own:other") {
		t.Errorf("a database that cannot be opened: %v", err)
	}
}

// TestMigrateOwnStores: migrate opens the store, which migrates its tables itself.
func TestMigrateOwnStores(t *testing.T) {
	code, out, problems := app.RunInside(t.Context(), func(string) (string, bool) { return "", false },
		[]string{"migrate", "--database", "own:one"}, append(parts, app.Store("own", openBare))...)
	if code != 0 || !strings.Contains(out, "the store was opened") {
		t.Errorf("%d: %s%s", code, out, problems)
	}
}
