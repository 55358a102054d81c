package orchestration_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// An orchestration calls another one as it calls an activity.
func ExampleDefinition_Call() {
	t := newT()
	defer t.end()

	var (
		deliver = orchestration.Define[string, string]("deliver")
		order   = orchestration.Define[string, string]("order")
	)
	env := rondotest.New(t,
		order.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
			return deliver.Call(ctx, goods)
		}),
		deliver.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
			if err := ctx.Sleep(48 * time.Hour); err != nil {
				return "", err
			}
			return fmt.Sprintf("%s, ordered by %s", goods, ctx.Parent()), nil
		}),
	)
	h, err := order.Start(t.Context(), env, "tea", orchestration.ID("order-7"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// tea, ordered by order-7 <nil>
}

// Children run side by side. Each has a history of its own, so much work is better split over
// children than put into one instance.
func ExampleDefinition_StartChild() {
	t := newT()
	defer t.end()

	var (
		year  = orchestration.Define[int, int]("year")
		month = orchestration.Define[time.Month, int]("month")
	)
	env := rondotest.New(t,
		year.Bind(func(ctx *orchestration.Context, y int) (int, error) {
			var months []*orchestration.Future[int]
			for m := time.January; m <= time.December; m++ {
				id := fmt.Sprintf("books-%d-%02d", y, m)
				months = append(months, month.StartChild(ctx, m, orchestration.ID(id)))
			}
			sums, err := orchestration.AllOrNone(ctx, months...).Get(ctx)
			total := 0
			for _, n := range sums {
				total += n
			}
			return total, err
		}),
		month.Bind(func(_ *orchestration.Context, m time.Month) (int, error) { return int(m), nil }),
	)
	h, err := year.Start(t.Context(), env, 2026)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	fmt.Println(env.Instances()[1])
	// Output:
	// 78 <nil>
	// books-2026-01
}

// A detached instance goes on by itself. No parent waits for it, and it goes on when the one that
// started it ends.
func ExampleDefinition_Detach() {
	t := newT()
	defer t.end()

	var (
		signUp  = orchestration.Define[string, string]("sign-up")
		welcome = orchestration.Define[string, string]("welcome")
	)
	env := rondotest.New(t,
		signUp.Bind(func(ctx *orchestration.Context, user string) (string, error) {
			return welcome.Detach(ctx, user, orchestration.ID("welcome-"+user))
		}),
		welcome.Bind(func(ctx *orchestration.Context, user string) (string, error) {
			if err := ctx.Sleep(7 * 24 * time.Hour); err != nil {
				return "", err
			}
			return "how do you like it, " + user + "?", nil
		}),
	)
	h, err := signUp.Start(t.Context(), env, "ann")
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.Wait(t.Context())
	fmt.Println(id, err)
	fmt.Println(welcome.Handle(env, id).Wait(t.Context()))
	// Output:
	// welcome-ann <nil>
	// how do you like it, ann? <nil>
}

// A detached instance may be due later, and may have attributes. The reminder starts only after a
// week, when the order has ended; until then there is no instance.
func ExampleDefinition_Detach_later() {
	t := newT()
	defer t.end()

	var (
		order  = orchestration.Define[string, string]("order")
		remind = orchestration.Define[string, string]("remind")
	)
	env := rondotest.New(t,
		order.Bind(func(ctx *orchestration.Context, user string) (string, error) {
			return remind.Detach(ctx, user, orchestration.ID("remind-"+user),
				orchestration.Delay(7*24*time.Hour),
				orchestration.RestartFinished(), // if there was a reminder before
				orchestration.Attributes(map[string]string{"user": user}))
		}),
		remind.Bind(func(_ *orchestration.Context, user string) (string, error) {
			return "how do you like it, " + user + "?", nil
		}),
	)
	began := env.Now()
	id, err := order.Run(t.Context(), env, "ann")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(remind.Handle(env, id).Wait(t.Context()))
	row, _ := env.Instance(id)
	fmt.Println(row.StartedAt.Sub(began), row.Attributes)
	// Output:
	// how do you like it, ann? <nil>
	// 168h0m0s map[user:ann]
}

// Something that goes on for ever continues as new from time to time, so that its history does not
// grow for ever. It keeps its id, its values and its unread messages.
func ExampleDefinition_ContinueAsNew() {
	t := newT()
	defer t.end()

	type State struct{ Balance int }
	var (
		account   = orchestration.Define[State, State]("account")
		transfers = orchestration.DefineMailbox[int]("transfers")
	)
	env := rondotest.New(t, account.Bind(func(ctx *orchestration.Context, state State) (State, error) {
		for range 2 { // usually: for !ctx.ShouldContinueAsNew()
			cents, err := transfers.Receive(ctx)
			if err != nil {
				return state, err
			}
			if cents == 0 {
				return state, nil
			}
			state.Balance += cents
		}
		return account.ContinueAsNew(ctx, state)
	}))
	h, err := account.Start(t.Context(), env, State{}, orchestration.ID("account-1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cents := range []int{100, 200, 300, 400, 0} {
		if err := transfers.Send(t.Context(), env, "account-1", cents); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println(h.Wait(t.Context()))
	row, _ := env.Instance("account-1")
	fmt.Println("executions:", row.Execution)
	// Output:
	// {1000} <nil>
	// executions: 3
}

// Of all starts with the same instance id, one counts. The others change nothing and give the same
// handle.
func ExampleDefinition_Start() {
	t := newT()
	defer t.end()

	ship := orchestration.Define[string, string]("ship")
	env := rondotest.New(t, ship.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
		return fmt.Sprintf("%s for %s", goods, ctx.Attribute("customer")), ctx.Sleep(time.Hour)
	}))
	for _, goods := range []string{"tea", "coffee"} {
		h, err := ship.Start(t.Context(), env, goods,
			orchestration.ID("order-7"),
			orchestration.Version("1.0.0"),
			orchestration.Attributes(map[string]string{"customer": "ann"}))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(h.Wait(t.Context()))
	}
	// Output:
	// tea for ann <nil>
	// tea for ann <nil>
}

// A suspended instance does nothing, but the engine keeps its messages.
func ExampleHandle_Suspend() {
	t := newT()
	defer t.end()

	var (
		pay   = orchestration.Define[string, string]("pay")
		money = activity.Define[string, string]("move-money")
	)
	env := rondotest.New(t,
		pay.Bind(func(ctx *orchestration.Context, to string) (string, error) {
			if err := ctx.Sleep(time.Hour); err != nil {
				return "", err
			}
			return money.Call(ctx, to)
		}),
		money.Bind(func(_ context.Context, to string) (string, error) { return to + " was paid", nil }),
	)
	h, err := pay.Start(t.Context(), env, "ann")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Suspend(t.Context(), "audit"); err != nil {
		t.Fatal(err)
	}
	env.Advance(24 * time.Hour)
	row, _ := env.Instance(h.ID)
	fmt.Println(row.Status)
	if err := h.Resume(t.Context(), "all is well"); err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// suspended
	// ann was paid <nil>
}

// A start is refused at once when something is wrong with it, and the error tells everything that
// is.
func ExampleDefinition_Start_refused() {
	t := newT()
	defer t.end()

	ship := orchestration.Define[string, string]("ship")
	env := rondotest.New(t)
	_, err := ship.Start(t.Context(), env, "tea", orchestration.ID("two\nlines"), orchestration.Version("latest"))
	fmt.Println(err)
	// Output:
	// instance id "two\nlines": it contains U+000A, which does not print
	// version "latest" is not a semantic version; write it like 1.4.2
}
