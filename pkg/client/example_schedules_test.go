package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
)

// Each run of a schedule is an instance of its own.
func ExampleSchedules_Put() {
	t := &exampleT{}
	defer t.end()
	ctx, c := context.Background(), newSystem(t, code()...).client(client.Options{})

	s, err := c.Schedules().Put(ctx, client.Schedule{
		ID: "nightly", Orchestration: "echo", Input: []byte(`"Good night"`),
		Cron: "30 2 * * *", Zone: "Europe/Berlin", End: time.Now().Add(30 * 24 * time.Hour),
	})
	fmt.Println(s.Cron, len(s.Next), err)

	if err := c.Schedules().Trigger(ctx, "nightly", ""); err != nil { // not at night
		panic(err)
	}
	for len(s.Runs) == 0 {
		if s, err = c.Schedules().Get(ctx, "nightly"); err != nil {
			panic(err)
		}
	}
	outcome, err := c.Wait(ctx, s.Runs[0].Instance)
	fmt.Println(string(outcome.Output), err)
	// Output:
	// 30 2 * * * 10 <nil>
	// "Good night" <nil>
}
