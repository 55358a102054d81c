package orchestration

import (
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
)

// Buffered has instances keep events that come before the code waits for them: up to n of each
// name, in order, also across continue-as-new. A wait takes the oldest one that is kept. When n are
// kept, the instance refuses further ones, and their senders are told so. It also refuses what it
// cannot decode.
//
//	Fulfil.Bind(fulfil, orchestration.Buffered(16, Approve, Reject))
//
// It may be added to, or removed from, an orchestration whose instances are running: it counts for
// the events that come from then on.
func Buffered(n int, of ...AnyEvent) BindOption { return buffered{keep{most: n}, of} }

// BufferedLatest is [Buffered], but an instance drops the oldest event of the name when n are kept.
// From 80 % of the limits of the history on, and at the limits of unread mailbox messages, it
// refuses further events instead, so the oldest ones stay.
func BufferedLatest(n int, of ...AnyEvent) BindOption { return buffered{keep{n, true}, of} }

type buffered struct {
	keep
	of []AnyEvent
}

func (o buffered) bind(b *Binding) {
	switch {
	case len(o.of) == 0:
		b.err = errors.Join(b.err, errors.New("Buffered names no event; name those that instances keep"))
	case o.most < 1 || o.most > events.MaxMailbox:
		b.err = errors.Join(b.err, fmt.Errorf("Buffered(%d): an instance can keep 1 to %d events", o.most,
			events.MaxMailbox))
	}
	if b.kept == nil {
		b.kept = make(map[string]kept, len(o.of))
	}
	for _, e := range o.of {
		if err := events.CheckName("event", e.Name()); err != nil {
			b.err = errors.Join(b.err, err)
		}
		if _, twice := b.kept[e.Name()]; twice {
			b.err = errors.Join(b.err, fmt.Errorf("event %q is buffered twice", e.Name()))
		}
		b.kept[e.Name()] = kept{o.keep, e}
	}
}
