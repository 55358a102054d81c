package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/app"
)

// frozen has subscribed to the requests for orchestrators, and answers none until the test ends: as
// a process that gets SIGSTOP, until NATS notices.
func frozen(t *testing.T, server *embedded.Server) {
	t.Helper()
	b := natstest.Connect(t, server, natsbroker.Config{})
	ends := make(chan struct{})
	for _, method := range []string{query.MethodPing, query.MethodSystem, query.MethodInstance, query.MethodCount,
		query.MethodWaiting, query.MethodMetrics} {
		stop, err := b.Handle(method, func(context.Context, []byte) ([]byte, error) {
			<-ends
			return nil, broker.ErrNoResponders
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	t.Cleanup(func() { close(ends) })
}

// TestAFrozenOrchestrator shows that a frozen orchestrator does not make commands fail, and that
// doctor blames it, and not the database.
func TestAFrozenOrchestrator(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	c := app.Defaults(app.Orchestrator)
	c.NATS.URLs, c.Database.URL = server.URL(), filepath.Join(t.TempDir(), "rondo.db")
	d := deployOn(t, c, stuck(1))
	d.where = []string{"--nats", server.URL()}
	if code, text := d.say("start", "naps", "1", "--id", "i"); code != succeeded {
		t.Fatal(text)
	}
	d.until("it is due in", "show", "i")
	frozen(t, server)
	for range 4 {
		if code, text := d.say("show", "i", "--timeout", "5s"); code != succeeded {
			t.Errorf("show exits with %d:\n%s", code, text)
		}
	}
	code, text := d.say("doctor")
	if code != succeeded || !strings.Contains(text, "look  orchestrators  one or more do not answer") ||
		!strings.Contains(text, "ok    database") {
		t.Errorf("doctor exits with %d:\n%s", code, text)
	}
	d.stop()
	code, text = d.say("doctor")
	if code != failed || !strings.Contains(text, "bad   orchestrators  none of those that NATS knows has answered") ||
		strings.Contains(text, "bad   database") {
		t.Errorf("doctor exits with %d:\n%s", code, text)
	}
}
