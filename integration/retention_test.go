package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// TestRetention: instances that ended long ago are deleted, with their children, and running ones
// stay; of instances that continue as new, the configured number of executions stays.
func TestRetention(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		first := s.orchestrate()
		s.start("parent", "done", "done")
		s.completed("done", "child of done")
		s.start("waiter", "runs", "")
		s.start("rolling", "rolls", 5)
		for range 3 {
			d, m, _ := s.take("ping")
			d.Hold.Ack()
			s.say(done(m, "b"))
		}
		s.eventually("it is in its fourth execution", func() error {
			i, err := s.store.Instance(t.Context(), "rolls")
			if err == nil && i.Execution != 4 {
				err = fmt.Errorf("it is in %d", i.Execution)
			}
			return err
		})
		if err := first.end(); err != nil {
			t.Fatal(err)
		}
		s.orchestrate(func(c *orchestrator.Config) {
			c.Retention, c.KeepExecutions, c.KeepFormerFor = time.Millisecond, 2, time.Millisecond
		})
		s.eventually("what ended is gone", func() error {
			all := s.list(history.Filter{})
			if len(all) != 2 {
				return fmt.Errorf("there are %d instances", len(all))
			}
			kept, err := s.store.Executions(t.Context(), "rolls", 0, 10)
			if err == nil && (len(kept) != 2 || kept[0].Execution != 3) {
				err = fmt.Errorf("%d executions are kept", len(kept))
			}
			return err
		})
		s.reaches("runs", "event_awaited")
	})
}
