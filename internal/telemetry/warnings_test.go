package telemetry

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestWarningsAreRare(t *testing.T) {
	var said strings.Builder
	now := time.Unix(0, 0)
	w := newWarnings(slog.New(slog.NewTextHandler(&said, nil)))
	w.now = func() time.Time { return now }
	for range 10 * time.Minute / time.Second {
		w.Handle(errors.New("nobody listens"))
		now = now.Add(time.Second)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 10 {
		t.Fatalf("in ten minutes it is said %d times, want 10:\n%s", len(lines), said.String())
	}
	if !strings.Contains(lines[0], `dropped=0`) || !strings.Contains(lines[1], `dropped=59`) ||
		!strings.Contains(lines[1], "nobody listens") {
		t.Errorf("it says:\n%s", said.String())
	}
}
