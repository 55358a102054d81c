package brokersim

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// pendingStarts implements broker.PendingStarts.
type pendingStarts struct{ *link }

// PendingStarts implements broker.PendingStarts. The numbers of its cursors are those of
// [message.number], which a message keeps when it moves.
func (c *pendingStarts) PendingStarts(ctx context.Context, f broker.StartFilter, from broker.StartCursor,
	limit int) (page broker.StartPage, err error) {
	err = c.do(ctx, "pending starts", func() error {
		for _, m := range c.b.starts(f) {
			if m.number < from.Sequence {
				continue
			}
			if page.More = len(page.Starts) == limit; page.More {
				page.Next = broker.StartCursor{Sequence: m.number}
				break
			}
			page.Starts = append(page.Starts, broker.PendingStart{Key: strconv.FormatUint(m.number, 10),
				Delivery: broker.Delivery{Subject: m.wire.Subject, Header: broker.Received(m.wire.Header),
					Body: m.wire.Body, Partition: m.partition, Sequence: m.place, StoredAt: m.stored,
					NotBefore: m.notBefore, AcceptedAt: m.accepted}})
		}
		return nil
	})
	return page, err
}

// StartWaits implements broker.AwaitedStarts.
func (c *pendingStarts) StartWaits(ctx context.Context, instance string, q broker.StartQuestion) (is bool, err error) {
	err = c.do(ctx, "start waits", func() error {
		is = slices.ContainsFunc(c.b.starts(broker.StartFilter{Instance: instance}), func(m *message) bool {
			later := c.b.later[m.key] == m
			due := !m.notBefore.IsZero() && m.notBefore.Before(q.DueBefore)
			return later && due || !later && m.partition != q.Partition ||
				due && !m.accepted.IsZero() && !m.stored.Before(q.MovedSince)
		})
		return nil
	})
	return is, err
}

// WithdrawStart implements broker.PendingStarts.
func (c *pendingStarts) WithdrawStart(ctx context.Context, s broker.PendingStart) error {
	return c.do(ctx, "withdraw "+s.Subject, func() error {
		for _, m := range c.b.starts(broker.StartFilter{}) {
			switch is := strconv.FormatUint(m.number, 10) == s.Key && m.wire.Subject == s.Subject; {
			case is && m.place == 0:
				c.b.away(m)
				delete(c.b.later, m.key)
				c.b.change()
			case is:
				c.b.remove(m.place)
			}
		}
		return nil
	})
}

// starts lists the stored starts that match a filter, by their numbers. mu is held.
func (b *Broker) starts(f broker.StartFilter) (list []*message) {
	all := slices.Collect(maps.Values(b.later))
	for _, inbox := range b.inbox {
		all = append(all, inbox...)
	}
	name, instance := events.EncodeToken(f.Name), events.EncodeToken(f.Instance)
	for _, m := range all {
		words := strings.Split(strings.TrimPrefix(m.wire.Subject, b.prefix+"."), ".")
		verb, _ := events.Origin(words[0])
		if verb == events.VerbStart && len(words) == 3 && (name == "" || words[1] == name) &&
			(instance == "" || words[2] == instance) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *message) int { return cmp.Compare(a.number, b.number) })
	return list
}
