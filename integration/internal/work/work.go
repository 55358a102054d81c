// Package work is work of all sorts for tests that disturb a whole system: orchestrations, their
// activities, and instances of them of which it is known how they end.
package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// What tests build upon with orchestrations of their own.
var (
	Double = activity.Define[int, int]("double")

	Letters = orchestration.DefineMailbox[int]("letters")
	Total   = orchestration.DefineValue[int]("total")

	Chain = orchestration.Define[int, int]("chain")
	Mail  = orchestration.Define[int, []int]("mail")
)

var (
	flaky = activity.Define[int, int]("flaky", activity.Retry(5, activity.Fixed(20*time.Millisecond)))
	slow  = activity.Define[int, int]("slow")

	proceed = orchestration.DefineEvent[int]("go")
	stage   = orchestration.DefineStatus[string]()

	fan     = orchestration.Define[int, int]("fan")
	family  = orchestration.Define[int, int]("family")
	nap     = orchestration.Define[int, int]("nap")
	retried = orchestration.Define[int, int]("retried")
	roll    = orchestration.Define[[2]int, int]("roll")
	racing  = orchestration.Define[int, string]("racing")
	asking  = orchestration.Define[int, int]("asking")
	steps   = orchestration.Define[int, int]("steps")
)

// Orchestrations are those of the jobs.
var Orchestrations = []orchestration.Binding{
	Chain.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		for range 3 {
			var err error
			if n, err = Double.Call(ctx, n); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
	fan.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		var all []*orchestration.Future[int]
		for i := range 5 {
			all = append(all, Double.Start(ctx, n+i))
		}
		results, err := orchestration.All(ctx, all...).Get(ctx)
		sum := 0
		for _, r := range results {
			sum += r
		}
		return sum, err
	}),
	family.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		a, b := Chain.StartChild(ctx, n), nap.StartChild(ctx, n)
		x, errA := a.Get(ctx)
		y, errB := b.Get(ctx)
		return x + y, errors.Join(errA, errB)
	}),
	nap.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		if err := ctx.Sleep(time.Duration(20+n%200) * time.Millisecond); err != nil {
			return 0, err
		}
		return Double.Call(ctx, n)
	}),
	Mail.Bind(func(ctx *orchestration.Context, n int) ([]int, error) {
		var got []int
		for range n {
			x, err := Letters.Receive(ctx)
			if err != nil {
				return got, err
			}
			got = append(got, x)
			if err := Total.Set(ctx, x); err != nil {
				return got, err
			}
		}
		return got, nil
	}),
	retried.Bind(func(ctx *orchestration.Context, n int) (int, error) { return flaky.Call(ctx, n) }),
	roll.Bind(func(ctx *orchestration.Context, in [2]int) (int, error) {
		left, n := in[0], in[1]
		stage.Set(ctx, fmt.Sprint(left))
		n, err := Double.Call(ctx, n)
		if err != nil || left == 0 {
			return n, err
		}
		return roll.ContinueAsNew(ctx, [2]int{left - 1, n})
	}),
	racing.Bind(func(ctx *orchestration.Context, n int) (string, error) {
		late := ctx.Timer(50 * time.Millisecond)
		if ctx.Race(slow.Start(ctx, n), late) == late {
			return "too slow", nil
		}
		return "in time", nil
	}),
	asking.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		x, err := proceed.Wait(ctx)
		return x + n, err
	}),
	steps.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		for range 3 {
			var err error
			if n, err = orchestration.Step(ctx, "increment", func(context.Context) (int, error) {
				return n + 1, nil
			}); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
}

// Long is longer than anything that is waited for.
const Long = 24 * time.Hour

// Activities are those of the jobs. They call executed at the beginning of each execution.
func Activities(executed func(activity.ExecutionInfo)) []activity.Binding {
	return []activity.Binding{
		Double.Bind(func(ctx context.Context, n int) (int, error) {
			executed(activity.Info(ctx))
			return 2 * n, nil
		}),
		flaky.Bind(func(ctx context.Context, n int) (int, error) {
			info := activity.Info(ctx)
			executed(info)
			if info.Attempt < 3 {
				return 0, fmt.Errorf("attempt %d fails", info.Attempt)
			}
			return 2 * n, nil
		}),
		slow.Bind(func(ctx context.Context, n int) (int, error) {
			executed(activity.Info(ctx))
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(Long):
				return n, nil
			}
		}),
	}
}

// Job is an instance with its output, and the messages that it needs.
type Job struct {
	ID, Name string
	Input    any
	Want     any              // its output
	Said     []events.Message // right behind its start
	Later    *events.Message  // when it waits for it: an event would be dropped before; nil: nothing
}

// Sorts is how many sorts of jobs there are.
const Sorts = 10

// NewJob makes a job of a sort, below [Sorts], that has to do with a number.
func NewJob(id string, sort, n int) Job {
	j := Job{ID: id, Input: n}
	switch sort {
	case 0:
		j.Name, j.Want = "chain", 8*n
	case 1:
		j.Name, j.Want = "fan", 10*n+20
	case 2:
		j.Name, j.Want = "family", 10*n
	case 3:
		j.Name, j.Want = "nap", 2*n
	case 4:
		j.Name, j.Input, j.Want = "mail", 4, []int{1, 2, 3, 4}
		for k := range 4 {
			j.Said = append(j.Said, events.Message{ID: fmt.Sprint(id, "-letter-", k), Instance: id,
				Content: &events.MailboxMessage{Mailbox: Letters.Name(), Data: Payload(k + 1)}})
		}
	case 5:
		j.Name, j.Want = "retried", 2*n
	case 6:
		j.Name, j.Input, j.Want = "roll", [2]int{3, n}, 16*n
	case 7:
		j.Name, j.Want = "racing", "too slow"
	case 8:
		j.Name, j.Want = "asking", n+7
		j.Later = &events.Message{ID: id + "-go", Instance: id,
			Content: &events.EventRaised{Name: proceed.Name(), Data: Payload(7)}}
	case 9:
		j.Name, j.Want = "steps", n+3
	}
	return j
}

// Start is the message that starts a job.
func (j Job) Start() events.Message {
	return events.Message{ID: "start-" + j.ID, Instance: j.ID,
		Content: &events.Start{Orchestration: j.Name, Input: Payload(j.Input)}}
}

// Payload encodes a value that can be encoded; it panics otherwise.
func Payload(v any) codec.Payload {
	p, err := codec.JSON{}.Encode(v)
	if err != nil {
		panic(err)
	}
	return p
}

// Again is a message once more, in a way that the broker cannot tell: its id is in a header that
// only the receiver reads, as that of a message that had to wait for its time.
func Again(w events.Wire) events.Wire {
	h := events.Header{"Rondo-Not-Before": {"2026-01-01T00:00:00Z"}}
	for k, v := range w.Header {
		if k == events.HeaderMsgID {
			k = "Rondo-Id"
		}
		h[k] = v
	}
	w.Header = h
	return w
}
