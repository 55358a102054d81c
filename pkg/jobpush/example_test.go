package jobpush_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// An orchestration pushes mails, one of them for later. In a test, they are there to be looked at.
func ExamplePush() {
	t := newT()
	defer t.end()

	type Mail struct{ To, Text string }
	welcome := orchestration.Define[string, string]("welcome")
	env := rondotest.New(t, welcome.Bind(func(ctx *orchestration.Context, who string) (string, error) {
		err := jobpush.Push(ctx, "mails",
			jobpush.Job{Data: Mail{who, "Welcome!"}},
			jobpush.Job{Data: Mail{who, "How do you like it?"}, Priority: 5, Delay: 24 * time.Hour})
		return "welcomed", err
	}))
	h, err := welcome.Start(t.Context(), env, "ann", orchestration.ID("ann"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	for _, i := range env.Pushed("mails") {
		fmt.Println(i.Priority, i.Delay, string(i.Data))
	}
	// Output:
	// welcomed <nil>
	// 0 0s {"To":"ann","Text":"Welcome!"}
	// 5 24h0m0s {"To":"ann","Text":"How do you like it?"}
}

// A queue that is full may have room later. The test says when.
func ExampleBind() {
	t := newT()
	defer t.end()

	report := orchestration.Define[int, int]("report")
	full := 3
	env := rondotest.New(t,
		report.Bind(func(ctx *orchestration.Context, n int) (minutes int, err error) {
			for {
				err := jobpush.Push(ctx, "reports", jobpush.Job{Data: n})
				if !errors.Is(err, orchestration.OfType(jobpush.TypeFull)) {
					return minutes, err
				}
				if err := ctx.Sleep(time.Minute); err != nil {
					return minutes, err
				}
				minutes++
			}
		}),
		jobpush.Bind(func(context.Context, string, []jobpush.Pushed) error {
			if full--; full >= 0 {
				return activity.Errorf(jobpush.TypeFull, "the queue has 10 items")
			}
			return nil
		}),
	)
	h, err := report.Start(t.Context(), env, 7)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output: 3 <nil>
}
