package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// occupied is an orchestration with an activity, a timer, a child with an activity, and a detached
// instance.
var occupied = orchestration.Define[string, string]("occupied")

func occupiedWith(child orchestration.Definition[string, string]) orchestration.Binding {
	return occupied.Bind(func(ctx *orchestration.Context, s string) (string, error) {
		if _, err := waiter.Detach(ctx, "", orchestration.ID("detached")); err != nil {
			return "", err
		}
		timer, called := ctx.Timer(time.Hour), child.StartChild(ctx, s, orchestration.ID("child"))
		return "", ctx.WaitAll(timer, called, job1.Start(ctx, s))
	})
}

// TestForcedDeletionWithdraws: a deletion by force of an instance that has an activity, a timer and
// a child in flight ends them. The activities of both see that their contexts are cancelled. A
// detached instance goes on, and the id can be used again at once.
func TestForcedDeletionWithdraws(t *testing.T) {
	t.Parallel()
	begun, told := make(chan struct{}, 3), make(chan struct{}, 3)
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{occupiedWith(main), calling()}, basics...)...)
	s.config.TaskAckWait = 12 * patience // so that only a withdrawal ends the activity
	s.orchestrate()
	s.employ([]activity.Binding{job1.Bind(func(ctx context.Context, _ string) (string, error) {
		begun <- struct{}{}
		<-ctx.Done()
		told <- struct{}{}
		return "", ctx.Err()
	})})
	s.start("occupied", "i", "")
	for range 2 {
		s.await(begun, "the activities begin")
	}
	d := query.Deletions{Store: s.store, Publisher: s.bus, Prefix: s.bus.Prefix(), Within: patience}
	got, err := d.Delete(t.Context(), []string{"i"}, history.Deletion{Force: true, Prefix: s.bus.Prefix()})
	want := query.Withdrawn{Instances: 2, Tasks: 2, Timers: 1}
	if err != nil || got.Instances != 2 || got.Withdrawn == nil || *got.Withdrawn != want {
		t.Errorf("deleted %+v with %+v, %v; want %+v", got, got.Withdrawn, err, want)
	}
	for range 2 {
		s.await(told, "the activities are told")
	}
	for _, id := range []string{"i", "child"} {
		if _, err := s.store.Instance(t.Context(), id); !errors.Is(err, history.ErrNoInstance) {
			t.Errorf("instance %s: %v", id, err)
		}
	}
	s.say(events.Message{ID: "another start", Instance: "i",
		Content: &events.Start{Orchestration: waiter.Name(), Input: encode(t, "")}})
	for _, id := range []string{"i", "detached"} {
		s.reaches(id, events.KindEventAwaited)
		if i, err := s.store.Instance(t.Context(), id); err != nil || i.Status != round.Running {
			t.Errorf("instance %s is %s, %v", id, i.Status, err)
		}
	}
	s.settled()
}

// TestForcedDeletionIsAnswered: orchestrators answer a deletion by force with counts of the
// withdrawn messages.
func TestForcedDeletionIsAnswered(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate()
	s.start("waiter", "i", "")
	s.reaches("i", events.KindEventAwaited)
	got, err := query.NewReader(s.bus).Remove(t.Context(), []string{"i"}, history.Deletion{Force: true})
	if w := got.Withdrawn; err != nil || got.Instances != 1 || w == nil || w.Instances+w.NotEnded != 1 {
		t.Errorf("deleted %+v with %+v, %v", got, w, err)
	}
	s.settled()
}
