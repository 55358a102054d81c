//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/integration/internal/hostile"
	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file is the strangers: a client with the shipped permissions of clients publishes messages
// that it has no business with, all the time, and sometimes many for instances that do not exist.

const (
	// harassEvery is how often something hostile is published.
	harassEvery = 20 * time.Millisecond
	// floodLetters and floodStarts are how many messages of a flood no instance takes.
	floodLetters, floodStarts = 20_000, 200
	// floodPart is how many are published before the test asks the servers whether they have
	// arrived.
	floodPart = 1000
)

type strangers struct {
	conn    *nats.Conn
	client  hostile.Client
	clients *clients

	published, flooded int
	refused            atomic.Int64 // by permission
}

func newStrangers(t testing.TB, f *fleet, clients *clients, seed uint64) *strangers {
	t.Helper()
	s := &strangers{clients: clients}
	var err error
	s.conn, err = nats.Connect(f.brokers(), nats.UserInfo("client", "client"), nats.CustomInboxPrefix("_INBOX_client"),
		nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond), nats.ReconnectBufSize(-1),
		nats.IgnoreDiscoveredServers(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
				s.refused.Add(1)
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.conn.Close)
	s.client = hostile.Client{Rand: rand.New(rand.NewPCG(seed, 3)), Conn: s.conn, Subjects: hostile.Subjects["client"]}
	return s
}

// harass publishes until the context ends. Messages published without a connection are lost.
func (s *strangers) harass(ctx context.Context) {
	tick := time.NewTicker(harassEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if i%50 == 0 {
			s.client.Victims, s.client.Incarnations = s.clients.known()
		}
		if len(s.client.Victims) > 0 && s.client.Publish() == nil {
			s.published++
		}
	}
}

// flood publishes messages to instances that do not exist, and starts of unregistered
// orchestrations. Everything else must go on.
func (c *chaos) flood() (heal func(), what string) {
	s := c.strangers
	before := s.flooded
	publish := func(m events.Message) {
		w, err := events.Encode(c.clients.bus.Prefix(), m)
		if err != nil {
			c.t.Error(err)
			return
		}
		if s.conn.PublishMsg(&nats.Msg{Subject: w.Subject, Header: nats.Header(w.Header), Data: w.Body}) == nil {
			s.flooded++
		}
		if s.flooded%floodPart == 0 {
			_ = s.conn.FlushTimeout(5 * time.Second) // it fails while the servers are away
		}
	}
	for i := range floodStarts {
		id := fmt.Sprintf("strange-%d-%d", before, i)
		publish(events.Message{ID: "start-" + id, Instance: id,
			Content: &events.Start{Orchestration: "unheard of", Input: work.Payload(i)}})
	}
	for i := range floodLetters {
		publish(events.Message{
			ID: fmt.Sprintf("letter-%d-%d", before, i), Instance: fmt.Sprintf("nobody-%d", i%(floodLetters/4)),
			Content: &events.MailboxMessage{Mailbox: "letters", Data: work.Payload(i)},
		})
	}
	return func() {}, fmt.Sprintf("%d messages", s.flooded-before)
}

// isStrange reports whether strangers have started an instance.
func isStrange(instance string) bool {
	return strings.HasPrefix(instance, "strange-") || instance == "own" || strings.HasPrefix(instance, "own~")
}

func judgeStrange(v *verdict, info history.Info) {
	switch {
	case !info.Status.Ended():
		v.bad("%s, which strangers have started, is %s", info.Instance, info.Status)
	case strings.HasPrefix(info.Instance, "strange-") &&
		(info.Status != round.Failed || info.Error.Kind != failure.Unregistered):
		v.bad("%s, whose orchestration nobody has, is %s: %v", info.Instance, info.Status, info.Error)
	}
}
