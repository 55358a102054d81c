package rondotest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// Time is virtual: it passes when the test says so, or when it waits for something that is still to
// come. A year takes no time.
func Example() {
	t := newT()
	defer t.end()

	var (
		bill   = orchestration.Define[string, string]("bill")
		remind = activity.Define[string, int]("remind")
		paid   = orchestration.DefineEvent[int]("paid")
	)
	reminders := 0
	env := rondotest.New(t,
		bill.Bind(func(ctx *orchestration.Context, customer string) (string, error) {
			payment := paid.Next(ctx)
			for {
				month := ctx.Timer(30 * 24 * time.Hour)
				if ctx.Select(payment, month) == payment {
					cents, err := payment.Get(ctx)
					return fmt.Sprint(cents, " were paid"), err
				}
				if _, err := remind.Call(ctx, customer); err != nil {
					return "", err
				}
			}
		}),
		remind.Bind(func(context.Context, string) (int, error) { // a fake
			reminders++
			return reminders, nil
		}),
	)
	h, err := bill.Start(t.Context(), env, "ann", orchestration.ID("bill-1"))
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(100 * 24 * time.Hour)
	fmt.Println(reminders, "reminders")
	if err := paid.Raise(t.Context(), env, "bill-1", 4500); err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// 3 reminders
	// 4500 were paid <nil>
}

// Cold finds code that does not replay: here, a variable outside of the orchestration changes what
// it does.
func ExampleCold() {
	t := newT()
	defer t.end()

	var (
		count = orchestration.Define[string, string]("count")
		even  = activity.Define[int, string]("even")
		odd   = activity.Define[int, string]("odd")
	)
	runs := 0
	code := count.Bind(func(ctx *orchestration.Context, name string) (string, error) {
		runs++
		if runs%2 == 0 {
			return even.Call(ctx, runs)
		}
		return odd.Call(ctx, runs)
	})
	done := func(context.Context, int) (string, error) { return "done", nil }
	for _, mode := range [][]rondotest.Part{{}, {rondotest.Cold()}} {
		runs = 0
		env := rondotest.New(t, append(mode, code, even.Bind(done), odd.Bind(done))...)
		h, err := count.Start(t.Context(), env, "x", orchestration.ID("count-1"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := h.Wait(t.Context())
		fmt.Printf("%q, failed: %t\n", out, err != nil)
		for _, fault := range env.Faults() {
			fmt.Println("history has", fault.Expected)
			fmt.Println("the code did", fault.Got)
		}
	}
	// Output:
	// "done", failed: false
	// "", failed: true
	// history has activity "odd"
	// the code did activity "even"
}

// Replay is a gate for releases: histories that were exported yesterday must fit the code of today.
// Keep some beside the code, and replay them in a test.
func ExampleReplay() {
	t := newT()
	defer t.end()

	var (
		order = orchestration.Define[string, string]("order")
		pay   = activity.Define[string, string]("pay")
		pack  = activity.Define[string, string]("pack")
	)
	yesterday := order.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
		if _, err := pay.Call(ctx, goods); err != nil {
			return "", err
		}
		return pack.Call(ctx, goods)
	})
	today := order.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
		return pack.Call(ctx, goods)
	})

	same := func(_ context.Context, s string) (string, error) { return s, nil }
	env := rondotest.New(t, yesterday, pay.Bind(same), pack.Bind(same))
	if _, err := order.Start(t.Context(), env, "tea", orchestration.ID("order-7")); err != nil {
		t.Fatal(err)
	}
	env.Settle()
	history := env.Export("order-7") // or: the command line, from a running system

	rondotest.Replay(t, history, yesterday)

	// Replay would fail the test; TryReplay gives the error.
	err := rondotest.TryReplay(history, today)
	var misfit *failure.Error
	if errors.As(err, &misfit) {
		fmt.Printf("event %d: history has %s, the code did %s\n", misfit.Event, misfit.Expected, misfit.Got)
	}
	// Output:
	// event 2: history has activity "pay", the code did activity "pack"
}

// Takes makes an activity last, so that a time limit or a competitor can win against it.
func ExampleTakes() {
	t := newT()
	defer t.end()

	var (
		ask   = orchestration.Define[string, string]("ask")
		think = activity.Define[string, string]("think", activity.StartToClose(time.Minute))
	)
	env := rondotest.New(t,
		ask.Bind(func(ctx *orchestration.Context, question string) (string, error) {
			answer, err := think.Call(ctx, question)
			if errors.Is(err, orchestration.ErrTimeout) {
				return "no idea", nil
			}
			return answer, err
		}),
		rondotest.Takes(think.Bind(func(context.Context, string) (string, error) { return "42", nil }), 7*time.Hour),
	)
	h, err := ask.Start(t.Context(), env, "why?")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// no idea <nil>
}

// Chaos delivers late, twice and in another order, and crashes between rounds. The guarantees of an
// orchestration must hold all the same.
func ExampleChaos() {
	t := newT()
	defer t.end()

	var (
		sum = orchestration.Define[int, int]("sum")
		one = activity.Define[int, int]("one", activity.Retry(3))
	)
	for seed := range uint64(50) {
		env := rondotest.New(t, rondotest.Chaos(seed),
			sum.Bind(func(ctx *orchestration.Context, n int) (int, error) {
				total := 0
				for i := range n {
					v, err := one.Call(ctx, i)
					if err != nil {
						return 0, err
					}
					total += v
				}
				return total, nil
			}),
			one.Bind(func(context.Context, int) (int, error) { return 1, nil }),
		)
		h, err := sum.Start(t.Context(), env, 10)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := h.Wait(t.Context()); n != 10 || err != nil {
			fmt.Println("seed", seed, "gave", n, err)
		}
	}
	fmt.Println("always 10")
	// Output:
	// always 10
}

// When nothing more can happen, Wait says what the instance waits for.
func ExampleEnv_Outcome() {
	t := newT()
	defer t.end()

	var (
		order = orchestration.Define[string, string]("order")
		pay   = activity.Define[string, string]("pay")
	)
	env := rondotest.New(t, order.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
		return pay.Call(ctx, goods)
	}))
	h, err := order.Start(t.Context(), env, "tea", orchestration.ID("order-7"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	fmt.Println(err)
	// Output:
	// rondotest: instance "order-7" is running, and nothing more will happen
	//   it waits for activity "pay" (event 2), which is not registered in this test
}

// Deploy replaces the code under running instances, Crash loses everything that was in memory.
func ExampleEnv_Deploy() {
	t := newT()
	defer t.end()

	greet := orchestration.Define[string, string]("greet")
	say := func(word string) orchestration.Binding {
		return greet.Bind(func(ctx *orchestration.Context, name string) (string, error) {
			if err := ctx.Sleep(time.Hour); err != nil {
				return "", err
			}
			return word + " " + name, nil
		})
	}
	env := rondotest.New(t, say("Hello"))
	h, err := greet.Start(t.Context(), env, "Ann")
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(time.Minute)
	env.Deploy(say("Good day"))
	env.Crash()
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// Good day Ann <nil>
}
