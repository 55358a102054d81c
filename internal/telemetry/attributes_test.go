package telemetry_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
)

// masked is a value that says itself how it is written.
type masked string

func (masked) LogValue() slog.Value { return slog.StringValue("***") }

func TestAttributes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("there", 3600))
	var got []string
	for _, kv := range telemetry.Attributes([]slog.Attr{
		slog.String("text", "a"), slog.Bool("bool", true), slog.Int("int", -3), slog.Uint64("uint", 7),
		slog.Float64("float", 1.5),
		slog.Duration("duration", 1500*time.Millisecond), slog.Time("time", at), slog.Any("error", errors.New("no")),
		slog.Any("masked", masked("secret")),
		slog.Group("group", slog.Int("in", 1), slog.Group("deeper", slog.Int("in", 2))),
		slog.Group("", slog.Int("inlined", 3)), {}, slog.String("long", strings.Repeat("ä", 2000)),
	}) {
		got = append(got, fmt.Sprintf("%s=%s", kv.Key, kv.Value.String()))
	}
	want := []string{
		"text=a", "bool=true", "int=-3", "uint=7", "float=1.5", "duration=1.5", "time=2026-01-02T02:04:05.000000006Z",
		"error=no", "masked=***",
		"group.in=1", "group.deeper.in=2", "inlined=3", "long=" + strings.Repeat("ä", 512) + "…",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
