package guide

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// asks waits until the boss is asked, which is when the instance waits for a verdict.
func asks(t *testing.T, asked <-chan string, id string) {
	t.Helper()
	if got := <-asked; got != id {
		t.Fatalf("%s was asked for, want %s", got, id)
	}
}

func TestBuyAPiano(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	c, servers := onServers(t, Buy.Bind(buy), AskBoss.Bind(func(_ context.Context, id string) (bool, error) {
		asked <- id
		return true, nil
	}))
	ctx := limited(t)
	type outcome struct {
		out string
		err error
	}
	bought := make(chan outcome, 2)
	for range 2 { // of two starts with the same id, one counts
		go func() {
			out, err := buyAPiano(ctx, servers)
			bought <- outcome{out, err}
		}()
	}
	asks(t, asked, "buy-7")
	taken, err := approve(ctx, c, "buy-7", Verdict{"ann", true})
	if !taken || err != nil {
		t.Errorf("%t, %v", taken, err)
	}
	for range 2 {
		if got := <-bought; got.out != "piano, approved by ann" || got.err != nil {
			t.Errorf("%q, %v", got.out, got.err)
		}
	}
	taken, err = approve(ctx, c, "buy-7", Verdict{"bob", true})
	if taken || err != nil {
		t.Errorf("%t, %v", taken, err)
	}

	_, err = Buy.Start(ctx, c, Purchase{}, orchestration.ID("buy-7"), orchestration.RejectExisting())
	wantError(t, err, `instance "buy-7" is already there (completed); choose another id, or RestartFinished or ReplaceRunning`)
	n, err := c.Instances().Count(ctx, client.Filter{Attributes: map[string]string{"department": "music"}}, 0)
	if n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestConflicts starts an instance of an id again, in each way.
func TestConflicts(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	c, _ := onServers(t, Buy.Bind(buy), AskBoss.Bind(func(_ context.Context, id string) (bool, error) {
		asked <- id
		return true, nil
	}))
	ctx := limited(t)
	first, err := Buy.Start(ctx, c, Purchase{What: "piano"}, orchestration.ID("buy-7"))
	must(t, err)
	asks(t, asked, "buy-7")
	for _, same := range []orchestration.StartOption{orchestration.UseExisting(), orchestration.RestartFinished()} {
		_, err := Buy.Start(ctx, c, Purchase{What: "harp"}, orchestration.ID("buy-7"), same)
		must(t, err)
	}
	second, err := Buy.Start(ctx, c, Purchase{What: "organ"}, orchestration.ID("buy-7"), orchestration.ReplaceRunning())
	must(t, err)
	asks(t, asked, "buy-7")
	must(t, Verdicts.Raise(ctx, c, "buy-7", Verdict{"ann", true}))
	for _, h := range []orchestration.Handle[string]{first, second} {
		if out, err := h.Wait(ctx); out != "organ, approved by ann" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
	}
	third, err := Buy.Start(ctx, c, Purchase{What: "drum"}, orchestration.ID("buy-7"), orchestration.RestartFinished())
	must(t, err)
	asks(t, asked, "buy-7")
	must(t, Verdicts.Raise(ctx, c, "buy-7", Verdict{"ann", true}))
	if out, err := third.Wait(ctx); out != "drum, approved by ann" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	list, err := client.Collect(c.Instances().Executions(ctx, "buy-7"))
	must(t, err)
	want(t, "executions", len(list), 3)
}

// TestAnyClient does it with messages that any client of NATS can send.
func TestAnyClient(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	c, servers := onServers(t, Buy.Bind(buy), AskBoss.Bind(func(_ context.Context, id string) (bool, error) {
		asked <- id
		return true, nil
	}))
	ctx := limited(t)
	nc, err := nats.Connect(servers, nats.Timeout(time.Minute))
	must(t, err)
	defer nc.Close()
	must(t, nc.Publish("rondo.start.buy.buy-8", []byte(`{"What":"harp","Cents":400000}`)))
	asks(t, asked, "buy-8")
	m, err := nc.Request("rondo.api.waiting", []byte(`{"instance":"buy-8"}`), 10*time.Second)
	must(t, err)
	wantIn(t, string(m.Data), `"name":"verdict"`)
	must(t, nc.Publish("rondo.event.verdict.buy-8", []byte(`{"By":"ann","OK":true}`)))
	out, err := Buy.Handle(c, "buy-8").Wait(ctx)
	if out != "harp, approved by ann" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	m, err = nc.Request("rondo.api.instance", []byte(`{"instance":"buy-8"}`), 10*time.Second)
	must(t, err)
	wantIn(t, string(m.Data), `"output":"harp, approved by ann"`)
}

// TestWhoIsNotThere waits for, and asks about, an instance that does not exist, and sends an input
// of a wrong type.
func TestWhoIsNotThere(t *testing.T) {
	t.Parallel()
	c, _ := onServers(t, Buy.Bind(buy), AskBoss.Bind(func(context.Context, string) (bool, error) { return true, nil }))
	ctx := limited(t)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := Buy.Handle(c, "nobody").Wait(short)
	wantIs(t, err, context.DeadlineExceeded)
	_, err = c.Instances().Waiting(ctx, "nobody")
	wantError(t, err, `instance "nobody": there is no such instance`)
	wantIs(t, err, client.ErrNoInstance)
	taken, err := approve(ctx, c, "nobody", Verdict{})
	if taken || err != nil {
		t.Errorf("%t, %v", taken, err)
	}

	s, err := c.Start(ctx, "buy", []byte(`"a piano"`))
	must(t, err)
	o, err := s.Wait(ctx)
	must(t, err)
	wantError(t, o.Error, `invalid input: want an object, got JSON string; its fields are What, Cents`)

	_, err = c.Start(ctx, "bye", nil, orchestration.ID("bye-1"))
	must(t, err) // it is stored, and waits for an orchestrator that has its code
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for range again.C {
		all, err := c.System().Processes(ctx)
		must(t, err)
		for _, p := range all {
			if len(p.Unknown) > 0 {
				want(t, "why", p.Unknown[0].Detail, `orchestration "bye" is not registered here; registered are buy`)
				return
			}
		}
	}
}
