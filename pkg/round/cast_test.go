package round_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The activities, events and mailboxes of the scenarios.
var (
	echo   = activity.Define[string, string]("echo")
	charge = activity.Define[int, string]("charge",
		activity.Retry(3, activity.Fixed(time.Second), activity.NonRetryableTypes("declined")))
	approve = orchestration.DefineEvent[string]("approve")
	reject  = orchestration.DefineEvent[string]("reject")
	orders  = orchestration.DefineMailbox[string]("orders")
	status  = orchestration.DefineStatus[string]()
	total   = orchestration.DefineValue[int]("total")
	note    = orchestration.DefineValue[string]("note")
)

type oc = *orchestration.Context

// define makes an orchestration of text that the scenarios use.
func define(name string, fn func(oc, string) (string, error), opts ...orchestration.BindOption) orchestration.Binding {
	return orchestration.Define[string, string](name).Bind(fn, opts...)
}

func contract(name string) orchestration.Definition[string, string] {
	return orchestration.Define[string, string](name)
}

// deployments are the sets of code that a scenario can switch between with code=….
func deployments() map[string][]orchestration.Binding {
	return map[string][]orchestration.Binding{
		"none": {},
		"v1":   all(),
		"v2": append(all(), define("echo", echoTwice, orchestration.Version("2.0.0")),
			define("renew", finish("two"), orchestration.Version("2.0.0"))),
		"other": replaced(map[string]func(oc, string) (string, error){
			"echo":    func(ctx oc, s string) (string, error) { return charge.Call(ctx, 5) },
			"twice":   func(ctx oc, s string) (string, error) { return echo.Call(ctx, "other "+s) },
			"nap":     echoOnce,
			"waiter":  func(ctx oc, s string) (string, error) { return reject.Wait(ctx) },
			"steps":   func(ctx oc, s string) (string, error) { return echo.Call(ctx, s) },
			"patched": patchedNew,
			"loop":    finish("changed"),
			"numbers": echoOnce,
		}),
		"unbuffered":   replaced(nil), // without options
		"patched-away": replaced(map[string]func(oc, string) (string, error){"patched": patchedOnly}),
	}
}

func all() []orchestration.Binding {
	var bindings []orchestration.Binding
	for name, fn := range code {
		bindings = append(bindings, define(name, fn, options[name]...))
	}
	return bindings
}

func replaced(by map[string]func(oc, string) (string, error)) []orchestration.Binding {
	var bindings []orchestration.Binding
	for name, fn := range code {
		if other, ok := by[name]; ok {
			fn = other
		}
		bindings = append(bindings, define(name, fn))
	}
	return bindings
}

var code = map[string]func(oc, string) (string, error){}

// options are those of the orchestrations that have some.
var options = map[string][]orchestration.BindOption{
	"keeper":      {orchestration.Buffered(2, approve)},
	"keepslast":   {orchestration.BufferedLatest(2, approve)},
	"keepsunread": {orchestration.Buffered(2, approve)},
	"keepsloop":   {orchestration.Buffered(2, approve)},
	"keepsnumber": {orchestration.Buffered(3, orchestration.DefineEvent[any]("approve"))},
	"keepstyped":  {orchestration.Buffered(3, orchestration.DefineEvent[int]("approve"))},
}

func init() {
	for name, fn := range map[string]func(oc, string) (string, error){
		"echo":   echoOnce,
		"twice":  echoTwice,
		"plain":  finish("done"),
		"nap":    func(ctx oc, s string) (string, error) { return "rested", ctx.Sleep(time.Minute) },
		"until":  sleepUntil,
		"charge": func(ctx oc, s string) (string, error) { return charge.Call(ctx, 7) },
		"late":   callLate,
		"tagged": callTagged,
		"beats":  callWithHeartbeats,

		"waiter":   func(ctx oc, s string) (string, error) { return approve.Wait(ctx) },
		"waiters":  twoWaiters,
		"numbers":  wantNumber,
		"deadline": approvalOrDeadline,
		"reader":   readTwo,
		"pollster": pollQueue,
		"holder":   holdAndDrop,
		"keeper":   waitLate, "keepslast": waitLate, "keepsunread": dropUnread,
		"keepsloop":   waitInLoop,
		"keepsnumber": waitForNumber, "keepstyped": waitForNumber,
		"forget": forgetReader,

		"all":       joinAll,
		"first":     raceActivities,
		"nested":    nestedSelect,
		"kinds":     selectOfKinds,
		"branches":  twoBranches,
		"structure": branchLeavesWork,
		"scope":     timeLimit,
		"any":       waitAnyThenOther,
		"ornone":    allOrNone,
		"ordered":   asCompleted,

		"parent": func(ctx oc, s string) (string, error) { return contract("echo").Call(ctx, s) },
		"named": func(ctx oc, s string) (string, error) {
			return contract("echo").Call(ctx, s, orchestration.ID("kid"))
		},
		"abandons": abandonsChild,
		"leaves":   leavesChild,
		"launches": launches, "launchesmore": launchesMore,
		"withattributes": func(ctx oc, s string) (string, error) {
			return contract("echo").Call(ctx, s, orchestration.Attributes(map[string]string{"b": "2", "a": s}))
		},
		"sends":   sendsAway,
		"dropkid": dropsChild,

		"loop":  loop,
		"racer": raceInSuccessor,
		"forkloop": func(ctx oc, s string) (string, error) {
			a, b := echo.Start(ctx, "a"), echo.Start(ctx, "b")
			if s == "second" {
				return orchestration.Race(ctx, a, b).Get(ctx)
			}
			if _, err := a.Get(ctx); err != nil {
				return "", err
			}
			return contract("forkloop").ContinueAsNew(ctx, "second")
		},
		"actor": actor,
		"renew": func(ctx oc, s string) (string, error) {
			if _, err := approve.Wait(ctx); err != nil {
				return "", err
			}
			return contract("renew").ContinueAsNew(ctx, s)
		},
		"upgrade": func(ctx oc, s string) (string, error) { return continueTo(ctx, "echo", "2.0.0") },
		"toward":  func(ctx oc, s string) (string, error) { return continueTo(ctx, "nowhere", "") },
		"spinner": spinner,

		"status":  setStatus,
		"values":  setValues,
		"patched": patchedOld,
		"logs":    logs,
		"ids":     ids,

		"cleanup":  cleanup,
		"shielded": shieldedOnly,
		"stubborn": stubborn,
		"saga":     compensates,
		"swallow":  swallows,

		"steps":    threeSteps,
		"flaky":    flakyStep,
		"steprace": stepOrTimer,

		"panic":    func(oc, string) (string, error) { panic("out of cheese") },
		"refuses":  func(oc, string) (string, error) { return "", orchestration.Errorf("no_stock", "nothing left") },
		"busy":     busy,
		"deadlock": deadlocked,
		"bigvalue": bigValue,
		"manykeys": manyKeys,
		"bigout":   func(oc, string) (string, error) { return string(make([]byte, 1<<20)), nil },
		"farfuture": func(ctx oc, s string) (string, error) {
			return s, ctx.SleepUntil(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))
		},
		"noname": badCalls,
		"wide":   wide,
	} {
		code[name] = fn
	}
}

func finish(out string) func(oc, string) (string, error) {
	return func(oc, string) (string, error) { return out, nil }
}

func echoOnce(ctx oc, s string) (string, error) { return echo.Call(ctx, s) }

func echoTwice(ctx oc, s string) (string, error) {
	a, err := echo.Call(ctx, s)
	if err != nil {
		return "", err
	}
	b, err := echo.Call(ctx, a+"!")
	return a + b, err
}

func sleepUntil(ctx oc, s string) (string, error) {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return "", err
	}
	return ctx.Now().Format(time.RFC3339), ctx.SleepUntil(at)
}

func callLate(ctx oc, s string) (string, error) {
	return echo.Call(ctx, s, activity.ScheduleToStart(10*time.Second), activity.ScheduleToClose(time.Minute),
		activity.Retry(2, activity.Fixed(time.Second)))
}

func callTagged(ctx oc, s string) (string, error) {
	return echo.Call(ctx, s, activity.Tag("gpu"), activity.Session("s1"),
		activity.StartToClose(time.Minute), activity.HeartbeatTimeout(5*time.Second),
		activity.ScheduleToStart(time.Hour))
}

func callWithHeartbeats(ctx oc, s string) (string, error) {
	return echo.Call(ctx, s, activity.Retry(2, activity.Linear(time.Second, time.Minute), activity.Jitter(0)))
}

func twoWaiters(ctx oc, s string) (string, error) {
	a, b := approve.Next(ctx), approve.Next(ctx)
	y, _ := b.Get(ctx)
	x, _ := a.Get(ctx)
	return x + "," + y, nil
}

func approvalOrDeadline(ctx oc, s string) (string, error) {
	approval, deadline := approve.Next(ctx), ctx.Timer(time.Hour)
	switch ctx.Race(approval, deadline) {
	case approval:
		who, err := approval.Get(ctx)
		return "approved by " + who, err
	case deadline:
		return "too late", nil
	}
	return "", errors.New("neither")
}

func readTwo(ctx oc, s string) (string, error) {
	a, err := orders.Receive(ctx)
	if err != nil {
		return "", err
	}
	b, err := orders.Receive(ctx)
	return a + "," + b, err
}

func pollQueue(ctx oc, s string) (string, error) {
	got := ""
	for {
		v, ok, err := orders.TryReceive(ctx)
		if err != nil {
			return got, err
		}
		if ok {
			got += v
			continue
		}
		if got != "" {
			return got, nil
		}
		if err := ctx.Sleep(time.Minute); err != nil {
			return got, err
		}
	}
}

// holdAndDrop takes a message with a future, does not look at it, and lets it go: the next reader
// gets it.
func holdAndDrop(ctx oc, s string) (string, error) {
	held := orders.Next(ctx)
	if _, err := approve.Wait(ctx); err != nil {
		return "", err
	}
	held.Cancel(ctx)
	return orders.Receive(ctx)
}

// waitLate waits for two approvals when it was rejected.
func waitLate(ctx oc, s string) (string, error) {
	if _, err := reject.Wait(ctx); err != nil {
		return "", err
	}
	a, err := approve.Wait(ctx)
	if err != nil {
		return "", err
	}
	b, err := approve.Wait(ctx)
	return a + "," + b, err
}

// dropUnread has two waits, gives up the first without a look at its result, and looks at the
// second and at one more.
func dropUnread(ctx oc, s string) (string, error) {
	first, second := approve.Next(ctx), approve.Next(ctx)
	if _, err := reject.Wait(ctx); err != nil {
		return "", err
	}
	first.Cancel(ctx)
	a, err := second.Get(ctx)
	if err != nil {
		return "", err
	}
	b, err := approve.Wait(ctx)
	return a + "," + b, err
}

// waitInLoop takes one approval in each execution.
func waitInLoop(ctx oc, s string) (string, error) {
	if _, err := reject.Wait(ctx); err != nil {
		return "", err
	}
	v, err := approve.Wait(ctx)
	if err != nil || v == "stop" {
		return s, err
	}
	return contract("keepsloop").ContinueAsNew(ctx, s+v)
}

// waitForNumber waits for an approval that is a number.
func waitForNumber(ctx oc, s string) (string, error) {
	if _, err := reject.Wait(ctx); err != nil {
		return "", err
	}
	n, err := orchestration.DefineEvent[int]("approve").Wait(ctx)
	return fmt.Sprint(n), err
}

// forgetReader continues as new while a future holds an unread message.
func forgetReader(ctx oc, s string) (string, error) {
	if s == "second" {
		return readTwo(ctx, s)
	}
	held := orders.Next(ctx)
	if _, err := approve.Wait(ctx); err != nil {
		return "", err
	}
	_ = held.Done()
	return contract("forget").ContinueAsNew(ctx, "second")
}

func joinAll(ctx oc, s string) (string, error) {
	all, err := orchestration.All(ctx, echo.Start(ctx, "a"), echo.Start(ctx, "b"), echo.Start(ctx, "c")).Get(ctx)
	return fmt.Sprint(all), err
}

func raceActivities(ctx oc, s string) (string, error) {
	return orchestration.Race(ctx, echo.Start(ctx, "a"), echo.Start(ctx, "b"),
		echo.Start(ctx, "c", activity.Tag("slow"))).Get(ctx)
}

func nestedSelect(ctx oc, s string) (string, error) {
	both := orchestration.All(ctx, echo.Start(ctx, "a"), echo.Start(ctx, "b"))
	either := orchestration.Race(ctx, echo.Start(ctx, "c"), echo.Start(ctx, "d"))
	limit := ctx.Timer(time.Hour)
	switch ctx.Race(both, either, limit) {
	case both:
		v, err := both.Get(ctx)
		return fmt.Sprint("both ", v), err
	case either:
		v, err := either.Get(ctx)
		return "either " + v, err
	}
	return "neither", nil
}

func selectOfKinds(ctx oc, s string) (string, error) {
	work, timer, event := echo.Start(ctx, "w"), ctx.Timer(time.Minute), approve.Next(ctx)
	letter, kid := orders.Next(ctx), contract("echo").StartChild(ctx, "k")
	step := orchestration.StartStep(ctx, "step", func(context.Context) (string, error) { return "s", nil })
	branch := orchestration.Go(ctx, func(ctx oc) (string, error) { return echo.Call(ctx, "b") })
	switch ctx.Race(work, timer, event, letter, kid, step, branch) {
	case work:
		return "work", nil
	case timer:
		return "timer", nil
	case event:
		return "event", nil
	case letter:
		v, err := letter.Get(ctx)
		return "letter " + v, err
	case kid:
		v, err := kid.Get(ctx)
		return "kid " + v, err
	case step:
		return "step", nil
	}
	return "branch", nil
}

func twoBranches(ctx oc, s string) (string, error) {
	log := ""
	branch := func(name string) *orchestration.Future[int] {
		return orchestration.Go(ctx, func(ctx oc) (int, error) {
			for i := range 2 {
				v, err := echo.Call(ctx, fmt.Sprint(name, i))
				if err != nil {
					return 0, err
				}
				log += v + " "
			}
			return len(log), nil
		})
	}
	a, b := branch("a"), branch("b")
	ctx.WaitAll(a, b)
	return log, nil
}

// branchLeavesWork starts things in a branch and returns from it without waiting for them.
func branchLeavesWork(ctx oc, s string) (string, error) {
	_, err := orchestration.Go(ctx, func(ctx oc) (int, error) {
		echo.Start(ctx, "left behind")
		ctx.Timer(time.Hour)
		return 1, nil
	}).Get(ctx)
	if err != nil {
		return "", err
	}
	return echo.Call(ctx, "after")
}

func timeLimit(ctx oc, s string) (string, error) {
	limited, cancel := ctx.WithTimeout(time.Minute)
	defer cancel()
	v, err := echoTwice(limited, s)
	if errors.Is(err, orchestration.ErrTimeout) {
		return "gave up", nil
	}
	return v, err
}

func waitAnyThenOther(ctx oc, s string) (string, error) {
	a, b := echo.Start(ctx, "a"), echo.Start(ctx, "b")
	first := ctx.Select(a, b)
	ctx.WaitAll(a, b)
	x, _ := a.Get(ctx)
	y, _ := b.Get(ctx)
	return fmt.Sprint(first == orchestration.Awaitable(a), x, y), nil
}

func allOrNone(ctx oc, s string) (string, error) {
	v, err := orchestration.AllOrNone(ctx, echo.Start(ctx, "a"), echo.Start(ctx, "b"), echo.Start(ctx, "c")).Get(ctx)
	if err != nil {
		//lint:ignore nilerr the error is the output
		return "none: " + err.Error(), nil
	}
	return fmt.Sprint(v), nil
}

func asCompleted(ctx oc, s string) (string, error) {
	out := ""
	for i, f := range orchestration.AsCompleted(ctx, echo.Start(ctx, "a"), echo.Start(ctx, "b"), echo.Start(ctx, "c")) {
		v, err := f.Get(ctx)
		if err != nil {
			return "", err
		}
		out += fmt.Sprint(i, v, " ")
	}
	return out, nil
}

func abandonsChild(ctx oc, s string) (string, error) {
	contract("echo").StartChild(ctx, s, orchestration.Abandon())
	return approve.Wait(ctx)
}

func leavesChild(ctx oc, s string) (string, error) {
	contract("echo").StartChild(ctx, s)
	return approve.Wait(ctx)
}

func launches(ctx oc, s string) (string, error) {
	a, err := contract("echo").Detach(ctx, s)
	if err != nil {
		return "", err
	}
	b, err := contract("echo").Detach(ctx, s, orchestration.ID("free"), orchestration.Version("1.0.0"))
	return a + "," + b, err
}

// launchesMore uses each option of a detached start, and time passes before it replays them.
func launchesMore(ctx oc, s string) (string, error) {
	attributes := map[string]string{"region": "eu"}
	for _, opts := range [][]orchestration.DetachOption{
		{orchestration.Attributes(attributes), orchestration.Delay(time.Hour)},
		{orchestration.At(ctx.Now().Add(time.Minute)), orchestration.ID("free"), orchestration.UseExisting()},
		{orchestration.Delay(-time.Hour), orchestration.ID("free"), orchestration.ReplaceRunning()},
		{orchestration.At(ctx.Now()), orchestration.ID("free"), orchestration.RestartFinished(),
			orchestration.WithMessage(orders, "one"), orchestration.WithMessage(orders, "two")},
	} {
		if _, err := contract("echo").Detach(ctx, s, opts...); err != nil {
			return "", err
		}
	}
	attributes["region"] = "changed later" // the call has its own copy
	large := orchestration.WithMessage(orders, strings.Repeat("x", events.MaxPayload/2))
	_, refused := contract("echo").Detach(ctx, s, large, large)
	_, err := approve.Wait(ctx)
	return fmt.Sprint(refused), err
}

func sendsAway(ctx oc, s string) (string, error) {
	return "sent", errors.Join(approve.RaiseFrom(ctx, "other", "me"), orders.SendFrom(ctx, "other", "one"))
}

func dropsChild(ctx oc, s string) (string, error) {
	kid := contract("echo").StartChild(ctx, s)
	if _, err := approve.Wait(ctx); err != nil {
		return "", err
	}
	kid.Cancel(ctx)
	_, err := kid.Get(ctx)
	return fmt.Sprint(errors.Is(err, orchestration.ErrCancelled)), nil
}

// loop continues as new three times, each time after an activity.
func loop(ctx oc, s string) (string, error) {
	if s == "xxx" {
		return s, nil
	}
	if _, err := echo.Call(ctx, s); err != nil {
		return "", err
	}
	return contract("loop").ContinueAsNew(ctx, s+"x")
}

// raceInSuccessor continues as new, and then races a message against a timer.
func raceInSuccessor(ctx oc, s string) (string, error) {
	if s != "second" {
		if _, err := approve.Wait(ctx); err != nil {
			return "", err
		}
		return contract("racer").ContinueAsNew(ctx, "second")
	}
	letter, timer := orders.Next(ctx), ctx.Timer(time.Minute)
	won := "timer"
	if ctx.Race(letter, timer) == letter {
		v, err := letter.Get(ctx)
		if err != nil {
			return "", err
		}
		won = v
	}
	next, err := orders.Receive(ctx)
	return won + ", then " + next, err
}

// actor takes two messages in each execution and keeps a sum.
func actor(ctx oc, s string) (string, error) {
	status.Set(ctx, "execution "+fmt.Sprint(ctx.Execution()))
	for range 2 {
		m, err := orders.Receive(ctx)
		if err != nil {
			return "", err
		}
		if m == "stop" {
			sum, _, err := total.Get(ctx)
			return fmt.Sprint(sum), err
		}
		sum, _, err := total.Get(ctx)
		if err != nil {
			return "", err
		}
		total.Set(ctx, sum+len(m))
	}
	return contract("actor").ContinueAsNew(ctx, s)
}

func continueTo(ctx oc, name, version string) (string, error) {
	var opts []orchestration.ContinueOption
	if version != "" {
		opts = append(opts, orchestration.Version(version))
	}
	return contract(name).ContinueAsNew(ctx, "carried", opts...)
}

// spinner continues as new without ever waiting, twenty times.
func spinner(ctx oc, s string) (string, error) {
	if len(s) == 20 {
		return approve.Wait(ctx)
	}
	return contract("spinner").ContinueAsNew(ctx, s+"x")
}

func setStatus(ctx oc, s string) (string, error) {
	status.Set(ctx, "starting")
	status.Set(ctx, "waiting")
	if _, err := approve.Wait(ctx); err != nil {
		return "", err
	}
	was, ok, err := status.Get(ctx)
	status.Clear(ctx)
	return fmt.Sprint(was, ok), err
}

func setValues(ctx oc, s string) (string, error) {
	total.Set(ctx, 1)
	note.Set(ctx, "hello")
	total.Set(ctx, 2)
	if err := ctx.Sleep(time.Minute); err != nil {
		return "", err
	}
	n, _, _ := total.Get(ctx)
	total.Set(ctx, n+1)
	pruned := ctx.Values().Prune(ctx.Now())
	keys := ctx.Values().Keys()
	_, found, _ := note.Get(ctx)
	total.Clear(ctx)
	total.Clear(ctx)
	note.Set(ctx, "")
	ctx.Values().Clear()
	return fmt.Sprint(n, pruned, keys, found), nil
}

func patchedOld(ctx oc, s string) (string, error) {
	a, _ := approve.Wait(ctx)
	b, _ := approve.Wait(ctx)
	return "old " + a + b, nil
}

func patchedNew(ctx oc, s string) (string, error) {
	out := ""
	if ctx.Patched("first") {
		out += "new1 "
	}
	a, _ := approve.Wait(ctx)
	if ctx.Patched("second") {
		out += "new2 "
	}
	b, _ := approve.Wait(ctx)
	if ctx.Patched("second") {
		out += "again "
	}
	return out + a + b, nil
}

// patchedOnly is patchedNew with the guards and the old ways removed.
func patchedOnly(ctx oc, s string) (string, error) {
	a, _ := approve.Wait(ctx)
	b, _ := approve.Wait(ctx)
	return "only " + a + b, nil
}

func logs(ctx oc, s string) (string, error) {
	l := ctx.Logger().With("a", 1).WithGroup("g").With("b", 2)
	l.Info("before", "c", 3)
	v, err := echo.Call(ctx, s)
	ctx.Logger().Warn("after", "replaying", ctx.IsReplaying())
	return v, err
}

func ids(ctx oc, s string) (string, error) {
	out := ctx.NewID() + " " + ctx.NewID() + fmt.Sprint(" ", ctx.Rand().IntN(1000), " ", ctx.Rand().IntN(1000))
	_, err := echo.Call(ctx, out)
	events, bytes := ctx.HistorySize()
	return fmt.Sprint(ctx.NewID(), " ", ctx.Now().Format(time.RFC3339), events, bytes > 0, ctx.Instance(),
		ctx.Execution(), ctx.Name(), ctx.Version(), ctx.ShouldContinueAsNew()), err
}
