package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// When an instance is cancelled, every wait ends with ErrCancelled. A shielded context serves the
// work that remains.
func ExampleContext_Shield() {
	t := newT()
	defer t.end()

	var (
		rent    = orchestration.Define[string, string]("rent")
		create  = activity.Define[string, string]("create-machine")
		destroy = activity.Define[string, bool]("destroy-machine", activity.Retry(10))
	)
	env := rondotest.New(t,
		rent.Bind(func(ctx *orchestration.Context, size string) (string, error) {
			machine, err := create.Call(ctx, size)
			if err != nil {
				return "", err
			}
			err = ctx.Sleep(30 * 24 * time.Hour)
			shielded, done := ctx.Shield(time.Hour)
			defer done()
			_, destroyErr := destroy.Call(shielded, machine)
			return "a month on " + machine, errors.Join(err, destroyErr)
		}),
		create.Bind(func(context.Context, string) (string, error) { return "m-1", nil }),
		destroy.Bind(func(_ context.Context, machine string) (bool, error) {
			fmt.Println("destroyed", machine)
			return true, nil
		}),
	)
	h, err := rent.Start(t.Context(), env, "small")
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(time.Hour)
	if err := h.Cancel(t.Context(), "too expensive"); err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	fmt.Println(err)
	fmt.Println("cancelled:", errors.Is(err, orchestration.ErrCancelled))
	// Output:
	// destroyed m-1
	// cancelled: too expensive
	// cancelled: true
}

// A saga remembers how to undo each thing that was done. Compensate undoes them in reverse order,
// also when the instance was cancelled.
func ExampleSaga() {
	t := newT()
	defer t.end()

	var (
		trip   = orchestration.Define[[]string, string]("trip")
		book   = activity.Define[string, string]("book")
		cancel = activity.Define[string, bool]("cancel", activity.Retry(10))
	)
	env := rondotest.New(t,
		trip.Bind(func(ctx *orchestration.Context, parts []string) (string, error) {
			var undo orchestration.Saga
			for _, part := range parts {
				booking, err := book.Call(ctx, part)
				if err != nil {
					return "", errors.Join(err, undo.Compensate(ctx, time.Hour))
				}
				undo.Add(part, func(ctx *orchestration.Context) error {
					_, err := cancel.Call(ctx, booking)
					return err
				})
			}
			return "bon voyage", nil
		}),
		book.Bind(func(_ context.Context, part string) (string, error) {
			if part == "car" {
				return "", activity.NonRetryable(activity.Errorf("sold_out", "there is no car"))
			}
			fmt.Println("book", part)
			return part, nil
		}),
		cancel.Bind(func(_ context.Context, booking string) (bool, error) {
			fmt.Println("cancel", booking)
			return true, nil
		}),
	)
	h, err := trip.Start(t.Context(), env, []string{"flight", "hotel", "car"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	fmt.Println(err)
	// Output:
	// book flight
	// book hotel
	// cancel hotel
	// cancel flight
	// activity "book": there is no car
}

// A time limit for several calls together. At the limit, the engine cancels unfinished calls, and
// they give ErrTimeout.
func ExampleContext_WithTimeout() {
	t := newT()
	defer t.end()

	var (
		answer = orchestration.Define[string, string]("answer")
		search = activity.Define[string, string]("search")
		rank   = activity.Define[string, string]("rank")
	)
	env := rondotest.New(t,
		answer.Bind(func(ctx *orchestration.Context, question string) (string, error) {
			limited, done := ctx.WithTimeout(10 * time.Second)
			defer done()
			found, err := search.Call(limited, question)
			if err == nil {
				found, err = rank.Call(limited, found)
			}
			if errors.Is(err, orchestration.ErrTimeout) {
				return "ask me again later", nil
			}
			return found, err
		}),
		rondotest.Takes(search.Bind(func(_ context.Context, q string) (string, error) {
			return q, nil
		}), 4*time.Second),
		rondotest.Takes(rank.Bind(func(_ context.Context, q string) (string, error) { return q, nil }), 8*time.Second),
	)
	h, err := answer.Start(t.Context(), env, "why?")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// ask me again later <nil>
}

// Cancel stops calls whose results the code does not need any more.
func ExampleFuture_Cancel() {
	t := newT()
	defer t.end()

	var (
		backup = orchestration.Define[string, string]("backup")
		upload = activity.Define[string, string]("upload")
		pause  = orchestration.DefineEvent[string]("pause")
	)
	env := rondotest.New(t,
		backup.Bind(func(ctx *orchestration.Context, disk string) (string, error) {
			running := upload.Start(ctx, disk)
			why, err := pause.Wait(ctx)
			if err != nil {
				return "", err
			}
			running.Cancel(ctx)
			_, err = running.Get(ctx)
			return fmt.Sprintf("%s; cancelled: %t", why, errors.Is(err, orchestration.ErrCancelled)), nil
		}),
		rondotest.Takes(upload.Bind(func(context.Context, string) (string, error) {
			fmt.Println("this is not reached")
			return "", nil
		}), time.Hour),
	)
	h, err := backup.Start(t.Context(), env, "disk-1")
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(time.Minute)
	if err := pause.Raise(t.Context(), env, h.ID, "the line is busy"); err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// the line is busy; cancelled: true <nil>
}
