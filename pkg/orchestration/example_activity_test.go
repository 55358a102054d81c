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

// How patient a call is stands at the contract, for every call, or at the call.
func Example_retry() {
	t := newT()
	defer t.end()

	var (
		pay      = orchestration.Define[int, string]("pay")
		withdraw = activity.Define[int, string]("withdraw",
			activity.Retry(5, activity.Fixed(time.Second), activity.NonRetryableTypes("card_declined")))
	)
	env := rondotest.New(t,
		pay.Bind(func(ctx *orchestration.Context, cents int) (string, error) {
			receipt, err := withdraw.Call(ctx, cents)
			if errors.Is(err, orchestration.OfType("card_declined")) {
				return "ask for another card", nil
			}
			return receipt, err
		}),
		withdraw.Bind(func(ctx context.Context, cents int) (string, error) {
			attempt := activity.Info(ctx).Attempt
			switch {
			case cents > 1000:
				return "", activity.Errorf("card_declined", "the limit is 1000")
			case attempt < 3:
				return "", errors.New("the bank does not answer")
			}
			return fmt.Sprintf("paid at attempt %d", attempt), nil
		}),
	)
	for _, cents := range []int{500, 5000} {
		payment, err := pay.Start(t.Context(), env, cents)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(payment.Wait(t.Context()))
	}
	// Output:
	// paid at attempt 3 <nil>
	// ask for another card <nil>
}

// StartToClose bounds one attempt, ScheduleToClose all of them together. The type of the error says
// which limit it was.
func Example_timeouts() {
	t := newT()
	defer t.end()

	var (
		report = orchestration.Define[string, string]("report")
		render = activity.Define[string, string]("render")
	)
	env := rondotest.New(t,
		report.Bind(func(ctx *orchestration.Context, title string) (string, error) {
			page, err := render.Call(ctx, title,
				activity.StartToClose(time.Minute),
				activity.ScheduleToClose(time.Hour),
				activity.Retry(3, activity.Fixed(10*time.Second)))
			if errors.Is(err, orchestration.ErrTimeout) {
				ctx.Logger().Warn("rendering is too slow", "error", err)
				return title + " (text only)", nil
			}
			return page, err
		}),
		rondotest.Takes(render.Bind(func(_ context.Context, title string) (string, error) {
			return title, nil
		}), time.Hour),
	)
	job, err := report.Start(t.Context(), env, "sales")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(job.Wait(t.Context()))
	fmt.Println(env.Logs()[0].Message)
	// Output:
	// sales (text only) <nil>
	// rendering is too slow
}

// A step is for a short side effect: a lookup, a small call. The orchestrator runs it itself and
// remembers its result.
func ExampleStep() {
	t := newT()
	defer t.end()

	asked := 0
	exchangeRate := func(context.Context) (int, error) {
		asked++
		return 3, nil
	}
	convert := orchestration.Define[int, int]("convert")
	env := rondotest.New(t, rondotest.Cold(), // forgets the instance before each round, so that the code is replayed
		convert.Bind(func(ctx *orchestration.Context, amount int) (int, error) {
			rate, err := orchestration.Step(ctx, "rate", exchangeRate, activity.Retry(3))
			if err != nil {
				return 0, err
			}
			if err := ctx.Sleep(time.Hour); err != nil {
				return 0, err
			}
			return amount * rate, nil
		}),
	)
	conversion, err := convert.Start(t.Context(), env, 14)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(conversion.Wait(t.Context()))
	fmt.Println("asked", asked, "time")
	// Output:
	// 42 <nil>
	// asked 1 time
}

// Errors keep their type and their details on the way from an activity through a child to the
// caller.
func ExampleError() {
	t := newT()
	defer t.end()

	type Shortage struct{ Missing int }
	var (
		order = orchestration.Define[int, string]("order")
		pick  = activity.Define[int, string]("pick", activity.Retry(3, activity.NonRetryableTypes("out_of_stock")))
	)
	env := rondotest.New(t,
		order.Bind(func(ctx *orchestration.Context, n int) (string, error) {
			box, err := pick.Call(ctx, n)
			if err != nil {
				return "", fmt.Errorf("order of %d: %w", n, err)
			}
			return box, nil
		}),
		pick.Bind(func(_ context.Context, n int) (string, error) {
			return "", activity.WithDetails(activity.Errorf("out_of_stock", "there are not %d", n),
				Shortage{Missing: n - 3})
		}),
	)
	h, err := order.Start(t.Context(), env, 5)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	fmt.Println(err)
	fmt.Println("out of stock:", errors.Is(err, orchestration.OfType("out_of_stock")))
	shortage, ok := activity.Details[Shortage](err)
	fmt.Println("missing:", shortage.Missing, ok)
	// Output:
	// order of 5: activity "pick": there are not 5
	// out of stock: true
	// missing: 2 true
}
