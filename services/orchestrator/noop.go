package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// instanceStore loads instances. [history.Rounds] implements it.
type instanceStore interface {
	Load(ctx context.Context, instances []string,
		admit func(instance string, row round.Row) bool) ([]round.Known, error)
}

// isCertain reports whether the receipts of a turn without events need no check: the turn was
// decided on the stored state, or it nacks all messages.
func isCertain(d *decision) bool {
	if _, givesUp := givesUpStart(d); givesUp || len(d.messages) > 0 {
		return false
	}
	return d.entry.fresh || !slices.ContainsFunc(d.turn.Receipts, func(r round.Receipt) bool {
		return r.Verdict == round.Ignored || r.Verdict == round.Dead
	})
}

// givesUpStart reports whether a message of a turn has waited in vain for the start of its
// instance, and returns the partition of all such messages, or [broker.NoPartition] if they are of
// several.
func givesUpStart(d *decision) (partition int, givesUp bool) {
	for n, r := range d.turn.Receipts {
		if r.Reason != round.UnknownInstance || r.Verdict != round.Dead && r.Verdict != round.Ignored {
			continue
		}
		i := d.entry.taken[n]
		c, is := i.message.Content.(*events.Control)
		if r.Verdict != round.Dead && (!is || c.How != events.Cancel && c.How != events.Terminate) {
			continue
		}
		if givesUp && partition != i.delivery.Partition {
			return broker.NoPartition, true
		}
		partition, givesUp = i.delivery.Partition, true
	}
	return partition, givesUp
}

// refusedPause is the delay before a turn is decided again whose messages the broker refuses
// because of a setting.
const refusedPause = time.Second

// noops compares turns that append nothing with the store. If another orchestrator has run the
// instance since, a message without effect here may have an effect there. The goroutine of the loop
// calls its methods.
type noops struct {
	store   instanceStore
	broker  outbox.Broker
	starts  broker.AwaitedStarts
	patient time.Duration // how long messages wait for the start of their instance
	prefix  string
	timeout time.Duration
	metrics *telemetry.OutboxMetrics
	log     *slog.Logger
	done    chan *checked // to the loop
	// refusals limits the logs of messages that the broker refuses because of a setting.
	refusals rate.Sometimes
	untold   rate.Sometimes // limits the logs of starts that the broker does not tell of

	waiting  []*decision
	inFlight int
}

// checked lists turns without events, and the outcome of the check of each.
type checked struct {
	decisions []*decision
	outcomes  []checkOutcome
}

// checkOutcome is the outcome of the check of a turn.
type checkOutcome uint8

const (
	notSure    checkOutcome = iota // another orchestrator has run the instance since, or that is unknown
	sure                           // it was decided on the stored state, and its messages are published
	refused                        // likewise, but the broker refuses a message because of a setting
	startWaits                     // likewise, but the broker has a start of the instance
	notTold                        // whether it has one is unknown
)

// busy reports whether turns wait for a check or are being checked.
func (n *noops) busy() bool { return n.inFlight+len(n.waiting) > 0 }

// add has a turn checked.
func (n *noops) add(d *decision) { n.waiting = append(n.waiting, d) }

// start checks waiting turns, unless a check is in flight.
func (n *noops) start(ctx context.Context) {
	if len(n.waiting) == 0 || n.inFlight > 0 {
		return
	}
	count := min(len(n.waiting), maxLoad)
	decisions := append([]*decision(nil), n.waiting[:count]...)
	n.waiting = n.waiting[count:]
	n.inFlight++
	go func() { n.done <- &checked{decisions, n.check(ctx, decisions)} }()
}

// finish records that a check is not in flight any more.
func (n *noops) finish() { n.inFlight-- }

func (n *noops) check(ctx context.Context, decisions []*decision) []checkOutcome {
	outcomes := make([]checkOutcome, len(decisions))
	ids := make([]string, len(decisions))
	for i, d := range decisions {
		ids[i] = d.entry.id
	}
	starts := n.findStarts(ctx, decisions) // BEFORE the load: a start that is gone by then has begun its instance
	within, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	known, err := n.store.Load(within, ids, func(string, round.Row) bool { return false })
	if err != nil {
		n.log.Warn("instances could not be compared with the store; deciding again", "instances",
			len(ids), "error", err)
		return outcomes
	}
	var messages []events.Wire
	for i, d := range decisions {
		switch {
		case known[i].Row.RowVersion() != d.turn.Expected:
		case starts[i] != sure:
			outcomes[i] = starts[i]
		default:
			outcomes[i] = sure
			messages = append(messages, d.messages...)
		}
	}
	if len(messages) == 0 {
		return outcomes
	}
	err = outbox.Send(within, n.broker, n.prefix, messages, n.log, n.metrics)
	if waits := new(broker.Refused); errors.As(err, &waits) {
		n.refusals.Do(func() { outbox.LogRefused(n.log, waits) })
		for i, d := range decisions {
			if outcomes[i] == sure && slices.ContainsFunc(d.messages,
				func(w events.Wire) bool { return waits.ReasonFor(w) != nil }) {
				outcomes[i] = refused
			}
		}
	} else if err != nil {
		n.log.Warn("what a turn without events says could not be published; deciding again", "error", err)
		clear(outcomes)
	}
	return outcomes
}

// startsAtOnce is the maximum number of instances whose starts are looked for at the same time.
const startsAtOnce = 16

// findStarts asks the broker for the starts of instances whose messages have waited for them in
// vain, because the watermark of the inbox does not tell of all: while no orchestrator ran, or
// delayed messages were not forwarded, the time of a start may have come and nothing took it, or
// the start waits in another partition, because their number was changed. The outcome of others is
// sure.
func (n *noops) findStarts(ctx context.Context, decisions []*decision) []checkOutcome {
	ctx, cancel := context.WithTimeout(ctx, n.timeout/3) // the checks of all others wait for it
	defer cancel()
	outcomes := make([]checkOutcome, len(decisions))
	var all sync.WaitGroup
	slots, now := make(chan struct{}, startsAtOnce), time.Now()
	for i, d := range decisions {
		outcomes[i] = sure
		partition, givesUp := givesUpStart(d)
		if !givesUp {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			waits, err := n.starts.StartWaits(ctx, d.entry.id,
				broker.StartQuestion{DueBefore: now, MovedSince: now.Add(-n.patient), Partition: partition})
			switch {
			case err != nil:
				outcomes[i] = notTold
				n.untold.Do(func() {
					n.log.Warn("whether NATS has the start of an instance is unknown; asking again", "instance",
						d.entry.id, "error", err)
				})
			case waits:
				outcomes[i] = startWaits
			}
		})
	}
	all.Wait()
	return outcomes
}
