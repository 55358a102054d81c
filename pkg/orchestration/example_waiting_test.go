package orchestration_test

import (
	"context"
	"errors"
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
		trial.Bind(func(ctx *orchestration.Context, user string) (string, error) {
			if err := ctx.Sleep(30 * 24 * time.Hour); err != nil {
				return "", err
			}
			if _, err := sendMail.Call(ctx, user); err != nil {
				return "", err
			}
			return "reminded on " + ctx.Now().Format(time.DateOnly), nil
		}),
		sendMail.Bind(func(context.Context, string) (bool, error) { return true, nil }),
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
func ExampleContext_Race() {
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
	env := rondotest.New(t, publish.Bind(func(ctx *orchestration.Context, title string) (string, error) {
		answer, deadline := review.Next(ctx), ctx.Timer(24*time.Hour)
		switch ctx.Race(answer, deadline) {
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
			return "no review in time", nil
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
	// no review in time <nil>
}

// Futures of any kind and any type can be waited for together.
func ExampleContext_Race_mixed() {
	t := newT()
	defer t.end()

	var (
		watch   = orchestration.Define[string, string]("watch")
		measure = activity.Define[string, int]("measure")
		stop    = orchestration.DefineEvent[string]("stop")
		alarms  = orchestration.DefineMailbox[int]("alarms")
	)
	env := rondotest.New(t,
		watch.Bind(func(ctx *orchestration.Context, sensor string) (string, error) {
			value, halt := measure.Start(ctx, sensor), stop.Next(ctx)
			alarm, night := alarms.Next(ctx), ctx.Timer(12*time.Hour)
			switch ctx.Race(value, halt, alarm, night) {
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
		rondotest.Takes(measure.Bind(func(context.Context, string) (int, error) { return 21, nil }), time.Hour),
	)
	for i, act := range []func(id string) error{
		func(id string) error { return nil },
		func(id string) error { return stop.Raise(t.Context(), env, id, "ann") },
		func(id string) error { return alarms.Send(t.Context(), env, id, 3) },
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

// Select cancels nothing, so the slower one can still be waited for.
func ExampleContext_Select() {
	t := newT()
	defer t.end()

	var (
		fetch = orchestration.Define[string, []string]("fetch")
		load  = activity.Define[string, string]("load")
	)
	env := rondotest.New(t,
		fetch.Bind(func(ctx *orchestration.Context, page string) ([]string, error) {
			var log []string
			loading, slow := load.Start(ctx, page), ctx.Timer(10*time.Second)
			if ctx.Select(loading, slow) == slow {
				log = append(log, "please wait")
			}
			text, err := loading.Get(ctx)
			return append(log, text), err
		}),
		rondotest.Takes(load.Bind(func(_ context.Context, page string) (string, error) {
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

// An event is for the code that waits for it at that moment. Instances can raise events for each
// other.
func ExampleEvent() {
	t := newT()
	defer t.end()

	var (
		runner  = orchestration.Define[string, string]("runner")
		starter = orchestration.Define[[]string, bool]("starter")
		ready   = orchestration.DefineEvent[string]("go")
	)
	env := rondotest.New(t,
		runner.Bind(func(ctx *orchestration.Context, name string) (string, error) {
			word, err := ready.Wait(ctx)
			return name + " heard " + word, err
		}),
		starter.Bind(func(ctx *orchestration.Context, runners []string) (bool, error) {
			for _, id := range runners {
				if err := ready.RaiseFrom(ctx, id, "go!"); err != nil {
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

// A mailbox keeps its messages in order until they are read, also those that arrive before the code
// reads.
func ExampleMailbox() {
	t := newT()
	defer t.end()

	type Item struct {
		Name  string
		Cents int
	}
	var (
		basket = orchestration.Define[string, int]("basket")
		items  = orchestration.DefineMailbox[Item]("items")
	)
	env := rondotest.New(t, basket.Bind(func(ctx *orchestration.Context, customer string) (int, error) {
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
		if err := items.Send(t.Context(), env, h.ID, item); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// 570 <nil>
}

// TryReceive takes a message that is there and does not wait. Here, messages are gathered for a
// minute and handled together.
func ExampleMailbox_TryReceive() {
	t := newT()
	defer t.end()

	var (
		digest = orchestration.Define[string, []string]("digest")
		news   = orchestration.DefineMailbox[string]("news")
	)
	env := rondotest.New(t, digest.Bind(func(ctx *orchestration.Context, reader string) ([]string, error) {
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
		if err := news.Send(t.Context(), env, h.ID, line); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// [rain sun] <nil>
}

// A receipt says whether the code has waited for the event, or what became of it.
func ExampleEvent_Deliver() {
	t := newT()
	defer t.end()

	var (
		approve = orchestration.DefineEvent[string]("approve")
		order   = orchestration.Define[int, string]("order")
	)
	env := rondotest.New(t, order.Bind(func(ctx *orchestration.Context, _ int) (string, error) {
		return approve.WaitWithin(ctx, time.Hour)
	}))
	h, err := order.Start(t.Context(), env, 1)
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	for _, by := range []string{"ann", "bob"} {
		receipt, err := approve.Deliver(t.Context(), env, h.ID, by)
		fmt.Println(by, receipt.Taken, receipt.Reason, err)
	}
	// Output:
	// ann true taken <nil>
	// bob false has_ended <nil>
}

// A deadline is a moment that several waits share.
func ExampleMailbox_ReceiveUntil() {
	t := newT()
	defer t.end()

	var (
		bids    = orchestration.DefineMailbox[int]("bids")
		auction = orchestration.Define[time.Duration, int]("auction")
	)
	env := rondotest.New(t, auction.Bind(func(ctx *orchestration.Context, open time.Duration) (int, error) {
		end, best := ctx.Now().Add(open), 0
		for {
			bid, err := bids.ReceiveUntil(ctx, end)
			if errors.Is(err, orchestration.ErrTimeout) {
				return best, nil
			}
			if err != nil {
				return 0, err
			}
			best = max(best, bid)
		}
	}))
	h, err := auction.Start(t.Context(), env, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, bid := range []int{20, 50, 30} {
		if err := bids.Send(t.Context(), env, h.ID, bid); err != nil {
			t.Fatal(err)
		}
		env.Advance(10 * time.Minute)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// 50 <nil>
}
