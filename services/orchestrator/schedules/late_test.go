package schedules_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/services/orchestrator/schedules"
)

// TestWhatIsSkippedLateIsTold: what a policy skips of an absence is in one warning, with the
// command that starts it. What it skips at other times is not.
func TestWhatIsSkippedLateIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, logged := newWorld(t), new(strings.Builder)
		w.log = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
		m := w.manager(true)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { m.Run(ctx) })
		w.lasts = 90 * time.Minute
		put(t, m, cron("@hourly", schedule.Skip))
		<-time.After(4*time.Hour - time.Minute)
		w.set(func() { w.away = true })
		<-time.After(4 * time.Hour)
		w.set(func() { w.away = false })
		<-time.After(time.Minute / 2)
		cancel()
		all.Wait()
		w.wantStarts("2000-01-01T01:00:00Z", "2000-01-01T03:00:00Z", "2000-01-01T04:00:00Z")
		const want = "dropped=3 " +
			"detail=\"rondo schedules backfill s 2000-01-01T05:00:00Z 2000-01-01T07:00:01Z starts them\""
		if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("logged %s", got)
		}
	})
}

// TestASlowScheduleDelaysNoOther: changes of one schedule take 9 seconds each, and another one is
// due each second.
func TestASlowScheduleDelaysNoOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, m *schedules.Manager) {
		slow := cron("* * * * * *", schedule.Allow)
		slow.ID = "slow"
		put(t, m, slow)
		s := cron("* * * * * *", schedule.Allow)
		s.End = time.Now().Add(time.Minute + time.Millisecond)
		put(t, m, s)
		w.set(func() { w.slow = "slow" })
		<-time.After(2 * time.Minute)
		n := 0
		w.set(func() {
			for id, at := range w.starts {
				nominal, is := strings.CutPrefix(id, "s@")
				if !is {
					continue
				}
				n++
				if want, err := time.Parse(time.RFC3339, nominal); err != nil || len(at) != 1 || !at[0].Equal(want) {
					t.Errorf("%s is started at %v, %v", nominal, at, err)
				}
			}
		})
		if n != 60 {
			t.Errorf("%d runs are started, want 60", n)
		}
	})
}
