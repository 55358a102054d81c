package integration_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// busy computes for some ten milliseconds between two waits: much less than it may.
var busy = orchestration.Define[int, int]("busy")

var hashed [1 << 20]byte

func init() {
	plays = append(plays, busy.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		for range n {
			for range 50 {
				sha256.Sum256(hashed[:])
				ctx.Now() // it could be interrupted
			}
			if err := ctx.Sleep(time.Millisecond); err != nil {
				return 0, err
			}
		}
		return n, nil
	}))
}

// freeze stops a process for some time, as SIGSTOP, a paused container or a paused machine do.
func (x *process) freeze(d time.Duration) {
	x.t.Helper()
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := x.cmd.Process.Signal(s); err != nil {
			x.t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			<-time.After(d) // the freeze itself
		}
	}
}

// TestAFrozenOrchestratorBlamesNoCode: an orchestrator that freezes for longer than code may
// compute does not blame the code that it was running.
func TestAFrozenOrchestratorBlamesNoCode(t *testing.T) {
	p := onProcesses(t)
	const n, runaway = 6, 2 * time.Second
	freezes := racetest.Short(3, 1)
	rounds := 1 + 13*freezes
	x := p.run("orchestrator", "orchestrator", func(r *role) {
		r.Config.RunawayAfter, r.Config.StuckAfter = runaway, 3*runaway
	})
	for i := range n {
		p.start("busy", fmt.Sprint("busy", i), rounds)
	}
	var before int64
	for range freezes {
		p.eventually("the code goes on", func() error {
			var events int64
			for i := range n {
				info, err := p.store.Instance(t.Context(), fmt.Sprint("busy", i))
				if err != nil {
					return err
				}
				events += info.LastEvent
			}
			if events < before+n {
				return errors.New("not yet")
			}
			before = events
			return nil
		})
		x.freeze(2 * runaway)
	}
	for i := range n {
		p.completed(fmt.Sprint("busy", i), rounds)
	}
}

// heart sends heartbeats much more often than it must.
var heart = activity.Define[int, int]("heart")

const silence = 2 * time.Second

func init() {
	works = append(works, heart.Bind(func(ctx context.Context, n int) (int, error) {
		tick := time.NewTicker(silence / 20)
		defer tick.Stop()
		for i := range n {
			<-tick.C
			if err := activity.Heartbeat(ctx, i); err != nil {
				return 0, err
			}
		}
		return n, nil
	}))
	plays = append(plays,
		orchestration.Define[int, int]("beaten").Bind(func(ctx *orchestration.Context, n int) (int, error) {
			return heart.Call(ctx, n, activity.HeartbeatTimeout(silence))
		}))
}

// TestAFrozenWorkerBlamesNoActivity: a worker that freezes for longer than the heartbeat timeout
// does not fail its activity, which would be final without a retry.
func TestAFrozenWorkerBlamesNoActivity(t *testing.T) {
	p := onProcesses(t)
	p.config.TaskAckWait = time.Minute
	const n = 20
	freezes := racetest.Short(2, 1)
	ticks := 100 * freezes // longer than it takes to look
	p.run("orchestrator", "orchestrator")
	x := p.run("worker", "worker")
	for i := range n {
		p.start("beaten", fmt.Sprint("beaten", i), ticks)
	}
	p.eventually("an activity has begun", func() error {
		b, err := p.bus.TaskBacklog(t.Context(), broker.TaskQueueName{Activity: "heart"})
		if err == nil && b.Held == 0 {
			err = errors.New("none is held")
		}
		return err
	})
	for range freezes {
		x.freeze(2 * silence)
	}
	for i := range n {
		p.completed(fmt.Sprint("beaten", i), ticks)
	}
}
