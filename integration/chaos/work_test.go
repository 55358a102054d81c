//go:build unix

package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file is the work: that of package work, and some more. How each instance ends is known
// beforehand.

var (
	probing  = orchestration.Define[int, int]("probing")
	doze     = orchestration.Define[int, int]("doze")
	courier  = orchestration.Define[int, []int]("courier")
	detaches = orchestration.Define[int, string]("detaches")
	endless  = orchestration.Define[int, int]("endless")
)

// plays are the orchestrations.
var plays = append([]orchestration.Binding{
	probing.Bind(func(ctx *orchestration.Context, n int) (int, error) { return work.Double.Call(ctx, n) }),
	// These timers are far enough away to wait in the broker.
	doze.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		for range 2 {
			if err := ctx.Sleep(time.Duration(1800+n%800) * time.Millisecond); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
	courier.Bind(func(ctx *orchestration.Context, n int) ([]int, error) {
		reader := ctx.Instance() + "/reader"
		reading := work.Mail.StartChild(ctx, n, orchestration.ID(reader))
		for i := range n {
			if err := work.Letters.SendFrom(ctx, reader, i+1); err != nil {
				return nil, err
			}
		}
		return reading.Get(ctx)
	}),
	detaches.Bind(func(ctx *orchestration.Context, n int) (string, error) {
		return work.Chain.Detach(ctx, n, orchestration.ID(ctx.Instance()+"/detached"))
	}),
	// It ends only if it is cancelled, and cleans up then.
	endless.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		if err := ctx.Sleep(work.Long); !errors.Is(err, orchestration.ErrCancelled) {
			return 0, err
		}
		shielded, done := ctx.Shield(work.Long)
		defer done()
		return work.Double.Call(shielded, n)
	}),
}, work.Orchestrations...)

// executionOf is how the execution of an attempt of an activity is noted.
func executionOf(key string, attempt int) string { return fmt.Sprintf("%s %d", key, attempt) }

// works are the activities. They note each execution.
func works(executions ledger) []activity.Binding {
	return work.Activities(func(i activity.ExecutionInfo) { executions.note(executionOf(i.IdempotencyKey, i.Attempt)) })
}

// job is an instance with its expected end, and the messages for it.
type job struct {
	work.Job
	status  round.Status
	twice   bool // each message is sent twice, in a way that the broker cannot tell
	awaited bool // a client waits for its end

	// The rest is kept by the clients, under their lock.
	acked       []events.Message // in their order
	begun       time.Time        // when its start was acknowledged
	incarnation string           // of its instance, as soon as that is there
	saidLater   bool
	ended       time.Time
	doubted     bool // it may have lost something: see clients.losing
}

// makeJob makes the job of a number.
func makeJob(i int, chance *rand.Rand) *job {
	id := fmt.Sprintf("job-%05d", i)
	j := &job{status: round.Completed, twice: chance.IntN(8) == 0, awaited: chance.IntN(4) == 0}
	steered := func(how events.How, as round.Status) {
		j.Name, j.status = "endless", as
		j.Later = &events.Message{ID: id + "-" + string(how), Instance: id,
			Content: &events.Control{How: how, Reason: "chaos"}}
	}
	j.Job = work.Job{ID: id, Input: i}
	switch sort := i % (work.Sorts + 5); sort - work.Sorts {
	case 0:
		j.Name, j.Want = "doze", i
	case 1:
		j.Name, j.Input, j.Want = "courier", 3, []int{1, 2, 3}
	case 2:
		j.Name, j.Want = "detaches", id+"/detached"
	case 3:
		steered(events.Cancel, round.Cancelled)
	case 4:
		steered(events.Terminate, round.Terminated)
	default:
		j.Job = work.NewJob(id, sort, i)
	}
	return j
}
