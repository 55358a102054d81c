package round_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// A turn is closed when it has events.MaxTurnBytes. These tests have an instance write more.

// sized decides rounds until nothing is left to do at once, and returns the size of each turn.
func sized(in *round.Instance, inbox []round.Delivery, now time.Time) (sizes []int, last round.Turn) {
	for again := true; again && len(sizes) < 100; {
		last = in.Decide(inbox, now)
		size := 0
		for _, x := range last.Executions {
			for _, e := range x.Events {
				size += e.Fact.Size()
			}
		}
		sizes = append(sizes, size)
		var rest []round.Delivery
		for i, r := range last.Receipts {
			if r.Verdict == round.Again {
				rest = append(rest, inbox[i])
			}
		}
		inbox, again = rest, last.Again || len(rest) > 0
	}
	return sizes, last
}

// wantSizes checks the number of turns, and that none is larger than the limit and what one step of
// the code writes.
func wantSizes(t *testing.T, sizes []int, turns, step int) {
	t.Helper()
	if len(sizes) != turns {
		t.Errorf("%d turns; want %d", len(sizes), turns)
	}
	for n, size := range sizes {
		if size > events.MaxTurnBytes+step {
			t.Errorf("turn %d of %d writes %d bytes", n+1, len(sizes), size)
		}
	}
}

func TestExecutionsWithManyValuesAreManyTurns(t *testing.T) {
	const executions = 12
	in, first := misuse(t, func(ctx oc, s string) (string, error) {
		if s == "" {
			large := strings.Repeat("x", events.MaxValue-10)
			for i := range events.MaxValues {
				if err := orchestration.DefineValue[string](fmt.Sprint("key-", i)).Set(ctx, large); err != nil {
					return "", err
				}
			}
		}
		if len(s) == executions-1 {
			return "done", nil
		}
		return contract("bad").ContinueAsNew(ctx, s+"x")
	})
	if !first.Again || len(first.Executions) != 2 {
		t.Errorf("the first turn has %d executions: %v", len(first.Executions), first.Again)
	}
	sizes, last := sized(in, nil, began)
	wantSizes(t, sizes, executions-1, 0)
	if last.Row.Status != round.Completed || last.Row.Execution != executions {
		t.Errorf("%v in execution %d", last.Row.Status, last.Row.Execution)
	}
}

const chunk = 900 << 10

func TestLargeMessagesAreManyTurns(t *testing.T) {
	in, _ := misuse(t, func(ctx oc, _ string) (string, error) {
		for range 40 {
			if _, err := approve.Next(ctx).Get(ctx); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	var inbox []round.Delivery
	for i := range 40 {
		inbox = append(inbox, msg(fmt.Sprint(i),
			&events.EventRaised{Name: "approve", Data: codec.Payload(`"` + strings.Repeat("x", chunk) + `"`)}))
	}
	sizes, last := sized(in, inbox, began)
	wantSizes(t, sizes, 3, chunk+10)
	if last.Row.Status != round.Completed {
		t.Errorf("%v", last.Row.Status)
	}
}

func TestDueTimersThatWriteMuchAreManyTurns(t *testing.T) {
	large := strings.Repeat("x", chunk)
	in, _ := misuse(t, func(ctx oc, _ string) (string, error) {
		all := make([]*orchestration.Future[string], 40)
		for i := range all {
			all[i] = orchestration.Go(ctx, func(ctx oc) (string, error) {
				if err := ctx.Sleep(time.Minute); err != nil {
					return "", err
				}
				return echo.Call(ctx, large)
			})
		}
		_, err := orchestration.All(ctx, all...).Get(ctx)
		return "done", err
	})
	sizes, _ := sized(in, nil, began.Add(time.Hour))
	wantSizes(t, sizes, 3, chunk+10)
	if later, _ := sized(in, nil, began.Add(2*time.Hour)); len(later) != 1 || later[0] > 0 {
		t.Errorf("timers are left: %v", later)
	}
}
