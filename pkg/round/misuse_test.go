package round_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// misuse runs one orchestration that does what it should not, and gives the turn.
func misuse(t *testing.T, fn func(oc, string) (string, error),
	options ...orchestration.BindOption) (*round.Instance, round.Turn) {
	t.Helper()
	code, err := orchestration.NewRegistry(define("bad", fn, options...))
	if err != nil {
		t.Fatal(err)
	}
	in := round.New(&round.Config{Code: code, Coroutines: coroutines(t)}, round.Known{Instance: "i"})
	t.Cleanup(in.Evict)
	return in, in.Decide(startOf("bad", `""`), began)
}

func wantFault(t *testing.T, turn round.Turn, kind failure.Kind, text string) {
	t.Helper()
	if turn.Row.Status != round.Failed || turn.Row.Error.Kind != kind ||
		!strings.Contains(turn.Row.Error.Message, text) {
		t.Errorf("want it to fail as %s with %q; it decided\n%v", kind, text, turn)
	}
	if turn.Fault == nil {
		t.Error("the turn tells of no fault")
	}
}

func TestGoexitFailsTheInstanceOnly(t *testing.T) {
	_, turn := misuse(t, func(oc, string) (string, error) { runtime.Goexit(); return "", nil })
	wantFault(t, turn, failure.Panicked, "runtime.Goexit")
}

func TestGoexitInABranchFailsTheInstanceOnly(t *testing.T) {
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		return orchestration.Go(ctx, func(oc) (string, error) { runtime.Goexit(); return "", nil }).Get(ctx)
	})
	wantFault(t, turn, failure.Panicked, "runtime.Goexit")
}

func TestPanicInABranchFailsTheInstance(t *testing.T) {
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		return orchestration.Go(ctx, func(oc) (string, error) { panic(42) }).Get(ctx)
	})
	wantFault(t, turn, failure.Panicked, "panic: 42")
	if !strings.Contains(turn.Row.Error.Stack, "misuse_test.go") {
		t.Errorf("the stack does not show where: %s", turn.Row.Error.Stack)
	}
}

// used calls a context on a goroutine of its own, as an activity does, and gives the panic.
func used(ctx oc) any {
	panicked := make(chan any, 1)
	go func() {
		var r any
		defer func() { panicked <- r }() // also if the goroutine is ended
		defer func() { r = recover() }()
		ctx.Now()
	}()
	return <-panicked
}

const misused = "an orchestration.Context was used outside of its orchestration"

func TestContextIsUselessAfterItsOrchestration(t *testing.T) {
	var escaped oc
	misuse(t, func(ctx oc, _ string) (string, error) { escaped = ctx; return "", nil })
	if r, _ := used(escaped).(string); !strings.HasPrefix(r, misused) {
		t.Errorf("it panicked with %q", r)
	}
}

func TestContextIsUselessAfterAnEviction(t *testing.T) {
	var escaped oc
	in, _ := misuse(t, func(ctx oc, _ string) (string, error) { escaped = ctx; return approve.Wait(ctx) })
	in.Evict()
	if r, _ := used(escaped).(string); !strings.HasPrefix(r, misused) {
		t.Errorf("it panicked with %q", r)
	}
}

// TestContextOfAnotherInstanceFailsTheOneThatUsesIt: the error names the misuse, whether the other
// instance waits, was evicted or has ended.
func TestContextOfAnotherInstanceFailsTheOneThatUsesIt(t *testing.T) {
	for name, other := range map[string]func(oc) (string, error){
		"waits":   func(ctx oc) (string, error) { return approve.Wait(ctx) },
		"evicted": func(ctx oc) (string, error) { return approve.Wait(ctx) },
		"ended":   func(oc) (string, error) { return "", nil },
		"failed":  func(oc) (string, error) { panic("it fails") },
	} {
		t.Run(name, func(t *testing.T) {
			var escaped oc
			in, _ := misuse(t, func(ctx oc, _ string) (string, error) { escaped = ctx; return other(ctx) })
			if name == "evicted" {
				in.Evict()
			}
			_, turn := misuse(t, func(oc, string) (string, error) { return echo.Call(escaped, "x") })
			wantFault(t, turn, failure.Panicked, misused)
		})
	}
}

// TestRecoverDoesNotStopAnEviction parks code that catches every panic, in a loop, and evicts it:
// its deferred calls run once, and nothing can hold it.
func TestRecoverDoesNotStopAnEviction(t *testing.T) {
	deferred := 0
	in, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		for {
			func() {
				defer func() { deferred++; _ = recover() }()
				_, _ = approve.Wait(ctx)
			}()
		}
	})
	if turn.Row.Status != round.Running {
		t.Fatal(turn)
	}
	in.Evict()
	if deferred != 1 {
		t.Errorf("deferred calls ran %d times", deferred)
	}
	if in.Hydrated() {
		t.Error("it is still there")
	}
}

// TestDeferredCallsOfTheContextDoNoHarmOnEviction uses the context in a deferred call, as cleanup
// code does.
func TestDeferredCallsOfTheContextDoNoHarmOnEviction(t *testing.T) {
	in, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		scoped, cancel := ctx.WithCancel()
		defer cancel()
		defer func() { _, _ = echo.Call(ctx, "cleanup") }()
		return approve.Wait(scoped)
	})
	if turn.Row.Status != round.Running || len(turn.Messages) != 0 {
		t.Fatal(turn)
	}
	in.Evict()
}

// TestInterruptStopsCodeThatDoesNotComeBack stops a loop from another goroutine, at its next call.
func TestInterruptStopsCodeThatDoesNotComeBack(t *testing.T) {
	looping := make(chan struct{})
	code, err := orchestration.NewRegistry(define("spin", func(ctx oc, _ string) (string, error) {
		for i := 0; ; i++ {
			if i == 10 {
				close(looping)
			}
			ctx.Now()
			runtime.Gosched()
			if i > 900_000 { // without the interrupt, the test fails in another way
				return "came back", nil
			}
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	in := round.New(&round.Config{Code: code}, round.Known{Instance: "i"})
	defer in.Evict()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-looping
		in.Interrupt()
	}()
	turn := in.Decide(startOf("spin", `""`), began)
	<-stopped
	wantFault(t, turn, failure.Runaway, "without waiting for anything")
}

func TestCodeThatSaysTooMuchIsStopped(t *testing.T) {
	_, turn := misuse(t, wide)
	// too large a request is refused, and stands in history
	wantFault(t, turn, failure.LimitExceeded, "without waiting")
	if n := len(turn.Executions[0].Events); n > events.MaxTurnEvents+10 {
		t.Errorf("it left %d events", n)
	}
	if len(turn.Messages) != 0 {
		t.Errorf("%d messages are sent for an instance that failed in the round that wanted them", len(turn.Messages))
	}
}

func TestCodeThatStartsAndDropsForEverIsStopped(t *testing.T) {
	_, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		for {
			echo.Start(ctx, "x").Cancel(ctx)
		}
	})
	wantFault(t, turn, failure.LimitExceeded, "without waiting")
}

// TestHistoryThatGrowsForEverIsStopped sends messages that the code never reads, until the history
// is full.
func TestHistoryThatGrowsForEverIsStopped(t *testing.T) {
	in, turn := misuse(t, func(ctx oc, _ string) (string, error) {
		for {
			if _, err := orders.Receive(ctx); err != nil {
				return "", err
			}
		}
	})
	for i := 0; turn.Row.Status == round.Running && i < 100; i++ {
		inbox := make([]round.Delivery, 1000)
		for j := range inbox {
			inbox[j] = round.Delivery{Message: events.Message{Content: &events.MailboxMessage{Mailbox: "orders",
				Data: codec.Payload(`"x"`)}}, Attempts: 1}
		}
		turn = in.Decide(inbox, began)
	}
	wantFault(t, turn, failure.LimitExceeded, "events in the history")
	if turn.Row.LastEvent > events.MaxHistoryEvents+2 {
		t.Errorf("the history has %d events", turn.Row.LastEvent)
	}
}

// raised counts the outcomes of many events for which the code does not wait. It returns the last
// turn that changed something.
func raised(in *round.Instance, rounds int, data codec.Payload) (reasons map[round.Reason]int, last round.Turn) {
	reasons = make(map[round.Reason]int)
	for range rounds {
		inbox := make([]round.Delivery, 1000)
		for j := range inbox {
			inbox[j] = round.Delivery{Message: events.Message{Content: &events.EventRaised{Name: approve.Name(),
				Data: data}}, Attempts: 1}
		}
		turn := in.Decide(inbox, began)
		if len(turn.Executions) > 0 {
			last = turn
		}
		for _, r := range turn.Receipts {
			reasons[r.Reason]++
		}
	}
	return reasons, last
}

func waitForRejection(ctx oc, _ string) (string, error) { return reject.Wait(ctx) }

// TestLatestEventsDoNotFillTheHistory: an instance that keeps the latest events refuses them before
// its history is full.
func TestLatestEventsDoNotFillTheHistory(t *testing.T) {
	in, _ := misuse(t, waitForRejection, orchestration.BufferedLatest(1, approve))
	reasons, last := raised(in, 110, codec.Payload(`"x"`))
	if last.Row.Status != round.Running || last.Row.LastEvent >= events.MaxHistoryEvents ||
		reasons[round.EventsFull] == 0 || reasons[round.Taken] < events.MaxHistoryEvents/2 {
		t.Errorf("it is %s with %d events: %v", last.Row.Status, last.Row.LastEvent, reasons)
	}
}

// TestLargeLatestEventsAreRefused: events that replace smaller ones need room, too.
func TestLargeLatestEventsAreRefused(t *testing.T) {
	in, _ := misuse(t, waitForRejection, orchestration.BufferedLatest(1000, approve))
	raised(in, 1, codec.Payload(`"x"`))
	const size = 100 << 10
	sent := codec.Payload(`"` + strings.Repeat("x", size-2) + `"`)
	taken := 0
	for range 200 {
		turn := in.Decide([]round.Delivery{{Message: events.Message{Content: &events.EventRaised{Name: approve.Name(),
			Data: sent}}, Attempts: 1}}, began)
		if turn.Receipts[0].Reason == round.Taken {
			taken++
		}
	}
	if taken != events.MaxMailboxBytes/size {
		t.Errorf("%d large events are kept", taken)
	}
}

func TestMailboxThatIsNotReadFillsUp(t *testing.T) {
	in, turn := misuse(t, func(ctx oc, _ string) (string, error) { return approve.Wait(ctx) })
	dead := 0
	for range 11 {
		inbox := make([]round.Delivery, 1000)
		for j := range inbox {
			inbox[j] = round.Delivery{Message: events.Message{Content: &events.MailboxMessage{Mailbox: "orders",
				Data: codec.Payload(`"x"`)}}, Attempts: 1}
		}
		turn = in.Decide(inbox, began)
		for _, r := range turn.Receipts {
			if r.Verdict == round.Dead && r.Reason == round.MailboxFull {
				dead++
			}
		}
	}
	if dead != 1000 {
		t.Errorf("%d messages were dead-lettered, want 1000", dead)
	}
}
