package outbox_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/outbox"
)

// A message that the broker refuses because of a setting is not dead-lettered. Its entry stays in
// the outbox, and those of the commits beside it go.
func TestWhatASettingPreventsStaysInTheOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{gate: make(chan struct{})}, &store{}
		b.fail = func(w events.Wire) error {
			if w.Subject == "denied" {
				return fmt.Errorf("%w: no permission", broker.ErrMisconfigured)
			}
			return nil
		}
		p := outbox.NewPublisher(b, s, "rondo", silent)
		end := run(p)
		for i, messages := range [][]events.Wire{wires("a"), wires("b", "denied"), wires("c")} {
			if err := p.Publish(t.Context(), outbox.Committed{Messages: messages, Keys: key(int64(i))}); err != nil {
				t.Fatal(err)
			}
		}
		close(b.gate)
		synctest.Wait()
		if kept := p.Kept(); len(kept) != 2 || kept[0].ID != 0 || kept[1].ID != 2 {
			t.Errorf("the entries %v may be removed, want 0 and 2", kept)
		}
		if got := b.subjects(); !slices.Equal(got, []string{"a", "b", "c"}) || len(b.deadLettered) > 0 {
			t.Errorf("published %v, dead-lettered %v", got, b.deadLettered)
		}
		end()
	})
}
