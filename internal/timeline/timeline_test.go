package timeline_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/timeline"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestEveryKind prints each kind of event, in full and with as little as it may have. The lines are
// in testdata.
func TestEveryKind(t *testing.T) {
	var said strings.Builder
	for _, kind := range events.Kinds() {
		data, err := os.ReadFile(filepath.Join("..", "..", "pkg", "events", "testdata", "events", string(kind)+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var samples map[string]json.RawMessage
		if err := json.Unmarshal(data, &samples); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"full", "minimal"} {
			raw, ok := samples[name]
			if !ok {
				continue
			}
			e, err := events.DecodeEvent(raw)
			if err != nil {
				t.Fatal(err)
			}
			line := timeline.New(timeline.Options{}).Line(e)
			if strings.Contains(line, "%!") || strings.Contains(line, "\n") ||
				strings.HasSuffix(line, "  "+string(kind)) || strings.HasSuffix(line, "→ "+string(kind)) {
				t.Errorf("%s: %q", kind, line)
			}
			fmt.Fprintf(&said, "%-20s %s\n", kind, strings.TrimSpace(line))
		}
	}
	golden(t, "kinds.txt", said.String())
}

// TestStory prints a history whose events refer to each other.
func TestStory(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	x := events.Export{Instance: "order-7", Execution: 1}
	add := func(after time.Duration, f events.Fact) {
		x.Events = append(x.Events, events.Event{ID: int64(len(x.Events) + 1), At: began.Add(after), Fact: f})
	}
	add(0, &events.Started{Name: "fulfil", Version: "1", Incarnation: "l", Engine: 1,
		Input: codec.Payload(`{"sku":"piano"}`)})
	add(0, &events.ActivityScheduled{Name: "reserve",
		Input: codec.Payload(`"` + strings.Repeat("é", 300) + `"`), Attempt: 1})
	add(21*time.Millisecond,
		&events.ActivityFailed{Schedule: 2, Error: &failure.Error{Type: "busy", Message: "try\nlater"}, Worker: "w-1"})
	add(21*time.Millisecond, &events.ActivityScheduled{Name: "reserve", Attempt: 2, First: 2,
		NotBefore: began.Add(3 * time.Second), Tag: "store"})
	add(4*time.Second, &events.ActivityCompleted{Schedule: 4, Result: codec.Payload(`"r-7"`)})
	add(4*time.Second, &events.TimerCreated{FireAt: began.Add(50 * time.Hour)})
	add(4*time.Second, &events.EventAwaited{Name: "approve"})
	add(3*time.Minute, &events.EventReceived{Wait: 7, Name: "approve", Data: codec.Payload(`{"by":"ann"}`)})
	add(3*time.Minute, &events.Dropped{Schedules: []int64{6}, Steps: []int64{2}})
	add(50*time.Hour, &events.Completed{})
	var said strings.Builder
	for _, o := range []timeline.Options{{Width: 40}, {Absolute: true, Width: -1}} {
		if err := timeline.Write(&said, x, o); err != nil {
			t.Fatal(err)
		}
		said.WriteByte('\n')
	}
	golden(t, "story.txt", said.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is said (go test -rewrite writes it anew):\n%s", path, got)
	}
}
