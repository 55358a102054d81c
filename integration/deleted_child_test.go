package integration_test

import (
	"errors"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// A child that is deleted by force answers its parent, which goes on. If that answer is lost, the
// parent sends the start of the child again, and the tombstone answers. Nothing starts the child
// again.
func TestDeletedChild(t *testing.T) {
	for name, lost := range map[string]bool{"answers its parent": false, "answers again": true} {
		t.Run(name, func(t *testing.T) {
			parent := main.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
				_, err := waiter.Call(ctx, "", orchestration.ID("child"))
				if !errors.Is(err, orchestration.ErrTerminated) {
					return "", err
				}
				return err.Error(), nil
			})
			s := newSystem(t, openSQLite(t), append([]orchestration.Binding{parent}, basics...)...)
			o := s.orchestrate()
			s.start("main", "parent", "")
			s.reaches("child", events.KindEventAwaited)
			if err := o.end(); err != nil {
				t.Fatal(err)
			}
			how := history.Deletion{Force: true, Children: true, Prefix: s.bus.Prefix()}
			if _, err := s.store.Delete(t.Context(), []string{"child"}, how); err != nil {
				t.Fatal(err)
			}
			if lost {
				s.emptyOutbox()
			}
			s.orchestrate()
			s.completed("parent", `orchestration "waiter": it was deleted`)
			if _, err := s.store.Instance(t.Context(), "child"); !errors.Is(err, history.ErrNoInstance) {
				t.Errorf("the child: %v", err)
			}
			s.settled()
		})
	}
}
