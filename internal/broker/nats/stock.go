package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

var _ broker.Stock = (*Bus)(nil)

// StoredUnder implements [broker.Stock]. The leaders of the streams answer, with one request for
// each stored message. It reads the places in the order in which a message moves.
func (p *publisher) StoredUnder(ctx context.Context, messages []events.Wire,
	limit int) (list []broker.StoredMessage, more bool, err error) {
	wanted := make(map[string]bool) // ids that were not found yet
	var steps [][]place             // the places of a step are of the same kind, each of them once
	for _, w := range messages {
		wanted[first(w.Header, events.HeaderMsgID)] = true
		if w.NotBefore.IsZero() {
			w.NotBefore = latest // so that the places of delayed messages are among them
		}
		all, _, err := p.placesOf(w)
		if err != nil {
			return nil, false, err
		}
		for i, x := range all {
			if i == len(steps) {
				steps = append(steps, nil)
			}
			if !slices.ContainsFunc(steps[i], func(y place) bool { return y.filter == x.filter }) {
				steps[i] = append(steps[i], x)
			}
		}
	}
	for _, x := range slices.Concat(steps...) {
		more, err = p.reader.each(ctx, x, limit-len(list), func(m broker.StoredMessage) bool {
			list = append(list, m)
			delete(wanted, m.ID)
			return len(wanted) > 0
		})
		if err != nil {
			return nil, false, problem("look for "+messages[0].Subject, err)
		}
		if more || len(wanted) == 0 {
			break
		}
	}
	return list, more, nil
}

// each reads the messages of a place, oldest first, until note returns false. It returns true if
// there are more than limit.
func (r *reader) each(ctx context.Context, x place, limit int, note func(broker.StoredMessage) bool) (bool, error) {
	filter, err := json.Marshal(x.filter) // a client may choose any bytes
	if err != nil {
		return false, err
	}
	stream := x.stream.CachedInfo().Config.Name
	for from, n := uint64(1), 0; ; n++ {
		f, err := r.nextOf(ctx, stream, filter, from)
		if f == nil || err != nil {
			return false, err
		}
		if n == limit {
			return true, nil
		}
		from = f.Sequence + 1
		h, _ := f.header() // headers that cannot be read are none
		m := broker.StoredMessage{ID: cmp.Or(first(events.Header(h), events.HeaderMsgID), h.Get(nats.MsgIdHdr))}
		m.NotBefore, _ = time.Parse(time.RFC3339Nano, h.Get(headerNotBefore)) // one that cannot be read is none
		if !note(m) {
			return false, nil
		}
	}
}
