package orchestration_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestChildrenHaveAttributes(t *testing.T) {
	var env *rondotest.Env
	first, second := map[string]string{"region": "eu"}, map[string]string{"region": "us"}
	gives(t, "", func(ctx *oc, _ string) (string, error) {
		_, err := kid.CallAll(ctx, []string{"a", "b"}, orchestration.Attributes(first),
			orchestration.Attributes(second))
		return "", err
	}, func(e *rondotest.Env, _ orchestration.Handle[string]) { env = e },
		kid.Bind(func(*oc, string) (string, error) { return "", nil }))
	for _, id := range env.Instances()[1:] {
		if row, _ := env.Instance(id); !maps.Equal(row.Attributes, second) {
			t.Errorf("the attributes of %s are %v, want the last ones", id, row.Attributes)
		}
	}
	if row, _ := env.Instance("i"); len(env.Instances()) != 3 || row.Attributes != nil {
		t.Errorf("instances %v, the parent has %v", env.Instances(), row.Attributes)
	}
}

// TestDetachedStartIsDelayed detaches instances before a continue-as-new, and reads the clock again
// in each replay.
func TestDetachedStartIsDelayed(t *testing.T) {
	var env *rondotest.Env
	gives(t, "", func(ctx *oc, in string) (string, error) {
		if in == "next" {
			return "", ctx.Sleep(time.Minute)
		}
		for _, c := range []struct {
			id   string
			opts []orchestration.DetachOption
		}{
			{"now", []orchestration.DetachOption{orchestration.Delay(-time.Hour)}},
			{"past", []orchestration.DetachOption{orchestration.At(ctx.Now().Add(-200 * 365 * 24 * time.Hour))}},
			{"last", []orchestration.DetachOption{orchestration.Delay(time.Hour), orchestration.At(ctx.Now())}},
			{"hour", []orchestration.DetachOption{orchestration.Delay(time.Hour)}},
			{"week", []orchestration.DetachOption{orchestration.At(ctx.Now().Add(7 * 24 * time.Hour))}},
		} {
			if _, err := kid.Detach(ctx, "x", append(c.opts, orchestration.ID(c.id))...); err != nil {
				return "", err
			}
		}
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		return subject.ContinueAsNew(ctx, "next")
	}, func(e *rondotest.Env, h orchestration.Handle[string]) {
		env = e
		_, _ = h.Wait(t.Context()) // which run checks
		began, _ := env.Instance("now")
		env.Advance(8 * 24 * time.Hour)
		for id, delay := range map[string]time.Duration{"now": 0, "past": 0, "last": 0, "hour": time.Hour,
			"week": 7 * 24 * time.Hour} {
			if row, ok := env.Instance(id); !ok || row.StartedAt.Sub(began.StartedAt) != delay {
				t.Errorf("%s has started (%v) after %v, want %v", id, ok, row.StartedAt.Sub(began.StartedAt), delay)
			}
		}
	}, kid.Bind(func(*oc, string) (string, error) { return "", nil }))
}

// TestDetachedStartOfAnExistingID detaches to an id that runs, and to one that has ended.
func TestDetachedStartOfAnExistingID(t *testing.T) {
	for name, c := range map[string]struct {
		opts       []orchestration.DetachOption
		runs, over string // the inputs that end up in the output
	}{
		"nothing":         {nil, "first", "first"},
		"UseExisting":     {[]orchestration.DetachOption{orchestration.UseExisting()}, "first", "first"},
		"RestartFinished": {[]orchestration.DetachOption{orchestration.RestartFinished()}, "first", "second"},
		"ReplaceRunning":  {[]orchestration.DetachOption{orchestration.ReplaceRunning()}, "second", "second"},
		"the last one": {[]orchestration.DetachOption{orchestration.ReplaceRunning(), orchestration.UseExisting()},
			"first", "first"},
		"delayed": {[]orchestration.DetachOption{orchestration.Delay(time.Second), orchestration.ReplaceRunning()},
			"second", "second"},
	} {
		t.Run(name, func(t *testing.T) {
			gives(t, "", func(ctx *oc, _ string) (string, error) {
				_, err := kid.Detach(ctx, "first", orchestration.ID("runs"))
				if err == nil {
					_, err = kid.Detach(ctx, "first", orchestration.ID("over"))
				}
				if err = errors.Join(err, ctx.Sleep(time.Minute), knock.RaiseFrom(ctx, "over", "x"),
					ctx.Sleep(time.Minute)); err != nil {
					return "", err
				}
				for _, id := range []string{"runs", "over"} {
					opts := append([]orchestration.DetachOption{orchestration.ID(id)}, c.opts...)
					if got, err := kid.Detach(ctx, "second", opts...); got != id || err != nil {
						return got, err
					}
				}
				return "", ctx.Sleep(time.Minute)
			}, func(env *rondotest.Env, h orchestration.Handle[string]) {
				_, _ = h.Wait(t.Context()) // which run checks
				for id, want := range map[string]string{"runs": c.runs, "over": c.over} {
					_ = knock.Raise(t.Context(), env, id, "x")
					if out, err := kid.Handle(env, id).Wait(t.Context()); out != want || err != nil {
						t.Errorf("%s gives %q, %v, want %q", id, out, err, want)
					}
				}
			}, kid.Bind(func(ctx *oc, in string) (string, error) {
				_, err := knock.Wait(ctx)
				return in, err
			}))
		})
	}
}

func TestDetachedStartBringsMessages(t *testing.T) {
	gives(t, "i~1.2", func(ctx *oc, _ string) (string, error) {
		return kid.Detach(ctx, "dear ", orchestration.WithMessage(letters, "john"),
			orchestration.WithMessage(letters, "ann"), orchestration.Attributes(map[string]string{"a": "b"}))
	}, func(env *rondotest.Env, _ orchestration.Handle[string]) {
		out, err := kid.Handle(env, "i~1.2").Wait(t.Context())
		if row, _ := env.Instance("i~1.2"); out != "dear john 1" || err != nil || row.Attributes["a"] != "b" {
			t.Errorf("got %q, %v, attributes %v", out, err, row.Attributes)
		}
	}, kid.Bind(func(ctx *oc, in string) (string, error) {
		name, ok, err := letters.TryReceive(ctx)
		if !ok {
			return "no letter", err
		}
		return fmt.Sprint(in, name, " ", letters.Len(ctx)), err
	}))
}

// TestOptionsThatCannotBeUsed has errors that the call gives at once, and leaves no event.
func TestOptionsThatCannotBeUsed(t *testing.T) {
	many := make(map[string]string)
	for i := range 33 {
		many[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		call func(ctx *oc) error
		says string
	}{
		"attributes of a child": {func(ctx *oc) error {
			_, err := kid.Call(ctx, "x", orchestration.Attributes(many))
			return err
		}, "attributes: 33 is over the limit of 32"},
		"attribute": {func(ctx *oc) error {
			_, err := kid.Detach(ctx, "x", orchestration.Attributes(map[string]string{"a": "\n"}))
			return err
		}, `attribute "a": its value must be printable`},
		"delay": {func(ctx *oc) error {
			_, err := kid.Detach(ctx, "x", orchestration.Delay(200*365*24*time.Hour))
			return err
		}, "delay of a start (seconds)"},
		"moment": {func(ctx *oc) error {
			_, err := kid.Detach(ctx, "x", orchestration.At(time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)))
			return err
		}, "delay of a start (seconds)"},
		"mailbox": {func(ctx *oc) error {
			_, err := kid.Detach(ctx, "x", orchestration.WithMessage(orchestration.DefineMailbox[string](""), "x"))
			return err
		}, "mailbox name: it is empty"},
		"message": {func(ctx *oc) error {
			_, err := kid.Detach(ctx, "x", orchestration.WithMessage(orchestration.DefineMailbox[func()]("q"), nil))
			return err
		}, "encode func()"},
	} {
		t.Run(name, func(t *testing.T) {
			gives(t, "3", func(ctx *oc, _ string) (string, error) {
				err := c.call(ctx)
				if !errors.Is(err, orchestration.OfType(orchestration.InvalidCall)) {
					t.Errorf("got %v, want an invalid call", err)
				}
				mustSay(t, err, c.says, `orchestration "kid"`)
				events, _ := ctx.HistorySize()
				return fmt.Sprint(events + 2), nil
			}, nil)
		})
	}
}
