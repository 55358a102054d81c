package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/bus/embedded"
	"github.com/rondo-run/rondo/pkg/bus/natsbus"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

var (
	hello = orchestration.Define[string, string]("hello")
	greet = activity.Define[string, string]("greet")
)

func TestSmoke(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := natsbus.Connect(t.Context(), natsbus.Config{InProcess: s})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	store, err := sqlite.Open(t.Context(), t.TempDir()+"/db", sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	code, err := orchestration.NewRegistry(hello.With(func(ctx *orchestration.Context, name string) (string, error) {
		if err := ctx.Sleep(300 * time.Millisecond); err != nil {
			return "", err
		}
		return greet.Call(ctx, name)
	}))
	if err != nil {
		t.Fatal(err)
	}
	o, err := orchestrator.New(b, store, code, orchestrator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- o.Run(ctx) }()
	q, err := b.OpenQueue(ctx, bus.Queue{Activity: "greet"})
	if err != nil {
		t.Fatal(err)
	}
	b.Publish(ctx, events.Wire{Subject: "rondo.start.hello.i1", Body: []byte(`"bob"`)})
	at := time.Now()
	q.Take(ctx, 1, func(d bus.Delivery) {
		t.Log(time.Since(at), d)
		m, err := events.Decode("rondo", d.Subject, d.Header, d.Body, "")
		if err != nil {
			t.Fatal(err)
		}
		w, _ := events.Encode("rondo", events.Message{Instance: m.Instance, Content: &events.WorkDone{Ref: m.Content.(*events.Work).Ref, Result: []byte(`"hello bob"`)}})
		b.Publish(ctx, w)
		d.Hold.Ack()
	})
	for {
		i, err := store.Instance(ctx, "i1")
		if err == nil && i.Status.Ended() {
			t.Log(i.Status, string(i.Output), i.Error, time.Since(at))
			break
		}
		if time.Since(at) > 5*time.Second {
			t.Fatal(i, err)
		}
	}
	cancel()
	t.Log(<-ended, time.Since(at))
}
