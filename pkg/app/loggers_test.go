package app_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestLoggersOfTheProgram gives each service a logger of its own: it gets what the service and its
// code log, and standard error does not.
func TestLoggersOfTheProgram(t *testing.T) {
	t.Parallel()
	logs := orchestration.Define[string, string]("logs")
	writes := activity.Define[string, string]("writes")
	var own, code, worker, stderr logged
	logger := func(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
	all := []app.Part{
		logs.Bind(func(ctx *orchestration.Context, in string) (string, error) {
			ctx.Logger().Warn("from the orchestration")
			return writes.Call(ctx, in)
		}),
		writes.Bind(func(ctx context.Context, in string) (string, error) {
			activity.Logger(ctx).Warn("from the activity")
			return in, nil
		}),
		app.Configure(func(c *app.Config) {
			c.Orchestrator.Logger, c.Orchestrator.CodeLogger, c.Worker.Logger, c.NATS.Logger = logger(&own),
				logger(&code), logger(&worker), logger(&own)
		}),
	}
	c := app.Defaults(app.Dev, all...)
	c.Dir, c.NATSListen, c.Listen, c.JobQueues.Listen, c.Stdout, c.Stderr = t.TempDir(), "127.0.0.1:0", "off", "off",
		io.Discard, &stderr
	p := run(t, c, all...)
	b := natstest.Connected(t, func() (*natsbroker.Bus, error) {
		return natsbroker.Connect(t.Context(), natsbroker.Config{URLs: p.Addresses().NATS, Setup: natsbroker.Use})
	})
	people := busclient.New[*client.Client](b, busclient.Options{})
	t.Cleanup(func() { people.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := logs.Run(ctx, people, "in"); err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		log  *logged
		says string
	}{"Orchestrator.Logger": {&own, "orchestrator="}, "Orchestrator.CodeLogger": {&code, "from the orchestration"},
		"Worker.Logger": {&worker, "from the activity"}} {
		if !strings.Contains(x.log.String(), x.says) {
			t.Errorf("%s did not get %q; it has\n%s", what, x.says, x.log.String())
		}
	}
	if strings.Contains(stderr.String(), "from the") {
		t.Errorf("standard error got\n%s", stderr.String())
	}
}
