package orchestrator

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// unknownStore has no instances.
type unknownStore struct{}

func (unknownStore) Load(_ context.Context, ids []string, _ func(string, round.Row) bool) ([]round.Known, error) {
	return make([]round.Known, len(ids)), nil
}

// deniedBroker may not publish on a subject.
type deniedBroker struct {
	outbox.Broker
	subject string
}

func (b *deniedBroker) Publish(_ context.Context, messages ...events.Wire) error {
	refused := new(broker.Refused)
	for _, w := range messages {
		if w.Subject == b.subject {
			refused.Messages = append(refused.Messages, w)
			refused.Reasons = append(refused.Reasons, broker.ErrMisconfigured)
		}
	}
	if len(refused.Messages) == 0 {
		return nil
	}
	return refused
}

// TestRefusedTurnsAreLoggedOnceAMinute: each check of a turn with a message that the broker refuses
// would fill the log.
func TestRefusedTurnsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := &noops{store: unknownStore{}, broker: &deniedBroker{subject: "rondo.denied"}, prefix: "rondo",
			timeout: time.Second, log: slog.New(slog.NewTextHandler(&log, nil)),
			refusals: rate.Sometimes{Interval: outbox.RefusedEvery}}
		d := &decision{entry: &entry{id: "denied"}, messages: []events.Wire{{Subject: "rondo.denied"}}}
		for range 120 {
			if got := n.check(t.Context(), []*decision{d}); got[0] != refused {
				t.Fatalf("the check has the outcome %v", got[0])
			}
			<-time.After(refusedPause)
		}
		if lines := strings.Count(log.String(), "level=WARN"); lines != 2 {
			t.Errorf("%d warnings in two minutes; want 2:\n%s", lines, log.String())
		}
	})
}

// nacks counts the messages that were nacked.
type nacks struct {
	noHold
	n *int
}

func (h nacks) Nak(time.Duration) { *h.n++ }

// TestARefusedInstanceHasAShare: a client floods an instance whose messages the broker refuses
// because of a setting. Messages for other instances still find room.
func TestARefusedInstanceHasAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10 * refusedShare
		log := slog.New(slog.DiscardHandler)
		calls, metrics, held := newCalls(t.Context()), new(telemetry.Metrics), newHeldMessages(most, 1<<20)
		l := &loop{steps: noSteps{}, log: log, calls: calls, held: held,
			config: loopConfig{maxInbox: 5, stuckAfter: time.Minute}, wake: func(string) {},
			marks: &watermarks{held: held}, noops: new(noops), loader: new(loader),
			former: new(formerReader), spans: new(spans), rounds: new(roundMetrics),
			turnLog: &turnLog{code: log, service: log},
			settler: &settler{held: held, returned: newReturned(), notifier: new(notifier), log: log}}
		l.table = newInstances(instanceLimits{most: 10, mostBytes: 1 << 20, runawayAfter: time.Minute},
			&round.Config{Codec: codec.JSON{}}, noSteps{}, func(string) {}, metrics.Rounds(), log)
		l.table.owned = map[int]bool{0: true}
		nacked, sequence := 0, uint64(0)
		arrive := func(id string) *item {
			sequence++
			i := &item{message: events.Message{Instance: id, Content: &events.EventRaised{Name: "e"}},
				delivery: broker.Delivery{Sequence: sequence, Hold: nacks{n: &nacked}}}
			l.arrive(i)
			return i
		}
		first := arrive("denied")
		l.loader.remove(l.table.entries["denied"])
		e := l.table.entries["denied"]
		e.stage, e.taken, e.waiting = checking, []*item{first}, nil
		l.takeChecked(&checked{decisions: []*decision{{entry: e}}, outcomes: []checkOutcome{refused}})
		for range 2 * most {
			arrive("denied")
			if held.full() {
				t.Fatalf("%d messages for an instance leave no room for others", sequence)
			}
		}
		if n := len(e.waiting); n > most/refusedShare || n+nacked != int(sequence) {
			t.Errorf("%d messages wait, and %d of %d are nacked", n, nacked, sequence)
		}
		if i := arrive("other"); !held.has(i) {
			t.Error("a message for another instance is not held")
		}
		l.finish(&decision{entry: e, turn: round.Turn{Instance: e.id}})
		if e.refused {
			t.Error("the instance still has a share only")
		}
	})
}

// TestARefusedMessageDelaysItsInstanceOnly: the broker refuses a message of a turn without events
// because of a setting. The turn is decided again after a pause, and turns of other instances are
// checked meanwhile.
func TestARefusedMessageDelaysItsInstanceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		calls, jobs, metrics := newCalls(t.Context()), make(chan *entry, 1), new(telemetry.Metrics)
		l := &loop{steps: noSteps{}, log: log, calls: calls, config: loopConfig{maxInbox: 10},
			ready: &readyQueue{jobs: jobs}, former: new(formerReader), spans: new(spans), rounds: new(roundMetrics),
			turnLog: &turnLog{code: log, service: log}, marks: &watermarks{held: newHeldMessages(10, 1<<20)},
			noops: &noops{store: unknownStore{}, broker: &deniedBroker{subject: "rondo.denied"}, prefix: "rondo",
				timeout: time.Second, log: log, done: make(chan *checked, 1)},
			loader: new(loader)}
		held := newHeldMessages(10, 1<<20)
		l.settler = &settler{held: held, returned: newReturned(), notifier: new(notifier), log: log}
		l.table = newInstances(instanceLimits{most: 10, mostBytes: 1 << 20, runawayAfter: time.Minute},
			&round.Config{Codec: codec.JSON{}}, noSteps{}, func(string) {}, metrics.Rounds(), log)
		l.table.owned = map[int]bool{0: true}
		add := func(id, subject string) *entry {
			e := l.table.obtain(id)
			e.stage = checking
			e.taken = []*item{{message: events.Message{Instance: id, Content: &events.EventRaised{Name: "e"}},
				delivery: broker.Delivery{Hold: noHold{}}}}
			l.noops.add(&decision{entry: e, messages: []events.Wire{{Subject: subject}},
				turn: round.Turn{Instance: id, Receipts: []round.Receipt{{Verdict: round.Ignored}}}})
			return e
		}
		began := time.Now()
		denied, first := add("denied", "rondo.denied"), add("first", "rondo.good")
		check := func() {
			l.noops.start(t.Context())
			l.takeChecked(<-l.noops.done)
		}
		check()
		second := add("second", "rondo.good")
		check()
		if !time.Now().Equal(began) {
			t.Fatalf("the turns of other instances waited for %v", time.Since(began))
		}
		if denied.stage != pausing || len(denied.waiting) != 1 {
			t.Errorf("the instance is %v, and %d messages wait; want it to pause", denied.stage, len(denied.waiting))
		}
		for _, e := range []*entry{first, second} {
			if e.stage != idle || len(e.taken) > 0 {
				t.Errorf("instance %q is %v, with %d messages", e.id, e.stage, len(e.taken))
			}
		}
		(<-calls.waiting)() // the pause ends
		if !slices.Contains(l.loader.waiting, denied) {
			t.Errorf("the instance is %v after the pause; want it to be decided again", denied.stage)
		}
	})
}

// silentStarts does not answer about starts.
type silentStarts struct{}

func (silentStarts) StartWaits(ctx context.Context, _ string, _ broker.StartQuestion) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// punctualStore answers while there is time.
type punctualStore struct{ unknownStore }

func (s punctualStore) Load(ctx context.Context, ids []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.unknownStore.Load(ctx, ids, admit)
}

// TestSilenceAboutStartsHoldsUpNoOtherChecks: NATS does not answer whether it has the start of an
// instance. The turns of other instances are checked all the same.
func TestSilenceAboutStartsHoldsUpNoOtherChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &noops{store: punctualStore{}, starts: silentStarts{}, timeout: time.Second, patient: time.Minute,
			log: slog.New(slog.DiscardHandler)}
		mail := &item{message: events.Message{Content: &events.MailboxMessage{}}}
		waits := &decision{entry: &entry{id: "waits", taken: []*item{mail}}, turn: round.Turn{
			Receipts: []round.Receipt{{Verdict: round.Dead, Reason: round.UnknownInstance}}}}
		got := n.check(t.Context(), []*decision{waits, {entry: &entry{id: "other"}}})
		if want := []checkOutcome{notTold, sure}; !slices.Equal(got, want) {
			t.Errorf("the checks have the outcomes %v, want %v", got, want)
		}
	})
}
