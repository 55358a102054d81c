package orchestration_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// A new version runs beside the old one: running instances keep the code they were started with,
// new ones get the newest.
func ExampleVersion() {
	t := newT()
	defer t.end()

	greet := orchestration.Define[string, string]("greet")
	v1 := greet.Bind(func(ctx *orchestration.Context, name string) (string, error) {
		return "Hello " + name, ctx.Sleep(time.Hour)
	})
	v2 := greet.Bind(func(ctx *orchestration.Context, name string) (string, error) {
		return "Good day, " + name, nil
	}, orchestration.Version("2.0.0"))

	env := rondotest.New(t, v1)
	old, err := greet.Start(t.Context(), env, "Ann")
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	env.Deploy(v1, v2)
	young, err := greet.Start(t.Context(), env, "Bob")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(old.Wait(t.Context()))
	fmt.Println(young.Wait(t.Context()))
	// Output:
	// Hello Ann <nil>
	// Good day, Bob <nil>
}

// Patched changes the code under running instances. Those that have passed the place go the old
// way, all others the new one.
func ExampleContext_Patched() {
	t := newT()
	defer t.end()

	var (
		order   = orchestration.Define[string, string]("order")
		approve = orchestration.DefineEvent[string]("approve")
		check   = activity.Define[string, bool]("check")
	)
	before := func(ctx *orchestration.Context, goods string) (string, error) {
		who, err := approve.Wait(ctx)
		return goods + " approved by " + who, err
	}
	after := func(ctx *orchestration.Context, goods string) (string, error) {
		if ctx.Patched("check-stock-first") {
			if _, err := check.Call(ctx, goods); err != nil {
				return "", err
			}
			goods = "checked " + goods
		}
		who, err := approve.Wait(ctx)
		return goods + " approved by " + who, err
	}

	env := rondotest.New(t, order.Bind(before))
	old, err := order.Start(t.Context(), env, "tea")
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	env.Deploy(order.Bind(after), check.Bind(func(context.Context, string) (bool, error) { return true, nil }))
	young, err := order.Start(t.Context(), env, "coffee")
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	for _, h := range []orchestration.Handle[string]{old, young} {
		if err := approve.Raise(t.Context(), env, h.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		fmt.Println(h.Wait(t.Context()))
	}
	// Output:
	// tea approved by ann <nil>
	// checked coffee approved by ann <nil>
}

// Pin keeps a new version from being taken by new instances. A start that asks for it still gets
// it.
func ExampleRegistry_Pin() {
	t := newT()
	defer t.end()

	greet := orchestration.Define[string, string]("greet")
	hello := func(_ *orchestration.Context, name string) (string, error) { return "Hello " + name, nil }
	code, err := orchestration.NewRegistry(
		greet.Bind(hello),
		greet.Bind(hello, orchestration.Version("2.0.0")),
	)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(code.Resolve("greet"))
	if err := code.Pin("greet", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	fmt.Println(code.Resolve("greet"))
	fmt.Println(code.Pin("greet", "3.0.0"))
	// Output:
	// 2.0.0 true
	// 1.0.0 true
	// orchestration "greet" has no version "3.0.0"; registered are 1.0.0, 2.0.0
}

// Ids, chance and the time come from the context. They are the same each time the code is replayed,
// as it is here before every round.
func ExampleContext_NewID() {
	t := newT()
	defer t.end()

	var (
		draw  = orchestration.Define[[]string, string]("draw")
		write = activity.Define[string, string]("write")
	)
	env := rondotest.New(t, rondotest.Cold(),
		draw.Bind(func(ctx *orchestration.Context, names []string) (string, error) {
			id, winner, now := ctx.NewID(), names[ctx.Rand().IntN(len(names))], ctx.Now()
			said := fmt.Sprintf("%s: %s won at %v", id, winner, now)
			written, err := write.Call(ctx, said) // after this, the code runs again from its beginning
			return fmt.Sprintf("the same: %t, an hour later: %t", said == written, ctx.Now().Sub(now) == time.Hour), err
		}),
		rondotest.Takes(write.Bind(func(_ context.Context, s string) (string, error) { return s, nil }), time.Hour),
	)
	h, err := draw.Start(t.Context(), env, []string{"ann", "bob", "cem"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// the same: true, an hour later: true <nil>
}

// What the code logs is logged once, however often it is replayed.
func ExampleContext_Logger() {
	t := newT()
	defer t.end()

	count := orchestration.Define[int, int]("count")
	env := rondotest.New(t, rondotest.Cold(), count.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		for i := range n {
			ctx.Logger().Info("counting", "i", i)
			if err := ctx.Sleep(time.Second); err != nil {
				return 0, err
			}
		}
		return n, nil
	}))
	h, err := count.Start(t.Context(), env, 3)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	fmt.Println(len(env.Logs()), "records")
	// Output:
	// 3 <nil>
	// 3 records
}
