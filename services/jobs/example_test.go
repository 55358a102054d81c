package jobserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// Each job of a queue starts an instance. In an orchestrator, the broker is NATS.
func ExampleStarter() {
	dir, err := os.MkdirTemp("", "rondo-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	store, err := sqlite.Open(ctx, filepath.Join(dir, "rondo.db"), sqlite.Options{Log: silence})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	_, err = store.Queues().Do(ctx, "orders",
		jobs.Configure{Settings: jobs.Settings{Start: &jobs.Start{Orchestration: "fulfil"}}},
		jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage(`{"sku": "a1"}`), Priority: 1},
			{Data: json.RawMessage(`{"sku": "urgent"}`)}}})
	if err != nil {
		panic(err)
	}
	b := newBroker()
	b.stores = func(s events.Start) { fmt.Println(s.Orchestration, s.Input, s.Attributes) }
	b.after = stop // it ends when everything is stored
	if err := jobserver.NewStarter(store.Queues(), b, jobserver.StarterConfig{Logger: silence}).Run(ctx); err != nil {
		panic(err)
	}
	info, err := store.Queues().Look(context.Background(), "orders")
	fmt.Println(info.Depth()+info.Locked, "jobs are left,", err)
	// Output:
	// fulfil {"sku":"urgent"} map[rondo.queue:orders]
	// fulfil {"sku":"a1"} map[rondo.queue:orders]
	// 0 jobs are left, <nil>
}
