package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"

// lines is what a logger writes.
func lines(log func(l *slog.Logger)) []string {
	var b bytes.Buffer
	h := slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
	log(telemetry.Logger(telemetry.Logger(slog.New(h))))
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}

func TestRecordsSayWhatTheyAreAbout(t *testing.T) {
	var none *telemetry.Tracer
	attempt := telemetry.Attempt{
		Trace: parent, Name: "charge", Instance: "order-1", Orchestration: "order",
		Ref: events.Ref{Execution: 2, Event: 4}, Number: 3,
	}
	ctx, _, _ := none.Begin(context.Background(), attempt)
	attempt.Step, attempt.Trace = true, ""
	step, _, _ := none.Begin(context.Background(), attempt)
	at, _ := events.ParseTrace(parent)
	const about = "instance=order-1 execution=2 orchestration=order activity=charge attempt=3 "
	const place = "trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331"
	got := lines(func(l *slog.Logger) {
		l.InfoContext(ctx, "a", "k", 1)
		l.With("x", 1).WithGroup("g").With("y", 2).InfoContext(ctx, "b", "k", 1)
		l.With("instance", "order-2").InfoContext(ctx, "c")
		l.InfoContext(step, "d")
		l.Info("e")
		telemetry.LogAt(l, at).With("k", 1).Info("f")
		telemetry.LogAt(l.WithGroup("g"), at).WithGroup("h").Info("g", "k", 1)
		telemetry.LogAt(l, events.Trace{}).Info("h")
		other := trace.ContextWithSpanContext(context.Background(),
			trace.NewSpanContext(trace.SpanContextConfig{TraceID: [16]byte{1}, SpanID: [8]byte{2}}))
		telemetry.LogAt(l, at).InfoContext(other, "i")
	})
	want := []string{
		"msg=a k=1 " + about + place,
		"msg=b x=1 " + about + place + " g.y=2 g.k=1",
		"msg=c instance=order-2 " + place,
		"msg=d instance=order-1 execution=2 orchestration=order step=charge attempt=3",
		"msg=e",
		"msg=f k=1 " + place,
		"msg=g " + place + " g.h.k=1",
		"msg=h",
		"msg=i trace_id=01000000000000000000000000000000 span_id=0200000000000000",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestALevelGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open []string
		l := telemetry.NewLevel(slog.LevelWarn, func(change string) { open = append(open, change) })
		set := func(level string, after time.Duration) {
			t.Helper()
			if err := l.Set(level, after, "a test"); err != nil {
				t.Fatal(err)
			}
		}
		is := func(want slog.Level) {
			t.Helper()
			synctest.Wait()
			if l.Level() != want || l.AtMost(slog.LevelInfo).Level() != min(want, slog.LevelInfo) {
				t.Errorf("it is %v, want %v", l.Level(), want)
			}
		}
		wait := func(d time.Duration) { <-time.After(d) }
		set("debug", time.Minute)
		is(slog.LevelDebug)
		wait(30 * time.Second)
		set("info", time.Minute) // takes the place of the first one
		wait(45 * time.Second)
		is(slog.LevelInfo)
		wait(15 * time.Second)
		is(slog.LevelWarn)
		set("debug", time.Minute)
		set("error", 0) // for good
		wait(2 * time.Minute)
		is(slog.LevelError)
		if _, until := l.State(); !until.IsZero() {
			t.Error(until)
		}
		if l.Set("debug", -1, "") == nil || l.Set("debug", 1000*time.Hour, "") == nil || l.Set("loud", 0, "") == nil {
			t.Error("what means nothing is taken")
		}
		is(slog.LevelError)
		if got := strings.Join(open, "\n"); strings.Count(got, "\n") != 4 ||
			!strings.Contains(got, "the log level is warn again") {
			t.Error(got)
		}
	})
}
