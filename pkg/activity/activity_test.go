package activity_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

var echo = activity.Define[string, string]("echo")

func same(_ context.Context, s string) (string, error) { return s, nil }

func mustSay(t *testing.T, err error, says ...string) {
	t.Helper()
	for _, s := range says {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("the error is %v\nwant it to say %s", err, s)
		}
	}
}

func TestRegistryTellsEverythingThatIsWrong(t *testing.T) {
	_, err := activity.NewRegistry(
		echo.Bind(same),
		echo.Bind(same),
		echo.Bind(nil),
		activity.Define[string, string]("rondo.mine").Bind(same),
		activity.Define[string, string](strings.Repeat("x", 200)).Bind(same),
		activity.Binding{},
		activity.Define[chan int, string]("waits").Bind(func(context.Context, chan int) (string, error) {
			return "", nil
		}),
	)
	mustSay(t, err,
		`activity "echo" is registered twice`,
		`activity "echo": it has no function`,
		`"rondo.mine": the prefix "rondo." is reserved`,
		"200 bytes are over the limit of 128",
		"activity name: it is empty",
		`activity "waits": the input has type chan int, and a chan cannot be stored`,
	)
	if n := strings.Count(err.Error(), "\n"); n != 6 {
		t.Errorf("%d lines below the first, want one for each that is wrong:\n%v", n, err)
	}
}

func TestRegistryFindsActivities(t *testing.T) {
	r, err := activity.NewRegistry(echo.Bind(same), activity.Define[string, string]("another").Bind(same))
	if err != nil {
		t.Fatal(err)
	}
	if names := r.Names(); !slices.Equal(names, []string{"another", "echo"}) {
		t.Errorf("names %q", names)
	}
	if b, ok := r.Lookup("echo"); !ok || b.Name() != echo.Name() {
		t.Errorf("found %q, %v", b.Name(), ok)
	}
	if _, ok := r.Lookup("nobody"); ok {
		t.Error("nobody is there")
	}
}

func TestRun(t *testing.T) {
	result, err := echo.Bind(same).Run(t.Context(), codec.JSON{}, codec.Payload(`"hello"`))
	if string(result) != `"hello"` || err != nil {
		t.Errorf("got %s, %v", result, err)
	}
	nothing := activity.Define[struct{}, struct{}]("nothing").Bind(func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, nil
	})
	if _, err := nothing.Run(t.Context(), codec.JSON{}, nil); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestRunGivesTheErrorAsItIs(t *testing.T) {
	for _, want := range []error{errors.New("no"), activity.ErrResultPending, activity.Errorf("typed", "no")} {
		b := echo.Bind(func(context.Context, string) (string, error) { return "ignored", want })
		if result, err := b.Run(t.Context(), codec.JSON{}, nil); err != want || result != nil {
			t.Errorf("got %s, %v, want %v", result, err, want)
		}
	}
}

func TestRunFails(t *testing.T) {
	text := func(fn func() string) activity.Binding {
		return echo.Bind(func(context.Context, string) (string, error) { return fn(), nil })
	}
	for name, c := range map[string]struct {
		binding activity.Binding
		input   string
		target  error
		final   bool
		says    string
	}{
		"input of another type": {echo.Bind(same), `5`, orchestration.OfType(orchestration.TypeMismatch), true,
			"its input is not what it takes: decode 5 into *string"},
		"panic": {text(func() string {
			panic("out of cheese")
		}), `""`, &failure.Error{Kind: failure.Panicked}, false, "panic: out of cheese"},
		"panic with an error": {text(func() string {
			panic(errors.New("oh"))
		}), `""`, &failure.Error{Kind: failure.Panicked}, false, "panic: oh"},
		"large result": {text(func() string {
			return strings.Repeat("x", events.MaxPayload)
		}), `""`, &failure.Error{Kind: failure.LimitExceeded}, true,
			`result of activity "echo" (bytes)`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.binding.Run(t.Context(), codec.JSON{}, codec.Payload(c.input))
			mustSay(t, err, c.says)
			var e *failure.Error
			if !errors.Is(err, c.target) || !errors.As(err, &e) || e.NonRetryable != c.final {
				t.Errorf("got %+v", err)
			}
			if e.Kind == failure.Panicked && !strings.Contains(e.Stack, "activity_test.go") {
				t.Errorf("the stack does not tell where it was: %s", e.Stack)
			}
		})
	}
	b := activity.Define[string, func()]("f").Bind(func(context.Context, string) (func(), error) {
		return func() {}, nil
	})
	_, err := b.Run(t.Context(), codec.JSON{}, nil)
	mustSay(t, err, "encode func()")
}
