package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// The headers of dead letters, besides those of the message.
const (
	HeaderDeadReason   = "Rondo-Dead-Reason"
	HeaderDeadDetail   = "Rondo-Dead-Detail"
	HeaderDeadBy       = "Rondo-Dead-By"
	HeaderDeadAttempts = "Rondo-Dead-Attempts"
	HeaderDeadSubject  = "Rondo-Dead-Subject"
	HeaderDeadID       = "Rondo-Dead-Id"     // the id it had
	HeaderDeadStored   = "Rondo-Dead-Stored" // when it was first stored
	HeaderDeadLost     = "Rondo-Dead-Lost"   // its headers and its body were too large with these
)

// maxDetail is the maximum length of a value in a header of a dead letter.
const maxDetail = 4 << 10

// deadLetters is the dead-letter queue.
type deadLetters struct {
	*resources
	reader    reader
	publisher *publisher
}

// StoreDeadLetter implements broker.DeadLetters.
func (dl *deadLetters) StoreDeadLetter(ctx context.Context, d broker.Delivery, why broker.Cause) error {
	h := nats.Header(broker.Carry(d.Header))
	set := func(name, value string) {
		if value != "" {
			h[name] = []string{printable(value)}
		}
	}
	set(HeaderDeadReason, why.Reason)
	set(HeaderDeadDetail, why.Detail)
	set(HeaderDeadBy, why.By)
	set(HeaderDeadSubject, d.Subject)
	if why.Attempts > 0 {
		set(HeaderDeadAttempts, strconv.Itoa(why.Attempts))
	}
	set(HeaderDeadID, cmp.Or(first(d.Header, events.HeaderMsgID), first(d.Header, nats.MsgIdHdr)))
	delete(h, events.HeaderMsgID)
	set(HeaderDeadStored, d.StoredAt.UTC().Format(time.RFC3339Nano))
	if d.Sequence > 0 {
		h[nats.MsgIdHdr] = []string{"dead/" + d.ID()}
	}
	w := events.Wire{Subject: dl.deadSubject(d.Subject), Header: events.Header(h), Body: d.Body}
	err := dl.publisher.Publish(ctx, w)
	var refused *broker.Refused
	if errors.As(err, &refused) && !errors.Is(refused.Reasons[0], broker.ErrMisconfigured) {
		// The added headers have made it too large.
		w.Header = events.Header{
			HeaderDeadDetail: {printable(fmt.Sprintf("%s (its headers and its body of %d bytes are left out: %v)",
				why.Detail, len(d.Body), refused.Reasons[0]))},
		}
		for _, name := range []string{HeaderDeadReason, HeaderDeadBy, HeaderDeadAttempts, HeaderDeadSubject,
			HeaderDeadID, HeaderDeadStored, nats.MsgIdHdr} {
			if v := h[name]; len(v) > 0 {
				w.Header[name] = v
			}
		}
		w.Header[HeaderDeadLost], w.Body = []string{"true"}, nil
		err = dl.publisher.Publish(ctx, w)
	}
	if errors.As(err, &refused) { // callers publish messages, too, and must not take this for one of them
		return fmt.Errorf("store the dead letter of a message on %s: %w", d.Subject, refused.Reasons[0])
	}
	return err
}

var _ broker.DeadLetterStore = (*Bus)(nil)

// DeadLetters implements broker.DeadLetterStore.
func (dl *deadLetters) DeadLetters(ctx context.Context, after uint64, limit int) (list []broker.DeadLetter, err error) {
	for len(list) < limit {
		// the next dead letter from there on
		f, err := dl.ask(ctx, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, after+1, dl.subject(deadVerb, ">")))
		if err != nil {
			return nil, problem("read dead letters", err)
		}
		if f == nil {
			break
		}
		list, after = append(list, dl.deadLetter(f)), f.Sequence
	}
	return list, nil
}

// DeadLetter implements broker.DeadLetterStore.
func (dl *deadLetters) DeadLetter(ctx context.Context, place uint64) (broker.DeadLetter, error) {
	l, _, err := dl.read(ctx, place)
	return l, err
}

// read returns a dead letter, and the subject under which it is stored.
func (dl *deadLetters) read(ctx context.Context, place uint64) (l broker.DeadLetter, under string, err error) {
	f, err := dl.ask(ctx, fmt.Sprintf(`{"seq":%d}`, place))
	if err != nil {
		return l, "", problem("read a dead letter", err)
	}
	if f == nil {
		return l, "", fmt.Errorf("number %d: %w", place, broker.ErrNoLetter)
	}
	return dl.deadLetter(f), f.Subject, nil
}

// ask asks the leader of the stream: a worker may store dead letters, and their headers could forge
// the answer of another replica.
func (dl *deadLetters) ask(ctx context.Context, request string) (f *found, err error) {
	if _, err := dl.deadStream(); err != nil {
		return nil, err
	}
	ctx, cancel := dl.bounded(ctx)
	defer cancel()
	err = dl.denied.during(ctx, func(ctx context.Context) (err error) {
		f, err = dl.reader.askLeader(ctx, dl.names.dead, []byte(request))
		return err
	})
	return f, err
}

// deadLetter separates the message from the headers about its dead-lettering.
func (dl *deadLetters) deadLetter(f *found) broker.DeadLetter {
	l := broker.DeadLetter{Sequence: f.Sequence, Body: f.Data, DeadLetteredAt: f.Time}
	h, err := f.header()
	if err != nil {
		l.Why.Detail = printable(fmt.Sprintf("its headers cannot be read: %v", err))
		return l
	}
	l.Header = broker.Carry(h)
	attempts, _ := strconv.Atoi(h.Get(HeaderDeadAttempts))
	l.Why = broker.Cause{Reason: h.Get(HeaderDeadReason), Detail: h.Get(HeaderDeadDetail), By: h.Get(HeaderDeadBy),
		Attempts: attempts}
	l.Subject, l.ID, l.Lost = h.Get(HeaderDeadSubject), h.Get(HeaderDeadID), h.Get(HeaderDeadLost) != ""
	s := dl.subject(strings.TrimPrefix(f.Subject, dl.subject(deadVerb, "")))
	if strings.TrimSpace(printable(s)) == l.Subject {
		l.Subject = s // the header does not have its control characters
	}
	l.StoredAt, _ = time.Parse(time.RFC3339Nano, h.Get(HeaderDeadStored))
	return l
}

// Replay implements broker.DeadLetterStore. It publishes with the permissions of the operator, and
// a worker may store dead letters of tasks. So a dead letter must be stored under the subject that
// belongs to its message.
func (dl *deadLetters) Replay(ctx context.Context, place uint64) error {
	l, under, err := dl.read(ctx, place)
	if err != nil {
		return err
	}
	if l.Lost {
		return fmt.Errorf("number %d: its headers and its body were too large to be kept; it cannot be sent again",
			place)
	}
	if dl.deadSubject(l.Subject) != under {
		return fmt.Errorf("replay dead letter %d: it is stored under %s, and its header %s has %q: no service "+
			"wrote it, so it is not replayed", place, under, HeaderDeadSubject, l.Subject)
	}
	if err := events.CheckSubject(dl.prefix, l.Subject); err != nil {
		return fmt.Errorf("replay dead letter %d on %q: %w", place, l.Subject, err)
	}
	h := events.Header(maps.Clone(l.Header))
	if l.ID != "" {
		h[events.HeaderMsgID] = []string{l.ID}
	}
	if strings.HasPrefix(l.Subject, dl.subject("task.")) { // NATS may still remember its id, and would drop it
		h[nats.MsgIdHdr] = []string{fmt.Sprintf("replay/%d/%s", place, l.ID)}
	}
	if err := dl.publisher.Publish(ctx, events.Wire{Subject: l.Subject, Header: h, Body: l.Body}); err != nil {
		return err
	}
	return dl.Drop(ctx, place)
}

// Drop implements broker.DeadLetterStore.
func (dl *deadLetters) Drop(ctx context.Context, place uint64) error {
	st, err := dl.deadStream()
	if err != nil {
		return err
	}
	err = st.DeleteMsg(ctx, place)
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return fmt.Errorf("number %d: %w", place, broker.ErrNoLetter)
	}
	return problem("drop a dead letter", err)
}

// printable makes a value fit for a header.
func printable(s string) string {
	s = cut(s)
	s = strings.ToValidUTF8(s, "?")
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// printableLines is printable for the lines of a text: each is one value of a header.
func printableLines(s string) []string {
	lines := strings.Split(cut(s), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return lines
}

func cut(s string) string {
	if len(s) > maxDetail {
		return s[:maxDetail] + "…"
	}
	return s
}
