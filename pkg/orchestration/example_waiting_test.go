package orchestration_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// A timer of thirty days costs nothing while it runs, and in a test it takes no time.
func ExampleContext_Sleep() {
	t := newT()
	defer t.end()

	var (
		trial    = orchestration.Define[string, string]("trial")
		sendMail = activity.Define[string, bool]("send-mail", activity.Retry(10))
	)
	env := rondotest.New(t,
		trial.With(func(ctx *orchestration.Context, user string) (string, error) {
			if err := ctx.Sleep(30 * 24 * time.Hour); err != nil {
				return "", err
			}
			if _, err := sendMail.Call(ctx, user); err != nil {
				return "", err
			}
			return "reminded on " + ctx.Now().Format(time.DateOnly), nil
		}),
		sendMail.With(func(context.Context, string) (bool, error) { return true, nil }),
		rondotest.StartAt(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
	)
	h, err := trial.Start(t.Context(), env, "ann")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// reminded on 2026-03-31 <nil>
}

// A human has a day to answer. Whichever comes first, the answer or the end of the day, cancels the
// other.
func ExampleContext_Select() {
	t := newT()
	defer t.end()

	type Answer struct {
		By string
		OK bool
	}
	var (
		publish = orchestration.Define[string, string]("publish")
		review  = orchestration.DefineEvent[Answer]("review")
	)
	env := rondotest.New(t, publish.With(func(ctx *orchestration.Context, title string) (string, error) {
		answer, deadline := review.Next(ctx), ctx.Timer(24*time.Hour)
		switch ctx.Select(answer, deadline) {
		case answer:
			a, err := answer.Get(ctx)
			if err != nil {
				return "", err
			}
			if !a.OK {
				return "refused by " + a.By, nil
			}
			return "published, thanks to " + a.By, nil
		case deadline:
			return "nobody has looked at it", nil
		}
		return "", ctx.Err()
	}))

	first, err := publish.Start(t.Context(), env, "On timers", orchestration.ID("article-1"))
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(2 * time.Hour)
	if err := review.Raise(t.Context(), env, "article-1", Answer{By: "ann", OK: true}); err != nil {
		t.Fatal(err)
	}
	fmt.Println(first.Wait(t.Context()))

	second, err := publish.Start(t.Context(), env, "On clocks", orchestration.ID("article-2"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(second.Wait(t.Context()))
	// Output:
	// published, thanks to ann <nil>
	// nobody has looked at it <nil>
}

// Futures of any kind and any type can be waited for together.
func ExampleContext_Select_mixed() {
	t := newT()
	defer t.end()

	var (
		watch   = orchestration.Define[string, string]("watch")
		measure = activity.Define[string, int]("measure")
		stop    = orchestration.DefineEvent[string]("stop")
		alarms  = orchestration.DefineQueue[int]("alarms")
	)
	env := rondotest.New(t,
		watch.With(func(ctx *orchestration.Context, sensor string) (string, error) {
			value, halt := measure.Start(ctx, sensor), stop.Next(ctx)
			alarm, night := alarms.Next(ctx), ctx.Timer(12*time.Hour)
			switch ctx.Select(value, halt, alarm, night) {
			case value:
				v, err := value.Get(ctx)
				return fmt.Sprintf("it is %d", v), err
			case halt:
				who, err := halt.Get(ctx)
				return "stopped by " + who, err
			case alarm:
				level, err := alarm.Get(ctx)
				return fmt.Sprintf("alarm of level %d", level), err
			case night:
				return "it is night", nil
			}
			return "", ctx.Err()
		}),
		rondotest.Takes(measure.With(func(context.Context, string) (int, error) { return 21, nil }), time.Hour),
	)
	for i, act := range []func(id string) error{
		func(id string) error { return nil },
		func(id string) error { return stop.Raise(t.Context(), env, id, "ann") },
		func(id string) error { return alarms.Push(t.Context(), env, id, 3) },
	} {
		h, err := watch.Start(t.Context(), env, "cellar", orchestration.ID(fmt.Sprint("watch-", i)))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if err := act(h.ID); err != nil {
			t.Fatal(err)
		}
		fmt.Println(h.Wait(t.Context()))
	}
	// Output:
	// it is 21 <nil>
	// stopped by ann <nil>
	// alarm of level 3 <nil>
}

// WaitAny cancels nothing, so the slower one can still be waited for.
func ExampleContext_WaitAny() {
	t := newT()
	defer t.end()

	var (
		fetch = orchestration.Define[string, []string]("fetch")
		load  = activity.Define[string, string]("load")
	)
	env := rondotest.New(t,
		fetch.With(func(ctx *orchestration.Context, page string) ([]string, error) {
			var log []string
			loading, slow := load.Start(ctx, page), ctx.Timer(10*time.Second)
			if ctx.WaitAny(loading, slow) == slow {
				log = append(log, "please wait")
			}
			text, err := loading.Get(ctx)
			return append(log, text), err
		}),
		rondotest.Takes(load.With(func(_ context.Context, page string) (string, error) {
			return "text of " + page, nil
		}), time.Minute),
	)
	h, err := fetch.Start(t.Context(), env, "page 1")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// [please wait text of page 1] <nil>
}

// An event is for whoever waits for it at that moment. Instances can raise events for each other.
func ExampleEvent() {
	t := newT()
	defer t.end()

	var (
		runner  = orchestration.Define[string, string]("runner")
		starter = orchestration.Define[[]string, bool]("starter")
		ready   = orchestration.DefineEvent[string]("go")
	)
	env := rondotest.New(t,
		runner.With(func(ctx *orchestration.Context, name string) (string, error) {
			word, err := ready.Wait(ctx)
			return name + " heard " + word, err
		}),
		starter.With(func(ctx *orchestration.Context, runners []string) (bool, error) {
			for _, id := range runners {
				if err := ready.Send(ctx, id, "go!"); err != nil {
					return false, err
				}
			}
			return true, nil
		}),
	)
	first, err := runner.Start(t.Context(), env, "Ann", orchestration.ID("lane-1"))
	if err != nil {
		t.Fatal(err)
	}
	env.Settle() // now it waits: an event that comes earlier is dropped
	if _, err := starter.Start(t.Context(), env, []string{"lane-1"}); err != nil {
		t.Fatal(err)
	}
	fmt.Println(first.Wait(t.Context()))
	// Output:
	// Ann heard go! <nil>
}

// A queue keeps its messages in order until they are read, also those that come while nobody reads.
func ExampleQueue() {
	t := newT()
	defer t.end()

	type Item struct {
		Name  string
		Cents int
	}
	var (
		basket = orchestration.Define[string, int]("basket")
		items  = orchestration.DefineQueue[Item]("items")
	)
	env := rondotest.New(t, basket.With(func(ctx *orchestration.Context, customer string) (int, error) {
		sum := 0
		for {
			item, err := items.Receive(ctx)
			if err != nil {
				return 0, err
			}
			if item.Name == "" {
				return sum, nil
			}
			sum += item.Cents
		}
	}))
	h, err := basket.Start(t.Context(), env, "ann")
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range []Item{{"tea", 450}, {"milk", 120}, {}} {
		if err := items.Push(t.Context(), env, h.ID, item); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// 570 <nil>
}

// TryReceive takes what is there and does not wait. Here, messages are gathered for a minute and
// handled together.
func ExampleQueue_TryReceive() {
	t := newT()
	defer t.end()

	var (
		digest = orchestration.Define[string, []string]("digest")
		news   = orchestration.DefineQueue[string]("news")
	)
	env := rondotest.New(t, digest.With(func(ctx *orchestration.Context, reader string) ([]string, error) {
		if err := ctx.Sleep(time.Minute); err != nil {
			return nil, err
		}
		var all []string
		for {
			line, ok, err := news.TryReceive(ctx)
			if err != nil || !ok {
				return all, err
			}
			all = append(all, line)
		}
	}))
	h, err := digest.Start(t.Context(), env, "ann")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"rain", "sun"} {
		if err := news.Push(t.Context(), env, h.ID, line); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// [rain sun] <nil>
}
