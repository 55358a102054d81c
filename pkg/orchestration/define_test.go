package orchestration_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
	"github.com/rondo-run/rondo/pkg/round"
)

var kid = orchestration.Define[string, string]("kid")

func TestBadCallsAreErrorsOfTheCode(t *testing.T) {
	for name, c := range map[string]struct {
		call func(ctx *oc) error
		says string
	}{
		"activity name": {func(ctx *oc) error {
			_, err := activity.Define[int, int]("rondo.x").Call(ctx, 1)
			return err
		}, `the prefix "rondo." is reserved`},
		"activity input": {func(ctx *oc) error {
			_, err := activity.Define[func(), int]("x").Call(ctx, nil)
			return err
		}, `encode func()`},
		"child name": {func(ctx *oc) error {
			_, err := orchestration.Define[int, int]("").Call(ctx, 1)
			return err
		}, "orchestration name: it is empty"},
		"child id": {func(ctx *oc) error {
			_, err := kid.Call(ctx, "x", orchestration.ID("a~1.2"))
			return err
		}, "reserved for the ids of children"},
		"empty child id": {func(ctx *oc) error {
			_, err := kid.Call(ctx, "x", orchestration.ID(""))
			return err
		}, "instance id: it is empty"},
		"child version": {func(ctx *oc) error {
			_, err := kid.Call(ctx, "x", orchestration.Version("one"))
			return err
		}, `version "one"`},
		"child input": {func(ctx *oc) error {
			_, err := orchestration.Define[func(), int]("x").Call(ctx, nil)
			return err
		}, `encode func()`},
		"detached id": {func(ctx *oc) error {
			_, err := kid.Detach(ctx, "x", orchestration.ID("\n"))
			return err
		}, "does not print"},
		"detached version": {func(ctx *oc) error {
			_, err := kid.Detach(ctx, "x", orchestration.Version("1"))
			return err
		}, `version "1"`},
		"continue name": {func(ctx *oc) error {
			_, err := orchestration.Define[int, int]("").ContinueAsNew(ctx, 1)
			return err
		}, "orchestration name: it is empty"},
		"continue version": {func(ctx *oc) error {
			_, err := kid.ContinueAsNew(ctx, "x", orchestration.Version("1"))
			return err
		}, `version "1"`},
		"event name": {func(ctx *oc) error {
			_, err := orchestration.DefineEvent[int]("").Wait(ctx)
			return err
		}, "event name: it is empty"},
		"event to whom": {func(ctx *oc) error { return knock.RaiseFrom(ctx, "", "x") }, "instance id: it is empty"},
		"event data": {func(ctx *oc) error {
			return orchestration.DefineEvent[func()]("e").RaiseFrom(ctx, "other", nil)
		}, "encode func()"},
		"mailbox name": {func(ctx *oc) error {
			_, err := orchestration.DefineMailbox[int]("").Receive(ctx)
			return err
		}, "mailbox name: it is empty"},
		"name of what sent": {func(ctx *oc) error {
			return orchestration.DefineMailbox[int]("rondo.q").SendFrom(ctx, "other", 1)
		}, `the prefix "rondo." is reserved`},
		"value of whom": {func(ctx *oc) error {
			_, err := orchestration.DefineValue[int]("k").ReadFrom(ctx, "").Get(ctx)
			return err
		}, "instance id: it is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, func(ctx *oc, _ string) (string, error) {
				if err := c.call(ctx); err != nil {
					return "", fmt.Errorf("%s: %w", name, err)
				}
				return "it was taken", nil
			}, nil)
			mustSay(t, err, name, c.says)
		})
	}
}

func TestInputOfAnotherType(t *testing.T) {
	fails(t, orchestration.OfType(orchestration.TypeMismatch), func(ctx *oc, _ string) (string, error) {
		_, err := orchestration.Define[int, string]("subject").Call(ctx, 7)
		return "", err
	}, nil, `orchestration "subject": invalid input`, "decode 7 into *string")
}

func TestOutputOfAnotherType(t *testing.T) {
	env := rondotest.New(t,
		subject.Bind(func(ctx *oc, _ string) (string, error) {
			n, err := orchestration.Define[string, int]("kid").Call(ctx, "x")
			return fmt.Sprint(n), err
		}),
		kid.Bind(func(*oc, string) (string, error) { return "five", nil }),
	)
	h, err := subject.Start(t.Context(), env, "in")
	must(t, err)
	_, err = h.Wait(t.Context())
	mustSay(t, err, `orchestration "kid": decode "five" into *int`)
	if !errors.Is(err, orchestration.OfType(orchestration.TypeMismatch)) {
		t.Errorf("got %v", err)
	}
}

func TestOutputThatCannotBeEncoded(t *testing.T) {
	d := orchestration.Define[string, complex128]("subject")
	env := rondotest.New(t, d.Bind(func(*oc, string) (complex128, error) { return 1i, nil }))
	h, err := d.Start(t.Context(), env, "in")
	must(t, err)
	_, err = h.Wait(t.Context())
	mustSay(t, err, "encode complex128")
}

// patient is a child that waits for a knock.
var patient = kid.Bind(func(ctx *oc, s string) (string, error) { return knock.Wait(ctx) })

func TestChildEndsWithItsParentUnlessAbandoned(t *testing.T) {
	const never = round.Status("")
	abandon := []orchestration.ChildOption{orchestration.Abandon()}
	for name, c := range map[string]struct {
		opts []orchestration.ChildOption
		stay time.Duration
		want round.Status
	}{
		"bound":     {nil, time.Minute, round.Cancelled},
		"abandoned": {abandon, time.Minute, round.Running},
		// The parent ends in the round in which it starts the child.
		"bound, at once":     {nil, 0, never},
		"abandoned, at once": {abandon, 0, round.Running},
	} {
		t.Run(name, func(t *testing.T) {
			var env *rondotest.Env
			gives(t, "done", func(ctx *oc, _ string) (string, error) {
				kid.StartChild(ctx, "x", append(c.opts, orchestration.ID("kid"))...)
				if c.stay == 0 {
					return "done", nil
				}
				return "done", ctx.Sleep(c.stay)
			}, func(e *rondotest.Env, _ orchestration.Handle[string]) {
				env = e
				e.Advance(time.Hour)
			}, patient)
			if row, _ := env.Instance("kid"); row.Status != string(c.want) {
				t.Errorf("the child is %s, want %s", row.Status, c.want)
			}
		})
	}
}

func TestChildWithAnIDInUse(t *testing.T) {
	fails(t, orchestration.ErrConflict, func(ctx *oc, _ string) (string, error) {
		return kid.Call(ctx, "x", orchestration.ID("i"))
	}, nil, `instance id "i" is already in use`)
}

func TestChildFromOutside(t *testing.T) {
	for target, end := range map[error]func(orchestration.Handle[string]) error{
		orchestration.ErrTerminated: func(h orchestration.Handle[string]) error {
			return h.Terminate(t.Context(), "enough")
		},
		orchestration.ErrCancelled: func(h orchestration.Handle[string]) error {
			return h.Cancel(t.Context(), "enough")
		},
	} {
		_, err := run(t, func(ctx *oc, _ string) (string, error) { return kid.Call(ctx, "x", orchestration.ID("kid")) },
			func(env *rondotest.Env, _ orchestration.Handle[string]) { must(t, end(kid.Handle(env, "kid"))) }, patient)
		if !errors.Is(err, target) {
			t.Errorf("got %v", err)
		}
		mustSay(t, err, `orchestration "kid"`, "enough")
	}
}

func TestChildOfAVersion(t *testing.T) {
	say := func(s string, opts ...orchestration.BindOption) orchestration.Binding {
		return kid.Bind(func(ctx *oc, _ string) (string, error) { return s + ctx.Version(), nil }, opts...)
	}
	var env *rondotest.Env
	gives(t, "new2.0.0 old1.0.0 kid-2", func(ctx *oc, _ string) (string, error) {
		newest, err := kid.Call(ctx, "x")
		if err != nil {
			return "", err
		}
		first, err := kid.Call(ctx, "x", orchestration.Version("1.0.0"))
		if err != nil {
			return "", err
		}
		id, err := kid.Detach(ctx, "x", orchestration.ID("kid-2"), orchestration.Version("1.0.0"))
		if err != nil {
			return "", err
		}
		return fmt.Sprint(newest, " ", first, " ", id), nil
	}, func(e *rondotest.Env, _ orchestration.Handle[string]) { env = e },
		say("old"), say("new", orchestration.Version("2.0.0")))
	if out, err := kid.Handle(env, "kid-2").Wait(t.Context()); out != "old1.0.0" || err != nil {
		t.Errorf("the detached one gives %q, %v", out, err)
	}
}

func TestGeneratedIDs(t *testing.T) {
	var env *rondotest.Env
	gives(t, "true", func(ctx *oc, _ string) (string, error) {
		id, err := kid.Detach(ctx, "x")
		if err != nil {
			return "", err
		}
		_, err = kid.Call(ctx, "x")
		return fmt.Sprint(strings.HasPrefix(id, "i~")), err
	}, func(e *rondotest.Env, _ orchestration.Handle[string]) { env = e },
		kid.Bind(func(ctx *oc, s string) (string, error) { return s, nil }))
	ids := env.Instances()
	if len(ids) != 3 || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 3 {
		t.Errorf("instances %q", ids)
	}
}

func TestContinueAsNewTakesThingsAlong(t *testing.T) {
	sum, stage := orchestration.DefineValue[int]("sum"), orchestration.DefineStatus[string]()
	gives(t, "execution 3, sum 6, status second, 1 unread", func(ctx *oc, in string) (string, error) {
		n, _, err := sum.Get(ctx)
		if err != nil {
			return "", err
		}
		if in == "third" {
			s, _, err := stage.Get(ctx)
			return fmt.Sprintf("execution %d, sum %d, status %s, %d unread", ctx.Execution(), n, s, letters.Len(ctx)),
				err
		}
		if err := ctx.Sleep(time.Minute); err != nil { // all messages arrive meanwhile
			return "", err
		}
		letter, err := letters.Receive(ctx)
		if err != nil {
			return "", err
		}
		sum.Set(ctx, n+len(letter))
		next := map[string]string{"in": "second", "second": "third"}[in]
		stage.Set(ctx, in)
		return subject.ContinueAsNew(ctx, next)
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		for _, letter := range []string{"a", "bcdef", "unread"} {
			must(t, letters.Send(t.Context(), env, h.ID, letter))
		}
	})
}

func TestContinueAsNewFromABranch(t *testing.T) {
	gives(t, "second", func(ctx *oc, in string) (string, error) {
		if in == "second" {
			return in, nil
		}
		out, err := orchestration.Go(ctx, func(ctx *oc) (string, error) {
			return subject.ContinueAsNew(ctx, "second")
		}).Get(ctx)
		return out, errors.Join(errors.New("wrapped"), err)
	}, nil)
}

func TestErrorsOfOrchestrations(t *testing.T) {
	err := orchestration.Errorf("no_stock", "only %d left", 3)
	if err.Error() != "only 3 left" || !errors.Is(err, orchestration.OfType("no_stock")) ||
		errors.Is(err, orchestration.OfType("other")) {
		t.Errorf("got %v", err)
	}
	wrapped := fmt.Errorf("order 7: %w", err)
	var e *failure.Error
	if !errors.As(wrapped, &e) || e.Kind != failure.Application || e.Type != "no_stock" {
		t.Errorf("got %+v", e)
	}
	for _, sentinel := range []error{orchestration.ErrCancelled, orchestration.ErrTimeout, orchestration.ErrTerminated,
		orchestration.ErrConflict} {
		if errors.Is(err, sentinel) {
			t.Errorf("%v is %v", err, sentinel)
		}
	}
}
