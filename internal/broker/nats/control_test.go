package natsbroker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
)

// TestTooManyResponses: a process that responds to a discovery request without end takes bounded
// memory of the process that has sent the request.
func TestTooManyResponses(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Timeout: 5 * time.Minute})
	other, err := nats.Connect(s.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	for name, floods := range map[string]struct{ count, size int }{"many": {10_100, 0}, "large": {70, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			sub, err := other.Subscribe("rondo.api."+name, func(m *nats.Msg) {
				defer close(ended)
				for range floods.count {
					if err := m.Respond(make([]byte, floods.size)); err != nil {
						t.Error(err)
					}
				}
			})
			if err == nil {
				err = other.Flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			answers, err := b.Discover(t.Context(), name, nil, time.Minute)
			wants(t, err, "ask all for "+name, "more than 10000 responses, or more than 64 MiB", "disconnect it")
			if len(answers) > 0 {
				t.Errorf("%d responses are returned", len(answers))
			}
			<-ended
			if err := sub.Unsubscribe(); err != nil {
				t.Error(err)
			}
		})
	}
}
