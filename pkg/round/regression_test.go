package round_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
	"github.com/rondo-run/rondo/pkg/round"
)

// Each test here shows something that was once wrong; its comment says what.

// opened is an instance that is evicted when the test ends.
func opened(t *testing.T, c *round.Config, known round.Known) *round.Instance {
	t.Helper()
	in := round.New(c, known)
	t.Cleanup(in.Evict)
	return in
}

var h1 = orchestration.Define[string, string]("h1")
var strmail = orchestration.DefineMailbox[string]("strmail")
var strmail2 = orchestration.DefineMailbox[string]("strmail2")

func msg(id string, c events.Content) round.Delivery {
	return round.Delivery{Message: events.Message{ID: id, Instance: "i", Content: c}, Attempts: 1, NumDelivered: 1}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Race over mailbox reads: the winner's message is put back and the result is ErrCancelled
func TestRaceOfReceives(t *testing.T) {
	env := rondotest.New(t, h1.Bind(func(ctx oc, s string) (string, error) {
		return orchestration.Race(ctx, strmail.Next(ctx), strmail2.Next(ctx)).Get(ctx)
	}))
	h, _ := h1.Start(t.Context(), env, "", orchestration.ID("i"))
	env.Settle()
	must(t, strmail.Send(t.Context(), env, "i", "hello"))
	v, err := h.Wait(t.Context())
	if v != "hello" || err != nil {
		t.Errorf("%q %v", v, err)
	}
}

// All over reads: not consumed
func TestAllOfReceives(t *testing.T) {
	env := rondotest.New(t, h1.Bind(func(ctx oc, s string) (string, error) {
		if s == "again" {
			v, ok, err := strmail.TryReceive(ctx)
			return fmt.Sprint(v, ok), err
		}
		got, err := orchestration.All(ctx, strmail.Next(ctx), strmail.Next(ctx)).Get(ctx)
		if err != nil || len(got) != 2 {
			return "", err
		}
		return h1.ContinueAsNew(ctx, "again")
	}))
	h, _ := h1.Start(t.Context(), env, "", orchestration.ID("i"))
	env.Settle()
	must(t, strmail.Send(t.Context(), env, "i", "a"))
	must(t, strmail.Send(t.Context(), env, "i", "b"))
	v, err := h.Wait(t.Context())
	if v != "false" || err != nil {
		t.Errorf("a message that was read is delivered again: %q %v", v, err)
	}
}

func TestAllOrNoneOfReceivesInBranch(t *testing.T) {
	env := rondotest.New(t, h1.Bind(func(ctx oc, s string) (string, error) {
		v, err := orchestration.Go(ctx, func(ctx oc) ([]string, error) {
			return orchestration.AllOrNone(ctx, strmail.Next(ctx), strmail.Next(ctx)).Get(ctx)
		}).Get(ctx)
		return fmt.Sprint(v, strmail.Len(ctx)), err
	}))
	h, _ := h1.Start(t.Context(), env, "", orchestration.ID("i"))
	env.Settle()
	must(t, strmail.Send(t.Context(), env, "i", "a"))
	must(t, strmail.Send(t.Context(), env, "i", "b"))
	v, err := h.Wait(t.Context())
	if v != "[a b] 0" || err != nil {
		t.Errorf("%q %v", v, err)
	}
}

// Step result in waiting, step dropped on resume
func TestStepDroppedOnResume(t *testing.T) {
	code, _ := orchestration.NewRegistry(define("x", stepOrTimer))
	cfg := &round.Config{Code: code}
	in := opened(t, cfg, round.Known{Instance: "i"})
	turn := in.Decide(startOf("x", `""`), began)
	step := turn.Steps[0]
	in.Decide([]round.Delivery{msg("s", &events.Control{How: events.Suspend})}, began.Add(100*time.Millisecond))
	in.Decide([]round.Delivery{msg("w", &events.Wake{})}, began.Add(2*time.Second))
	done := step.Done("i", codec.Payload(`"step"`), nil)
	turn = in.Decide([]round.Delivery{{Message: done, Attempts: 1}}, began.Add(3*time.Second))
	t.Log(turn)
	turn = in.Decide([]round.Delivery{msg("r", &events.Control{How: events.Resume})}, began.Add(4*time.Second))
	t.Log(turn)
	turn = in.Decide([]round.Delivery{msg("e", &events.EventRaised{Name: "approve", Data: codec.Payload(`"me"`)})},
		began.Add(5*time.Second))
	t.Log(turn)
	if turn.Row.Status != round.Completed {
		t.Errorf("status %s", turn.Row.Status)
	}
}

// Errors that panic
type badError struct{ n *int }

func (b *badError) Error() string { return fmt.Sprint(*b.n) }

func TestTypedNilError(t *testing.T) {
	for name, fn := range map[string]func(oc, string) (string, error){
		"typed nil *Error returned": func(oc, string) (string, error) { var e *failure.Error; return "x", e },
		"typed nil own returned":    func(oc, string) (string, error) { var e *badError; return "x", e },
		"panic with typed nil":      func(oc, string) (string, error) { var e *badError; panic(e) },
		"branch panics with typed nil": func(ctx oc, s string) (string, error) {
			return orchestration.Go(ctx, func(oc) (string, error) { var e *badError; panic(e) }).Get(ctx)
		},
		"branch returns typed nil": func(ctx oc, s string) (string, error) {
			return orchestration.Go(ctx, func(oc) (string, error) { var e *failure.Error; return "", e }).Get(ctx)
		},
		"nil *Error in Join": func(ctx oc, s string) (string, error) {
			var e *failure.Error
			return "", errors.Join(e, errors.New("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("Decide panics: %v", r)
				}
			}()
			_, turn := misuse(t, fn)
			for _, x := range turn.Executions {
				for _, e := range x.Events {
					if _, err := events.EncodeEvent(e); err != nil {
						t.Errorf("cannot be stored: %v", err)
					}
				}
			}
			t.Log(turn.Row.Status, turn.Row.Error)
		})
	}
}

func TestStepReturnsTypedNil(t *testing.T) {
	env := rondotest.New(t, h1.Bind(func(ctx oc, s string) (string, error) {
		return orchestration.Step(ctx, "s", func(context.Context) (string, error) {
			var e *failure.Error
			return "v", e
		})
	}))
	h, _ := h1.Start(t.Context(), env, "", orchestration.ID("i"))
	v, err := h.Wait(t.Context())
	t.Logf("%q %v", v, err)
	if err == nil && v != "v" {
		t.Errorf("neither the value nor an error")
	}
}

// Interrupt sticks
func TestInterruptSticks(t *testing.T) {
	in, turn := misuse(t, func(ctx oc, _ string) (string, error) { return approve.Next(ctx).Get(ctx) })
	if turn.Row.Status != round.Running {
		t.Fatal(turn)
	}
	in.Interrupt() // the watchdog was a moment late: the round is over
	turn = in.Decide([]round.Delivery{msg("x", &events.EventRaised{Name: "approve", Data: codec.Payload(`"y"`)})},
		began.Add(time.Hour))
	_ = turn
	in2, _ := misuse(t, func(ctx oc, _ string) (string, error) {
		_, _ = approve.Next(ctx).Get(ctx)
		return echo.Call(ctx, "x")
	})
	in2.Interrupt()
	turn = in2.Decide([]round.Delivery{msg("x", &events.EventRaised{Name: "approve", Data: codec.Payload(`"y"`)})},
		began.Add(time.Hour))
	if turn.Row.Status != round.Running {
		t.Errorf("%v", turn.Row.Error)
	}
}

// Interrupt during replay
func TestInterruptInReplay(t *testing.T) {
	var in *round.Instance
	interrupt := false
	code, _ := orchestration.NewRegistry(define("bad", func(ctx oc, _ string) (string, error) {
		if interrupt {
			in.Interrupt()
		}
		_, _ = approve.Next(ctx).Get(ctx)
		return "", nil
	}))
	cfg := &round.Config{Code: code}
	in = opened(t, cfg, round.Known{Instance: "i"})
	turn := in.Decide(startOf("bad", `""`), began)
	interrupt = true
	in = opened(t, cfg, round.Known{Instance: "i", Row: turn.Row, History: turn.Executions[0].Events})
	turn = in.Decide([]round.Delivery{msg("x", &events.Wake{})}, began.Add(time.Hour))
	t.Log(turn)
	if turn.Fault != nil && turn.Fault.Kind == failure.Nondeterminism {
		t.Errorf("an interrupt in a replay is taken for nondeterminism: %v", turn.Fault.Kind)
	}
}

// Adjacent patch markers, first guard removed
func TestPatchGuardRemovedBeforeAnother(t *testing.T) {
	env := rondotest.New(t, h1.Bind(func(ctx oc, s string) (string, error) {
		ctx.Patched("a")
		if ctx.Patched("b") {
			_, _ = approve.Next(ctx).Get(ctx)
			return "new", nil
		}
		return "old", ctx.Sleep(time.Hour)
	}))
	h, _ := h1.Start(t.Context(), env, "", orchestration.ID("i"))
	env.Settle()
	env.Deploy(h1.Bind(func(ctx oc, s string) (string, error) {
		if ctx.Patched("b") {
			_, _ = approve.Next(ctx).Get(ctx)
			return "new", nil
		}
		return "old", ctx.Sleep(time.Hour)
	}))
	must(t, approve.Raise(t.Context(), env, "i", "x"))
	v, err := h.Wait(t.Context())
	if v != "new" {
		t.Errorf("%q %v %v", v, err, env.Faults())
	}
}

// A parent whose child was refused cancels the stranger that has the id
func TestParentCancelsStranger(t *testing.T) {
	code, _ := orchestration.NewRegistry(
		define("victim", func(ctx oc, s string) (string, error) { return approve.Next(ctx).Get(ctx) }),
		define("parent", func(ctx oc, s string) (string, error) {
			contract("victim").StartChild(ctx, "", orchestration.ID("i"))
			return approve.Next(ctx).Get(ctx)
		}))
	cfg := &round.Config{Code: code}
	victim := opened(t, cfg, round.Known{Instance: "i"})
	defer victim.Evict()
	victim.Decide(startOf("victim", `""`), began)
	parent := opened(t, cfg, round.Known{Instance: "p"})
	said := parent.Decide(startOf("parent", `""`), began).Messages
	said = append(said, parent.Decide([]round.Delivery{msg("e",
		&events.EventRaised{Name: "approve", Data: codec.Payload(`"y"`)})}, began).Messages...)
	var inbox []round.Delivery
	for _, m := range said {
		w, err := events.Encode("rondo", m)
		if err != nil {
			t.Fatal(err)
		}
		m, err = events.Decode("rondo", w.Subject, w.Header, w.Body, "x")
		if err != nil {
			t.Fatal(err)
		}
		inbox = append(inbox, round.Delivery{Message: m, Attempts: 1})
	}
	turn := victim.Decide(inbox, began)
	if turn.Row.Status != "" {
		t.Errorf("the stranger was cancelled: %v", turn)
	}
}

// A replica whose instance has fallen behind ignores what it does not understand. Its turns tell
// what they were decided on, so that the service can see that the store is further.
func TestTurnTellsWhatItWasDecidedOn(t *testing.T) {
	config := &round.Config{Code: cast(t, "v1")}
	behind := opened(t, config, round.Known{Instance: "i"})
	started := behind.Decide(startOf("twice", `"a"`), began)
	if started.Expected != (round.RowVersion{}) {
		t.Errorf("a start was decided on %v", started.Expected)
	}
	ahead := opened(t, config, round.Known{Instance: "i", Row: started.Row, History: started.Executions[0].Events})
	first := ahead.Decide(doneOf(lastWork(t, started)), began)
	if first.Expected != started.Row.RowVersion() || first.Expected.LastEvent != 2 {
		t.Errorf("a round was decided on %v", first.Expected)
	}
	late := behind.Decide(doneOf(lastWork(t, first)), began)
	if late.Receipts[0].Verdict != round.Ignored || late.Expected.LastEvent >= first.Row.LastEvent {
		t.Errorf("decided on %v, behind %d: %v", late.Expected, first.Row.LastEvent, late.Receipts)
	}
}

// Replace by an unregistered orchestration
func TestReplaceByUnregistered(t *testing.T) {
	code, _ := orchestration.NewRegistry(define("x", func(ctx oc, s string) (string, error) {
		contract("kid").StartChild(ctx, s)
		return echo.Call(ctx, s)
	}))
	cfg := &round.Config{Code: code, FailUnregistered: time.Minute}
	in := opened(t, cfg, round.Known{Instance: "i"})
	start := startOf("x", `""`)
	start[0].Message.Content.(*events.Start).Parent = &events.Parent{Instance: "papa", Incarnation: "l",
		Execution: 1, Event: 7}
	in.Decide(start, began)
	d := msg("s2", &events.Start{Orchestration: "typo", Conflict: events.ReplaceRunning})
	d.Age = time.Hour
	turn := in.Decide([]round.Delivery{d}, began.Add(time.Hour))
	t.Log(turn)
	if len(turn.Executions) != 2 {
		t.Errorf("the running execution did not end, its work is not withdrawn and its parent not told: %v", turn)
	}
}

// Start against unreadable ended
func TestUnreadableEnded(t *testing.T) {
	code, _ := orchestration.NewRegistry(define("x", echoOnce))
	cfg := &round.Config{Code: code}
	row := round.Row{Execution: 1, Incarnation: "l1", Engine: 1, Name: "x", Version: "1.0.0", StartMessage: "s0",
		Status: round.Completed, LastEvent: 5,
		Parent: &events.Parent{Instance: "papa", Incarnation: "l", Execution: 1, Event: 7}}
	for _, start := range []*events.Start{
		{Orchestration: "x", Conflict: events.RestartFinished},
		{Orchestration: "x", Parent: &events.Parent{Instance: "papa", Incarnation: "l", Execution: 1, Event: 7}},
		{Orchestration: "x", Parent: &events.Parent{Instance: "mama", Incarnation: "l", Execution: 1, Event: 7}},
	} {
		in := opened(t, cfg, round.Known{Instance: "i", Row: row, Unreadable: errors.New("gone")})
		turn := in.Decide([]round.Delivery{msg("s1", start)}, began)
		without := opened(t, cfg,
			round.Known{Instance: "i", Row: row}).Decide([]round.Delivery{msg("s1", start)}, began)
		if turn.String() != without.String() {
			t.Errorf("unreadable:\n%v\nwithout history:\n%v", turn, without)
		}
	}
}

// Time nearly zero
func TestTimerNearlyZero(t *testing.T) {
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) { return "x", ctx.SleepUntil(time.Time{}.Add(1)) })
	for _, x := range turn.Executions {
		for _, e := range x.Events {
			if _, err := events.EncodeEvent(e); err != nil {
				t.Errorf("cannot be stored: %v", err)
			}
		}
	}
}

// A full mailbox counted as history of the execution's own: code that asked ShouldContinueAsNew
// behind each message continued as new each time, and copied the mailbox each time.
func TestAFullMailboxDoesNotAskToContinueAsNew(t *testing.T) {
	for name, size := range map[string]int{"many messages": 1, "many bytes": 1600} {
		t.Run(name, func(t *testing.T) { readFullMailbox(t, codec.Payload(`"`+strings.Repeat("x", size)+`"`)) })
	}
}

func readFullMailbox(t *testing.T, letter codec.Payload) {
	t.Helper()
	read := 0
	code, _ := orchestration.NewRegistry(define("x", func(ctx oc, s string) (string, error) {
		for {
			_, err := orders.Next(ctx).Get(ctx)
			if err != nil {
				return "", err
			}
			read++
			if ctx.ShouldContinueAsNew() {
				return contract("x").ContinueAsNew(ctx, s)
			}
		}
	}))
	in := opened(t, &round.Config{Code: code}, round.Known{Instance: "i"})
	in.Decide(startOf("x", `""`), began)
	in.Decide([]round.Delivery{msg("s", &events.Control{How: events.Suspend})}, began)
	for i := range 10 {
		inbox := make([]round.Delivery, 1000)
		for j := range inbox {
			inbox[j] = msg(fmt.Sprint(i, "-", j), &events.MailboxMessage{Mailbox: "orders", Data: letter})
		}
		in.Decide(inbox, began)
	}
	read = 0
	turn := in.Decide([]round.Delivery{msg("r", &events.Control{How: events.Resume})}, began)
	n, rounds, bytes := 0, 0, 0
	for ; rounds < 5; rounds++ {
		for _, x := range turn.Executions {
			n += len(x.Events)
			for _, e := range x.Events {
				bytes += e.Fact.Size()
			}
		}
		turn = in.Decide([]round.Delivery{msg("w", &events.Wake{})}, began)
	}
	t.Logf("%d messages read, %d events, %d bytes written in %d rounds", read, n, bytes, rounds)
	if n > 100*read {
		t.Errorf("%d events, %d bytes for %d messages", n, bytes, read)
	}
}

// Replay of ended histories
func TestReplayOfEndedHistories(t *testing.T) {
	code, _ := orchestration.NewRegistry(define("wide", wide), define("w", echoOnce))
	cfg := &round.Config{Code: code}
	in := opened(t, cfg, round.Known{Instance: "i"})
	turn := in.Decide(startOf("wide", `""`), began)
	_, err := round.Replay(cfg, round.Known{Instance: "i", Row: turn.Row, History: turn.Executions[0].Events})
	if err != nil {
		t.Errorf("limit: %v", strings.SplitN(err.Error(), "\n", 4))
	}
	in = opened(t, cfg, round.Known{Instance: "i"})
	turn = in.Decide(startOf("w", `""`), began)
	history := turn.Executions[0].Events
	d := msg("x", &events.Wake{})
	d.Attempts = 11
	turn = in.Decide([]round.Delivery{d}, began)
	history = append(history, turn.Executions[0].Events...)
	_, err = round.Replay(cfg, round.Known{Instance: "i", Row: turn.Row, History: history})
	if err != nil {
		t.Errorf("poison: %v", strings.SplitN(err.Error(), "\n", 4))
	}
}

// Group in a cancelled scope
func TestGroupInCancelledScope(t *testing.T) {
	env := rondotest.New(t, h1.Bind(func(ctx oc, s string) (string, error) {
		timer := ctx.Timer(time.Hour)
		before := ctx.Now()
		scoped, cancel := ctx.WithCancel()
		cancel()
		_, err := orchestration.All(scoped, timer).Get(scoped)
		return fmt.Sprint(ctx.Now().Sub(before), err != nil), nil
	}))
	h, _ := h1.Start(t.Context(), env, "", orchestration.ID("i"))
	v, err := h.Wait(t.Context())
	if v != "0s true" {
		t.Errorf("%q %v", v, err)
	}
}

// Get with a limited context
func TestGetWithLimitedContext(t *testing.T) {
	env := rondotest.New(t, h1.Bind(func(ctx oc, s string) (string, error) {
		timer := ctx.Timer(time.Hour)
		limited, cancel := ctx.WithTimeout(time.Minute)
		defer cancel()
		_, err := timer.Get(limited)
		return fmt.Sprint(errors.Is(err, orchestration.ErrTimeout)), nil
	}))
	h, _ := h1.Start(t.Context(), env, "", orchestration.ID("i"))
	v, err := h.Wait(t.Context())
	if v != "true" {
		t.Errorf("%q %v", v, err)
	}
}

// Fresh differs
func TestFreshOfTerminatedPending(t *testing.T) {
	both := []orchestration.Binding{define("x", func(ctx oc, s string) (string, error) {
		return contract("x").ContinueAsNew(ctx, s, orchestration.Version("9.0.0"))
	})}
	code, _ := orchestration.NewRegistry(both...)
	cfg := &round.Config{Code: code}
	in := opened(t, cfg, round.Known{Instance: "i"})
	turn := in.Decide(startOf("x", `""`), began)
	known := round.Known{Instance: "i", Row: turn.Row, History: turn.Executions[1].Events}
	term := []round.Delivery{msg("t", &events.Control{How: events.Terminate})}
	a := in.Decide(term, began)
	b := opened(t, cfg, known).Decide(term, began)
	if a.Row.Fresh != b.Row.Fresh {
		t.Errorf("hydrated: fresh %v, cold: fresh %v, evict was %v", a.Row.Fresh, b.Row.Fresh, turn.Evict)
	}
	// a replace start
	rep := []round.Delivery{msg("t",
		&events.Start{Orchestration: "x", Version: "1.0.0", Conflict: events.ReplaceRunning})}
	b = opened(t, cfg, known).Decide(rep, began)
	if b.Receipts[0].Verdict == round.Returned {
		t.Errorf("replace: %v", b.Receipts)
	}
}

// History missing for a running instance
func TestHistoryMissing(t *testing.T) {
	code, _ := orchestration.NewRegistry(define("x", echoTwice))
	cfg := &round.Config{Code: code}
	in := opened(t, cfg, round.Known{Instance: "i"})
	turn := in.Decide(startOf("x", `""`), began)
	b := opened(t, cfg, round.Known{Instance: "i", Row: turn.Row}).Decide([]round.Delivery{msg("q",
		&events.MailboxMessage{Mailbox: "q"}),
		msg("d", &events.TaskDone{Ref: events.Ref{Incarnation: turn.Row.Incarnation, Execution: 1, Event: 2}})}, began)
	for _, r := range b.Receipts {
		if r.Verdict != round.Returned {
			t.Errorf("%v", r)
		}
	}
}

// Torn read: row says running, history continued as new
func TestTornRead(t *testing.T) {
	code, _ := orchestration.NewRegistry(define("x", func(ctx oc, s string) (string, error) {
		_, _ = approve.Next(ctx).Get(ctx)
		return contract("x").ContinueAsNew(ctx, s)
	}))
	cfg := &round.Config{Code: code}
	in := opened(t, cfg, round.Known{Instance: "i"})
	t1 := in.Decide(startOf("x", `""`), began)
	t2 := in.Decide([]round.Delivery{msg("e", &events.EventRaised{Name: "approve"})}, began)
	torn := append(append([]events.Event{}, t1.Executions[0].Events...), t2.Executions[0].Events...)
	b := opened(t, cfg, round.Known{Instance: "i", Row: t1.Row, History: torn}).Decide([]round.Delivery{msg("q",
		&events.MailboxMessage{Mailbox: "q"}), msg("e2", &events.EventRaised{Name: "approve"})}, began)
	for _, r := range b.Receipts {
		if r.Verdict != round.Returned {
			t.Errorf("%v", r)
		}
	}
}

// ctx.Err in a loop cannot be stopped
func TestErrLoop(t *testing.T) {
	n := 0
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		for ctx.Err() == nil && n < 3_000_000 {
			n++
		}
		return "", nil
	})
	if turn.Fault == nil {
		t.Errorf("it called ctx.Err %d times and was not stopped", n)
	}
}

func TestDoneLoop(t *testing.T) {
	n := 0
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		f := approve.Next(ctx)
		for !f.Done() && n < 3_000_000 {
			n++
		}
		return "", nil
	})
	if turn.Fault == nil {
		t.Errorf("it called Done %d times and was not stopped", n)
	}
}

// Heartbeat size
func TestHeartbeatSize(t *testing.T) {
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		return echo.Call(ctx, strings.Repeat("x", 900<<10), activity.Retry(3, activity.Fixed(0)))
	})
	in, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		return echo.Call(ctx, strings.Repeat("x", 900<<10), activity.Retry(3, activity.Fixed(0)))
	})
	ref := events.Ref{Incarnation: turn.Row.Incarnation, Execution: 1, Event: 2}
	w, err := events.Encode("rondo", events.Message{ID: "f", Instance: "i",
		Content: &events.TaskFailed{Ref: ref, Error: failure.Errorf(failure.Application, "x"),
			Heartbeat: codec.Payload(`"` + strings.Repeat("h", 500<<10) + `"`)}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := events.Decode("rondo", w.Subject, w.Header, w.Body, "x")
	if err != nil {
		return // refused
	}
	turn = in.Decide([]round.Delivery{{Message: m, Attempts: 1}}, began)
	for _, m := range turn.Messages {
		w, _ := events.Encode("rondo", m)
		n := len(w.Body)
		for k, v := range w.Header {
			n += len(k) + len(v[0])
		}
		if n > 1<<20 {
			t.Errorf("message %s has %d bytes, NATS takes %d", w.Subject, n, 1<<20)
		}
	}
}

// Two timers, one id
func TestTimerIDs(t *testing.T) {
	in, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		return echo.Call(ctx, "x", activity.ScheduleToStart(10*time.Second), activity.ScheduleToClose(time.Hour))
	})
	ids := map[string]time.Time{}
	note := func(ms []events.Message) {
		for _, m := range ms {
			if d, ok := m.Content.(*events.TimerDue); ok {
				if at, ok := ids[m.ID]; ok && !at.Equal(d.Due) {
					t.Errorf("two timers (%v, %v) have the id %s: the broker drops the second", at, d.Due, m.ID)
				}
				ids[m.ID] = d.Due
			}
		}
	}
	note(turn.Messages)
	ref := events.Ref{Incarnation: turn.Row.Incarnation, Execution: 1, Event: 2}
	note(in.Decide([]round.Delivery{msg("b", &events.TaskBegun{Ref: ref})}, began).Messages)
	note(in.Decide([]round.Delivery{msg("p", &events.TaskBegun{Ref: ref, Pending: true})}, began).Messages)
}

// Text that PostgreSQL cannot hold
func TestNulText(t *testing.T) {
	if _, err := events.Decode("rondo", "rondo.start.x.i", events.Header{"Rondo-Attributes": {`{"a":"\u0000"}`}}, nil,
		"f"); err == nil {
		t.Error("an attribute with NUL is taken")
	}
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		orchestration.DefineValue[int]("a\x00b").Set(ctx, 1)
		return "", nil
	})
	if turn.Row.Status != round.Failed {
		t.Error("a key with NUL is taken")
	}
}

// Start lost its cancel
func TestCancelOfReturnedStart(t *testing.T) {
	code, _ := orchestration.NewRegistry(define("x", echoOnce))
	in := opened(t, &round.Config{Code: code}, round.Known{Instance: "i"})
	turn := in.Decide([]round.Delivery{msg("s", &events.Start{Orchestration: "later"}),
		msg("c", &events.Control{How: events.Cancel})}, began)
	if turn.Receipts[0].Verdict == round.Returned && turn.Receipts[1].Verdict == round.Ignored {
		t.Errorf("the start waits, its cancel is forgotten: %v", turn.Receipts)
	}
}
