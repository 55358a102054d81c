package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestContextKnowsTheInstance(t *testing.T) {
	child := orchestration.Define[string, string]("child")
	env := rondotest.New(t,
		subject.Bind(func(ctx *oc, s string) (string, error) {
			if s == "first" {
				return subject.ContinueAsNew(ctx, "second")
			}
			c, err := child.Call(ctx, "x", orchestration.ID("kid"))
			return fmt.Sprint(ctx.Instance(), ctx.Execution(), ctx.Name(), ctx.Version(), ctx.Attribute("a"),
				ctx.Attribute("b"), ctx.Parent(), "; ", c), err
		}, orchestration.Version("1.2.3")),
		child.Bind(func(ctx *oc, s string) (string, error) { return ctx.Instance() + " of " + ctx.Parent(), nil }),
	)
	h, err := subject.Start(t.Context(), env, "first", orchestration.ID("i"),
		orchestration.Attributes(map[string]string{"a": "A"}))
	must(t, err)
	out, err := h.Wait(t.Context())
	if want := "i2 subject 1.2.3 A   ; kid of i"; strings.Join(strings.Fields(out),
		"") != strings.Join(strings.Fields(want), "") || err != nil {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

func TestTimeStandsStillBetweenWaits(t *testing.T) {
	gives(t, "0s 1h0m0s 0s", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		still := ctx.Now().Sub(began)
		if err := ctx.Sleep(time.Hour); err != nil {
			return "", err
		}
		later := ctx.Now()
		return fmt.Sprint(still, later.Sub(began), ctx.Now().Sub(later)), nil
	}, nil)
}

func TestTimersOfThePastAreReadyAtOnce(t *testing.T) {
	gives(t, "0s", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		err := errors.Join(
			ctx.Sleep(0), ctx.Sleep(-time.Hour), ctx.SleepUntil(began), ctx.SleepUntil(began.Add(-time.Hour)),
			ctx.SleepUntil(time.Time{}), ctx.SleepUntil(time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)),
		)
		return fmt.Sprint(ctx.Now().Sub(began)), err
	}, nil)
}

func TestTimerGivesItsMoment(t *testing.T) {
	gives(t, "true true", func(ctx *oc, _ string) (string, error) {
		at := ctx.Now().Add(90 * time.Minute)
		a, errA := ctx.Timer(90 * time.Minute).Get(ctx)
		b, errB := ctx.TimerAt(at).Get(ctx)
		return fmt.Sprint(a.Equal(at), " ", b.Equal(at)), errors.Join(errA, errB)
	}, nil)
}

func TestTimerBeyondALifetimeFails(t *testing.T) {
	fails(t, &failure.Error{Kind: failure.LimitExceeded}, func(ctx *oc, _ string) (string, error) {
		return "", ctx.SleepUntil(ctx.Now().AddDate(1000, 0, 0))
	}, nil, "check its unit")
}

func TestIDsAndChance(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var seen []string
	out, err := run(t, func(ctx *oc, _ string) (string, error) {
		a, n := ctx.NewID(), ctx.Rand().Uint64()
		if err := ctx.Sleep(time.Second); err != nil {
			return "", err
		}
		b, m := ctx.NewID(), ctx.Rand().Uint64()
		seen = []string{a, b}
		if a == b || n == m {
			t.Errorf("drawn twice: %s %s, %d %d", a, b, n, m)
		}
		return fmt.Sprint(a, b, n, m), nil
	}, nil)
	must(t, err)
	for _, id := range seen {
		if !uuid.MatchString(id) {
			t.Errorf("%s is no random UUID", id)
		}
	}
	other, err := run(t, func(ctx *oc, _ string) (string, error) {
		return orchestration.Go(ctx, func(ctx *oc) (string, error) {
			return fmt.Sprint(ctx.NewID(), ctx.NewID()), nil
		}).Get(ctx)
	}, nil)
	if must(t, err); !strings.HasPrefix(out, other) {
		t.Errorf("the same instance draws %s and %s", out, other)
	}
}

func TestIsReplaying(t *testing.T) {
	var seen []bool
	code := func(ctx *oc, _ string) (string, error) {
		seen = append(seen, ctx.IsReplaying())
		return echo.Call(ctx, "x")
	}
	gives(t, "x", code, nil)
	if want := "[false false true]"; fmt.Sprint(seen) != want {
		t.Errorf("in memory, then replayed: %v, want %s", seen, want)
	}
}

func TestHistorySize(t *testing.T) {
	gives(t, "it grows; false", func(ctx *oc, _ string) (string, error) {
		n, bytes := ctx.HistorySize()
		if _, err := echo.Call(ctx, strings.Repeat("x", 1000)); err != nil {
			return "", err
		}
		if m, more := ctx.HistorySize(); m != n+2 || more < bytes+2000 {
			t.Errorf("from %d events, %d bytes to %d events, %d bytes", n, bytes, m, more)
		}
		return fmt.Sprint("it grows; ", ctx.ShouldContinueAsNew()), nil
	}, nil)
}

func TestShouldContinueAsNew(t *testing.T) {
	gives(t, "after 9999 timers", func(ctx *oc, _ string) (string, error) {
		n := 0
		for ; !ctx.ShouldContinueAsNew(); n++ {
			ctx.Timer(time.Hour)
		}
		return fmt.Sprint("after ", n, " timers"), nil
	}, nil)
}

func TestWithCancel(t *testing.T) {
	gives(t, "<nil> cancelled cancelled cancelled cancelled x", func(ctx *oc, _ string) (string, error) {
		scoped, cancel := ctx.WithCancel()
		before, f := scoped.Err(), slow.Start(scoped, "x")
		cancel()
		cancel()
		_, err := f.Get(ctx)
		_, after := echo.Call(scoped, "x")
		send := knock.RaiseFrom(scoped, "other", "x")
		x, errX := echo.Call(ctx, "x")
		return fmt.Sprint(before, " ", kindOf(err), " ", kindOf(scoped.Err()), " ", kindOf(after), " ",
			kindOf(send), " ", x), errX
	}, nil)
}

func TestWithTimeout(t *testing.T) {
	gives(t, "timeout timeout <nil> after 1m0s", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		limited, cancel := ctx.WithTimeout(time.Minute)
		defer cancel()
		inner, cancelInner := limited.WithCancel()
		defer cancelInner()
		_, err := slow.Call(inner, "x")
		return fmt.Sprint(kindOf(err), " ", kindOf(inner.Err()), " ", ctx.Err(), " after ", ctx.Now().Sub(began)), nil
	}, nil)
	gives(t, "x in time", func(ctx *oc, _ string) (string, error) {
		limited, cancel := ctx.WithTimeout(time.Minute)
		x, err := echo.Call(limited, "x")
		cancel()
		if err := ctx.Sleep(time.Hour); err != nil {
			return "", err
		}
		return x + " in time", err
	}, nil)
	gives(t, "timeout", func(ctx *oc, _ string) (string, error) {
		limited, cancel := ctx.WithTimeout(0)
		defer cancel()
		return kindOf(limited.Sleep(time.Second)), nil
	}, nil)
}

func TestWithDeadline(t *testing.T) {
	gives(t, "timeout: the deadline 2026-01-01T00:01:00Z was reached, after 1m0s", func(ctx *oc, _ string) (string,
		error) {
		began := ctx.Now()
		limited, cancel := ctx.WithDeadline(began.Add(time.Minute))
		defer cancel()
		_, err := slow.Call(limited, "x")
		return fmt.Sprint(kindOf(err), ": ", failure.From(err).Message, ", after ", ctx.Now().Sub(began)), nil
	}, nil)
	gives(t, "x in time", func(ctx *oc, _ string) (string, error) {
		limited, cancel := ctx.WithDeadline(ctx.Now().Add(time.Minute))
		x, err := echo.Call(limited, "x")
		cancel()
		if err := ctx.Sleep(time.Hour); err != nil {
			return "", err
		}
		return x + " in time", err
	}, nil)
	for name, moment := range map[string]func(now time.Time) time.Time{
		"2025-12-31T23:59:59Z": func(now time.Time) time.Time { return now.Add(-time.Second) },
		"2025-12-31T23:59:58Z": func(now time.Time) time.Time { return now.Add(-2 * time.Second).Local() },
	} {
		gives(t, "timeout: the deadline "+name+" had passed already", func(ctx *oc, _ string) (string, error) {
			limited, cancel := ctx.WithDeadline(moment(ctx.Now()))
			defer cancel()
			err := limited.Sleep(time.Second)
			return fmt.Sprint(kindOf(err), ": ", failure.From(err).Message), nil
		}, nil)
	}
	gives(t, "timeout timeout", func(ctx *oc, _ string) (string, error) { // no moment that history can hold
		zero, cancel := ctx.WithDeadline(time.Time{})
		defer cancel()
		ancient, cancelAncient := ctx.WithDeadline(time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC))
		defer cancelAncient()
		return kindOf(zero.Sleep(time.Second)) + " " + kindOf(ancient.Sleep(time.Second)), nil
	}, nil)
	gives(t, "the time limit of -1s had passed already", func(ctx *oc, _ string) (string, error) {
		limited, cancel := ctx.WithTimeout(-time.Second)
		defer cancel()
		return failure.From(limited.Sleep(time.Second)).Message, nil
	}, nil)
}

func TestWaitingUntilADeadline(t *testing.T) {
	mail := orchestration.DefineMailbox[string]("mail")
	gives(t, "timeout timeout <nil> after 2m0s", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		_, noEvent := knock.WaitUntil(ctx, began.Add(time.Minute))
		_, noMail := mail.ReceiveUntil(ctx, began.Add(2*time.Minute))
		return fmt.Sprint(kindOf(noEvent), " ", kindOf(noMail), " ", ctx.Err(), " after ", ctx.Now().Sub(began)), nil
	}, nil)
	gives(t, "hello message", func(ctx *oc, _ string) (string, error) {
		deadline := ctx.Now().Add(time.Hour)
		event, err := knock.WaitUntil(ctx, deadline)
		if err != nil {
			return "", err
		}
		message, err := mail.ReceiveUntil(ctx, deadline)
		return event + " " + message, err
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		must(t, knock.Raise(t.Context(), env, h.ID, "hello"))
		must(t, mail.Send(t.Context(), env, h.ID, "message"))
	})
}

func TestWaitingWithATimeLimit(t *testing.T) {
	mail := orchestration.DefineMailbox[string]("mail")
	gives(t, "timeout timeout <nil> after 2m0s", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		_, noEvent := knock.WaitWithin(ctx, time.Minute)
		_, noMail := mail.ReceiveWithin(ctx, time.Minute)
		return fmt.Sprint(kindOf(noEvent), " ", kindOf(noMail), " ", ctx.Err(), " after ", ctx.Now().Sub(began)), nil
	}, nil)
	gives(t, "who? letter, an hour later: timeout", func(ctx *oc, _ string) (string, error) {
		who, err := knock.WaitWithin(ctx, time.Hour)
		if err != nil {
			return "", err
		}
		letter, err := mail.ReceiveWithin(ctx, time.Hour)
		if err != nil {
			return "", err
		}
		if err := ctx.Sleep(time.Hour); err != nil { // the time limits are over, and no wait ends with them
			return "", err
		}
		_, err = mail.ReceiveWithin(ctx, time.Hour)
		return who + " " + letter + ", an hour later: " + kindOf(err), nil
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		must(t, knock.Raise(t.Context(), env, h.ID, "who?"))
		must(t, mail.Send(t.Context(), env, h.ID, "letter"))
		env.Settle()
		env.Advance(3 * time.Hour)
	})
}

func TestCallAll(t *testing.T) {
	half := orchestration.Define[string, string]("half")
	gives(t, "[a b] [a b] <nil>, [] <nil>, [ b] 1 of 2", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		slowly, err := echo.CallAll(ctx, []string{"a", "b"}, activity.Retry(2))
		if err != nil {
			return "", err
		}
		children, err := half.CallAll(ctx, []string{"a", "b"})
		none, errNone := echo.CallAll(ctx, nil)
		some, failed := half.CallAll(ctx, []string{"bad", "b"})
		var partial *orchestration.PartialError
		if !errors.As(failed, &partial) || ctx.Now().Sub(began) > time.Minute {
			return "", failed
		}
		return fmt.Sprint(slowly, " ", children, " ", err, ", ", none, " ", errNone, ", ", some, " ",
			len(partial.Unwrap()), " of 2"), nil
	}, nil, half.Bind(func(ctx *oc, s string) (string, error) {
		if s == "bad" {
			return "", orchestration.Errorf("bad", "it is bad")
		}
		return echo.Call(ctx, s)
	}))
}

// What goes wrong when a cancelled instance cleans up is not forgotten, however it is returned.
func TestACancelledInstanceKeepsWhatWentWrong(t *testing.T) {
	undo := errors.New("the refund has failed")
	for _, returned := range []func(err error) error{
		func(error) error { return undo },
		func(err error) error { return errors.Join(err, undo) },
		func(err error) error { return fmt.Errorf("not shipped: %w", errors.Join(err, undo)) },
		func(err error) error { return fmt.Errorf("%w, and %w", undo, err) },
	} {
		_, err := run(t, func(ctx *oc, _ string) (string, error) {
			_, err := knock.Wait(ctx)
			return "", returned(err)
		}, cancelIt(t))
		var e *failure.Error
		if !errors.As(err, &e) || e.Kind != failure.Cancelled || e.Cause == nil ||
			!strings.Contains(e.Cause.Error(), "the refund has failed") {
			t.Errorf("got %v because of %v, want that it was cancelled and the refund has failed", err, e)
		}
	}
	_, err := run(t, func(ctx *oc, _ string) (string, error) {
		_, err := knock.Wait(ctx)
		return "", fmt.Errorf("stopped: %w", errors.Join(err, ctx.Err()))
	}, cancelIt(t))
	var e *failure.Error
	if !errors.As(err, &e) || e.Cause != nil {
		t.Errorf("got %v because of %v, want only that it was cancelled", err, e.Cause)
	}
}

func cancelIt(t *testing.T) world {
	return func(env *rondotest.Env, h orchestration.Handle[string]) {
		t.Helper()
		must(t, h.Cancel(t.Context(), "changed my mind"))
		env.Settle()
	}
}

func TestCancelledInstance(t *testing.T) {
	fails(t, orchestration.ErrCancelled, func(ctx *oc, _ string) (string, error) {
		before := ctx.Err()
		err := ctx.Sleep(time.Hour)
		if before != nil || !errors.Is(err, orchestration.ErrCancelled) ||
			!errors.Is(ctx.Err(), orchestration.ErrCancelled) {
			t.Errorf("got %v, %v, %v", before, err, ctx.Err())
		}
		if _, err := subject.Detach(ctx, "x"); !errors.Is(err, orchestration.ErrCancelled) {
			t.Errorf("detached: %v", err)
		}
		if _, err := orchestration.Go(ctx, func(*oc) (string, error) {
			return "ran", nil
		}).Get(ctx); !errors.Is(err, orchestration.ErrCancelled) {
			t.Errorf("a branch was started: %v", err)
		}
		return "as if nothing had happened", nil
	}, cancelIt(t), "changed my mind")
}

func TestShieldLastsItsTime(t *testing.T) {
	gives := func(want string, atMost time.Duration) {
		t.Helper()
		got := ""
		fails(t, orchestration.ErrCancelled, func(ctx *oc, _ string) (string, error) {
			err := ctx.Sleep(24 * time.Hour)
			shielded, done := ctx.Shield(atMost)
			defer done()
			v, undoErr := slow.Call(shielded, "undone")
			got = fmt.Sprint(v, " ", kindOf(undoErr), " ", kindOf(shielded.Err()))
			return "", err
		}, cancelIt(t))
		if got != want {
			t.Errorf("in %v: got %s, want %s", atMost, got, want)
		}
	}
	gives("undone <nil> <nil>", 2*time.Hour)
	gives(" cancelled cancelled", time.Minute)
}

func TestShieldOfWhatIsInFlight(t *testing.T) {
	got := ""
	fails(t, orchestration.ErrCancelled, func(ctx *oc, _ string) (string, error) {
		shielded, done := ctx.Shield(2 * time.Hour)
		defer done()
		v, err := slow.Call(shielded, "finished")
		got = fmt.Sprint(v, " ", err, " ", kindOf(ctx.Err()))
		return "", err
	}, cancelIt(t))
	if want := "finished <nil> cancelled"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPatchedWantsAName(t *testing.T) {
	for _, id := range []string{"", "\xff"} {
		fails(t, orchestration.OfType("invalid_call"), func(ctx *oc, _ string) (string, error) {
			return fmt.Sprint(ctx.Patched(id)), nil
		}, nil, "id of a patch")
	}
	gives(t, "true true", func(ctx *oc, _ string) (string, error) {
		return fmt.Sprint(ctx.Patched("a"), " ", ctx.Patched("a")), nil
	}, nil)
}

func TestContextUsedAfterTheEnd(t *testing.T) {
	var kept *oc
	gives(t, "", func(ctx *oc, _ string) (string, error) {
		kept = ctx
		_, err := echo.Call(ctx, "x")
		return "", err
	}, nil)
	said := make(chan string)
	go func() {
		defer func() { said <- fmt.Sprint(recover()) }()
		kept.NewID()
	}()
	if s := <-said; !strings.Contains(s, "after it ended") {
		t.Errorf("it panicked with %s", s)
	}
}

// A goroutine of the code panics at its first call, also while the branch that started it waits for
// a channel of its own, and so looks as if it made the call.
func TestContextUsedInAGoroutine(t *testing.T) {
	gives(t, "panics", func(ctx *oc, _ string) (string, error) {
		said := make(chan string)
		go func() {
			defer func() {
				if r := fmt.Sprint(recover()); strings.Contains(r, "from a goroutine of yours") {
					said <- "panics"
				} else {
					said <- r
				}
			}()
			s, err := echo.Call(ctx, "x")
			panic(fmt.Sprint(s, err))
		}()
		return <-said, nil
	}, nil)
}

func TestContextUsedElsewhere(t *testing.T) {
	fails(t, &failure.Error{Kind: failure.Panicked}, func(ctx *oc, _ string) (string, error) {
		return orchestration.Step(ctx, "s", func(context.Context) (string, error) { return ctx.NewID(), nil })
	}, nil, "used outside of its orchestration", "orchestration.Go")
}
