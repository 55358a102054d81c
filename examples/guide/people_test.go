package guide

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

var asked = AskBoss.Bind(func(context.Context, string) (bool, error) { return true, nil })

func TestBuy(t *testing.T) {
	for _, c := range []struct {
		name, out, err string
		verdict        *Verdict
	}{
		{"approved", "piano, approved by ann", "", &Verdict{"ann", true}},
		{"refused", "", "ann does not want it", &Verdict{"ann", false}},
		{"silence", "", "nobody has answered within three days", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := virtual(t, Buy.Bind(buy), asked)
			began := env.Now()
			h := start(t, env, Buy, Purchase{"piano", 900_000}, "buy-7")
			env.Advance(71 * time.Hour)
			if c.verdict != nil {
				must(t, Verdicts.Raise(t.Context(), env, "buy-7", *c.verdict))
			}
			out, err := h.Wait(t.Context())
			if out != c.out || (err != nil || c.err != "") && err.Error() != c.err {
				t.Errorf("%q, %v", out, err)
			}
			if took := env.Now().Sub(began); c.verdict == nil && took != 72*time.Hour {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestBuyIsCancelled(t *testing.T) {
	env := virtual(t, Buy.Bind(buy), asked)
	h := start(t, env, Buy, Purchase{"piano", 900_000}, "buy-7")
	must(t, h.Cancel(t.Context(), "no money"))
	_, err := h.Wait(t.Context())
	wantError(t, err, "cancelled: no money")
	wantIs(t, err, orchestration.ErrCancelled)
}

func asksFirst(ctx *orchestration.Context, _ Purchase) (string, error) {
	if _, err := AskBoss.Call(ctx, ctx.Instance()); err != nil {
		return "", err
	}
	v, err := Verdicts.Wait(ctx)
	return v.By, err
}

// TestVerdictComesTooEarly lets the boss answer before the instance waits for the answer.
func TestVerdictComesTooEarly(t *testing.T) {
	env := virtual(t, Buy.Bind(asksFirst), rondotest.Takes(asked, time.Minute))
	start(t, env, Buy, Purchase{"piano", 900_000}, "buy-7")
	must(t, Verdicts.Raise(t.Context(), env, "buy-7", Verdict{"ann", true}))
	env.Settle()
	want(t, "ignored", len(env.Ignored()), 1)
	want(t, "why", string(env.Ignored()[0].Reason), "no_waiter")
	want(t, "in words", env.Ignored()[0].Detail,
		`no waiter for event "verdict"; bind the orchestration with Buffered to keep early events, or use a mailbox`)
}

// TestEarlyVerdictIsKept is the same with an orchestration that keeps early verdicts.
func TestEarlyVerdictIsKept(t *testing.T) {
	binding := Buy.Bind(asksFirst, orchestration.Buffered(16, Verdicts))
	env := virtual(t, binding, rondotest.Takes(asked, time.Minute))
	h := start(t, env, Buy, Purchase{"piano", 900_000}, "buy-7")
	must(t, Verdicts.Raise(t.Context(), env, "buy-7", Verdict{"ann", true}))
	out, err := h.Wait(t.Context())
	must(t, err)
	want(t, "result", out, "ann")
}

func TestVerdictOfAnotherType(t *testing.T) {
	env := virtual(t, Buy.Bind(buy), asked)
	h := start(t, env, Buy, Purchase{"piano", 900_000}, "buy-7")
	must(t, orchestration.DefineEvent[string]("verdict").Raise(t.Context(), env, "buy-7", "yes"))
	env.Settle()
	want(t, "why", string(env.Ignored()[0].Reason), "wrong_type")
	must(t, Verdicts.Raise(t.Context(), env, "buy-7", Verdict{"ann", true}))
	out, err := h.Wait(t.Context())
	must(t, err)
	want(t, "result", out, "piano, approved by ann")
}
