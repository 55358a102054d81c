package app

import (
	"context"
	"runtime"
	"time"

	"github.com/rondo-run/rondo/internal/x/bounded"
)

const (
	// overdueAfter is how long a process may take to end after all of its time limits for that. It
	// disconnects and exports its last telemetry meanwhile. Kubernetes waits some seconds longer,
	// and then kills it without a log.
	overdueAfter = 8 * time.Second
	// givesBackFor is how long a worker nacks tasks after their grace.
	givesBackFor = 5 * time.Second
	// logsWithin bounds the last log line: its reader may be what hangs.
	logsWithin = time.Second
	// maxStacks bounds the stacks in the last log line, in bytes.
	maxStacks = 256 << 10
)

// endsWithin is how long the process may take to end its services.
func (c *Config) endsWithin() time.Duration {
	if c.Command == Worker || c.Command == Dev {
		return c.ShutdownTimeout + c.Worker.CancelGrace + givesBackFor
	}
	return c.ShutdownTimeout
}

// exitOverdue exits with 1 if the process begins to end, because it is told to or because a service
// has failed, and does not end in time. It logs the stacks of all goroutines before. It does
// nothing more once ended is called.
func (a *App) exitOverdue(ctx context.Context, exit func(code int)) (ended func()) {
	limit := a.config.endsWithin() + overdueAfter
	over := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-a.ending:
		case <-over:
			return
		}
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case <-over:
			return
		case <-late.C:
		}
		bounded.Wait(logsWithin, func() {
			stacks := make([]byte, maxStacks)
			a.log.Error("the process did not end in time; exiting", "after", limit, "stacks",
				string(stacks[:runtime.Stack(stacks, true)]))
		})
		exit(failed)
	}()
	return func() { close(over) }
}
