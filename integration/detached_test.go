package integration_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestDetachedStartSurvivesACrash has an orchestrator that dies after it has published a delayed
// start of a detached instance, and before it records that. Others publish the start again: the
// instance starts once, in time, with its message and attributes, although its launcher has ended.
func TestDetachedStartSurvivesACrash(t *testing.T) {
	t.Parallel()
	type reminder struct {
		Due time.Time
	}
	var (
		order   = orchestration.Define[string, reminder]("order")
		remind  = orchestration.Define[reminder, string]("remind")
		pack    = orchestration.Define[string, string]("pack")
		letters = orchestration.DefineMailbox[string]("letters")
		of      = map[string]string{"customer": "ann"}
	)
	s := newSystem(t, openSQLite(t), order.Bind(func(ctx *orchestration.Context, _ string) (reminder, error) {
		r := reminder{ctx.Now().Add(4 * time.Second)}
		if _, err := pack.Call(ctx, "", orchestration.Attributes(of)); err != nil {
			return r, err
		}
		_, err := remind.Detach(ctx, r, orchestration.ID("reminder"), orchestration.At(r.Due),
			orchestration.RestartFinished(), orchestration.Attributes(of),
			orchestration.WithMessage(letters, "dear ann"))
		return r, err
	}), remind.Bind(func(ctx *orchestration.Context, r reminder) (string, error) {
		if ctx.Now().Before(r.Due) {
			return "", errors.New("it has started before its time")
		}
		text, ok, err := letters.TryReceive(ctx)
		if !ok {
			return "there is no letter", err
		}
		return text, err
	}), pack.Bind(func(*orchestration.Context, string) (string, error) { return "", nil }))
	v := s.prepare()
	v.broker.afterPublish = func(wires []events.Wire) {
		for _, w := range wires {
			if w.Subject == "rondo.internal_start.remind.reminder" {
				v.kill()
			}
		}
	}
	v.start()
	s.start("order", "order", "")
	_ = v.wait() // it was killed
	if _, err := s.store.Instance(t.Context(), "reminder"); err == nil {
		t.Error("the reminder has started at once")
	}
	s.orchestrate()
	s.orchestrate()
	if child := s.ended("order~1.2"); !maps.Equal(child.Attributes, of) {
		t.Errorf("the child has the attributes %v", child.Attributes)
	}
	s.ended("order")
	s.completed("reminder", "dear ann")
	s.settled() // copies were taken by now
	r := s.ended("reminder")
	if r.Status != round.Completed || r.Execution != 1 || !maps.Equal(r.Attributes, of) {
		t.Errorf("it is %s in execution %d, with the attributes %v", r.Status, r.Execution, r.Attributes)
	}
}
