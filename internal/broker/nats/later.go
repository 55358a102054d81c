package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// What waits for its time lies in a stream of its own, where only orchestrators may publish,
// because NATS's own headers act there: whoever publishes there can delete what others have stored,
// and choose what the server publishes when.
//
//	client        rondo.start.fulfil.order-7  with Rondo-Not-Before            RONDO
//	receiver      rondo.later.start.fulfil.order-7  with Nats-Schedule         RONDO_LATER
//	NATS          rondo.due.start.fulfil.order-7, a second before its time     RONDO_LATER
//	forwarder     rondo.due_start.fulfil.order-7                               RONDO
//	receiver      holds it for the rest, and hands it out
//
// The receiver of the partition takes over what clients send (takeover.go), and every process that
// receives forwards what is due. Each of them acknowledges a message after it has stored the next
// one, so a crash in between stores that twice, with the same id. Timers are published under
// rondo.later.timer-due.… by the orchestrators themselves.

const (
	// dueVerb begins the subjects that NATS publishes when it is time; dueMark the verbs under
	// which they go on.
	dueVerb = "due"
	dueMark = "due_"
	// dueConsumer hands out what is due.
	dueConsumer = "due"
	// forwardAtOnce bounds how many messages are forwarded in one go.
	forwardAtOnce = 500
	// forwardAgain is the pause after an error.
	forwardAgain = time.Second

	// headerNotBefore says when a message may be taken.
	headerNotBefore = "Rondo-Not-Before"
	// headerAccepted says when a message was accepted that has waited for its time since. Only
	// services may say so.
	headerAccepted = "Rondo-Accepted"
	// headerFired says when NATS has published a message that it publishes again and again. Only
	// services may say so.
	headerFired = "Rondo-Fired"
)

// acceptance is when a message was stored first: of two, the later one counts.
type acceptance struct {
	at    int64 // microseconds
	place uint64
}

func (a acceptance) compare(b acceptance) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.place, b.place))
}

func (a acceptance) String() string { return fmt.Sprintf("%d@%d", a.place, a.at) }

func acceptanceOf(d broker.Delivery) acceptance {
	return acceptance{d.StoredAt.UnixMicro(), d.Sequence}
}

// readAcceptance reads what is in the header; zero if nothing is.
func readAcceptance(h events.Header) (a acceptance) {
	place, at, _ := strings.Cut(first(h, headerAccepted), "@")
	a.place, _ = strconv.ParseUint(place, 10, 64)
	a.at, _ = strconv.ParseInt(at, 10, 64)
	return a
}

// verbOf is the first word of a subject.
func (b *Bus) verbOf(subject string) string {
	verb, _, _ := strings.Cut(strings.TrimPrefix(subject, b.names.prefix+"."), ".")
	return verb
}

// fromClient tells whether clients may publish under a subject.
func (b *Bus) fromClient(subject string) bool {
	_, internally := events.Origin(b.verbOf(subject))
	return !internally
}

// goesThroughInbox tells whether a delayed message is taken over from the inbox: all that instances
// and clients send to an instance. Timers, which only the services know, are not.
func (b *Bus) goesThroughInbox(subject string) bool {
	verb, _ := events.Origin(b.verbOf(subject))
	switch verb {
	case events.VerbStart, events.VerbEvent, events.VerbQueue, events.VerbControl:
		return true
	}
	return false
}

// withoutDue takes the mark off a subject that says that the message has waited for its time. Those
// that were forwarded have an id; anything else is an acknowledgement that somebody had NATS send
// there.
func (b *Bus) withoutDue(subject string, h events.Header) (string, bool) {
	rest, due := strings.CutPrefix(subject, b.names.prefix+"."+dueMark)
	if !due || first(h, events.HeaderMsgID) == "" {
		return subject, false
	}
	return b.names.prefix + "." + rest, true
}

// eachCounts tells the messages to an instance of which each one counts. Of all others, the last
// one of a subject does.
func eachCounts(verb events.Verb) bool { return verb == events.VerbEvent || verb == events.VerbQueue }

// laterOf is the subject under which a message waits for its time. What counts each time has one of
// its own.
func (b *Bus) laterOf(w events.Wire) string {
	word := b.verbOf(w.Subject)
	verb, _ := events.Origin(word)
	later := b.subject("later", string(verb)+strings.TrimPrefix(w.Subject, b.names.prefix+"."+word))
	if id := first(w.Header, events.HeaderMsgID); eachCounts(verb) && id != "" {
		h := fnv.New64a()
		h.Write([]byte(id))
		later = fmt.Sprintf("%s%%00%016x", later, h.Sum64()) // no instance has such a name
	}
	return later
}

// dueOf is the subject under which NATS publishes a message when it is time.
func (b *Bus) dueOf(subject string) string {
	return b.subject(dueVerb, strings.TrimPrefix(subject, b.names.prefix+"."))
}

// schedule makes the message that has NATS publish another one, a second before its time because
// NATS may be late.
func (b *Bus) schedule(w events.Wire, target, id string) *nats.Msg {
	h := make(nats.Header, len(w.Header)+5)
	maps.Copy(h, nats.Header(w.Header))
	delete(h, nats.MsgIdHdr)
	if id != "" {
		h[nats.MsgIdHdr] = []string{id}
	}
	at := w.NotBefore
	if at.After(latest) {
		at = latest // it comes again and again from then on, until its time
	}
	h[headerNotBefore] = []string{w.NotBefore.UTC().Format(time.RFC3339Nano)}
	h["Nats-Schedule"] = []string{"@at " + at.Add(-early).UTC().Format(time.RFC3339Nano)}
	h["Nats-Schedule-Target"] = []string{target}
	h["Nats-Rollup"] = []string{"sub"} // one for each subject, the last one
	return &nats.Msg{Subject: b.laterOf(w), Header: h, Data: w.Body}
}

// ---- Forwarding what is due.

// forwardDue has this process forward what is due, until stop is called. It may be called several
// times.
func (b *Bus) forwardDue() (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.forwarding++; b.forwarding == 1 && !b.closed {
		ctx, cancel := context.WithCancel(b.ctx)
		ended := make(chan struct{})
		b.endForwarding = func() {
			cancel()
			<-ended
		}
		b.wait.Go(func() {
			defer close(ended)
			b.forward(ctx)
		})
	}
	return func() {
		b.mu.Lock()
		var end func()
		if b.forwarding--; b.forwarding == 0 {
			end, b.endForwarding = b.endForwarding, nil
		}
		b.mu.Unlock()
		if end != nil {
			end()
		}
	}
}

// forward forwards until the context ends.
func (b *Bus) forward(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := b.forwardUntilBroken(ctx)
		if ctx.Err() != nil {
			return
		}
		if failures%30 == 3 {
			b.log.Warn("NATS: messages that are due cannot be forwarded; retrying", "stream",
				b.names.later, "error", err)
		}
		select {
		case <-time.After(forwardAgain):
		case <-ctx.Done():
		}
	}
}

// forwardUntilBroken forwards what one subscription brings.
func (b *Bus) forwardUntilBroken(ctx context.Context) error {
	c, err := b.lookFor(ctx, b.names.later, dueConsumer)
	if err != nil {
		return err
	}
	all, err := c.Messages(jetstream.PullMaxMessages(forwardAtOnce), jetstream.PullExpiry(pullFor),
		jetstream.PullHeartbeat(pullFor/6))
	if err != nil {
		return err
	}
	// What was handed out already is forwarded, too: nobody else would get it before the ack wait
	// is over.
	defer context.AfterFunc(ctx, all.Drain)()
	defer all.Stop()
	came := make(chan jetstream.Msg, forwardAtOnce)
	var broken error
	go func() {
		defer close(came)
		for {
			m, err := all.Next()
			if err != nil {
				broken = err
				return
			}
			came <- m
		}
	}()
	for m := range came {
		batch := []jetstream.Msg{m}
		for len(batch) < forwardAtOnce && len(came) > 0 {
			batch = append(batch, <-came)
		}
		if err := b.forwardBatch(b.ctx, batch); err != nil {
			all.Stop()
			for range came { // they come again
			}
			return err
		}
	}
	return broken
}

// forwardBatch stores messages where their receivers take them, and acknowledges them then.
func (b *Bus) forwardBatch(ctx context.Context, batch []jetstream.Msg) error {
	wires := make([]events.Wire, 0, len(batch))
	for _, m := range batch {
		if m.Headers()[headerSchedule] != nil {
			current, err := b.isCurrent(ctx, m.Headers())
			if err != nil {
				return fmt.Errorf("look at the schedule of %s: %w", m.Subject(), err)
			}
			if !current {
				continue
			}
		}
		wires = append(wires, b.forwarded(m))
	}
	if err := b.publishOrDeadLetter(ctx, wires); err != nil {
		return err
	}
	for _, m := range batch {
		_ = m.Ack() // if it is lost, it is forwarded again, with the same id
	}
	return nil
}

// forwarded is what is published instead of a message that is due.
func (b *Bus) forwarded(m jetstream.Msg) events.Wire {
	rest := strings.TrimPrefix(m.Subject(), b.subject(dueVerb)+".")
	w := events.Wire{Subject: b.subject(rest), Header: events.Header{}, Body: m.Data()}
	for name, values := range m.Headers() {
		if !strings.HasPrefix(name, "Nats-") && name != headerSchedule && name != headerRevision {
			w.Header[name] = values
		}
	}
	if b.goesThroughInbox(w.Subject) {
		w.Subject = b.subject(dueMark + rest)
	}
	meta, err := m.Metadata()
	if err != nil {
		return w
	}
	if next := m.Headers().Get("Nats-Schedule-Next"); next != "" && next != "purge" { // it comes again and again
		w.Header[headerFired] = []string{meta.Timestamp.UTC().Format(time.RFC3339Nano)}
		w.Header[events.HeaderMsgID] = []string{fmt.Sprintf("%s/%d@%d", dueVerb, meta.Sequence.Stream,
			meta.Timestamp.UnixMicro())}
	}
	return w
}

// publishOrDeadLetter publishes messages, and dead-letters those that NATS refuses.
func (b *Bus) publishOrDeadLetter(ctx context.Context, wires []events.Wire) error {
	err := b.Publish(ctx, wires...)
	var refused *broker.Refused
	if !errors.As(err, &refused) {
		return err
	}
	for i, w := range refused.Messages {
		d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, StoredAt: time.Now()}
		why := broker.Cause{Reason: "refused", Detail: refused.Reasons[i].Error(), By: "delay"}
		if err := b.StoreDeadLetter(ctx, d, why); err != nil {
			return err
		}
		b.log.Error("NATS: a delayed message was refused and dead-lettered", "subject", w.Subject, "error",
			refused.Reasons[i])
	}
	return nil
}
