package orchestration_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestEventGoesToTheOldestWait(t *testing.T) {
	gives(t, "first second", func(ctx *oc, _ string) (string, error) {
		a, b := knock.Next(ctx), knock.Next(ctx)
		y, errB := b.Get(ctx)
		x, errA := a.Get(ctx)
		return x + " " + y, errors.Join(errA, errB)
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		must(t, knock.Raise(t.Context(), env, h.ID, "first"))
		must(t, knock.Raise(t.Context(), env, h.ID, "second"))
	})
}

func TestEventThatNobodyWaitsForIsDropped(t *testing.T) {
	gives(t, "late", func(ctx *oc, _ string) (string, error) {
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		return knock.Wait(ctx)
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		must(t, knock.Raise(t.Context(), env, h.ID, "early"))
		env.Advance(time.Hour)
		must(t, knock.Raise(t.Context(), env, h.ID, "late"))
	})
}

// TestDataOfAnotherType sends something of a wrong type, then of the right one: the first is
// refused, and its sender told; the instance goes on waiting.
func TestDataOfAnotherType(t *testing.T) {
	number, figures := orchestration.DefineEvent[int]("knock"), orchestration.DefineMailbox[int]("letters")
	for what, c := range map[string]struct {
		wait         func(ctx *oc) (int, error)
		wrong, right func(env *rondotest.Env, id string) error
		content      events.Content
	}{
		"event": {
			func(ctx *oc) (int, error) { return number.Wait(ctx) },
			func(env *rondotest.Env, id string) error { return knock.Raise(t.Context(), env, id, "word") },
			func(env *rondotest.Env, id string) error { return number.Raise(t.Context(), env, id, 7) },
			&events.EventRaised{Name: "knock", Data: codec.Payload(`"word"`)},
		},
		"mailbox": {
			func(ctx *oc) (int, error) { return figures.Receive(ctx) },
			func(env *rondotest.Env, id string) error { return letters.Send(t.Context(), env, id, "word") },
			func(env *rondotest.Env, id string) error { return figures.Send(t.Context(), env, id, 7) },
			&events.MailboxMessage{Mailbox: "letters", Data: codec.Payload(`"word"`)},
		},
	} {
		t.Run(what, func(t *testing.T) {
			gives(t, "7", func(ctx *oc, _ string) (string, error) {
				n, err := c.wait(ctx)
				return fmt.Sprint(n), err
			}, func(env *rondotest.Env, h orchestration.Handle[string]) {
				must(t, c.wrong(env, h.ID))
				r, err := env.Deliver(t.Context(), events.Message{ID: "wrong", Instance: h.ID, Content: c.content})
				if err != nil || r.Taken || r.Reason != "wrong_type" ||
					!strings.Contains(r.Detail, "want int, got JSON string") {
					t.Errorf("%+v, %v", r, err)
				}
				must(t, c.right(env, h.ID))
			})
		})
	}
}

// TestDataWithUnknownFields sends data with a misspelt field, and none at all, where the sender
// wants that refused, as the command line does. The instance goes on waiting.
func TestDataWithUnknownFields(t *testing.T) {
	type verdict struct{ By, OK string }
	event, mailbox := orchestration.DefineEvent[verdict]("verdict"), orchestration.DefineMailbox[verdict]("verdicts")
	raise := func(data string, strict bool) events.Content {
		return &events.EventRaised{Name: "verdict", Data: codec.Payload(data), RefuseUnknown: strict}
	}
	send := func(data string, strict bool) events.Content {
		return &events.MailboxMessage{Mailbox: "verdicts", Data: codec.Payload(data), RefuseUnknown: strict}
	}
	for what, c := range map[string]struct {
		wait    func(ctx *oc) (verdict, error)
		content func(data string, strict bool) events.Content
	}{
		"event":   {func(ctx *oc) (verdict, error) { return event.Wait(ctx) }, raise},
		"mailbox": {func(ctx *oc) (verdict, error) { return mailbox.Receive(ctx) }, send},
	} {
		t.Run(what, func(t *testing.T) {
			gives(t, "ann yes, then ann ", func(ctx *oc, _ string) (string, error) {
				first, err := c.wait(ctx)
				second, again := c.wait(ctx)
				return fmt.Sprint(first.By, " ", first.OK, ", then ", second.By, " ", second.OK),
					errors.Join(err, again)
			}, func(env *rondotest.Env, h orchestration.Handle[string]) {
				for n, x := range []struct {
					data   string
					strict bool
					why    string // it is refused
				}{
					{``, true, "a value is needed, and there is none; its fields are By, OK"},
					{`{"By":"ann","Okay":"yes"}`, true, `unknown field "Okay"; its fields are By, OK`},
					{`"yes"`, true, "want an object, got JSON string; its fields are By, OK"},
					{`"yes"`, false, "want an object, got JSON string; its fields are By, OK"},
					{`{"By":"ann","OK":"yes"}`, true, ""},
					{`{"By":"ann","Okay":"yes"}`, false, ""},
				} {
					r, err := env.Deliver(t.Context(), events.Message{
						ID: fmt.Sprint("m", n), Instance: h.ID, Content: c.content(x.data, x.strict)})
					if err != nil || r.Taken != (x.why == "") || x.why != "" && r.Reason != "wrong_type" ||
						!strings.Contains(r.Detail, x.why) {
						t.Errorf("%s, strict %t: %+v, %v", x.data, x.strict, r, err)
					}
				}
			})
		})
	}
}

// A message for a mailbox that the code does not read then is kept, and its sender is told that the
// type was not checked.
func TestUnreadMailboxIsNotChecked(t *testing.T) {
	gives(t, "x", func(ctx *oc, _ string) (string, error) {
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		return letters.Receive(ctx)
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		r, err := env.Deliver(t.Context(), events.Message{ID: "m", Instance: h.ID, Content: &events.MailboxMessage{
			Mailbox: "letters", Data: codec.Payload(`"x"`), RefuseUnknown: true}})
		if err != nil || !r.Taken || !strings.Contains(r.Detail, "the type of the message is not checked") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// The binding has the type of an event that the instance keeps.
func TestEarlyEventIsChecked(t *testing.T) {
	note := orchestration.DefineEvent[string]("note")
	o := orchestration.Define[string, string]("o")
	env := rondotest.New(t, o.Bind(func(ctx *oc, _ string) (string, error) {
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		return note.Wait(ctx)
	}, orchestration.Buffered(1, note)))
	h, err := o.Start(t.Context(), env, "", orchestration.ID("o"))
	must(t, err)
	for _, c := range []struct {
		data   string
		strict bool
		taken  bool
	}{{"5", false, false}, {"5", true, false}, {"", true, false}, {`"x"`, true, true}} {
		r, err := env.Deliver(t.Context(), events.Message{ID: fmt.Sprint(c.data, c.strict), Instance: "o",
			Content: &events.EventRaised{Name: "note", Data: codec.Payload(c.data), RefuseUnknown: c.strict}})
		why := `event "note" is not of the type that the instance keeps: `
		if err != nil || r.Taken != c.taken || !c.taken && (r.Reason != "wrong_type" ||
			!strings.HasPrefix(r.Detail, why)) {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
	if s, err := h.Wait(t.Context()); err != nil || s != "x" {
		t.Errorf("the instance has taken %q, %v", s, err)
	}
}

func TestQueueKeepsItsOrder(t *testing.T) {
	gives(t, "3 unread: a b c, then false", func(ctx *oc, _ string) (string, error) {
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		out := fmt.Sprint(letters.Len(ctx), " unread: ")
		a, errA := letters.Receive(ctx)
		b, okB, errB := letters.TryReceive(ctx)
		c, okC, errC := letters.TryReceive(ctx)
		_, okD, errD := letters.TryReceive(ctx)
		if !okB || !okC || letters.Len(ctx) != 0 {
			t.Errorf("%v %v, %d unread", okB, okC, letters.Len(ctx))
		}
		return fmt.Sprint(out, a, " ", b, " ", c, ", then ", okD), errors.Join(errA, errB, errC, errD)
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		for _, s := range []string{"a", "b", "c"} {
			must(t, letters.Send(t.Context(), env, h.ID, s))
		}
	})
}

func TestLetterOfALoserGoesBack(t *testing.T) {
	gives(t, "a after the knock", func(ctx *oc, _ string) (string, error) {
		event, letter := knock.Next(ctx), letters.Next(ctx)
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		if ctx.Race(letter, event) != event {
			return "", errors.New("the event came first")
		}
		s, err := letters.Receive(ctx)
		return s + " after the knock", err
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		must(t, knock.Raise(t.Context(), env, h.ID, "x"))
		for _, s := range []string{"a", "b"} {
			must(t, letters.Send(t.Context(), env, h.ID, s))
		}
	})
}

func TestTryReceiveWhenCancelled(t *testing.T) {
	fails(t, orchestration.ErrCancelled, func(ctx *oc, _ string) (string, error) {
		_ = ctx.Sleep(time.Hour)
		if _, ok, err := letters.TryReceive(ctx); ok || !errors.Is(err, orchestration.ErrCancelled) {
			t.Errorf("got %v, %v", ok, err)
		}
		return "", ctx.Err()
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		must(t, letters.Send(t.Context(), env, h.ID, "x"))
		must(t, h.Cancel(t.Context(), ""))
	})
}

func TestInstancesTalk(t *testing.T) {
	gives(t, "x and y", func(ctx *oc, _ string) (string, error) {
		a, b := knock.Next(ctx), letters.Next(ctx)
		if _, err := kid.Detach(ctx, ctx.Instance()); err != nil {
			return "", err
		}
		x, errA := a.Get(ctx)
		y, errB := b.Get(ctx)
		return x + " and " + y, errors.Join(errA, errB)
	}, nil, kid.Bind(func(ctx *oc, whom string) (string, error) {
		return "", errors.Join(knock.RaiseFrom(ctx, whom, "x"), letters.SendFrom(ctx, whom, "y"))
	}))
}

func TestStatus(t *testing.T) {
	type progress struct{ Percent int }
	status := orchestration.DefineStatus[progress]()
	var env *rondotest.Env
	gives(t, "{0} false, {50} true, {0} false", func(ctx *oc, _ string) (string, error) {
		none, okNone, _ := status.Get(ctx)
		status.Set(ctx, progress{10})
		status.Set(ctx, progress{50})
		if err := ctx.Sleep(time.Minute); err != nil {
			return "", err
		}
		half, okHalf, err := status.Get(ctx)
		status.Clear(ctx)
		cleared, okCleared, _ := status.Get(ctx)
		return fmt.Sprint(none, " ", okNone, ", ", half, " ", okHalf, ", ", cleared, " ", okCleared), err
	}, func(e *rondotest.Env, h orchestration.Handle[string]) {
		env = e
		if s, ok, err := status.Read(t.Context(), e, h.ID); err != nil || !ok || s.Percent != 50 {
			t.Errorf("outside it is %v, %v, %v", s, ok, err)
		}
	})
	if s, ok, err := status.Read(t.Context(), env, "i"); err != nil || ok {
		t.Errorf("after it was cleared it is %v, %v", s, err)
	}
	_, err := run(t, func(ctx *oc, _ string) (string, error) {
		orchestration.DefineStatus[string]().Set(ctx, "word")
		_, ok, err := status.Get(ctx)
		return fmt.Sprint(ok), err
	}, nil)
	mustSay(t, err, `decode "word" into`)
	_, err = run(t, func(ctx *oc, _ string) (string, error) {
		orchestration.DefineStatus[func()]().Set(ctx, nil)
		return "it was taken", nil
	}, nil)
	mustSay(t, err, "encode func()")
}

func TestValues(t *testing.T) {
	a, b, c := orchestration.DefineValue[int]("a"), orchestration.DefineValue[string]("b"),
		orchestration.DefineValue[[]int]("c")
	gives(t, "0 false; 2 true; [a b c]; 2 pruned; [a]; []", func(ctx *oc, _ string) (string, error) {
		none, okNone, _ := a.Get(ctx)
		a.Set(ctx, 1)
		b.Set(ctx, "x")
		c.Set(ctx, []int{1})
		if err := ctx.Sleep(time.Hour); err != nil {
			return "", err
		}
		a.Set(ctx, 2)
		two, okTwo, err := a.Get(ctx)
		keys := ctx.Values().Keys()
		pruned := ctx.Values().Prune(ctx.Now())
		left := ctx.Values().Keys()
		b.Clear(ctx)
		ctx.Values().Clear()
		ctx.Values().Clear()
		return fmt.Sprint(none, " ", okNone, "; ", two, " ", okTwo, "; ", keys, "; ", pruned, " pruned; ", left, "; ",
			ctx.Values().Keys()), err
	}, nil)
}

func TestValueThatCannotBeKept(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(ctx *oc)
		target error
		says   string
	}{
		"no key": {func(ctx *oc) {
			_ = orchestration.DefineValue[int]("").Set(ctx, 1)
		}, orchestration.OfType("invalid_call"), "a value needs a key"},
		"no text": {func(ctx *oc) {
			_ = orchestration.DefineValue[int]("\xff").Set(ctx, 1)
		}, orchestration.OfType("invalid_call"), "it is not valid UTF-8"},
		"no data": {func(ctx *oc) {
			_ = orchestration.DefineValue[func()]("f").Set(ctx, nil)
		}, &failure.Error{Kind: failure.Application}, "encode func()"},
	} {
		t.Run(name, func(t *testing.T) {
			fails(t, c.target, func(ctx *oc, _ string) (string, error) {
				c.set(ctx)
				return "it was taken", nil
			}, nil, c.says)
		})
	}
}

// A value over a limit is an error of the call, and the instance goes on.
func TestCallsOverALimit(t *testing.T) {
	large, long := strings.Repeat("x", events.MaxPayload), strings.Repeat("k", events.MaxValueKey+1)
	far := time.Duration(events.MaxDelay) + time.Hour
	for name, c := range map[string]struct {
		call func(ctx *oc) error
		says string
	}{
		"large value": {func(ctx *oc) error {
			return orchestration.DefineValue[string]("k").Set(ctx, large[:events.MaxValue])
		}, `value "k"`},
		"long key": {func(ctx *oc) error {
			return orchestration.DefineValue[int](long).Set(ctx, 1)
		}, "use a shorter key"},
		"large status": {func(ctx *oc) error {
			return orchestration.DefineStatus[string]().Set(ctx, large[:events.MaxStatus])
		}, "custom status (bytes): 262146 is over the limit of 262144"},
		"large input": {func(ctx *oc) error {
			_, err := echo.Call(ctx, large)
			return err
		}, `activity "echo"`},
		"large message": {func(ctx *oc) error {
			return orchestration.DefineMailbox[string]("q").SendFrom(ctx, "other", large)
		}, `message to "other"`},
		"far timer": {func(ctx *oc) error { return ctx.Sleep(far) }, "check its unit"},
		"far deadline": {func(ctx *oc) error {
			limited, done := ctx.WithTimeout(far)
			defer done()
			return limited.Sleep(time.Second)
		}, "unit"},
	} {
		t.Run(name, func(t *testing.T) {
			var said string
			gives(t, "it lives on", func(ctx *oc, _ string) (string, error) {
				err := c.call(ctx)
				if !errors.Is(err, &failure.Error{Kind: failure.LimitExceeded}) {
					return "", fmt.Errorf("no error about a limit: %w", err)
				}
				said = err.Error()
				return "it lives on", ctx.Sleep(time.Second) // and its history can be replayed
			}, nil)
			if !strings.Contains(said, c.says) {
				t.Errorf("%q does not say %q", said, c.says)
			}
		})
	}
}

// The 257th value is refused; with room for it, it is taken.
func TestTooManyValues(t *testing.T) {
	gives(t, "256 and another one", func(ctx *oc, _ string) (string, error) {
		var err error
		n := -1
		for ; err == nil; n++ {
			err = orchestration.DefineValue[int](fmt.Sprint(n)).Set(ctx, n)
		}
		if !errors.Is(err, &failure.Error{Kind: failure.LimitExceeded}) {
			return "", err
		}
		orchestration.DefineValue[int]("0").Clear(ctx)
		return fmt.Sprint(n, " and another one"), orchestration.DefineValue[int]("last").Set(ctx, 1)
	}, nil)
}

func TestValueOfAnotherType(t *testing.T) {
	_, err := run(t, func(ctx *oc, _ string) (string, error) {
		orchestration.DefineValue[string]("k").Set(ctx, "word")
		n, ok, err := orchestration.DefineValue[int]("k").Get(ctx)
		return fmt.Sprint(n, ok), err
	}, nil)
	mustSay(t, err, `decode "word" into *int`)
}

func TestValueOfAnotherInstance(t *testing.T) {
	k := orchestration.DefineValue[int]("k")
	keeper := kid.Bind(func(ctx *oc, _ string) (string, error) { k.Set(ctx, 7); return "", nil })
	gives(t, "7 true", func(ctx *oc, _ string) (string, error) {
		if _, err := kid.Call(ctx, "x", orchestration.ID("kid")); err != nil {
			return "", err
		}
		there, err := k.ReadFrom(ctx, "kid").Get(ctx)
		if err != nil {
			return "", err
		}
		nobody, err := k.ReadFrom(ctx, "nobody").Get(ctx)
		return fmt.Sprint(*there, " ", nobody == nil), err
	}, nil, keeper)
	_, err := run(t, func(ctx *oc, _ string) (string, error) {
		if _, err := kid.Call(ctx, "x", orchestration.ID("kid")); err != nil {
			return "", err
		}
		_, err := orchestration.DefineValue[string]("k").ReadFrom(ctx, "kid").Get(ctx)
		return "", err
	}, nil, keeper)
	mustSay(t, err, `value "k" of "kid": decode 7 into`)
}

func TestDroppedWaitTakesNothing(t *testing.T) {
	gives(t, "mine", func(ctx *oc, _ string) (string, error) {
		a, b := knock.Next(ctx), knock.Next(ctx)
		if ctx.Race(ctx.Timer(time.Second), a) == a {
			return "", errors.New("nobody has knocked yet")
		}
		return b.Get(ctx)
	}, func(env *rondotest.Env, h orchestration.Handle[string]) {
		env.Advance(time.Minute)
		must(t, knock.Raise(t.Context(), env, h.ID, "mine"))
	})
}
