package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator/schedules"
)

// system is a NATS server, a database and an orchestrator that does the least that an orchestrator
// has to do. What it says to clients, it says through package query.
type system struct {
	t      testing.TB
	dir    string
	server atomic.Pointer[embedded.Server]
	bus    *natsbroker.Bus
	store  *sqlite.Store
	config *round.Config
	query  query.Options

	deaf       atomic.Bool // takes nothing
	mute       atomic.Bool // sends no notifications
	noReceipts atomic.Bool // gives none
	noStarts   atomic.Bool // gives none for starts
	rounds     atomic.Int64
	asked      atomic.Int64 // questions

	deliveries chan broker.Delivery
	stop       []func()
}

// newSystem starts a system with orchestrations.
func newSystem(t testing.TB, code ...orchestration.Binding) *system {
	t.Helper()
	s := &system{t: t, dir: t.TempDir(), deliveries: make(chan broker.Delivery)}
	s.startServer()
	registry, err := orchestration.NewRegistry(code...)
	must(t, err)
	s.config = &round.Config{Code: registry}
	s.store, err = sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{})
	must(t, err)
	s.bus = s.connect(natsbroker.Config{Partitions: 2})
	s.run()
	t.Cleanup(s.end)
	return s
}

// InProcessConn connects to the server that is there just now.
func (s *system) InProcessConn() (net.Conn, error) {
	server := s.server.Load()
	if server == nil {
		return nil, errors.New("the server is down")
	}
	return server.InProcessConn()
}

func (s *system) startServer() {
	s.t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: s.dir})
	must(s.t, err)
	s.server.Store(server)
}

func (s *system) stopServer() { must(s.t, s.server.Swap(nil).Close()) }

func (s *system) connect(c natsbroker.Config) *natsbroker.Bus {
	s.t.Helper()
	c.InProcess = s
	return natstest.Connected(s.t, func() (*natsbroker.Bus, error) { return natsbroker.Connect(s.t.Context(), c) })
}

// client makes a client with a connection of its own.
func (s *system) client(o client.Options) *client.Client {
	s.t.Helper()
	b := s.connect(natsbroker.Config{Setup: natsbroker.Use})
	c := client.New(b, o)
	s.t.Cleanup(func() {
		must(s.t, c.Close())
		must(s.t, b.Close())
	})
	return c
}

// run receives, decides, commits, publishes and settles.
func (s *system) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	m := schedules.New(s.store, s, schedules.Config{Prefix: s.bus.Prefix(),
		Now:        func(ctx context.Context) (time.Time, error) { return time.Now(), ctx.Err() },
		First:      func(uint32) bool { return true },
		CheckStart: s.config.CheckStart, Members: func() []broker.Member { return nil }, Has: s.bus.Has,
		Log: slog.New(slog.DiscardHandler)})
	s.query.Schedules = m
	wait.Go(func() { m.Run(ctx) })
	s.answer()
	partitions, err := s.bus.Partitions(ctx)
	must(s.t, err)
	for _, p := range partitions.All() {
		wait.Go(func() {
			for ctx.Err() == nil {
				_ = s.bus.Receive(ctx, p, func(d broker.Delivery) {
					select {
					case s.deliveries <- d:
					case <-ctx.Done():
					}
				})
			}
		})
	}
	wait.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case d := <-s.deliveries:
				s.take(ctx, d)
			}
		}
	})
	s.stop = append(s.stop, func() {
		cancel()
		wait.Wait()
	})
}

// Publish publishes what schedules start.
func (s *system) Publish(ctx context.Context, x outbox.Committed) error {
	return s.bus.Publish(ctx, x.Messages...)
}

// answer answers questions.
func (s *system) answer() {
	o := s.query
	o.Pending = s.bus
	stop, err := query.Answer(counting{s.bus, s}, s.store, o)
	must(s.t, err)
	s.stop = append(s.stop, stop)
}

// counting counts the questions.
type counting struct {
	*natsbroker.Bus
	s *system
}

func (c counting) Handle(method string, answer func(context.Context, []byte) ([]byte, error)) (func(), error) {
	return c.Bus.Handle(method, func(ctx context.Context, q []byte) ([]byte, error) {
		c.s.asked.Add(1)
		return answer(ctx, q)
	})
}

func (s *system) end() {
	if s.server.Load() == nil {
		s.startServer()
	}
	for _, stop := range s.stop {
		stop()
	}
	must(s.t, s.bus.Close())
	must(s.t, s.store.Close())
	s.stopServer()
}

// take is a round with one message.
func (s *system) take(ctx context.Context, d broker.Delivery) {
	if s.deaf.Load() {
		d.Hold.Nak(20 * time.Millisecond)
		return
	}
	m, err := events.Decode(s.bus.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	if err != nil {
		s.t.Errorf("a message that cannot be read: %v", err)
		d.Hold.Ack()
		return
	}
	inbox := []round.Delivery{{Message: m, Attempts: 1, NumDelivered: d.NumDelivered, Age: time.Since(d.StoredAt)}}
	for len(inbox) > 0 {
		known, err := s.store.Load(ctx, []string{m.Instance}, nil)
		if err != nil {
			return // it ends
		}
		in := round.New(s.config, known[0])
		turn := in.Decide(inbox, time.Now())
		in.Evict()
		s.rounds.Add(1)
		row := known[0].Row
		if len(turn.Executions) > 0 {
			if !s.commit(ctx, turn) {
				d.Hold.Nak(0)
				return
			}
			row = turn.Row
		}
		s.announce(d, m, row, turn)
		inbox = s.settle(d, m, inbox, turn)
	}
}

func (s *system) encode(m events.Message) events.Wire {
	w, err := events.Encode(s.bus.Prefix(), m)
	must(s.t, err)
	return w
}

func (s *system) commit(ctx context.Context, turn round.Turn) bool {
	decided := history.Decided{Turn: &turn}
	for _, m := range turn.Messages {
		decided.Messages = append(decided.Messages, s.encode(m))
	}
	r, err := s.store.Commit(ctx, history.Batch{Turns: []history.Decided{decided}})
	if err != nil || r.Outcomes[0].Status != history.Committed {
		return false
	}
	if err := s.bus.Publish(ctx, decided.Messages...); err != nil {
		s.t.Log(err)
	}
	return true
}

// [system.announce] sends the notifications that package query describes.
func (s *system) announce(d broker.Delivery, m events.Message, row round.Row, turn round.Turn) {
	if s.mute.Load() {
		return
	}
	if err := query.NotifyTurn(s.bus, &turn); err != nil {
		s.t.Log(err)
	}
	_, isStart := m.Content.(*events.Start)
	if query.WantsReceipt(d.Header) && !s.noReceipts.Load() && !(isStart && s.noStarts.Load()) &&
		len(turn.Receipts) > 0 {
		if err := query.NotifyReceipt(s.bus, row, m, turn.Receipts[0]); err != nil {
			s.t.Log(err)
		}
	}
}

// settle decides messages once more that have to be decided at once.
func (s *system) settle(d broker.Delivery, m events.Message, inbox []round.Delivery, turn round.Turn) []round.Delivery {
	wake := []round.Delivery{{Message: events.Message{Instance: m.Instance, Content: &events.Wake{}}, Attempts: 1}}
	if len(turn.Receipts) > 0 && inbox[0].Message.ID == m.ID && m.ID != "" {
		switch r := turn.Receipts[0]; r.Verdict {
		case round.Returned:
			d.Hold.Nak(min(r.After, 50*time.Millisecond))
		case round.Again:
			return inbox
		default:
			d.Hold.Ack()
		}
	}
	if turn.Again {
		return wake
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// soon bounds what a test waits for.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// quick are options for short intervals of repeated requests.
var quick = client.Options{}.AskEvery(20*time.Millisecond, 200*time.Millisecond)
