package natsbroker_test

import (
	"context"
	"sync/atomic"
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

// TestRequestsThatWaitAreBounded: while the handler of a method is busy, a client that sends
// requests without end takes bounded memory of the process. Afterwards it handles requests again.
func TestRequestsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Timeout: 5 * time.Minute})
	client, err := nats.Connect(s.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	const atOnce, waits = 64, 1024
	for name, floods := range map[string]struct{ count, size, most int }{
		"many":  {2 * (atOnce + waits), 0, atOnce + waits + 1},
		"large": {atOnce + 24, 1 << 19, atOnce + 8 + 1}, // 4 MiB wait
	} {
		t.Run(name, func(t *testing.T) {
			var handled atomic.Int64
			released := make(chan struct{})
			stop, err := b.Handle(name, func(context.Context, []byte) ([]byte, error) {
				<-released
				handled.Add(1)
				return nil, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for range floods.count {
				if err := client.PublishRequest("rondo.api."+name, "nowhere", make([]byte, floods.size)); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.FlushTimeout(time.Minute); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := b.RoundTrip(ctx); err != nil { // all requests have arrived by then
				t.Fatal(err)
			}
			close(released)
			tries := 0
			natstest.Eventually(t, "a request after the flood is handled", func() bool {
				tries++
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := b.Request(ctx, name, nil)
				return err == nil
			})
			stop() // waits for the handlers
			if n := int(handled.Load()); n > floods.most+tries {
				t.Errorf("%d of %d requests are handled, want at most %d", n-tries, floods.count, floods.most)
			}
		})
	}
}
