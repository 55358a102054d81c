package activity_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// The contract is what both sides share: the worker that executes the activity, and the
// orchestration that calls it.
func Example() {
	t := newT()
	defer t.end()

	type Transfer struct {
		To    string
		Cents int
	}
	var (
		pay  = orchestration.Define[Transfer, string]("pay")
		send = activity.Define[Transfer, string]("send", activity.Retry(5), activity.StartToClose(time.Minute))
	)
	sent := make(map[string]int)
	env := rondotest.New(t,
		pay.Bind(func(ctx *orchestration.Context, transfer Transfer) (string, error) {
			return send.Call(ctx, transfer, activity.ScheduleToClose(time.Hour))
		}),
		send.Bind(func(ctx context.Context, transfer Transfer) (string, error) {
			// The bank did its work, but its answer is lost. All attempts have the same key, so it
			// is done once.
			sent[activity.Info(ctx).IdempotencyKey] = transfer.Cents
			if activity.Info(ctx).Attempt == 1 {
				return "", errors.New("the connection was lost")
			}
			return "sent to " + transfer.To, nil
		}),
	)
	h, err := pay.Start(t.Context(), env, Transfer{To: "ann", Cents: 500})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	fmt.Println(len(sent), "transfer")
	// Output:
	// sent to ann <nil>
	// 1 transfer
}

// A long activity tells how far it is. When it dies, the next attempt goes on from there.
func ExampleHeartbeat() {
	t := newT()
	defer t.end()

	var (
		migrate = orchestration.Define[[]string, string]("migrate")
		copyAll = activity.Define[[]string, int]("copy-all", activity.Retry(5), activity.HeartbeatTimeout(time.Minute))
	)
	env := rondotest.New(t,
		migrate.Bind(func(ctx *orchestration.Context, tables []string) (string, error) {
			n, err := copyAll.Call(ctx, tables)
			return fmt.Sprint(n, " tables"), err
		}),
		copyAll.Bind(func(ctx context.Context, tables []string) (int, error) {
			done, _, err := activity.LastHeartbeat[int](ctx)
			if err != nil {
				return 0, err
			}
			for ; done < len(tables); done++ {
				if err := activity.Heartbeat(ctx, done); err != nil {
					return 0, err // the orchestration does not wait for it any more
				}
				if tables[done] == "big" && activity.Info(ctx).Attempt == 1 {
					return 0, errors.New("the disk is full")
				}
				fmt.Println("copied", tables[done])
			}
			return done, nil
		}),
	)
	h, err := migrate.Start(t.Context(), env, []string{"small", "big", "last"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// copied small
	// copied big
	// copied last
	// 3 tables <nil>
}

// NonRetryable errors are not retried.
func ExampleNonRetryable() {
	t := newT()
	defer t.end()

	var (
		signUp = orchestration.Define[string, string]("sign-up")
		check  = activity.Define[string, string]("check", activity.Retry(10))
	)
	attempts := 0
	env := rondotest.New(t,
		signUp.Bind(func(ctx *orchestration.Context, name string) (string, error) { return check.Call(ctx, name) }),
		check.Bind(func(_ context.Context, name string) (string, error) {
			attempts++
			if name == "" {
				return "", activity.NonRetryable(errors.New("a name is needed"))
			}
			return name, nil
		}),
	)
	h, err := signUp.Start(t.Context(), env, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	fmt.Println(err)
	fmt.Println("attempts:", attempts)
	// Output:
	// activity "check": a name is needed
	// attempts: 1
}

// An error has a type for programs, a message for operators, and details for the code that handles
// it.
func ExampleErrorf() {
	t := newT()
	defer t.end()

	type Shortage struct{ Left int }
	var (
		order = orchestration.Define[int, string]("order")
		take  = activity.Define[int, string]("take", activity.Retry(5, activity.NonRetryableTypes("shortage")))
	)
	env := rondotest.New(t,
		order.Bind(func(ctx *orchestration.Context, n int) (string, error) {
			box, err := take.Call(ctx, n)
			if errors.Is(err, orchestration.OfType("shortage")) {
				if d, ok := activity.Details[Shortage](err); ok {
					return take.Call(ctx, d.Left)
				}
			}
			return box, err
		}),
		take.Bind(func(_ context.Context, n int) (string, error) {
			if n > 3 {
				return "", activity.WithDetails(activity.Errorf("shortage", "there are not %d", n), Shortage{Left: 3})
			}
			return fmt.Sprintf("a box of %d", n), nil
		}),
	)
	h, err := order.Start(t.Context(), env, 5)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// a box of 3 <nil>
}

// Another program can complete an activity later: a form that a person submits, or a system that
// calls back. The activity hands its token over and returns ErrResultPending.
func ExampleToken() {
	t := newT()
	defer t.end()

	var (
		translate = orchestration.Define[string, string]("translate")
		ask       = activity.Define[string, string]("ask-translator", activity.ScheduleToClose(7*24*time.Hour))
	)
	var letter struct{ Text, Token string } // what the translator gets
	env := rondotest.New(t,
		translate.Bind(func(ctx *orchestration.Context, text string) (string, error) { return ask.Call(ctx, text) }),
		ask.Bind(func(ctx context.Context, text string) (string, error) {
			letter.Text, letter.Token = text, activity.Token(ctx)
			return "", activity.ErrResultPending
		}),
	)
	h, err := translate.Start(t.Context(), env, "tea")
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(48 * time.Hour)
	if err := env.Complete(t.Context(), letter.Token, letter.Text+" is té"); err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// tea is té <nil>
}

// The delays between attempts grow as the policy says. Without Jitter(0), a part of each is left to
// chance, so that many calls that failed together are not tried again together.
func ExampleRetry() {
	t := newT()
	defer t.end()

	var (
		visit = orchestration.Define[string, string]("visit")
		ring  = activity.Define[string, string]("ring", activity.Retry(5,
			activity.Exponential(time.Second, 3, 10*time.Second),
			activity.Jitter(0)))
	)
	var env *rondotest.Env
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	env = rondotest.New(t, rondotest.StartAt(began),
		visit.Bind(func(ctx *orchestration.Context, door string) (string, error) { return ring.Call(ctx, door) }),
		ring.Bind(func(ctx context.Context, door string) (string, error) {
			fmt.Println("attempt", activity.Info(ctx).Attempt, "after", env.Now().Sub(began))
			return "", errors.New("the door stays shut")
		}),
	)
	h, err := visit.Start(t.Context(), env, "door 1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	fmt.Println(err)
	// Output:
	// attempt 1 after 0s
	// attempt 2 after 1s
	// attempt 3 after 4s
	// attempt 4 after 13s
	// attempt 5 after 23s
	// activity "ring": the door stays shut (after 5 attempts)
}

// The options of a call stand beside those of the contract, and win over them. Work for a special
// machine gets a tag, and what belongs together on one worker, a session.
func ExampleTag() {
	t := newT()
	defer t.end()

	var (
		film   = orchestration.Define[string, string]("film")
		render = activity.Define[string, string]("render", activity.Tag("cpu"), activity.StartToClose(time.Hour))
	)
	env := rondotest.New(t,
		film.Bind(func(ctx *orchestration.Context, title string) (string, error) {
			return render.Call(ctx, title, activity.Tag("gpu"), activity.Session(ctx.Instance()))
		}),
		render.Bind(func(ctx context.Context, title string) (string, error) {
			info := activity.Info(ctx)
			return fmt.Sprintf("%s on a %s, session %s", title, info.Tag, info.Session), nil
		}),
	)
	h, err := film.Start(t.Context(), env, "Metropolis", orchestration.ID("film-1"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(h.Wait(t.Context()))
	// Output:
	// Metropolis on a gpu, session film-1 <nil>
}

// An activity is an ordinary function, so it can be tested as one. NewContext gives it what a
// worker would.
func ExampleNewContext() {
	greet := func(ctx context.Context, name string) (string, error) {
		info := activity.Info(ctx)
		if err := activity.Heartbeat(ctx, "half done"); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s for %s, attempt %d", name, info.Instance, info.Attempt), nil
	}
	ctx := activity.NewContext(context.Background(), activity.Environment{
		Info: activity.ExecutionInfo{Instance: "order-7", Attempt: 2},
	})
	fmt.Println(greet(ctx, "tea"))
	// Output:
	// tea for order-7, attempt 2 <nil>
}

// The code of an action returns an error only.
func ExampleDefineAction() {
	t := newT()
	defer t.end()

	var (
		greet = orchestration.DefineAction[string]("greet")
		send  = activity.DefineAction[string]("send", activity.Retry(3))
	)
	env := rondotest.New(t,
		greet.Bind(func(ctx *orchestration.Context, to string) error { return send.Call(ctx, "hello, "+to) }),
		send.Bind(func(_ context.Context, text string) error {
			_, err := fmt.Println(text)
			return err
		}),
	)
	fmt.Println(greet.Run(t.Context(), env, "ann"))
	// Output:
	// hello, ann
	// <nil>
}
