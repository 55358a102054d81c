package outbox_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/outbox"
)

// TestPublisherPublishesFarTimersAtTheEnd ends a publisher while a timer waits for its withdrawal:
// it is published, not dropped.
func TestPublisherPublishesFarTimersAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{}, &store{}
		p := outbox.NewPublisher(b, s, "rondo", silent)
		end := run(p)
		defer end()
		synctest.Wait()
		timer := events.Wire{Subject: "rondo.timer-due.a", NotBefore: time.Now().Add(time.Hour)}
		if err := p.Publish(t.Context(), outbox.Committed{Messages: []events.Wire{timer}, Keys: key(1)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(b.published) > 0 {
			t.Fatalf("published %v; it was to wait a moment", b.published)
		}
		end()
		if !slices.Equal(b.published, []string{timer.Subject}) {
			t.Errorf("published %v at the end", b.published)
		}
	})
}
