package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/client"
)

// What a schedule starts can be found by the id of the schedule and the time.
func ExampleSchedules_Put() {
	t := &exampleT{}
	defer t.end()
	ctx, c := context.Background(), newSystemWithSchedules(t).client(client.Options{})

	err := c.Schedules().Put(ctx, client.Schedule{
		ID: "nightly", Orchestration: "echo", Cron: "30 2 * * *", Zone: "Europe/Berlin", Overlap: client.OverlapEach,
	})
	if err != nil {
		panic(err)
	}
	s, err := c.Schedules().Get(ctx, "nightly")
	fmt.Println(s.Cron, len(s.Next), err)
	fmt.Println(query.EachInstance("nightly", time.Date(2026, 3, 1, 1, 30, 0, 0, time.UTC)))
	// Output:
	// 30 2 * * * 5 <nil>
	// nightly@2026-03-01T01:30:00Z
}
