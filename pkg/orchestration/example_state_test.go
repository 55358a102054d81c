package orchestration_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// The custom status shows the progress of an instance.
func ExampleStatus() {
	t := newT()
	defer t.end()

	type Progress struct {
		Step string
		Done int
	}
	var (
		setUp    = orchestration.Define[[]string, string]("set-up")
		install  = activity.Define[string, bool]("install")
		progress = orchestration.DefineStatus[Progress]()
	)
	env := rondotest.New(t,
		setUp.Bind(func(ctx *orchestration.Context, packages []string) (string, error) {
			for i, p := range packages {
				progress.Set(ctx, Progress{Step: "installing " + p, Done: i})
				if _, err := install.Call(ctx, p); err != nil {
					return "", err
				}
			}
			progress.Set(ctx, Progress{Step: "ready", Done: len(packages)})
			return "installed", nil
		}),
		rondotest.Takes(install.Bind(func(context.Context, string) (bool, error) { return true, nil }), time.Minute),
	)
	h, err := setUp.Start(t.Context(), env, []string{"git", "go"})
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	for range 3 {
		p, _, err := progress.Read(t.Context(), env, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%+v\n", p)
		env.Advance(time.Minute)
	}
	// Output:
	// {Step:installing git Done:0}
	// {Step:installing go Done:1}
	// {Step:ready Done:2}
}

// Values are kept by name, can be read from outside, and go along when the instance continues as
// new.
func ExampleValue() {
	t := newT()
	defer t.end()

	var (
		sensor  = orchestration.Define[string, string]("sensor")
		reading = orchestration.DefineMailbox[int]("reading")
		highest = orchestration.DefineValue[int]("highest")
	)
	env := rondotest.New(t, sensor.Bind(func(ctx *orchestration.Context, place string) (string, error) {
		value, err := reading.Receive(ctx)
		if err != nil {
			return "", err
		}
		before, known, err := highest.Get(ctx)
		if err != nil {
			return "", err
		}
		if !known || value > before {
			highest.Set(ctx, value)
		}
		return sensor.ContinueAsNew(ctx, place)
	}))
	h, err := sensor.Start(t.Context(), env, "cellar")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []int{18, 25, 21} {
		if err := reading.Send(t.Context(), env, h.ID, v); err != nil {
			t.Fatal(err)
		}
	}
	env.Settle()
	fmt.Println(highest.Read(t.Context(), env, h.ID))
	// Output:
	// 25 true <nil>
}

// An instance can read what another one keeps.
func ExampleValue_ReadFrom() {
	t := newT()
	defer t.end()

	var (
		shelf = orchestration.Define[int, int]("shelf")
		check = orchestration.Define[string, string]("check")
		stock = orchestration.DefineValue[int]("stock")
	)
	env := rondotest.New(t,
		shelf.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			stock.Set(ctx, n)
			return n, ctx.Sleep(24 * time.Hour)
		}),
		check.Bind(func(ctx *orchestration.Context, id string) (string, error) {
			n, err := stock.ReadFrom(ctx, id).Get(ctx)
			switch {
			case err != nil:
				return "", err
			case n == nil:
				return id + " says nothing", nil
			}
			return fmt.Sprintf("%s has %d", id, *n), nil
		}),
	)
	if _, err := shelf.Start(t.Context(), env, 12, orchestration.ID("shelf-1")); err != nil {
		t.Fatal(err)
	}
	env.Settle()
	for _, id := range []string{"shelf-1", "shelf-2"} {
		h, err := check.Start(t.Context(), env, id)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(h.Wait(t.Context()))
	}
	// Output:
	// shelf-1 has 12 <nil>
	// shelf-2 says nothing <nil>
}
