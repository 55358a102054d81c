package guide

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestSubscribe(t *testing.T) {
	var invoices []string
	env := virtual(t, Subscribe.Bind(subscribe), noting(Invoice, &invoices, func(s string) (string, error) {
		return s, nil
	}))
	from := time.Date(2026, 2, 1, 9, 0, 0, 0, time.UTC)
	h := start(t, env, Subscribe, Subscription{"ann", from, 3}, "subscription-ann")
	env.Advance(31 * 24 * time.Hour)
	wantList(t, "invoices", invoices)
	env.Advance(24 * time.Hour)
	wantList(t, "invoices", invoices, "ann, month 1")
	env.Crash()
	env.Advance(365 * 24 * time.Hour)
	wantList(t, "invoices", invoices, "ann, month 1", "ann, month 2", "ann, month 3")
	if n, err := h.Wait(t.Context()); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestSubscriptionBeginsLater(t *testing.T) {
	env := virtual(t, Subscribe.Bind(subscribe))
	h, err := Subscribe.Start(t.Context(), env, Subscription{Customer: "ann"}, orchestration.ID("s-1"),
		orchestration.Delay(time.Hour))
	must(t, err)
	must(t, h.Cancel(t.Context(), "changed my mind"))
	env.Advance(59 * time.Minute)
	want(t, "instances", len(env.Instances()), 0)
	env.Advance(time.Minute)
	if n, err := h.Wait(t.Context()); n != 0 || err != nil { // a cancellation does not wait for so long
		t.Errorf("%d, %v", n, err)
	}
	_, err = Subscribe.Start(t.Context(), env, Subscription{}, orchestration.ID("s-2"), orchestration.Delay(time.Hour),
		orchestration.RejectExisting())
	wantError(t, err, "RejectExisting cannot wait for a start that is delayed; leave out one of them")
}

func TestTimerBeyondALifetime(t *testing.T) {
	env := virtual(t, Subscribe.Bind(func(ctx *orchestration.Context, _ Subscription) (int, error) {
		return 0, ctx.Sleep(200 * 365 * 24 * time.Hour)
	}))
	_, err := Subscribe.Run(t.Context(), env, Subscription{})
	wantError(t, err, "timer: delay of a timer (hours): 1752000 is over the limit of 876000; check its unit; for no "+
		"time limit leave the timer out")
}

// TestSchedule begins a subscription later, and starts something again and again, on real servers.
func TestSchedule(t *testing.T) {
	t.Parallel()
	began := make(chan string, 100)
	c, _ := onServers(t, Subscribe.Bind(subscribe),
		Stocktaking.Bind(func(ctx *orchestration.Context, place string) (string, error) {
			began <- ctx.Instance()
			return stocktaking(ctx, place)
		}))
	ctx := limited(t)
	must(t, begin(ctx, c, Subscription{Customer: "ann", From: time.Now().Add(time.Second)}))
	n, err := Subscribe.Handle(c, "subscription-ann").Wait(ctx)
	if n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s, err := c.Schedules().Get(ctx, "stocktaking-bremen")
	must(t, err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	if next := s.Next[0].In(berlin); next.Hour() != 2 || next.Minute() != 30 {
		t.Errorf("next %v", s.Next)
	}
	s.Cron, s.Zone = "@every 1s", ""
	before := time.Now().Truncate(time.Second) // its ids have whole seconds
	_, err = c.Schedules().Put(ctx, s)
	must(t, err)
	id := <-began
	must(t, c.Schedules().Delete(ctx, "stocktaking-bremen"))
	out, err := Stocktaking.Handle(c, id).Wait(ctx)
	if out != "counted in Bremen" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	at, ok := strings.CutPrefix(id, "stocktaking-bremen@")
	if due, err := time.Parse(time.RFC3339, at); !ok || err != nil || due.Before(before) || due.After(time.Now()) {
		t.Errorf("its id is %s", id)
	}

	_, err = c.Schedules().Put(ctx, client.Schedule{ID: "s", Orchestration: "stocktaking", Cron: "at night"})
	wantError(t, err, `schedule "s": cron "at night": want 5 fields, or 6 with seconds; it has 2; write it like 30 6 * * MON-FRI (at 6:30 on weekdays), */10 * * * * * (each ten seconds), @daily or @every 1h`)
}

// TestTheLastDelayedStartCounts sends two starts of one id that wait in the broker.
func TestTheLastDelayedStartCounts(t *testing.T) {
	t.Parallel()
	c, _ := onServers(t, Stocktaking.Bind(stocktaking))
	ctx := limited(t)
	for _, place := range []string{"Bremen", "Berlin"} {
		_, err := Stocktaking.Start(ctx, c, place, orchestration.ID("s-1"), orchestration.Delay(4*time.Second))
		must(t, err)
	}
	out, err := Stocktaking.Handle(c, "s-1").Wait(ctx)
	if out != "counted in Berlin" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}
