package orchestration_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// undoes adds a step to a saga that notes that it was undone, and fails if told so.
func undoes(s *orchestration.Saga, log *[]string, name, in string) {
	s.Add(name, func(ctx *oc) error {
		_, err := echo.Call(ctx, in)
		*log = append(*log, name)
		return err
	})
}

func TestSagaUndoesInReverse(t *testing.T) {
	gives(t, "[c b a] [] []", func(ctx *oc, _ string) (string, error) {
		var undo orchestration.Saga
		var log []string
		for _, name := range []string{"a", "b", "c"} {
			undoes(&undo, &log, name, name)
		}
		err := undo.Compensate(ctx, time.Hour)
		first := fmt.Sprint(log)
		log = nil
		err = errors.Join(err, undo.Compensate(ctx, time.Hour))
		second := fmt.Sprint(log)
		undoes(&undo, &log, "d", "d")
		undo.Forget()
		return fmt.Sprint(first, " ", second, " ", log), errors.Join(err, undo.Compensate(ctx, time.Hour))
	}, nil)
}

func TestSagaGoesOnAfterAFailure(t *testing.T) {
	gives(t, "[c b a]", func(ctx *oc, _ string) (string, error) {
		var undo orchestration.Saga
		var log []string
		undoes(&undo, &log, "a", "bad luck")
		undoes(&undo, &log, "b", "b")
		undoes(&undo, &log, "c", "bad timing")
		err := undo.Compensate(ctx, time.Hour)
		mustSay(t, err, `compensation "a" failed: activity "echo": no luck`,
			`compensation "c" failed: activity "echo": no timing`)
		if !errors.Is(err, orchestration.OfType("luck")) || !errors.Is(err, orchestration.OfType("timing")) {
			t.Errorf("got %v", err)
		}
		return fmt.Sprint(log), nil
	}, nil)
}

func TestSagaOfACancelledInstance(t *testing.T) {
	var log []string
	code := func(atMost time.Duration) code {
		return func(ctx *oc, _ string) (string, error) {
			var undo orchestration.Saga
			log = nil
			undoes(&undo, &log, "a", "a")
			undo.Add("b", func(ctx *oc) error { return ctx.Sleep(10 * time.Minute) })
			return "", errors.Join(ctx.Sleep(time.Hour), undo.Compensate(ctx, atMost))
		}
	}
	fails(t, orchestration.ErrCancelled, code(time.Hour), cancelIt(t))
	if fmt.Sprint(log) != "[a]" {
		t.Errorf("undone %v", log)
	}
	_, err := run(t, code(time.Minute), cancelIt(t))
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != failure.Cancelled {
		t.Errorf("got %v", err)
	}
}
