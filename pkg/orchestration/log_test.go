package orchestration_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// written gives what a text handler makes of the records that an orchestration logs.
func written(t *testing.T, log func(ctx *oc, l *slog.Logger)) string {
	t.Helper()
	var env *rondotest.Env
	gives(t, "", func(ctx *oc, _ string) (string, error) {
		log(ctx, ctx.Logger())
		return "", ctx.Sleep(time.Minute)
	}, func(e *rondotest.Env, _ orchestration.Handle[string]) { env = e })
	var b bytes.Buffer
	h := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})
	for _, r := range env.Logs() {
		if err := h.Handle(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestLogGroups(t *testing.T) {
	got := written(t, func(_ *oc, l *slog.Logger) {
		l.Debug("plain", "a", 1)
		g := l.With("a", 1).WithGroup("g").With("b", 2)
		g.WithGroup("h").With("c", 3).Info("deep", "d", 4)
		g.Warn("shallow", "d", 4)
		l.WithGroup("").With().Error("none")
		l.WithGroup("empty").Info("nothing in it")
	})
	want := []string{
		"level=DEBUG msg=plain a=1",
		"level=INFO msg=deep a=1 g.b=2 g.h.c=3 g.h.d=4",
		"level=WARN msg=shallow a=1 g.b=2 g.d=4",
		"level=ERROR msg=none",
		`level=INFO msg="nothing in it"`,
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got\n%swant %d lines", got, len(want))
	}
	for i, w := range want {
		if _, line, _ := strings.Cut(lines[i], " "); line != w {
			t.Errorf("got %s, want %s", line, w)
		}
	}
}

func TestLogsHaveTheTimeOfTheInstance(t *testing.T) {
	var at time.Time
	got := written(t, func(ctx *oc, l *slog.Logger) {
		at = ctx.Now()
		l.Info("hello")
	})
	if want := "time=" + at.Format("2006-01-02T15:04:05.000Z07:00"); !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLogsAreNotWrittenAgain(t *testing.T) {
	logger := func(ctx *oc, l *slog.Logger) {
		l.Info("hello", "enabled", l.Enabled(context.Background(), slog.LevelInfo))
	}
	if got := written(t, logger); strings.Count(got, "\n") != 1 || !strings.Contains(got, "enabled=true") {
		t.Errorf("got %s", got)
	}
}

func TestLoggersDoNotShareTheirAttributes(t *testing.T) {
	got := written(t, func(_ *oc, l *slog.Logger) {
		base := l.With("a", 1).With("b", 2)
		x, y := base.With("x", 1), base.With("y", 1)
		x.Info("of x")
		y.Info("of y")
	})
	if strings.Contains(got, "y=1\ny") || !strings.Contains(got, `msg="of x" a=1 b=2 x=1`+"\n") ||
		!strings.Contains(got, `msg="of y" a=1 b=2 y=1`+"\n") {
		t.Errorf("got %s", got)
	}
}
