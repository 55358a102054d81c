package rondotest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// A small order: it is paid, approved within a day, packed, and refunded if that fails.

type order struct {
	SKU   string
	Cents int
}

type approval struct{ By string }

var (
	fulfil   = orchestration.Define[order, string]("fulfil")
	pay      = activity.Define[order, string]("pay", activity.Retry(3))
	pack     = activity.Define[string, string]("pack")
	refund   = activity.Define[string, bool]("refund")
	approve  = orchestration.DefineEvent[approval]("approve")
	progress = orchestration.DefineStatus[string]()
	paid     = orchestration.DefineValue[int]("paid")
)

func fulfilCode(ctx *orchestration.Context, o order) (string, error) {
	var undo orchestration.Saga
	progress.Set(ctx, "paying")
	receipt, err := pay.Call(ctx, o)
	if err != nil {
		return "", err
	}
	paid.Set(ctx, o.Cents)
	undo.Add("refund", func(ctx *orchestration.Context) error { _, err := refund.Call(ctx, receipt); return err })

	progress.Set(ctx, "waiting for approval")
	approval, deadline := approve.Next(ctx), ctx.Timer(24*time.Hour)
	if ctx.Race(approval, deadline) == deadline {
		return "", errors.Join(orchestration.Errorf("not_approved", "not approved within a day"),
			undo.Compensate(ctx, time.Hour))
	}
	a, err := approval.Get(ctx)
	if err != nil {
		return "", errors.Join(err, undo.Compensate(ctx, time.Hour))
	}
	parcel, err := pack.Call(ctx, o.SKU)
	if err != nil {
		return "", errors.Join(err, undo.Compensate(ctx, time.Hour))
	}
	return parcel + " approved by " + a.By, nil
}

// shop is the parts of a working system; calls notes what the activities were asked to do.
func shop(calls *[]string) []rondotest.Part {
	note := func(format string, args ...any) { *calls = append(*calls, fmt.Sprintf(format, args...)) }
	return []rondotest.Part{
		fulfil.Bind(fulfilCode),
		pay.Bind(func(ctx context.Context, o order) (string, error) {
			i := activity.Info(ctx)
			note("pay %d attempt %d", o.Cents, i.Attempt)
			if i.Attempt == 1 {
				return "", errors.New("the bank is busy")
			}
			return "r-" + o.SKU, nil
		}),
		pack.Bind(func(_ context.Context, sku string) (string, error) {
			note("pack %s", sku)
			return "parcel " + sku, nil
		}),
		refund.Bind(func(_ context.Context, receipt string) (bool, error) {
			note("refund %s", receipt)
			return true, nil
		}),
	}
}

func start(t *testing.T, env *rondotest.Env) orchestration.Handle[string] {
	t.Helper()
	h, err := fulfil.Start(t.Context(), env, order{"a1", 500}, orchestration.ID("order-7"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestOrderIsApproved(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			var calls []string
			env := rondotest.New(t, append(shop(&calls), mode...)...)
			h := start(t, env)
			env.Advance(time.Hour)
			if s, _, _ := progress.Read(t.Context(), env, h.ID); s != "waiting for approval" {
				t.Errorf("status %q", s)
			}
			if v, ok, _ := paid.Read(t.Context(), env, h.ID); !ok || v != 500 {
				t.Errorf("paid %d %v", v, ok)
			}
			if err := approve.Raise(t.Context(), env, h.ID, approval{"ann"}); err != nil {
				t.Fatal(err)
			}
			out, err := h.Wait(t.Context())
			if err != nil || out != "parcel a1 approved by ann" {
				t.Errorf("got %q, %v", out, err)
			}
			if slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "refund") }) {
				t.Errorf("calls %v", calls)
			}
		})
	}
}

func modes() map[string][]rondotest.Part {
	m := map[string][]rondotest.Part{"plain": nil, "cold": {rondotest.Cold()}}
	for seed := range uint64(20) {
		m[fmt.Sprint("chaos ", seed)] = []rondotest.Part{rondotest.Chaos(seed)}
	}
	return m
}

func TestDeadlineOfADayTakesNoTime(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			var calls []string
			env := rondotest.New(t, append(shop(&calls), mode...)...)
			began := env.Now()
			_, err := start(t, env).Wait(t.Context())
			if !errors.Is(err, orchestration.OfType("not_approved")) {
				t.Errorf("got %v", err)
			}
			if passed := env.Now().Sub(began); passed < 24*time.Hour || passed > 25*time.Hour {
				t.Errorf("%v have passed", passed)
			}
			if !slices.Contains(calls, "refund r-a1") {
				t.Errorf("calls %v", calls)
			}
		})
	}
}

func TestCancelledOrderIsRefunded(t *testing.T) {
	var calls []string
	env := rondotest.New(t, shop(&calls)...)
	h := start(t, env)
	env.Advance(time.Hour)
	if err := h.Cancel(t.Context(), "changed my mind"); err != nil {
		t.Fatal(err)
	}
	_, err := h.Wait(t.Context())
	if !errors.Is(err, orchestration.ErrCancelled) || !strings.Contains(err.Error(), "changed my mind") {
		t.Errorf("got %v", err)
	}
	if calls[len(calls)-1] != "refund r-a1" {
		t.Errorf("calls %v", calls)
	}
}

func TestCrashAtEveryWait(t *testing.T) {
	for crashAfter := range 12 {
		var calls []string
		env := rondotest.New(t, shop(&calls)...)
		h := start(t, env)
		if err := approve.Raise(t.Context(), env, "nobody", approval{}); err != nil {
			t.Fatal(err)
		}
		for range crashAfter {
			env.Advance(100 * time.Millisecond)
		}
		env.Crash()
		env.Advance(time.Hour)
		if err := approve.Raise(t.Context(), env, h.ID, approval{"ann"}); err != nil {
			t.Fatal(err)
		}
		if out, err := h.Wait(t.Context()); err != nil || out != "parcel a1 approved by ann" {
			t.Errorf("crash after %d: got %q, %v", crashAfter, out, err)
		}
	}
}

func TestStuckTellsWhatIsMissing(t *testing.T) {
	env := rondotest.New(t, fulfil.Bind(fulfilCode))
	_, err := start(t, env).Wait(t.Context())
	want := `activity "pay" (event 3), which is not registered in this test`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to say %s", err, want)
	}
	if _, err := fulfil.Handle(env, "nobody").Wait(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `there is no instance "nobody"`) {
		t.Errorf("got %v", err)
	}
}

func TestActivityTimesOut(t *testing.T) {
	slow := activity.Define[int, int]("slow")
	o := orchestration.Define[int, string]("patient")
	var heartbeats []int
	env := rondotest.New(t,
		o.Bind(func(ctx *orchestration.Context, n int) (string, error) {
			_, err := slow.Call(ctx, n, activity.StartToClose(time.Minute), activity.Retry(2,
				activity.Fixed(time.Second)))
			return fmt.Sprint(errors.Is(err, orchestration.ErrTimeout)), nil
		}),
		rondotest.Takes(slow.Bind(func(ctx context.Context, n int) (int, error) {
			heartbeats = append(heartbeats, n)
			return n, nil
		}), time.Hour),
	)
	h, _ := o.Start(t.Context(), env, 1)
	out, err := h.Wait(t.Context())
	if out != "true" || err != nil || len(heartbeats) != 0 {
		t.Errorf("got %q, %v, %v", out, err, heartbeats)
	}
}

func TestHeartbeatReachesTheNextAttempt(t *testing.T) {
	count := activity.Define[int, int]("count", activity.Retry(3))
	o := orchestration.Define[int, int]("counter")
	var keys []string
	env := rondotest.New(t,
		o.Bind(func(ctx *orchestration.Context, n int) (int, error) { return count.Call(ctx, n) }),
		count.Bind(func(ctx context.Context, n int) (int, error) {
			keys = append(keys, activity.Info(ctx).IdempotencyKey)
			at, _, err := activity.LastHeartbeat[int](ctx)
			if err != nil {
				return 0, err
			}
			if at == 2 {
				return at, nil
			}
			if err := activity.Heartbeat(ctx, at+1); err != nil {
				return 0, err
			}
			return 0, errors.New("died")
		}),
	)
	h, _ := o.Start(t.Context(), env, 1)
	if out, err := h.Wait(t.Context()); out != 2 || err != nil {
		t.Errorf("got %d, %v", out, err)
	}
	if len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] || keys[0] == "" {
		t.Errorf("idempotency keys %v", keys)
	}
}

func TestActivityIsCompletedLater(t *testing.T) {
	human := activity.Define[string, string]("human")
	o := orchestration.Define[string, string]("ask")
	var tokens []string
	env := rondotest.New(t,
		o.Bind(func(ctx *orchestration.Context, q string) (string, error) { return human.Call(ctx, q) }),
		human.Bind(func(ctx context.Context, q string) (string, error) {
			tokens = append(tokens, activity.Token(ctx))
			return "", activity.ErrResultPending
		}),
	)
	for i, answer := range []func() error{
		func() error { return env.Complete(t.Context(), tokens[0], "yes") },
		func() error { return env.Fail(t.Context(), tokens[1], activity.Errorf("rude", "no answer")) },
	} {
		h, _ := o.Start(t.Context(), env, "why?", orchestration.ID(fmt.Sprint("a/b ", i)))
		env.Settle()
		if err := answer(); err != nil {
			t.Fatal(err)
		}
		out, err := h.Wait(t.Context())
		if i == 0 && (out != "yes" || err != nil) || i == 1 && !errors.Is(err, orchestration.OfType("rude")) {
			t.Errorf("%d: got %q, %v", i, out, err)
		}
	}
	if err := env.Complete(t.Context(), tokens[0], "again"); err == nil {
		t.Error("a token was good twice")
	}
}

func TestTokensThatNoActivityHas(t *testing.T) {
	env := rondotest.New(t)
	for token, want := range map[string]string{
		"nonsense": "rondotest: token",
		events.Token("x", events.Ref{Incarnation: "a", Execution: 1, Event: 2}): "no activity is waiting",
	} {
		for name, err := range map[string]error{
			"complete": env.Complete(t.Context(), token, 1), "fail": env.Fail(t.Context(), token, errors.New("no")),
		} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") {
				t.Errorf("%s %q: %v", name, token, err)
			}
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(env.Complete(ended, "x", 1), env.Fail(ended, "x", nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// TestReading reads what an instance shows with the calls that a client of a real system has, too.
func TestReading(t *testing.T) {
	counter := orchestration.Define[int, string]("counter")
	count := orchestration.DefineValue[int]("count")
	percent := orchestration.DefineStatus[int]()
	code := counter.Bind(func(ctx *orchestration.Context, n int) (string, error) {
		for i := range n {
			if err := errors.Join(percent.Set(ctx, 100*i/n), ctx.Sleep(time.Hour)); err != nil {
				return "", err
			}
		}
		percent.Clear(ctx)
		return "counted", errors.Join(ctx.Sleep(time.Hour), count.Set(ctx, n))
	})
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			env := rondotest.New(t, append([]rondotest.Part{code}, mode...)...)
			var c orchestration.Client = env
			h, err := counter.Start(t.Context(), c, 2, orchestration.ID("c"))
			if err != nil {
				t.Fatal(err)
			}
			if v, ok, err := count.Read(t.Context(), c, h.ID); v != 0 || ok || err != nil {
				t.Errorf("at first the value is %d, %t, %v", v, ok, err)
			}
			var seen []int
			for v, err := range percent.Watch(t.Context(), c, h.ID) {
				if err != nil {
					t.Fatal(err)
				}
				seen = append(seen, v)
			}
			if !slices.Equal(seen, []int{0, 50, 0}) { // the last is the cleared one
				t.Errorf("the statuses were %v", seen)
			}
			if v, ok, err := percent.Read(t.Context(), c, h.ID); v != 0 || ok || err != nil {
				t.Errorf("at last the status is %d, %t, %v", v, ok, err)
			}
			if v, err := count.WaitFor(t.Context(), c, h.ID); v != 2 || err != nil {
				t.Errorf("the value is %d, %v", v, err)
			}
			other := orchestration.DefineValue[int]("other")
			if _, err := other.WaitFor(t.Context(), c, h.ID); !errors.Is(err, orchestration.ErrNoValue) {
				t.Errorf("a value that is never set: %v", err)
			}
			if _, err := count.WaitFor(t.Context(), c, "unknown"); err == nil || !strings.Contains(err.Error(),
				"no instance") {
				t.Errorf("an instance that was never started: %v", err)
			}
			for _, err := range percent.Watch(t.Context(), c, "") {
				if err == nil {
					t.Error("it watches an instance without an id")
				}
			}
			wrong := orchestration.DefineValue[string]("count")
			if _, _, err := wrong.Read(t.Context(), c, h.ID); err == nil {
				t.Error("a number was read as a text")
			}
		})
	}
}

func TestWaitForAValueLetsTimePass(t *testing.T) {
	late := orchestration.Define[string, string]("late")
	word := orchestration.DefineValue[string]("word")
	env := rondotest.New(t, late.Bind(func(ctx *orchestration.Context, s string) (string, error) {
		if err := errors.Join(ctx.Sleep(24*time.Hour), word.Set(ctx, s)); err != nil {
			return "", err
		}
		return s, ctx.Sleep(24 * time.Hour)
	}))
	began := env.Now()
	if _, err := late.Start(t.Context(), env, "x", orchestration.ID("l")); err != nil {
		t.Fatal(err)
	}
	if v, err := word.WaitFor(t.Context(), env, "l"); v != "x" || err != nil || env.Now().Sub(began) != 24*time.Hour {
		t.Errorf("%q, %v, after %v", v, err, env.Now().Sub(began))
	}
}

func TestRetryForever(t *testing.T) {
	const failures = 400
	var calls int
	var refused error
	flaky := activity.Define[int, int]("flaky", activity.RetryForever(activity.NonRetryableTypes("never")))
	try := orchestration.Define[int, int]("try")
	env := rondotest.New(t,
		try.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			_, refused = flaky.Call(ctx, n, activity.Retry(-1))
			return flaky.Call(ctx, n)
		}),
		flaky.Bind(func(_ context.Context, n int) (int, error) {
			switch calls++; {
			case calls <= failures:
				return 0, errors.New("not yet")
			case n < 0:
				return 0, activity.Errorf("never", "it cannot be")
			}
			return n, nil
		}))
	if got, err := try.Run(t.Context(), env, 7); err != nil || got != 7 || calls != failures+1 {
		t.Errorf("after %d calls: %d, %v", calls, got, err)
	}
	if refused == nil || !strings.Contains(refused.Error(), "RetryForever") {
		t.Errorf("Retry(-1): %v", refused)
	}
	calls = failures
	if _, err := try.Run(t.Context(), env, -7); !errors.Is(err, orchestration.OfType("never")) || calls != failures+1 {
		t.Errorf("an error that is not retried, after %d calls: %v", calls-failures, err)
	}
}

func TestValueOfAnotherInstance(t *testing.T) {
	reader := orchestration.Define[string, string]("reader")
	var calls []string
	env := rondotest.New(t,
		append(shop(&calls), reader.Bind(func(ctx *orchestration.Context, id string) (string, error) {
			there, err := paid.ReadFrom(ctx, id).Get(ctx)
			if err != nil {
				return "", err
			}
			none, err := paid.ReadFrom(ctx, "nobody").Get(ctx)
			return fmt.Sprint(*there, none), err
		}))...)
	start(t, env)
	env.Advance(time.Minute)
	h, _ := reader.Start(t.Context(), env, "order-7")
	if out, err := h.Wait(t.Context()); out != "500 <nil>" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestReplayIsAReleaseGate(t *testing.T) {
	var calls []string
	env := rondotest.New(t, shop(&calls)...)
	h := start(t, env)
	env.Advance(time.Hour)
	running := env.Export(h.ID)
	_, _ = h.Wait(t.Context())
	ended := env.Export(h.ID)

	rondotest.Replay(t, running, fulfil.Bind(fulfilCode))
	rondotest.Replay(t, ended, fulfil.Bind(fulfilCode))

	changed := fulfil.Bind(func(ctx *orchestration.Context, o order) (string, error) {
		progress.Set(ctx, "packing first")
		return pack.Call(ctx, o.SKU)
	})
	for name, history := range map[string][]byte{"running": running, "ended": ended} {
		err := rondotest.TryReplay(history, changed)
		if !errors.Is(err, &failure.Error{Kind: failure.Nondeterminism}) ||
			!strings.Contains(err.Error(), `history has  activity "pay"`) ||
			!strings.Contains(err.Error(), `the code did activity "pack"`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	otherData := fulfil.Bind(func(ctx *orchestration.Context, o order) (string, error) {
		o.Cents++
		return fulfilCode(ctx, o)
	})
	if err := rondotest.TryReplay(running, otherData); err == nil ||
		!strings.Contains(err.Error(), "what was recorded stands") {
		t.Errorf("got %v", err)
	}
	rondotest.Replay(t, running, otherData, rondotest.AllowChangedData())
	if err := rondotest.TryReplay(running); !errors.Is(err, &failure.Error{Kind: failure.Unregistered}) {
		t.Errorf("got %v", err)
	}
	if err := rondotest.TryReplay([]byte("{}"), changed); err == nil {
		t.Error("an empty history was replayed")
	}
	if err := rondotest.TryReplay([]byte("nonsense"), changed); err == nil {
		t.Error("nonsense was replayed")
	}
}

func TestDeployHaltsAndHeals(t *testing.T) {
	var calls []string
	parts := shop(&calls)
	env := rondotest.New(t, parts...)
	h := start(t, env)
	env.Advance(time.Hour)
	env.Deploy(append(parts[1:], fulfil.Bind(func(ctx *orchestration.Context, o order) (string, error) {
		return pack.Call(ctx, o.SKU)
	}))...)
	if err := approve.Raise(t.Context(), env, h.ID, approval{"ann"}); err != nil {
		t.Fatal(err)
	}
	env.Settle()
	if row, _ := env.Instance(h.ID); row.Status != "halted" {
		t.Errorf("status %s", row.Status)
	}
	if f := env.Faults(); len(f) != 1 || f[0].Kind != failure.Nondeterminism {
		t.Errorf("faults %v", f)
	}
	env.Deploy(parts...)
	env.Crash()
	if out, err := h.Wait(t.Context()); err != nil || out != "parcel a1 approved by ann" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestSuspendResume(t *testing.T) {
	var calls []string
	env := rondotest.New(t, shop(&calls)...)
	h := start(t, env)
	if err := h.Suspend(t.Context(), "audit"); err != nil {
		t.Fatal(err)
	}
	env.Advance(time.Hour)
	if row, _ := env.Instance(h.ID); row.Status != "suspended" {
		t.Errorf("status %s", row.Status)
	}
	if err := h.Resume(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	env.Settle()
	if err := h.Terminate(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); !errors.Is(err, orchestration.ErrTerminated) {
		t.Errorf("got %v", err)
	}
	kinds := env.Kinds(h.ID)
	if kinds[len(kinds)-1] != events.KindTerminated {
		t.Errorf("history %v", kinds)
	}
}

func TestDeadLetters(t *testing.T) {
	mail := orchestration.DefineMailbox[int]("mail")
	env := rondotest.New(t)
	if err := mail.Send(t.Context(), env, "nobody", 1); err != nil {
		t.Fatal(err)
	}
	env.Advance(time.Hour)
	if d := env.DeadLetters(); len(d) != 1 || d[0].Reason != "unknown_instance" {
		t.Errorf("dead letters %v", d)
	}
}

func TestRaceOfQueues(t *testing.T) {
	o := orchestration.Define[string, string]("o")
	a, b := orchestration.DefineMailbox[string]("a"), orchestration.DefineMailbox[string]("b")
	env := rondotest.New(t, o.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		return orchestration.Race(ctx, a.Next(ctx), b.Next(ctx)).Get(ctx)
	}))
	h, _ := o.Start(t.Context(), env, "")
	env.Settle()
	_ = a.Send(t.Context(), env, h.ID, "hello")
	if out, err := h.Wait(t.Context()); out != "hello" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestMessagesReadByAGroupAreConsumed(t *testing.T) {
	o := orchestration.Define[string, int]("o")
	q := orchestration.DefineMailbox[string]("q")
	for looked, want := range map[bool]int{true: 0, false: 2} {
		env := rondotest.New(t, o.Bind(func(ctx *orchestration.Context, in string) (int, error) {
			if in == "second" {
				return q.Len(ctx), nil
			}
			all := orchestration.All(ctx, q.Next(ctx), q.Next(ctx))
			if err := ctx.WaitAll(all); err != nil {
				return 0, err
			}
			if looked {
				if _, err := all.Get(ctx); err != nil {
					return 0, err
				}
			}
			return o.ContinueAsNew(ctx, "second")
		}))
		h, _ := o.Start(t.Context(), env, "")
		_ = q.Send(t.Context(), env, h.ID, "a")
		_ = q.Send(t.Context(), env, h.ID, "b")
		if n, err := h.Wait(t.Context()); n != want || err != nil {
			t.Errorf("looked at %v: %d messages come again, %v", looked, n, err)
		}
	}
}

func TestRestartGivesTheNewResult(t *testing.T) {
	o := orchestration.Define[string, string]("o")
	for _, again := range []orchestration.StartOption{orchestration.RestartFinished(), orchestration.ReplaceRunning()} {
		env := rondotest.New(t, o.Bind(func(_ *orchestration.Context, in string) (string, error) { return in, nil }))
		for _, in := range []string{"first", "second"} {
			if out, err := o.Run(t.Context(), env, in, orchestration.ID("i"), again); out != in || err != nil {
				t.Errorf("got %q, %v, want %q", out, err, in)
			}
		}
	}
}

func TestUnregisteredOrchestrationIsNamed(t *testing.T) {
	env := rondotest.New(t)
	_, err := orchestration.Define[string, string]("o").Run(t.Context(), env, "x")
	if err == nil || !strings.Contains(err.Error(), `"o" is not registered here`) {
		t.Errorf("after %v: %v", env.Now(), err)
	}
}

func TestKeysMustPrint(t *testing.T) {
	o := orchestration.Define[string, string]("o")
	env := rondotest.New(t, o.Bind(func(ctx *orchestration.Context, in string) (string, error) {
		orchestration.DefineValue[int]("a\x00b").Set(ctx, 1)
		return in, nil
	}))
	if _, err := o.Run(t.Context(), env, "x"); err == nil || !strings.Contains(err.Error(), "does not print") {
		t.Errorf("got %v", err)
	}
}

// TestCancellationIsNoDeadline cancels code that selects between two late timers.
func TestCancellationIsNoDeadline(t *testing.T) {
	o := orchestration.Define[string, string]("o")
	env := rondotest.New(t, o.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		deadline, approval := ctx.Timer(time.Hour), approve.Next(ctx)
		switch ctx.Race(deadline, approval) {
		case deadline:
			return "deadline", nil
		case approval:
			return "approval", nil
		}
		return "neither", ctx.Err()
	}))
	h, _ := o.Start(t.Context(), env, "")
	env.Settle()
	_ = h.Cancel(t.Context(), "enough")
	out, err := h.Wait(t.Context())
	if !errors.Is(err, orchestration.ErrCancelled) || err.Error() != "cancelled: enough" || out != "" {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestGetEndsWithItsContext waits in a limited context for an activity that was started outside of
// it.
func TestGetEndsWithItsContext(t *testing.T) {
	o := orchestration.Define[string, string]("o")
	slow := activity.Define[string, string]("slow")
	env := rondotest.New(t,
		rondotest.Takes(slow.Bind(func(_ context.Context, s string) (string, error) {
			return s + " at last", nil
		}), time.Hour),
		o.Bind(func(ctx *orchestration.Context, s string) (string, error) {
			work := slow.Start(ctx, s)
			limited, cancel := ctx.WithTimeout(time.Minute)
			defer cancel()
			if _, err := work.Get(limited); !errors.Is(err, orchestration.ErrTimeout) {
				return "", fmt.Errorf("got %v", err)
			}
			if ctx.Race() != nil || limited.Select(work) != nil || limited.WaitAll(work) == nil {
				return "", errors.New("the limit does not count")
			}
			for range orchestration.AsCompleted(limited, work) {
				return "", errors.New("the limit does not count")
			}
			return work.Get(ctx)
		}))
	if out, err := o.Run(t.Context(), env, "done"); out != "done at last" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}
