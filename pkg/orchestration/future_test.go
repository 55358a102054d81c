package orchestration_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

type (
	future = orchestration.Future[string]
	oc     = orchestration.Context
)

func TestAllKeepsTheOrder(t *testing.T) {
	gives(t, "[slow b c]", func(ctx *oc, _ string) (string, error) {
		all, err := orchestration.All(ctx, slow.Start(ctx, "slow"), echo.Start(ctx, "b"), echo.Start(ctx, "c")).Get(ctx)
		return fmt.Sprint(all), err
	}, nil)
}

func TestAllTellsWhichFailed(t *testing.T) {
	gives(t, `["a" "" "c" ""]`, func(ctx *oc, _ string) (string, error) {
		all, err := orchestration.All(ctx, echo.Start(ctx, "a"), slow.Start(ctx, "bad luck"), slow.Start(ctx, "c"),
			echo.Start(ctx, "bad timing")).Get(ctx)
		mustSay(t, err, `2 of 4 failed; the first was future 1: activity "slow": no luck`)
		for _, typ := range []string{"luck", "timing"} {
			if !errors.Is(err, orchestration.OfType(typ)) {
				t.Errorf("%s cannot be told from %v", typ, err)
			}
		}
		var e *failure.Error
		if !errors.As(err, &e) || e.Source != `activity "slow"` {
			t.Errorf("got %+v", e)
		}
		return fmt.Sprintf("%q", all), nil
	}, nil)
}

func TestAllOfNothing(t *testing.T) {
	gives(t, "[] <nil>, [] <nil>, cancelled", func(ctx *oc, _ string) (string, error) {
		a, errA := orchestration.All[string](ctx).Get(ctx)
		b, errB := orchestration.AllOrNone[string](ctx).Get(ctx)
		c, errC := orchestration.Race[string](ctx).Get(ctx)
		for range orchestration.AsCompleted[string](ctx) {
			t.Error("something was completed")
		}
		if ctx.Race() != nil || ctx.Select() != nil {
			t.Error("nothing has come first")
		}
		ctx.WaitAll()
		return fmt.Sprintf("%v %v, %v %v, %s%v", a, errA, b, errB, c, errC), nil
	}, nil)
}

func TestAllOrNoneGivesTheFirstFailure(t *testing.T) {
	gives(t, `[] activity "echo": no luck; the other was cancelled at once`, func(ctx *oc, _ string) (string, error) {
		began, other := ctx.Now(), slow.Start(ctx, "x")
		all, err := orchestration.AllOrNone(ctx, other, echo.Start(ctx, "bad luck"),
			slow.Start(ctx, "bad timing")).Get(ctx)
		if !errors.Is(err, orchestration.OfType("luck")) {
			return "", err
		}
		if _, cancelled := other.Get(ctx); !errors.Is(cancelled, orchestration.ErrCancelled) ||
			ctx.Now().Sub(began) > time.Minute {
			t.Errorf("the other gives %v after %v", cancelled, ctx.Now().Sub(began))
		}
		return fmt.Sprint(all, " ", err, "; the other was cancelled at once"), nil
	}, nil)
}

func TestRaceTakesTheFirstBeItAFailure(t *testing.T) {
	gives(t, "fast", func(ctx *oc, _ string) (string, error) {
		return orchestration.Race(ctx, slow.Start(ctx, "slow"), echo.Start(ctx, "fast")).Get(ctx)
	}, nil)
	fails(t, orchestration.OfType("luck"), func(ctx *oc, _ string) (string, error) {
		return orchestration.Race(ctx, slow.Start(ctx, "slow"), echo.Start(ctx, "bad luck")).Get(ctx)
	}, nil)
}

func TestRaceAmongThoseThatAreThere(t *testing.T) {
	gives(t, "a", func(ctx *oc, _ string) (string, error) {
		a, b := echo.Start(ctx, "a"), echo.Start(ctx, "b")
		ctx.WaitAll(a, b)
		return orchestration.Race(ctx, b, a).Get(ctx)
	}, nil)
}

func TestAsCompletedInTheOrderOfTime(t *testing.T) {
	gives(t, "1:b 2:b 0:a ", func(ctx *oc, _ string) (string, error) {
		a, b := slow.Start(ctx, "a"), echo.Start(ctx, "b")
		out := ""
		for i, f := range orchestration.AsCompleted(ctx, a, b, b) {
			v, err := f.Get(ctx)
			if err != nil {
				return "", err
			}
			out += fmt.Sprint(i, ":", v, " ")
		}
		return out, nil
	}, nil)
}

func TestAsCompletedLeftEarlyCancelsNothing(t *testing.T) {
	gives(t, "a", func(ctx *oc, _ string) (string, error) {
		a, b := slow.Start(ctx, "a"), echo.Start(ctx, "b")
		for range orchestration.AsCompleted(ctx, a, b) {
			break
		}
		return a.Get(ctx)
	}, nil)
}

func TestMap(t *testing.T) {
	gives(t, "7 then 8", func(ctx *oc, _ string) (string, error) {
		n := orchestration.Map(echo.Start(ctx, "7"), strconv.Atoi)
		next := orchestration.Map(n, func(n int) (int, error) { return n + 1, nil })
		a, err := n.Get(ctx)
		if err != nil {
			return "", err
		}
		b, err := next.Get(ctx)
		return fmt.Sprint(a, " then ", b), err
	}, nil)
	fails(t, &failure.Error{Kind: failure.Application}, func(ctx *oc, _ string) (string, error) {
		_, err := orchestration.Map(echo.Start(ctx, "seven"), strconv.Atoi).Get(ctx)
		return "", err
	}, nil, `parsing "seven"`)
	fails(t, orchestration.OfType("luck"), func(ctx *oc, _ string) (string, error) {
		_, err := orchestration.Map(echo.Start(ctx, "bad luck"), func(string) (int, error) {
			t.Error("an error was mapped")
			return 0, nil
		}).Get(ctx)
		return "", err
	}, nil)
}

func TestMappedFutureIsTheSameForSelect(t *testing.T) {
	gives(t, "5", func(ctx *oc, _ string) (string, error) {
		length := orchestration.Map(echo.Start(ctx, "short"), func(s string) (int, error) { return len(s), nil })
		switch ctx.Race(slow.Start(ctx, "x"), length) {
		case length:
			n, err := length.Get(ctx)
			return fmt.Sprint(n), err
		}
		return "the other one", nil
	}, nil)
}

func TestSelectCancelsTheOthers(t *testing.T) {
	gives(t, "true, and the other was cancelled", func(ctx *oc, _ string) (string, error) {
		a, b := slow.Start(ctx, "a"), echo.Start(ctx, "b")
		first := ctx.Race(a, b)
		if _, err := a.Get(ctx); !errors.Is(err, orchestration.ErrCancelled) || !a.Done() {
			t.Errorf("the other one gives %v", err)
		}
		return fmt.Sprint(first == b, ", and the other was cancelled"), nil
	}, nil)
}

func TestSelectOfTheSameTwice(t *testing.T) {
	gives(t, "a", func(ctx *oc, _ string) (string, error) {
		a := echo.Start(ctx, "a")
		if ctx.Race(a, a) != a {
			t.Error("it is not it")
		}
		return a.Get(ctx)
	}, nil)
}

func TestSelectGivesWhatCameFirst(t *testing.T) {
	gives(t, "b", func(ctx *oc, _ string) (string, error) {
		a, b := knock.Next(ctx), letters.Next(ctx)
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		switch ctx.Race(a, b) {
		case a:
			return "a", nil
		case b:
			return "b", nil
		}
		return "neither", nil
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		must(t, letters.Send(t.Context(), env, h.ID, "first"))
		must(t, knock.Raise(t.Context(), env, h.ID, "second"))
	})
}

func TestWaitAnyCancelsNothing(t *testing.T) {
	gives(t, "true a b", func(ctx *oc, _ string) (string, error) {
		a, b := slow.Start(ctx, "a"), echo.Start(ctx, "b")
		first := ctx.Select(a, b)
		x, errA := a.Get(ctx)
		y, errB := b.Get(ctx)
		return fmt.Sprint(first == b, " ", x, " ", y), errors.Join(errA, errB)
	}, nil)
}

func TestWaitAllOfDifferentTypes(t *testing.T) {
	gives(t, "true true true an hour later", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		a, b, c := slow.Start(ctx, "a"), ctx.Timer(time.Second),
			orchestration.Map(echo.Start(ctx, "bad luck"), strconv.Atoi)
		if a.Done() || b.Done() || c.Done() {
			t.Error("it is done already")
		}
		ctx.WaitAll(a, b, c)
		if ctx.Now().Sub(began) != time.Hour {
			t.Errorf("it is %v later", ctx.Now().Sub(began))
		}
		return fmt.Sprint(a.Done(), b.Done(), c.Done(), " an hour later"), nil
	}, nil)
}

func TestGetAgainGivesTheSame(t *testing.T) {
	type list struct{ Items []string }
	lists := activity.Define[string, list]("echo")
	gives(t, `{[a b]} {[changed b]}`, func(ctx *oc, _ string) (string, error) {
		f := orchestration.Map(echo.Start(ctx, "x"), func(string) (list, error) {
			return list{[]string{"a", "b"}}, nil
		})
		changed, err := f.Get(ctx)
		if err != nil {
			return "", err
		}
		changed.Items[0] = "changed"
		again, err := f.Get(ctx)
		return fmt.Sprint(again, changed), err
	}, nil)
	fails(t, orchestration.OfType(orchestration.TypeMismatch), func(ctx *oc, _ string) (string, error) {
		_, err := lists.Call(ctx, "x")
		return "", err
	}, nil, `activity "echo": decode "x" into *orchestration_test.list`)
}

func TestCancelledFuture(t *testing.T) {
	child := orchestration.Define[string, string]("child")
	var env *rondotest.Env
	gives(t, "cancelled cancelled", func(ctx *oc, _ string) (string, error) {
		work, kid := slow.Start(ctx, "x"), child.StartChild(ctx, "x", orchestration.ID("kid"))
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		out := ""
		for _, f := range []*future{work, kid} {
			f.Cancel(ctx)
			f.Cancel(ctx)
			if _, err := f.Get(ctx); errors.Is(err, orchestration.ErrCancelled) {
				out += " cancelled"
			}
		}
		return out[1:], nil
	}, func(e *rondotest.Env, _ orchestration.Handle[string]) {
		env = e
		e.Advance(time.Hour)
	}, child.Bind(func(ctx *oc, s string) (string, error) { return knock.Wait(ctx) }))
	if row, _ := env.Instance("kid"); row.Status != "cancelled" {
		t.Errorf("the child is %s", row.Status)
	}
	if kinds := env.Kinds("i"); slices.Contains(kinds, events.KindActivityCompleted) {
		t.Errorf("the activity was executed: %v", kinds)
	}
}

func TestGo(t *testing.T) {
	gives(t, "x1 y1 x2 y2", func(ctx *oc, _ string) (string, error) {
		log := ""
		branch := func(name string) *future {
			return orchestration.Go(ctx, func(ctx *oc) (string, error) {
				for i := 1; i <= 2; i++ {
					s, err := echo.Call(ctx, fmt.Sprint(name, i))
					if err != nil {
						return "", err
					}
					log += " " + s
				}
				return name, nil
			})
		}
		_, err := orchestration.All(ctx, branch("x"), branch("y")).Get(ctx)
		return log[1:], err
	}, nil)
}

func TestGoGivesValueAndError(t *testing.T) {
	gives(t, "partial, with no luck", func(ctx *oc, _ string) (string, error) {
		v, err := orchestration.Go(ctx, func(*oc) (string, error) { return "partial", errors.New("no luck") }).Get(ctx)
		return fmt.Sprint(v, ", with ", err), nil
	}, nil)
}

func TestBranchCancelsWhatItLeaves(t *testing.T) {
	gives(t, "after 0s: cancelled", func(ctx *oc, _ string) (string, error) {
		began := ctx.Now()
		left, err := orchestration.Go(ctx, func(ctx *oc) (*future, error) {
			return slow.Start(ctx, "left behind"), nil
		}).Get(ctx)
		if err != nil {
			return "", err
		}
		_, err = left.Get(ctx)
		return fmt.Sprintf("after %v: %s", ctx.Now().Sub(began), kindOf(err)), nil
	}, nil)
}

func TestPanicInABranchFailsTheInstance(t *testing.T) {
	fails(t, &failure.Error{Kind: failure.Panicked}, func(ctx *oc, _ string) (string, error) {
		orchestration.Go(ctx, func(*oc) (string, error) { panic("out of cheese") })
		return slow.Call(ctx, "x")
	}, nil, "panic: out of cheese")
}

// kindOf is the kind of an error, for comparing.
func kindOf(err error) string {
	var e *failure.Error
	if errors.As(err, &e) {
		return string(e.Kind)
	}
	return fmt.Sprint(err)
}
