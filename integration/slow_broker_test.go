package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// slowBroker does not respond in time to the first request of each kind that a service sends at its
// start.
type slowBroker struct {
	*natsbroker.Bus
	mu    sync.Mutex
	tried map[string]int
}

func (b *slowBroker) late(call string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tried[call]++; b.tried[call] == 1 {
		return fmt.Errorf("%s: %w", call, context.DeadlineExceeded)
	}
	return nil
}

func (b *slowBroker) Join(ctx context.Context, m broker.Member) (broker.Membership, error) {
	if err := b.late("join"); err != nil {
		return nil, err
	}
	return b.Bus.Join(ctx, m)
}

func (b *slowBroker) ReceiveHandovers(kind broker.HandoverKind, name string,
	take func(broker.Delivery) error) (func(), error) {
	if err := b.late("receive handovers"); err != nil {
		return nil, err
	}
	return b.Bus.ReceiveHandovers(kind, name, take)
}

func (b *slowBroker) Withdrawals(tags []string, told func(string)) (func(), error) {
	if err := b.late("hear of withdrawals"); err != nil {
		return nil, err
	}
	return b.Bus.Withdrawals(tags, told)
}

func (b *slowBroker) Handle(method string,
	handle func(context.Context, []byte) ([]byte, error)) (func(), error) {
	if err := b.late("handle requests"); err != nil {
		return nil, err
	}
	return b.Bus.Handle(method, handle)
}

func (b *slowBroker) HandleDiscovery(method string,
	handle func(context.Context, []byte) ([]byte, error)) (func(), error) {
	if err := b.late("handle discovery requests"); err != nil {
		return nil, err
	}
	return b.Bus.HandleDiscovery(method, handle)
}

// TestServicesStartAlthoughNATSRespondsLate starts services with a broker that does not respond in
// time at first. They try again, and then work.
func TestServicesStartAlthoughNATSRespondsLate(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), plays...)
	calls := map[string][]string{
		"orchestrator": {"join", "receive handovers", "handle requests", "handle discovery requests"},
		"worker":       {"hear of withdrawals", "receive handovers", "handle discovery requests"},
	}
	run := func(service string, of func(b *slowBroker) (func(context.Context) error, error)) (end func()) {
		b := &slowBroker{Bus: s.connect(), tried: map[string]int{}}
		run, err := of(b)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			err := run(ctx)
			if ctx.Err() == nil {
				t.Errorf("%s has ended by itself: %v", service, err)
			}
			ended <- err
		}()
		return func() {
			stop()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%s: %v", service, err)
				}
			case <-time.After(patience):
				t.Errorf("%s does not end", service)
			}
			for _, call := range calls[service] {
				if b.tried[call] < 2 {
					t.Errorf("%s: it tried %d times to %s, want 2", service, b.tried[call], call)
				}
			}
		}
	}
	end := run("orchestrator", func(b *slowBroker) (func(context.Context) error, error) {
		o, err := orchestrator.New(b, s.open(), s.code, s.hasty())
		return o.Run, err
	})
	defer end()
	endWorker := run("worker", func(b *slowBroker) (func(context.Context) error, error) {
		code, err := activity.NewRegistry(works...)
		if err != nil {
			return nil, err
		}
		w, err := worker.New(b, code, worker.Config{Logger: quiet()})
		return w.Run, err
	})
	defer endWorker()
	jobs := mixed("j", 10)
	s.begin(jobs, false)
	s.letGo(jobs)
	s.finished(jobs, patience)
	s.settled()
}

// TestServicesThatNATSDoesNotAnswerEnd starts services with a broker that never responds. They end
// when they are told to.
func TestServicesThatNATSDoesNotAnswerEnd(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), plays...)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	b := silentBroker{s.connect(), make(chan struct{}, 100)}
	o, err := orchestrator.New(b, s.open(), s.code, s.hasty())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	for range 2 {
		s.await(b.asked, "it joins")
	}
	stop()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

// silentBroker never responds to a member that joins.
type silentBroker struct {
	*natsbroker.Bus
	asked chan struct{}
}

func (b silentBroker) Join(context.Context, broker.Member) (broker.Membership, error) {
	b.asked <- struct{}{}
	return nil, context.DeadlineExceeded
}
