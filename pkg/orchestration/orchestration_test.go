package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// What the tests share: an orchestration whose code each test brings, and a few contracts around
// it.
var (
	subject = orchestration.Define[string, string]("subject")
	echo    = activity.Define[string, string]("echo")
	slow    = activity.Define[string, string]("slow")
	knock   = orchestration.DefineEvent[string]("knock")
	letters = orchestration.DefineMailbox[string]("letters")
)

// parts are the activities: echo gives what it got, or the error that "bad …" asks for; slow does
// so an hour later.
func parts() []rondotest.Part {
	answer := func(_ context.Context, s string) (string, error) {
		if typ, bad := strings.CutPrefix(s, "bad "); bad {
			return "", activity.Errorf(typ, "no %s", typ)
		}
		return s, nil
	}
	return []rondotest.Part{echo.Bind(answer), rondotest.Takes(slow.Bind(answer), time.Hour)}
}

type (
	code  = func(ctx *orchestration.Context, in string) (string, error)
	world = func(env *rondotest.Env, h orchestration.Handle[string])
)

// run runs code as an instance, once kept in memory and once replayed before each round, with what
// the world does meanwhile. Both must end alike.
func run(t *testing.T, fn code, meanwhile world, more ...rondotest.Part) (string, error) {
	t.Helper()
	var outs []string
	var errs []error
	for _, mode := range [][]rondotest.Part{nil, {rondotest.Cold()}} {
		all := append(append(parts(), mode...), more...)
		env := rondotest.New(t, append(all, subject.Bind(fn))...)
		h, err := subject.Start(t.Context(), env, "in", orchestration.ID("i"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if meanwhile != nil {
			meanwhile(env, h)
		}
		out, err := h.Wait(t.Context())
		outs, errs = append(outs, out), append(errs, err)
	}
	if outs[0] != outs[1] || fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
		t.Errorf("in memory it gives %q, %v\nreplayed it gives %q, %v", outs[0], errs[0], outs[1], errs[1])
	}
	return outs[0], errs[0]
}

// gives checks that code ends with an output.
func gives(t *testing.T, want string, fn code, meanwhile world, more ...rondotest.Part) {
	t.Helper()
	if got, err := run(t, fn, meanwhile, more...); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// fails checks that code ends with an error of a kind (and type, if the target has one) that says
// some things.
func fails(t *testing.T, target error, fn code, meanwhile world, says ...string) {
	t.Helper()
	_, err := run(t, fn, meanwhile)
	if !errors.Is(err, target) {
		t.Errorf("got %v, want an error of another kind: %+v", err, target)
	}
	mustSay(t, err, says...)
}

func mustSay(t *testing.T, err error, says ...string) {
	t.Helper()
	for _, s := range says {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("the error is %v\nwant it to say %s", err, s)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
