package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// crowded is a broker that stores no dead letter.
type crowded struct{ err error }

func (c crowded) StoreDeadLetter(context.Context, broker.Delivery, broker.Cause) error { return c.err }

// settled notes how a delivery was settled.
type settled struct {
	broker.Hold
	how chan string
}

func (s settled) Ack()                { s.how <- "ack" }
func (s settled) Nak(d time.Duration) { s.how <- fmt.Sprint("nak ", d) }

// A message whose dead letter does not fit into a full broker is dropped after a while, because it
// keeps room itself. One whose dead letter fails for another reason stays.
func TestDeadLettersWithoutRoomAreDropped(t *testing.T) {
	full := fmt.Errorf("publish: %w", errors.Join(broker.ErrFull, errors.New("maximum bytes exceeded")))
	for _, x := range []struct {
		name string
		age  time.Duration
		err  error
		want string
	}{
		{"full", keepUnstored - time.Second, full, "nak 1s"},
		{"full for long", keepUnstored + time.Second, full, "ack"},
		{"away for long", 24 * time.Hour, context.DeadlineExceeded, "nak 1s"},
		{"stored", 24 * time.Hour, nil, "ack"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				background := newBackground()
				defer background.end()
				l := &deadLetters{broker: crowded{x.err}, background: background, now: time.Now,
					log: slog.New(slog.DiscardHandler)}
				how := make(chan string, 1)
				l.malformed(broker.Delivery{StoredAt: time.Now().Add(-x.age), Hold: settled{how: how}}, "it is no JSON")
				if got := <-how; got != x.want {
					t.Errorf("%s; want %s", got, x.want)
				}
			})
		})
	}
}

// emptyStore has no instances.
type emptyStore struct{}

func (emptyStore) Load(_ context.Context, ids []string, _ func(string, round.Row) bool) ([]round.Known, error) {
	known := make([]round.Known, len(ids))
	for n, id := range ids {
		known[n].Instance = id
	}
	return known, nil
}

// deadSystem is a loop in which each round dead-letters its messages.
type deadSystem struct {
	*loop
	returned *returned
	how      chan string
	begun    func(e *entry)                 // called when a decider takes it
	question func(e *entry) *round.Question // of the round that begins; nil: it has none
	stop     func()
}

// newDeadSystem starts one that holds so many messages at most.
func newDeadSystem(ctx context.Context, most int, store broker.DeadLetters) *deadSystem {
	ctx, stop := context.WithCancel(ctx)
	log, background := slog.New(slog.DiscardHandler), newBackground()
	calls, jobs, metrics := newCalls(background.lifetime), make(chan *entry), new(telemetry.Metrics)
	s := &deadSystem{returned: newReturned(), how: make(chan string, 10_000), begun: func(*entry) {},
		question: func(*entry) *round.Question { return nil }}
	held := newHeldMessages(most, 1<<40)
	s.loop = &loop{config: loopConfig{ackWait: 5 * time.Second, maxInbox: 100}, held: held,
		table: newInstances(instanceLimits{most: 10, mostBytes: 1 << 20, runawayAfter: time.Minute},
			&round.Config{Codec: codec.JSON{}}, noSteps{}, nil, metrics.Rounds(), log),
		marks: &watermarks{held: held}, ready: &readyQueue{jobs: jobs}, deciders: &deciders{done: make(chan *decision)},
		loader: &loader{store: emptyStore{}, room: newHistoryRoom(), timeout: time.Second,
			measure: func(*loaded) {}, log: log, done: make(chan *loaded, maxLoads)},
		former: new(formerReader), noops: new(noops), commits: new(committer), steps: noSteps{}, spans: new(spans),
		rounds: new(roundMetrics), turnLog: &turnLog{code: log, service: log}, log: log, in: newArrivals().in,
		calls: calls, drained: make(chan struct{}),
		settler: &settler{held: held, returned: s.returned, calls: calls, notifier: new(notifier), log: log,
			dead: &deadLetters{broker: store, background: background, now: time.Now, log: log}},
	}
	s.table.owned = map[int]bool{0: true}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.loop.run(ctx)
	}()
	go func() { // a decider
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-jobs:
				s.begun(e)
				d := &decision{entry: e, turn: round.Turn{Instance: e.id, Question: s.question(e)}}
				receipt := round.Receipt{Verdict: round.Dead, Reason: "mailbox_full"}
				if d.turn.Question != nil {
					receipt = round.Receipt{Verdict: round.Again}
				}
				for range e.taken {
					d.turn.Receipts = append(d.turn.Receipts, receipt)
				}
				select {
				case s.deciders.done <- d:
				case <-ctx.Done():
				}
			}
		}
	}()
	s.stop = func() {
		background.end()
		background.running.Wait()
		stop()
		<-done
	}
	return s
}

// deliver delivers a message for an instance of its own.
func (s *deadSystem) deliver(sequence uint64) { s.deliverTo(fmt.Sprint(sequence), sequence) }

func (s *deadSystem) deliverTo(instance string, sequence uint64) {
	m := events.Message{Instance: instance, Content: &events.MailboxMessage{}}
	s.in <- &item{attempts: 1, message: m,
		delivery: broker.Delivery{Sequence: sequence, StoredAt: time.Now(), NumDelivered: 1,
			Hold: heldHold{settled{how: s.how}}}}
}

// heldHold may be extended.
type heldHold struct{ settled }

func (heldHold) InProgress() {}

// slowDead stores no dead letter before store is closed. open counts those that wait.
type slowDead struct {
	store <-chan struct{}
	open  *atomic.Int64
}

func (s slowDead) StoreDeadLetter(ctx context.Context, _ broker.Delivery, _ broker.Cause) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	select {
	case <-s.store:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestMessagesThatWaitForTheirDeadLettersAreBounded: many messages are dead-lettered after their
// rounds while the broker stores no dead letter. They count as messages in memory, so the loop
// stops receiving. It receives the others once the broker has stored dead letters.
func TestMessagesThatWaitForTheirDeadLettersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, open := make(chan struct{}), new(atomic.Int64)
		const most, n = 50, 1000
		s := newDeadSystem(t.Context(), most, slowDead{store, open})
		defer s.stop()
		for i := range uint64(n) {
			s.deliver(i + 1)
		}
		synctest.Wait()
		if is := open.Load(); is != most {
			t.Errorf("%d messages wait for their dead letters, want %d", is, most)
		}
		close(store)
		for range n {
			if got := <-s.how; got != "ack" {
				t.Fatalf("a message is settled with %s", got)
			}
		}
		synctest.Wait()
		if m := s.count(); m.Messages != 0 || m.MessageBytes != 0 {
			t.Errorf("%d messages of %d bytes are left", m.Messages, m.MessageBytes)
		}
	})
}

// TestMessagesWithoutDeadLettersComeBackSlowly: the broker stores no dead letters. The messages are
// nacked, and wait the longer the more there are, so that they leave room for others. They do not
// count as messages that may have killed their process.
func TestMessagesWithoutDeadLettersComeBackSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeadSystem(t.Context(), 2000, crowded{context.DeadlineExceeded})
		defer s.stop()
		const n = 1000
		for i := range uint64(n) {
			s.deliver(i + 1)
		}
		longest := time.Duration(0)
		for range n {
			after, err := time.ParseDuration(strings.TrimPrefix(<-s.how, "nak "))
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, after)
		}
		if want := (n - 1) * time.Second / returnRate; longest < want {
			t.Errorf("the longest delay is %v, want %v", longest, want)
		}
		synctest.Wait()
		s.deliver(1)
		<-s.how
		if times := s.returned.times(broker.Delivery{Sequence: 1, StoredAt: time.Now()}); times != 2 {
			t.Errorf("a message that was nacked twice counts as nacked %d times", times)
		}
	})
}
