package guide

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// packing is what both ways to fulfil an order need.
func packing(checked *[]string) []rondotest.Part {
	return []rondotest.Part{
		Pack.Bind(func(_ context.Context, goods string) (string, error) { return "a box of " + goods, nil }),
		noting(CheckStock, checked, func(string) (bool, error) { return true, nil }),
	}
}

func TestPatched(t *testing.T) {
	var checked []string
	parts := packing(&checked)
	env := virtual(t, append(parts, Order.Bind(orderAtFirst))...)
	done, err := Order.Run(t.Context(), env, "chairs", orchestration.ID("ended"))
	must(t, err)
	want(t, "done", done, "a box of chairs")
	waiting := start(t, env, Order, "tables", "waiting")

	env.Deploy(append(parts, Order.Bind(order), rondotest.Cold())...)
	if out, err := waiting.Wait(t.Context()); out != "a box of tables" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	wantList(t, "checked", checked, "tables") // it had not come to that place
	rondotest.Replay(t, env.Export("ended"), Order.Bind(order))
}

func TestVersions(t *testing.T) {
	var checked []string
	parts := packing(&checked)
	env := virtual(t, append(parts, Order.Bind(order))...)
	old := start(t, env, Order, "tables", "old")
	env.Deploy(append(append(parts, both...), rondotest.Cold())...)
	young := start(t, env, Order, "tables", "young")
	asked, err := Order.Start(t.Context(), env, "tables", orchestration.Version("1.0.0"))
	must(t, err)
	for _, h := range []orchestration.Handle[string]{old, asked} {
		if out, err := h.Wait(t.Context()); out != "a box of tables" || err != nil {
			t.Errorf("%s: %q, %v", h.ID, out, err)
		}
	}
	if out, err := young.Wait(t.Context()); out != "a box of tables by sea" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestPreRelease has a new version that is not taken by itself.
func TestPreRelease(t *testing.T) {
	var checked []string
	env := virtual(t, append(packing(&checked), Order.Bind(order),
		Order.Bind(orderBySea, orchestration.Version("2.0.0-rc.1")))...)
	if out, err := Order.Run(t.Context(), env, "tables"); out != "a box of tables" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := Order.Run(t.Context(), env, "tables",
		orchestration.Version("2.0.0-rc.1")); out != "a box of tables by sea" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestHalted deploys code that does not fit, and then code that does.
func TestHalted(t *testing.T) {
	var checked []string
	parts := packing(&checked)
	env := virtual(t, append(parts, Order.Bind(orderAtFirst))...)
	h := start(t, env, Order, "tables", "order-7")
	env.Deploy(append(parts, Order.Bind(orderBySea))...)
	env.Advance(2 * time.Hour)
	row, _ := env.Instance("order-7")
	want(t, "status", row.Status, "halted")
	wantError(t, env.Faults()[0], `the code of order 1.0.0 does not fit the history of instance "order-7" at event 2:
  history has  a timer
  the code did activity "pack"
If the code was changed: put the change behind ctx.Patched("…"), or register it as a new version and keep the old one until its instances have ended.
If it was not: it reads a clock, a random number, a map's order or something outside; use ctx.Now, ctx.Rand, sorted keys, a step or an activity.`)
	env.Deploy(append(parts, Order.Bind(order))...)
	env.Crash() // or five minutes
	if out, err := h.Wait(t.Context()); out != "a box of tables" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestWhatNeedsNoVersion changes data, retries and time limits.
func TestWhatNeedsNoVersion(t *testing.T) {
	var checked []string
	parts := packing(&checked)
	env := virtual(t, append(parts, Order.Bind(orderAtFirst))...)
	h := start(t, env, Order, "tables", "order-7")
	env.Deploy(append(parts, Order.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
		if err := ctx.Sleep(2 * time.Hour); err != nil {
			return "", err
		}
		return Pack.Call(ctx, goods+" in paper", activity.Retry(3), activity.StartToClose(time.Minute))
	}), rondotest.Cold())...)
	began := env.Now()
	out, err := h.Wait(t.Context())
	if out != "a box of tables in paper" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	want(t, "time", env.Now().Sub(began), time.Hour) // the recorded timer stands
	want(t, "faults", len(env.Faults()), 0)
}

// TestPatchedInALoop deploys a change while the code goes round.
func TestPatchedInALoop(t *testing.T) {
	rounds := func(patched bool) rondotest.Part {
		return Order.Bind(func(ctx *orchestration.Context, _ string) (out string, err error) {
			for range 4 {
				if patched && ctx.Patched("other-words") {
					out += "new "
				} else {
					out += "old "
				}
				if err := ctx.Sleep(time.Hour); err != nil {
					return "", err
				}
			}
			return out, nil
		})
	}
	env := virtual(t, rounds(false))
	h := start(t, env, Order, "tables", "order-7")
	env.Advance(90 * time.Minute)
	env.Deploy(rounds(true), rondotest.Cold())
	if out, err := h.Wait(t.Context()); out != "old old new new " || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestThePatchIsTakenAway removes the condition when the last old instance has ended.
func TestThePatchIsTakenAway(t *testing.T) {
	var checked []string
	parts := packing(&checked)[1:]
	parts = append(parts, rondotest.Takes(Pack.Bind(func(_ context.Context, goods string) (string, error) {
		return "a box of " + goods, nil
	}), time.Hour))
	env := virtual(t, append(parts, Order.Bind(order))...)
	h := start(t, env, Order, "tables", "order-7")
	env.Advance(90 * time.Minute)
	env.Deploy(append(parts, Order.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
		if err := ctx.Sleep(time.Hour); err != nil {
			return "", err
		}
		if _, err := CheckStock.Call(ctx, goods); err != nil {
			return "", err
		}
		return Pack.Call(ctx, goods)
	}), rondotest.Cold())...)
	if out, err := h.Wait(t.Context()); out != "a box of tables" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func TestPins(t *testing.T) {
	code, err := orchestration.NewRegistry(Order.Bind(order), Order.Bind(orderBySea, orchestration.Version("2.0.0")))
	must(t, err)
	must(t, code.Pin("order", "1.0.0"))
	version, ok := code.Resolve("order")
	want(t, "version", version, "1.0.0")
	want(t, "there", ok, true)
}
