package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// schedules are those of the system, as a client reads them.
func (s *system) schedules() query.Schedules { return query.NewSchedules(query.NewReader(s.bus)) }

// putSchedules puts some schedules that start a run each second, until each has started so many.
func (s *system) putSchedules(n, runs int) {
	s.t.Helper()
	for i := range n {
		x := query.Schedule{ID: fmt.Sprintf("s%d", i),
			Run:  query.Start{Orchestration: "steps", Input: codec.Payload("3")},
			Spec: schedule.Spec{Cron: "* * * * * *", Overlap: schedule.Allow, Limit: runs}}
		s.eventually("schedule "+x.ID+" is put", func() error {
			_, err := s.schedules().Put(s.t.Context(), query.PutSchedule{Schedule: x})
			return err
		})
	}
}

// runsOf lists the instances that a schedule has started.
func (s *system) runsOf(id string) []history.Info {
	s.t.Helper()
	list, err := s.store.List(s.t.Context(), history.Filter{Attributes: map[string]string{"rondo.schedule": id}},
		history.Page{Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Instances
}

// ranOnce waits until each schedule has started each of its runs, and checks that no second was
// left out before the end.
func (s *system) ranOnce(n, runs int) {
	s.t.Helper()
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		s.eventually(fmt.Sprintf("%s has started %d runs, and all are completed", id, runs), func() error {
			all := s.runsOf(id)
			for _, x := range all {
				if x.Status != round.Completed {
					return fmt.Errorf("%s is %s", x.Instance, x.Status)
				}
			}
			if len(all) != runs {
				return fmt.Errorf("it has started %d", len(all))
			}
			return nil
		})
		var x query.Schedule
		s.eventually(id+" is read", func() (err error) {
			x, err = s.schedules().Get(context.Background(), id)
			return err
		})
		if x.Started != int64(runs) || x.Missed != 0 || x.Skipped != 0 {
			s.t.Errorf("%s has started %d, missed %d and skipped %d", id, x.Started, x.Missed, x.Skipped)
		}
	}
}

// TestSchedulesOutliveTheBroker stops everything while schedules start runs, deletes all that the
// broker had, and starts again.
func TestSchedulesOutliveTheBroker(t *testing.T) {
	t.Parallel()
	n, runs := racetest.Size(50, 10), 8
	s := newSystem(t, openSQLite(t), plays...)
	v := s.orchestrate()
	s.putSchedules(n, runs)
	s.eventually("some runs are started", func() error {
		if len(s.runsOf("s0")) < 2 {
			return fmt.Errorf("there are %d", len(s.runsOf("s0")))
		}
		return nil
	})
	v.kill()
	_ = v.wait() // it was killed
	s.loseBroker()
	s.orchestrate()
	s.ranOnce(n, runs)
}

// TestSchedulesOutliveOrchestrators kills one of two orchestrators again and again.
func TestSchedulesOutliveOrchestrators(t *testing.T) {
	t.Parallel()
	n, runs := racetest.Size(20, 5), 10
	s := newSystem(t, openSQLite(t), plays...)
	v := s.orchestrate()
	s.orchestrate()
	s.putSchedules(n, runs)
	for i := range 3 {
		s.eventually("some more runs are started", func() error {
			if got := len(s.runsOf("s0")); got < 2*(i+1) {
				return fmt.Errorf("there are %d", got)
			}
			return nil
		})
		v.kill()
		_ = v.wait() // it was killed
		v = s.orchestrate()
	}
	s.ranOnce(n, runs)
}
