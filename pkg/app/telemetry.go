package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
)

// endTelemetryFor bounds how long the end waits for the export of telemetry.
const endTelemetryFor = 5 * time.Second

// startTelemetry begins to tell what the process does, and gives how to end that.
func (a *App) startTelemetry(ctx context.Context) (end func(), err error) {
	instance := ""
	switch a.config.Command {
	case Orchestrator:
		instance = a.config.Orchestrator.ID
	case Worker:
		instance = a.config.Worker.ID
	default:
	}
	if instance == "" {
		host, _ := os.Hostname() // the number is what matters
		instance = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	a.telemetry, err = telemetry.Start(ctx, telemetry.Service{
		Name: a.name() + "-" + string(a.config.Command), Version: a.build(), Instance: instance,
		Logger: a.logs.writer(),
	})
	if err != nil {
		return nil, err
	}
	if a.telemetry.Logs != nil {
		a.logs.sent.Store(&a.telemetry.Logs)
	}
	return func() {
		a.ending.Set()
		a.logs.sent.Store(nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTelemetryFor)
		defer cancel()
		if err := a.telemetry.End(ctx); err != nil {
			a.log.Warn(err.Error())
		}
	}, nil
}
