package client

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// Outcome implements [orchestration.Client]. An instance that was there and is deleted meanwhile
// ends it with [ErrNoInstance].
func (c *Client) Outcome(ctx context.Context, instance, start string) (orchestration.Outcome, error) {
	if err := events.CheckInstance(instance); err != nil {
		return orchestration.Outcome{}, err
	}
	w := ending{decision: decisionOf(c, instance, start)}
	err := c.waits.follow(ctx, instance, c.lately.of(instance), w.look)
	return w.outcome, err
}

// Wait waits until an instance has ended. Any client may have started it.
func (c *Client) Wait(ctx context.Context, instance string) (orchestration.Outcome, error) {
	return c.Outcome(ctx, instance, "")
}

// ending waits for the end of an instance.
type ending struct {
	decision
	outcome orchestration.Outcome
	existed bool
}

func (w *ending) look(ctx context.Context, heard []query.Notification, ask bool) (bool, error) {
	for _, n := range heard {
		ask = w.hear(n) || ask
		switch e, ok := n.Ended(); {
		case n.Topic == query.TopicDeleted:
			ask, w.existed = true, w.existed || w.settled
		case !ok || e.Replaced:
		case e.Large || !w.counts(e.StartMessage) || w.start != "" && e.StartMessage != w.start:
			// the notification may have been overtaken
			ask = true
		default:
			w.outcome = orchestration.Outcome{Output: e.Output, Error: e.Error, Orchestration: e.Name,
				Execution: e.Execution}
			return true, nil
		}
	}
	if !ask {
		return false, nil
	}
	info, err := w.c.data.reader().Instance(ctx, w.instance)
	if errors.Is(err, history.ErrNoInstance) {
		if w.existed || w.taken {
			return false, deleted(w.instance)
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !w.counts(info.StartMessage) {
		return false, w.find(ctx, info)
	}
	w.existed = true
	if !info.Status.Ended() {
		return false, nil
	}
	w.outcome = orchestration.Outcome{Output: info.Output, Error: info.Error, Orchestration: info.Name,
		Execution: info.Execution}
	return true, info.Problem
}

// ---- What became of a start.

// decision is the known outcome of a start. It can be found out even if the notification of the
// orchestrator is lost: an instance takes its messages in order, so once it has looked at a further
// message that changes nothing (a probe), it has looked at the start, too. The state of the
// instance then tells whether the start has begun it.
type decision struct {
	c        *Client
	instance string
	start    string // the message; "" if there is none to wait for
	settled  bool   // it is known that it was looked at
	taken    bool   // it has begun an incarnation
	probe    string
	probed   time.Time // when it was last sent
	looks    int
}

// skew is how much clocks may differ.
const skew = 10 * time.Second

// probeAgain is after how long a probe is taken for lost.
const probeAgain = 30 * time.Second

func decisionOf(c *Client, instance, start string) decision {
	return decision{c: c, instance: instance, start: start, settled: start == ""}
}

// hear takes a notification, and reports whether it is a reason to ask.
func (d *decision) hear(n query.Notification) bool {
	s, ok := n.Settled()
	start := s.IsOf(d.start, events.VerbStart)
	if !ok || d.settled || !start && (d.probe == "" || !s.IsOf(d.probe, events.VerbWake)) {
		return false
	}
	d.settled = true
	d.taken = start && s.Verdict == query.VerdictAccepted
	return true
}

// counts reports whether an incarnation that was begun by a message is one that counts.
func (d *decision) counts(startMessage string) bool {
	if d.start != "" && startMessage == d.start {
		d.settled, d.taken = true, true
	}
	return d.settled
}

// find finds out whether the start was looked at, when an earlier incarnation is still there.
func (d *decision) find(ctx context.Context, info history.Info) error {
	d.looks++
	due := d.c.sent.of(d.start)
	now := d.c.o.Now()
	if d.looks == 1 || now.Before(due.Add(time.Second)) || time.Since(d.probed) < probeAgain {
		return nil // it has hardly had the time
	}
	if !due.IsZero() && info.Status.Ended() && info.EndedAt.Before(due.Add(-skew)) {
		return nil // any conflict policy begins a new incarnation here
	}
	d.probe, d.probed = d.c.NewID(), time.Now()
	w, err := d.c.encode(events.Message{ID: d.probe, Instance: d.instance, Content: &events.Wake{Reason: "receipt"}})
	if err != nil {
		return err
	}
	query.AskReceipt(&w)
	return passing(d.c.broker.Publish(ctx, w))
}

// passing makes an error of the broker's one that may be gone the next time, unless it will never
// take the message.
func passing(err error) error {
	var refused *broker.Refused
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return &history.Error{Class: history.Retry, Op: "publish", Err: err}
}

// ---- Receipts.

// publishAgain is the delay before an unconfirmed message is published again: longer than the
// deduplication window of the broker. For a start, it doubles each time, up to a minute.
const publishAgain, longestDelay = 6 * time.Second, time.Minute

// Deliver implements [orchestration.Client].
func (c *Client) Deliver(ctx context.Context, m events.Message) (orchestration.Receipt, error) {
	if m.ID == "" {
		m.ID = c.NewID()
	}
	w, err := c.encode(traced(ctx, m))
	if err != nil {
		return orchestration.Receipt{}, err
	}
	query.AskReceipt(&w)
	c.noteStart(m, time.Time{}) // a call that waits for a receipt publishes when it listens
	d := delivering{decision: decisionOf(c, m.Instance, m.ID), wire: w, verb: m.Content.Verb()}
	d.begins, _ = m.Content.(*events.Start)
	err = c.waits.follow(ctx, m.Instance, time.Time{}, d.look)
	return d.receipt, err
}

// delivering waits for what becomes of a message.
type delivering struct {
	decision
	wire      events.Wire
	verb      events.Verb
	begins    *events.Start // nil: it is no start
	receipt   orchestration.Receipt
	published time.Time
	delay     time.Duration // before the next publication of a start
}

func (d *delivering) look(ctx context.Context, heard []query.Notification, ask bool) (bool, error) {
	for _, n := range heard {
		if s, ok := n.Settled(); ok && s.IsOf(d.start, d.verb) {
			d.receipt = orchestration.Receipt{Taken: s.Taken(), Reason: string(s.Reason), Detail: s.Detail,
				Status: string(s.Status)}
			return true, nil
		}
		ask = d.hear(n) || ask
	}
	if !ask {
		return false, nil
	}
	if d.published.IsZero() || d.begins == nil && time.Since(d.published) >= publishAgain {
		// history knows it if it was taken already
		if err := d.c.broker.Publish(ctx, d.wire); err != nil {
			return false, passing(err)
		}
		d.published, d.delay = time.Now(), publishAgain
		return false, nil
	}
	if d.begins == nil {
		return false, nil
	}
	return d.findStart(ctx)
}

// findStart asks whether the start has begun the instance.
func (d *delivering) findStart(ctx context.Context) (bool, error) {
	info, err := d.c.data.reader().Instance(ctx, d.instance)
	switch {
	case errors.Is(err, history.ErrNoInstance):
		return false, d.publishLost(ctx)
	case err != nil:
		return false, err
	case d.counts(info.StartMessage) && d.taken:
		d.receipt = orchestration.Receipt{Taken: true, Reason: string(round.Taken), Status: string(info.Status)}
		return true, nil
	case d.settled: // by the probe
		d.receipt = orchestration.Receipt{Reason: string(round.Exists), Status: string(info.Status),
			Detail: "instance \"" + d.instance + "\" is already there (" + string(info.Status) + ")"}
		return true, nil
	}
	return false, d.find(ctx, info)
}

// publishLost publishes a start that NATS has lost: there is no instance, and none of its starts
// waits. If an orchestrator has just taken the start, the second one changes nothing.
func (d *delivering) publishLost(ctx context.Context) error {
	if time.Since(d.published) < d.delay {
		return nil
	}
	for start, err := range d.c.Instances().Pending(ctx, PendingFilter{Instance: d.instance}) {
		if err != nil {
			return passing(err)
		}
		if start.Instance == d.instance {
			d.published = time.Now() // look again later
			return nil
		}
	}
	if err := d.c.broker.Publish(ctx, d.wire); err != nil {
		return passing(err)
	}
	d.published, d.delay = time.Now(), min(2*d.delay, longestDelay)
	return nil
}
