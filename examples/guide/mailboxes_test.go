package guide

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestBasket(t *testing.T) {
	env := virtual(t, Basket.Bind(basket))
	h, err := Basket.Start(t.Context(), env, "ann", orchestration.ID("basket-ann"),
		orchestration.WithMessage(Items, "chair"))
	must(t, err)
	for _, item := range []string{"table", "lamp"} {
		must(t, Items.Send(t.Context(), env, "basket-ann", item))
	}
	must(t, CheckOut.Raise(t.Context(), env, "basket-ann", true))
	items, err := h.Wait(t.Context())
	must(t, err)
	wantList(t, "items", items, "chair", "table", "lamp")
}

func TestBasketIsLeft(t *testing.T) {
	env := virtual(t, Basket.Bind(basket))
	h := start(t, env, Basket, "ann", "basket-ann")
	env.Advance(20 * time.Minute)
	must(t, Items.Send(t.Context(), env, "basket-ann", "chair"))
	env.Advance(20 * time.Minute)
	_, err := h.Wait(t.Context())
	wantError(t, err, "ann has gone away")
	want(t, "time", env.Now().Sub(time.Date(2026, 1, 1, 0, 50, 0, 0, time.UTC)), 0)
}

// TestMessagesThatNobodyReads checks what becomes of them.
func TestMessagesThatNobodyReads(t *testing.T) {
	env := virtual(t, Basket.Bind(basket), Stocktaking.Bind(func(ctx *orchestration.Context, s string) (string, error) {
		return s, ctx.Sleep(time.Hour)
	}))
	ctx := t.Context()
	must(t, Items.Send(ctx, env, "early", "chair")) // it waits for the start
	env.Advance(30 * time.Second)
	h := start(t, env, Basket, "ann", "early")
	env.Advance(10 * time.Second)
	must(t, CheckOut.Raise(ctx, env, "early", true))
	items, err := h.Wait(ctx)
	must(t, err)
	wantList(t, "items", items, "chair")

	must(t, Items.Send(ctx, env, "early", "table"))
	must(t, Items.Send(ctx, env, "nobody", "table"))
	start(t, env, Stocktaking, "Bremen", "unread")
	for range 10_001 {
		must(t, Items.Send(ctx, env, "unread", "chair"))
	}
	env.Advance(2 * time.Hour)
	why := make(map[string]string)
	for _, d := range env.DeadLetters() {
		why[string(d.Reason)] = d.Detail
	}
	want(t, "after the end", why["has_ended"], `instance "early" has ended (completed); nobody will read mailbox "items"`)
	want(t, "without an instance", why["unknown_instance"],
		`there is no instance "nobody", and none was started within 1m0s`)
	wantIn(t, why["mailbox_full"], `instance "unread" has 10000 unread mailbox messages`)
	wantList(t, "warnings", env.Warnings(),
		"unread: near a limit: unread mailbox messages: 8000 of at most 10000; read faster, or send slower: further "+
			"ones become dead letters",
		"unread: it has ended with unread mailbox messages: 10000")
}
