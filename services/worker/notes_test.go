package worker

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestTheLargestProgressFits: the broker stores the progress of each heartbeat.
func TestTheLargestProgressFits(t *testing.T) {
	t.Parallel()
	for name, largest := range map[string]codec.Payload{
		"text":  codec.Payload(`"` + strings.Repeat("<", events.MaxHeartbeat-2) + `"`),
		"bytes": bytes.Repeat([]byte{0xff}, events.MaxHeartbeat),
	} {
		is := note{Begun: math.MaxInt, Progress: largest}
		data, err := is.encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.CheckValue(broker.KeyTask+"i", data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var read note
		if err := json.Unmarshal(data, &read); err != nil || !bytes.Equal(read.Progress, largest) ||
			read.Begun != is.Begun {
			t.Errorf("%s: the note is read as %d bytes of progress, %v", name, len(read.Progress), err)
		}
	}
}

func TestProgressIsDueOnceInAWhile(t *testing.T) {
	t.Parallel()
	var p progress
	now := time.Unix(1000, 0)
	steps := []struct {
		name string
		do   func()
		pass time.Duration
		due  bool
	}{
		{"no progress", func() {}, 0, false},
		{"first", func() { p.beat(codec.Payload("1")) }, 0, true},
		{"the same", func() {}, noteEvery, false},
		{"still writing", func() { p.beat(codec.Payload("2")) }, 0, false},
		{"written", p.wrote, 0, true},
		{"too early", func() { p.wrote(); p.beat(codec.Payload("3")) }, noteEvery - 1, false},
		{"in time", func() {}, 1, true},
		{"not written after all", p.unwritten, noteEvery, true},
	}
	for _, s := range steps {
		s.do()
		now = now.Add(s.pass)
		if due := p.due(now); due != s.due {
			t.Fatalf("%s: due: %t", s.name, due)
		}
	}
}

func TestNotesCountWorkers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	tests := []struct {
		name     string
		before   *note // nil: the first worker of the task, which notes nothing
		beat     string
		begun    int
		progress string
		returned int
		needed   bool
	}{
		{"first worker", nil, "", 0, "given", 0, false},
		{"first worker with progress", nil, "new", 0, "new", 0, true},
		{"second worker", &note{}, "", 1, "given", 0, true},
		{"third worker", &note{Begun: 1, Progress: codec.Payload("noted")}, "", 2, "noted", 1, true},
		{"third worker with progress", &note{Begun: 1, Progress: codec.Payload("noted")}, "new", 2, "new", 1, true},
	}
	for _, tt := range tests {
		p := progress{last: codec.Payload("given")}
		if tt.before != nil {
			p.begins(*tt.before, now)
		}
		if tt.beat != "" {
			p.beat(codec.Payload(tt.beat))
		}
		if n := p.note(); n.Begun != tt.begun || string(n.Progress) != tt.progress {
			t.Errorf("%s: notes %d, %s", tt.name, n.Begun, n.Progress)
		}
		n, needed := p.returns()
		if n.Begun != tt.returned || string(n.Progress) != tt.progress || needed != tt.needed {
			t.Errorf("%s: when it is nacked: notes %d, %s, needed: %t", tt.name, n.Begun, n.Progress, needed)
		}
	}
}
