package otlp_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestNobodyListens runs orders without a receiver for their telemetry.
func TestNobodyListens(t *testing.T) {
	const (
		many = 20
		few  = 6
	)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			// The shutdown may take longer than the test waits: it must not use up its grace.
			grace := 2 * patience
			s := newSystem(t, ordersProgram(t), nil, append(fast, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+freeAddress(t),
				"OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "RONDO_SHUTDOWN_TIMEOUT="+grace.String())...)
			orchestrator, worker := s.run()
			var ids []string
			for n := range many {
				ids = append(ids, fmt.Sprintf("order-%d", n))
				s.say(t.Context(), "rondo.start.fulfil."+ids[n], chair)
			}
			s.completed(ids...)
			var ends sync.WaitGroup
			for _, p := range []*process{worker, orchestrator} { // they do not need each other any more
				ends.Go(func() { t.Logf("the %s has taken %v to end", p.name, p.end()) })
			}
			ends.Wait()
			for _, p := range []*process{worker, orchestrator} {
				all := p.warnings()
				for _, w := range all {
					if !strings.Contains(w, `"level":"WARN"`) || !strings.Contains(w, "could not be sent") {
						t.Errorf("the %s says: %s", p.name, w)
					}
				}
				if len(all) == 0 || len(all) > few {
					t.Errorf("the %s has warned %d times; want some, and at most %d:\n%s", p.name, len(all), few,
						strings.Join(all, "\n"))
				}
			}
		})
	}
}
