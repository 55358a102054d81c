package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// serve answers the questions of clients, until stop is called.
func (o *Orchestrator) serve() (stop func(), err error) {
	questions, err := query.Answer(o.broker, o.store,
		query.Options{Logger: o.log, Explain: o.explain, System: o.system, Recover: o.recoverSoon})
	if err != nil {
		return nil, err
	}
	calls, err := process.Answer(o.broker, o.present)
	if err != nil {
		questions()
		return nil, err
	}
	return func() { calls(); questions() }, nil
}

// presenting is how long a roll call waits for the database to answer.
const presenting = time.Second

// present tells who asks everybody who this is.
func (o *Orchestrator) present(ctx context.Context) process.Process {
	p := process.Process{Kind: process.Orchestrator, ID: o.config.ID, Build: o.config.Build, Began: o.began}
	ctx, cancel := context.WithTimeout(ctx, presenting)
	defer cancel()
	if err := o.Ready(ctx); err != nil {
		p.Problem = err.Error()
	}
	for _, u := range o.Unknown() {
		p.Unknown = append(p.Unknown,
			process.Unknown{Instance: u.Instance, Reason: string(u.Reason), Detail: u.Detail, Since: u.Since})
	}
	return p
}

// maxExplained bounds the queues that are looked at to explain what an instance waits for.
const maxExplained = 10

// explain says why an instance may be stuck: nobody takes what it waits for, or nobody runs its
// code.
func (o *Orchestrator) explain(ctx context.Context, w *query.Waiting) {
	if w.Name != "" && !w.Status.Ended() && !o.own.anybodyKnows(w.Name, w.Version) {
		w.Notes = append(w.Notes, fmt.Sprintf("no orchestrator that is running knows %q version %s", w.Name, w.Version))
	}
	seen := make(map[broker.Queue]bool)
	for _, x := range w.Waits {
		q := broker.Queue{Tag: x.Tag, Activity: x.Name}
		if x.Kind != round.WaitsForActivity || seen[q] || len(seen) >= maxExplained {
			continue
		}
		seen[q] = true
		b, err := o.broker.WorkBacklog(ctx, q)
		if err != nil || b.Receivers > 0 || b.Held > 0 {
			continue // it is a hint, no more
		}
		note := fmt.Sprintf("no worker takes activity %q", x.Name)
		if x.Tag != "" {
			note += fmt.Sprintf(" with tag %q", x.Tag)
		}
		w.Notes = append(w.Notes, note)
	}
}

// announce tells those who listen what a turn has changed.
func (o *Orchestrator) announce(t *round.Turn) {
	if err := query.AnnounceTurn(o.broker, t); err != nil {
		telemetry.LogOf(o.log, t.Instance,
			t.Row).Debug("a notice was not sent; who waits for it will ask", "error", err)
	}
}

// receipt tells whoever asked what became of a message.
func (o *Orchestrator) receipt(e *entry, i *item, r round.Receipt) {
	if i.inside() || !query.WantsReceipt(i.delivery.Header) {
		return
	}
	if err := query.AnnounceReceipt(o.broker, e.id, e.known.row(), i.message.ID, r); err != nil {
		telemetry.LogOf(o.log, e.id, e.known.row()).Debug("a receipt was not sent", "error", err)
	}
}

// startEach makes of a start that came from a schedule the start of an instance of its own, and
// publishes it. It reports false for any other message.
func (o *Orchestrator) startEach(d broker.Delivery, m events.Message) bool {
	start, ok := m.Content.(*events.Start)
	if v := d.Header[query.HeaderEach]; !ok || len(v) == 0 || v[0] != "true" {
		return false
	}
	o.startOne(d, m, start)
	return true
}

func (o *Orchestrator) startOne(d broker.Delivery, m events.Message, start *events.Start) {
	m.Instance = query.EachInstance(m.Instance, d.StoredAt)
	m.ID = "each/" + d.ID()
	err := events.CheckChosenInstance(m.Instance)
	if start.Parent != nil {
		err = errors.New("a child is not started again and again")
	}
	var w events.Wire
	if err == nil {
		w, err = events.Encode(o.broker.Prefix(), m)
	}
	if err != nil {
		o.deadLetter(d, broker.Cause{Reason: reasonMalformed, Detail: err.Error(), By: o.config.ID})
		return
	}
	o.aside(func(ctx context.Context) {
		if err := o.broker.Publish(ctx, w); err != nil {
			o.log.Warn("what a schedule starts could not be started; trying again", "instance",
				m.Instance, "error", err)
			d.Hold.Nak(time.Second)
			return
		}
		d.Hold.Ack()
	})
}
