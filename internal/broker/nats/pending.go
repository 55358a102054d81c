package natsbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// pendingStarts reads the starts that the streams keep. It asks for stored messages, and makes no
// consumer: see [reader].
type pendingStarts struct {
	*resources
	reader reader
}

const (
	// maxStarts and maxStartBytes bound the starts read at once: a start has its input.
	maxStarts     = 256
	maxStartBytes = 1 << 20
)

// startPlace is where starts are stored: a stream, and the filter for their subjects.
type startPlace struct{ stream, filter string }

// places returns all places of starts of a name and an instance, "*" for any, in the order in which
// a start moves: a caller that reads one after the other finds it while it moves. It never moves
// back.
func (p *pendingStarts) places(name, instance string) []startPlace {
	inbox := func(verb string) startPlace {
		return startPlace{p.names.inbox, p.subject("p", "*", verb, name, instance)}
	}
	later := func(begin, verb string) startPlace {
		return startPlace{p.names.later, p.subject(begin, verb, name, instance)}
	}
	client := string(events.VerbStart)
	internal := "internal_" + client // see [events.Origin]
	return []startPlace{inbox(client), inbox(internal), later("later", client), later(dueVerb, client),
		later(dueVerb, internal), inbox(dueMark + client), inbox(dueMark + internal)}
}

// PendingStarts implements [broker.PendingStarts].
func (p *pendingStarts) PendingStarts(ctx context.Context, f broker.StartFilter, from broker.StartCursor,
	limit int) (page broker.StartPage, err error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	places := p.places(tokenOrAny(f.Name), tokenOrAny(f.Instance))
	page.Next, limit = from, min(limit, maxStarts)
	for bytes := 0; len(page.Starts) < limit && bytes < maxStartBytes && page.Next.Place < len(places); {
		at := places[page.Next.Place]
		var part startBatch
		err := p.denied.during(ctx, func(ctx context.Context) (err error) {
			part, err = p.batch(ctx, at, page.Next.Sequence, limit-len(page.Starts))
			return err
		})
		if err != nil {
			return page, problem("list the starts in stream "+at.stream, err)
		}
		page.Starts, bytes = append(page.Starts, part.starts...), bytes+part.bytes
		if page.Next.Sequence = part.next; part.end {
			page.Next = broker.StartCursor{Place: page.Next.Place + 1}
		}
	}
	page.More = page.Next.Place < len(places)
	return page, nil
}

// StartWaits implements [broker.AwaitedStarts], with one request to each stream. A client may store
// more delayed starts of one instance than there are answers: then it may miss its own.
func (p *pendingStarts) StartWaits(ctx context.Context, instance string, q broker.StartQuestion) (is bool, err error) {
	filters := make(map[string][]string)
	for _, x := range p.places(token(broker.Any), token(instance)) {
		filters[x.stream] = append(filters[x.stream], x.filter)
	}
	for _, stream := range []string{p.names.later, p.names.inbox} { // in the order in which it moves
		err := p.denied.during(ctx, func(ctx context.Context) error {
			return p.reader.askMany(ctx, stream, filters[stream], maxStarts, func(x located, h events.Header) {
				is = is || p.answers(q, stream, x, h)
			})
		})
		if err != nil || is {
			return is, problem("look for a start", err)
		}
	}
	return false, nil
}

// answers reports whether a stored start is one that a question selects.
func (p *pendingStarts) answers(q broker.StartQuestion, stream string, x located, h events.Header) bool {
	at, _ := time.Parse(time.RFC3339Nano, first(h, headerNotBefore)) // one that cannot be read is none
	if stream == p.names.later {
		return at.Before(q.DueBefore)
	}
	_, partition := p.publishedAs(x.subject)
	delayed := strings.HasPrefix(x.subject, p.subject("p", strconv.Itoa(partition), dueMark))
	return partition != q.Partition || delayed && at.Before(q.DueBefore) && !x.at.Before(q.MovedSince)
}

// tokenOrAny encodes a word for a subject; "" stands for any.
func tokenOrAny(word string) string {
	if word == "" {
		word = broker.Any
	}
	return token(word)
}

// startBatch collects the starts of a batch.
type startBatch struct {
	place  startPlace
	starts []broker.PendingStart
	under  []string // the subjects under which they are stored
	bytes  int
	next   uint64 // the next sequence number
	end    bool   // there are no more
}

// batch reads starts of a place, from a sequence number on: one by one, and from the leader of the
// stream. For a request for several messages, NATS counts all that match the filter, which takes
// longer the more there are; another replica may not have the newest ones, and headers of stored
// messages can forge its answer.
func (p *pendingStarts) batch(ctx context.Context, at startPlace, from uint64, limit int) (b startBatch, err error) {
	filter, err := json.Marshal(at.filter)
	if err != nil {
		return b, err
	}
	b = startBatch{place: at, next: max(from, 1)}
	for len(b.starts) < limit && b.bytes < maxStartBytes && !b.end {
		more, err := p.ask(ctx, &b, filter)
		if b.end = !more; err != nil {
			return b, err
		}
	}
	return b, nil
}

// ask adds the next start to a batch, as the leader of the stream names it, and reports whether
// there is one.
func (p *pendingStarts) ask(ctx context.Context, b *startBatch, filter []byte) (more bool, err error) {
	f, err := p.reader.nextOf(ctx, b.place.stream, filter, b.next)
	if f == nil || err != nil {
		return false, err
	}
	h, _ := f.header() // headers that cannot be read are none
	p.add(b, f, h)
	return true, nil
}

// add adds a stored message to a batch.
func (p *pendingStarts) add(b *startBatch, f *found, h nats.Header) {
	if f.Sequence < b.next { // the leader has named it instead of one that is gone
		return
	}
	b.next = f.Sequence + 1
	s := p.startOf(b.place.stream, f, events.Header(h))
	b.starts, b.bytes = append(b.starts, s), b.bytes+s.Size()
	b.under = append(b.under, f.Subject)
}

// withdrawTries is how often WithdrawStart looks for a start, until it finds none. A start moves on
// three times.
const withdrawTries = 5

// WithdrawStart implements [broker.PendingStarts].
func (p *pendingStarts) WithdrawStart(ctx context.Context, s broker.PendingStart) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	words := strings.Split(strings.TrimPrefix(s.Subject, p.subject("")), ".")
	if len(words) != 3 {
		return fmt.Errorf("nats: withdraw %s: %w", s.Subject, errNoStream)
	}
	for range withdrawTries {
		found := false
		for _, at := range p.places(words[1], words[2]) {
			is, err := p.remove(ctx, at, s.Key)
			if err != nil {
				return problem("withdraw "+s.Subject, err)
			}
			found = found || is
		}
		if !found {
			return nil
		}
	}
	return fmt.Errorf("nats: withdraw %s: other processes keep storing it", s.Subject)
}

// remove removes the start with a key from a place, up to its sequence number, and reports whether
// it was there.
func (p *pendingStarts) remove(ctx context.Context, at startPlace, key string) (is bool, err error) {
	var under string
	var last uint64
	for b := (startBatch{}); !b.end; {
		err := p.denied.during(ctx, func(ctx context.Context) (err error) {
			b, err = p.batch(ctx, at, b.next, maxStarts)
			return err
		})
		if err != nil {
			return false, err
		}
		for i, s := range b.starts {
			if s.Key == key {
				under, last = b.under[i], s.Sequence
			}
		}
	}
	if last == 0 {
		return false, nil
	}
	st, _, err := p.streamOf(under)
	if at.stream == p.names.later {
		st, err = p.laterStream()
	}
	if err != nil {
		return false, err
	}
	return true, st.Purge(ctx, jetstream.WithPurgeSubject(under), jetstream.WithPurgeSequence(last+1))
}

// startOf makes a start of a stored message: see [conn.delivery].
func (p *pendingStarts) startOf(stream string, f *found, h events.Header) broker.PendingStart {
	s := broker.PendingStart{Delivery: broker.Delivery{Sequence: f.Sequence, StoredAt: f.Time, Body: f.Data}}
	accepted, moved := readAcceptance(h), true
	switch {
	case stream == p.names.inbox:
		s.Subject, s.Partition = p.publishedAs(f.Subject)
		s.Subject, moved = p.withoutDue(s.Subject, h) // otherwise, a client may have set the header
	case strings.HasPrefix(f.Subject, p.subject(dueVerb, "")):
		s.Subject = p.subject(strings.TrimPrefix(f.Subject, p.subject(dueVerb, "")))
	default: // the subject does not have whether the start is internal, and its target does
		s.Subject = p.subject(strings.TrimPrefix(first(h, scheduleTarget), p.subject(dueVerb, "")))
	}
	if moved && accepted.at > 0 {
		s.AcceptedAt, s.Key = time.UnixMicro(accepted.at).UTC(), accepted.String()
	} else {
		s.Key = acceptanceOf(s.Delivery).String()
	}
	s.NotBefore, _ = time.Parse(time.RFC3339Nano, first(h, headerNotBefore)) // one that cannot be read is none
	clean(h)
	s.Header = broker.Received(h)
	return s
}
