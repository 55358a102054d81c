package guide

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestSend(t *testing.T) {
	var tokens []string
	env := virtual(t, Send.Bind(send), Carrier.Bind(Desk{Order: func(_ context.Context, _, token string) error {
		tokens = append(tokens, token)
		return nil
	}}.carrier))
	h := start(t, env, Send, "chair", "send-1")
	env.Crash()
	env.Advance(10 * 24 * time.Hour)
	want(t, "orders", len(tokens), 1)
	must(t, env.Complete(t.Context(), tokens[0], "ann"))
	out, err := h.Wait(t.Context())
	if out != "ann" || err != nil {
		t.Errorf("%q, %v", out, err)
	}

	_, err = Send.Run(t.Context(), env, "table")
	wantError(t, err, `activity "carrier": it was not done within its time limit from schedule to close`)
	wantIs(t, err, orchestration.ErrTimeout)
	want(t, "orders", len(tokens), 2)
}

// TestTimeoutEndsWithTheFunction has the wrong time limit: that of an attempt is over when the
// function has returned.
func TestTimeoutEndsWithTheFunction(t *testing.T) {
	env := virtual(t, Carrier.Bind(func(context.Context, string) (string, error) {
		return "",
			activity.ErrResultPending
	}),
		Send.Bind(func(ctx *orchestration.Context, p string) (string, error) {
			return Carrier.Call(ctx, p, activity.StartToClose(time.Hour), activity.ScheduleToStart(time.Hour),
				activity.ScheduleToClose(0))
		}))
	_, err := Send.Run(t.Context(), env, "chair", orchestration.ID("send-1"))
	wantError(t, err, `rondotest: instance "send-1" is running, and nothing more will happen`+"\n"+
		`  it waits for activity "carrier" to be completed by its token (event 2)`)
}

// TestArrived has a carrier call back, on real servers.
func TestArrived(t *testing.T) {
	t.Parallel()
	orders := make(chan string, 10)
	c, _ := onServers(t, Send.Bind(send), Carrier.Bind(Desk{Order: func(_ context.Context, parcel, token string) error {
		orders <- token
		return nil
	}}.carrier))
	ctx := limited(t)
	h, err := Send.Start(ctx, c, "chair", orchestration.ID("send-1"))
	must(t, err)
	token := <-orders
	if !strings.HasPrefix(token, "send-1/") {
		t.Errorf("token %q", token)
	}
	for range 2 { // the carrier is not sure whether we have heard it
		must(t, arrived(ctx, c, token, "ann"))
		if out, err := h.Wait(ctx); out != "ann" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
	}
	h, err = Send.Start(ctx, c, "table")
	must(t, err)
	for range 3 { // attempts, each with a token of its own
		must(t, arrived(ctx, c, <-orders, ""))
	}
	_, err = h.Wait(ctx)
	wantIs(t, err, orchestration.OfType("lost"))
	wantError(t, err, `activity "carrier": the parcel is lost (after 3 attempts)`)

	wantError(t, arrived(ctx, c, "nonsense", "ann"),
		`token "nonsense": want <instance>/<incarnation>/<execution>-<event>, as the activity got it`)
}

// TestTheCarrierIsQuick calls back before the activity has returned.
func TestTheCarrierIsQuick(t *testing.T) {
	t.Parallel()
	tokens, called := make(chan string), make(chan bool)
	c, _ := onServers(t, Send.Bind(send), Carrier.Bind(Desk{Order: func(_ context.Context, parcel, token string) error {
		tokens <- token
		<-called
		return nil
	}}.carrier))
	ctx := limited(t)
	h, err := Send.Start(ctx, c, "chair")
	must(t, err)
	must(t, c.Complete(ctx, <-tokens, "ann"))
	called <- true
	if out, err := h.Wait(ctx); out != "ann" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}
