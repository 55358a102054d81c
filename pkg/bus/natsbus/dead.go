package natsbus

import (
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

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

// The headers of dead letters, besides those that the message had.
const (
	HeaderDeadReason   = "Rondo-Dead-Reason"
	HeaderDeadDetail   = "Rondo-Dead-Detail"
	HeaderDeadBy       = "Rondo-Dead-By"
	HeaderDeadAttempts = "Rondo-Dead-Attempts"
	HeaderDeadSubject  = "Rondo-Dead-Subject"
	HeaderDeadID       = "Rondo-Dead-Id"     // the Nats-Msg-Id it had
	HeaderDeadStored   = "Rondo-Dead-Stored" // when it was first stored
)

// maxDetail bounds what a dead letter says about why.
const maxDetail = 4 << 10

// Bury implements bus.DeadLetters.
func (b *Bus) Bury(ctx context.Context, d bus.Delivery, why bus.Cause) error {
	h := nats.Header(maps.Clone(d.Header))
	if h == nil {
		h = nats.Header{}
	}
	for name := range h { // nothing that the broker would act upon
		if strings.HasPrefix(name, "Nats-") {
			delete(h, name)
		}
	}
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
	if id := d.Header[nats.MsgIdHdr]; len(id) > 0 {
		set(HeaderDeadID, id[0])
	}
	set(HeaderDeadStored, d.Stored.UTC().Format(time.RFC3339Nano))
	if d.Place > 0 {
		h[nats.MsgIdHdr] = []string{"dead/" + d.ID()}
	}
	w := events.Wire{Subject: b.deadSubject(d.Subject), Header: events.Header(h), Body: d.Body}
	err := b.Publish(ctx, w)
	var refused *bus.Refused
	if errors.As(err, &refused) { // with what was added it has become too large
		w.Header = events.Header{
			HeaderDeadDetail: {printable(fmt.Sprintf("%s (its headers and its body of %d bytes are left out: %v)", why.Detail, len(d.Body), refused.Reasons[0]))},
		}
		for _, name := range []string{HeaderDeadReason, HeaderDeadBy, HeaderDeadAttempts, HeaderDeadSubject, HeaderDeadID, HeaderDeadStored, nats.MsgIdHdr} {
			if v := h[name]; len(v) > 0 {
				w.Header[name] = v
			}
		}
		w.Body = nil
		err = b.Publish(ctx, w)
	}
	return err
}

func (b *Bus) deadSubject(subject string) string {
	rest, ok := strings.CutPrefix(subject, b.names.prefix+".")
	if dead := b.subject(deadVerb, rest); ok && b.canTake(dead) == nil {
		return dead
	}
	return b.subject(deadVerb, "other", "_", events.EncodeToken(subject))
}

// printable makes a value fit for a header.
func printable(s string) string {
	if len(s) > maxDetail {
		s = s[:maxDetail] + "…"
	}
	s = strings.ToValidUTF8(s, "?")
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
