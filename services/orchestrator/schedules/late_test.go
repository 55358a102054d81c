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
