package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// InFlight lists the streams that hold messages for instances and workers. Anchors are none.
func (p *publisher) InFlight(ctx context.Context) (streams []string, err error) {
	anchors := append([]string{p.subject(anchorWord)}, p.anchors()...)
	for i, name := range []string{p.names.inbox, p.names.later, p.names.work} {
		var info *jetstream.StreamInfo
		err := p.denied.during(ctx, func(ctx context.Context) error {
			ctx, cancel := p.bounded(ctx)
			defer cancel()
			st, err := p.js.Stream(ctx, name)
			if err == nil {
				info, err = st.Info(ctx, jetstream.WithSubjectFilter(anchors[i]))
			}
			return err
		})
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, problem("look at stream "+name, err)
		}
		if info.State.Msgs > info.State.Subjects[anchors[i]] {
			streams = append(streams, name)
		}
	}
	return streams, nil
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
