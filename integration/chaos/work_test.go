//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file is the work, of all sorts. How each instance ends is known beforehand.

var (
	double = activity.Define[int, int]("double")
	flaky  = activity.Define[int, int]("flaky", activity.Retry(5, activity.Fixed(20*time.Millisecond)))
	slow   = activity.Define[int, int]("slow")

	letters = orchestration.DefineQueue[int]("letters")
	proceed = orchestration.DefineEvent[int]("proceed")
	total   = orchestration.DefineKey[int]("total")
	stage   = orchestration.DefineStatus[string]()

	probing  = orchestration.Define[int, int]("probing")
	chain    = orchestration.Define[int, int]("chain")
	fan      = orchestration.Define[int, int]("fan")
	family   = orchestration.Define[int, int]("family")
	nap      = orchestration.Define[int, int]("nap")
	doze     = orchestration.Define[int, int]("doze")
	mail     = orchestration.Define[int, []int]("mail")
	courier  = orchestration.Define[int, []int]("courier")
	detaches = orchestration.Define[int, string]("detaches")
	retried  = orchestration.Define[int, int]("retried")
	roll     = orchestration.Define[[2]int, int]("roll")
	racing   = orchestration.Define[int, string]("racing")
	asking   = orchestration.Define[int, int]("asking")
	steps    = orchestration.Define[int, int]("steps")
	endless  = orchestration.Define[int, int]("endless")
)

// long is longer than anything that is waited for.
const long = 24 * time.Hour

// plays are the orchestrations.
var plays = []orchestration.Binding{
	probing.With(func(ctx *orchestration.Context, n int) (int, error) { return double.Call(ctx, n) }),
	chain.With(func(ctx *orchestration.Context, n int) (int, error) {
		for range 3 {
			var err error
			if n, err = double.Call(ctx, n); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
	fan.With(func(ctx *orchestration.Context, n int) (int, error) {
		var all []*orchestration.Future[int]
		for i := range 5 {
			all = append(all, double.Start(ctx, n+i))
		}
		results, err := orchestration.All(ctx, all...).Get(ctx)
		sum := 0
		for _, r := range results {
			sum += r
		}
		return sum, err
	}),
	family.With(func(ctx *orchestration.Context, n int) (int, error) {
		a, b := chain.StartChild(ctx, n), nap.StartChild(ctx, n)
		x, errA := a.Get(ctx)
		y, errB := b.Get(ctx)
		return x + y, errors.Join(errA, errB)
	}),
	nap.With(func(ctx *orchestration.Context, n int) (int, error) {
		if err := ctx.Sleep(time.Duration(20+n%200) * time.Millisecond); err != nil {
			return 0, err
		}
		return double.Call(ctx, n)
	}),
	// These timers are far enough away to wait in the broker.
	doze.With(func(ctx *orchestration.Context, n int) (int, error) {
		for range 2 {
			if err := ctx.Sleep(time.Duration(1800+n%800) * time.Millisecond); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
	mail.With(func(ctx *orchestration.Context, n int) ([]int, error) {
		var got []int
		for range n {
			x, err := letters.Receive(ctx)
			if err != nil {
				return got, err
			}
			got = append(got, x)
			total.Set(ctx, x)
		}
		return got, nil
	}),
	courier.With(func(ctx *orchestration.Context, n int) ([]int, error) {
		reader := ctx.Instance() + "/reader"
		reading := mail.StartChild(ctx, n, orchestration.ID(reader))
		for i := range n {
			if err := letters.Send(ctx, reader, i+1); err != nil {
				return nil, err
			}
		}
		return reading.Get(ctx)
	}),
	detaches.With(func(ctx *orchestration.Context, n int) (string, error) {
		return chain.Detach(ctx, n, orchestration.ID(ctx.Instance()+"/detached"))
	}),
	retried.With(func(ctx *orchestration.Context, n int) (int, error) { return flaky.Call(ctx, n) }),
	roll.With(func(ctx *orchestration.Context, in [2]int) (int, error) {
		left, n := in[0], in[1]
		stage.Set(ctx, fmt.Sprint(left))
		n, err := double.Call(ctx, n)
		if err != nil || left == 0 {
			return n, err
		}
		return roll.ContinueAsNew(ctx, [2]int{left - 1, n})
	}),
	racing.With(func(ctx *orchestration.Context, n int) (string, error) {
		late := ctx.Timer(50 * time.Millisecond)
		if ctx.Select(slow.Start(ctx, n), late) == late {
			return "too slow", nil
		}
		return "in time", nil
	}),
	asking.With(func(ctx *orchestration.Context, n int) (int, error) {
		x, err := proceed.Wait(ctx)
		return x + n, err
	}),
	steps.With(func(ctx *orchestration.Context, n int) (int, error) {
		for range 3 {
			var err error
			if n, err = orchestration.Step(ctx, "increment", func(context.Context) (int, error) { return n + 1, nil }); err != nil {
				return 0, err
			}
		}
		return n, nil
	}),
	// It ends only if it is told to, and cleans up then.
	endless.With(func(ctx *orchestration.Context, n int) (int, error) {
		if err := ctx.Sleep(long); !errors.Is(err, orchestration.ErrCancelled) {
			return 0, err
		}
		shielded, done := ctx.Shield(long)
		defer done()
		return double.Call(shielded, n)
	}),
}

// executionOf is how the execution of an attempt of an activity is noted.
func executionOf(key string, attempt int) string { return fmt.Sprintf("%s %d", key, attempt) }

// works are the activities. They note each execution.
func works(executions ledger) []activity.Binding {
	note := func(ctx context.Context) activity.Info {
		info := activity.InfoOf(ctx)
		executions.note(executionOf(info.IdempotencyKey, info.Attempt))
		return info
	}
	return []activity.Binding{
		double.With(func(ctx context.Context, n int) (int, error) {
			note(ctx)
			return 2 * n, nil
		}),
		flaky.With(func(ctx context.Context, n int) (int, error) {
			if a := note(ctx).Attempt; a < 3 {
				return 0, fmt.Errorf("attempt %d fails", a)
			}
			return 2 * n, nil
		}),
		slow.With(func(ctx context.Context, n int) (int, error) {
			note(ctx)
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(long):
				return n, nil
			}
		}),
	}
}

// job is an instance with how it must end, and what is said to it.
type job struct {
	id, name string
	status   round.Status
	want     any // its output; nil: none
	first    []events.Message
	later    *events.Message // said when the instance waits for it
	twice    bool            // each message is sent twice, in a way that the broker cannot tell
	awaited  bool            // somebody waits for its end

	// The rest is kept by the clients, under their lock.
	acked   []events.Message // in their order
	begun   time.Time        // when its start was acknowledged
	said    bool
	ended   time.Time
	doubted bool // it may have lost something: see clients.losing
}

// makeJob makes the job of a number.
func makeJob(i int, chance *rand.Rand) *job {
	j := &job{id: fmt.Sprintf("job-%05d", i), status: round.Completed, twice: chance.IntN(8) == 0, awaited: chance.IntN(4) == 0}
	var input any = i
	sort := i % 16
	switch sort {
	case 0:
		j.name, j.want = "chain", 8*i
	case 1:
		j.name, j.want = "fan", 10*i+20
	case 2:
		j.name, j.want = "family", 10*i
	case 3:
		j.name, j.want = "nap", 2*i
	case 4:
		j.name, input, j.want = "mail", 4, []int{1, 2, 3, 4}
	case 5:
		j.name, j.want = "retried", 2*i
	case 6:
		j.name, input, j.want = "roll", [2]int{3, i}, 16*i
	case 7:
		j.name, j.want = "racing", "too slow"
	case 8:
		j.name, j.want = "asking", i+7
		j.later = &events.Message{ID: j.id + "-proceed", Instance: j.id, Content: &events.EventRaised{Name: "proceed", Data: events.Payload("7")}}
	case 9:
		j.name, j.want = "steps", i+3
	case 10:
		j.name, j.want = "doze", i
	case 11:
		j.name, input, j.want = "courier", 3, []int{1, 2, 3}
	case 12:
		j.name, j.want = "detaches", j.id+"/detached"
	case 13, 14:
		j.name, j.status = "endless", round.Cancelled
		how := events.Cancel
		if sort == 14 {
			how, j.status = events.Terminate, round.Terminated
		}
		j.later = &events.Message{ID: j.id + "-" + string(how), Instance: j.id, Content: &events.Control{How: how, Reason: "chaos"}}
	case 15:
		j.name, j.want = "family", 10*i
	}
	j.first = append(j.first, events.Message{ID: "start-" + j.id, Instance: j.id, Content: &events.Start{Orchestration: j.name, Input: payload(input)}})
	if j.name == "mail" {
		for k := range 4 {
			j.first = append(j.first, events.Message{ID: fmt.Sprint(j.id, "-letter-", k), Instance: j.id, Content: &events.QueueSent{Queue: "letters", Data: payload(k + 1)}})
		}
	}
	return j
}

// payload encodes what cannot fail to be.
func payload(v any) events.Payload {
	p, err := events.JSON{}.Encode(v)
	if err != nil {
		panic(err)
	}
	return p
}

// headerID has the id of a message where the broker does not look for it, headerNotBefore until when it waits. What had to wait for its time has both.
const (
	headerID        = "Rondo-Id"
	headerNotBefore = "Rondo-Not-Before"
)

// again is the same message once more, in a way that the broker cannot tell.
func again(w events.Wire) events.Wire {
	h := events.Header{headerNotBefore: {"2026-01-01T00:00:00Z"}}
	for k, v := range w.Header {
		if k == events.HeaderMsgID {
			k = headerID
		}
		h[k] = v
	}
	w.Header = h
	return w
}
