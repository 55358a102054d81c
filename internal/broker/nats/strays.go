package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// A client or a worker may publish a message that no consumer of the inbox takes, although NATS
// acknowledges it. NATS transforms no subject with a word * or >, so such a message is in no
// partition. The indexes of NATS have no subject with the character DEL, so a consumer may not find
// such a message. The process that receives from partition 0 dead-letters these messages, which are
// strays, and removes them. It removes them with a purge, like the anchors.
//
// There are two ways to find them, each of them one request if there is none. A filter finds those
// outside of the partitions, wherever they are. Those with a DEL are found when only strays and
// anchors are in front of them.

const (
	// strayPortion is the number of strays between two purges, and strayPortions the maximum number
	// of portions of a look.
	strayPortion  = 100
	strayPortions = 100
)

// strays dead-letters the strays of the inbox.
type strays struct {
	*resources
	reader reader
	dead   *deadLetters
	inbox  jetstream.Stream
	// seen is the last sequence number of the inbox at the last look: a receiver may be about to
	// take a newer message of a partition.
	seen uint64
}

// look dead-letters the strays of the inbox, and logs their number.
func (s *strays) look(ctx context.Context, inbox jetstream.Stream) {
	s.inbox = inbox
	total := 0
	err := s.denied.during(ctx, func(ctx context.Context) error {
		for _, portion := range []func(context.Context) (int, error){s.outside, s.front} {
			for range strayPortions {
				n, err := portion(ctx)
				if total += n; err != nil {
					return err
				}
				if n < strayPortion {
					break
				}
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("NATS: messages that no consumer takes could not be dead-lettered; trying again", "error", err)
	}
	if total > 0 {
		s.log.Warn("NATS: messages that no consumer takes were dead-lettered", "messages", total)
	}
}

// outside handles a portion of the strays outside of the partitions.
func (s *strays) outside(ctx context.Context) (n int, err error) {
	filter := s.subject("*.*.*")
	last := uint64(0)
	for n < strayPortion {
		f, err := s.next(ctx, filter, last+1)
		if f == nil || err != nil {
			return n, s.purge(ctx, filter, last, err)
		}
		if err := s.deadLetter(ctx, f); err != nil {
			return n, s.purge(ctx, filter, last, err)
		}
		n, last = n+1, f.Sequence
	}
	return n, s.purge(ctx, filter, last, nil)
}

// front handles a portion of the strays before all other messages of the inbox. The purge also
// removes the anchors between them, and no other message: the stream stores none before others.
func (s *strays) front(ctx context.Context) (n int, err error) {
	last, from := uint64(0), uint64(1)
	for n < strayPortion {
		f, err := s.next(ctx, ">", from)
		if f == nil || err != nil {
			return n, s.purge(ctx, "", last, err)
		}
		inPartition := strings.HasPrefix(f.Subject, s.subject("p", ""))
		switch isAnchor := f.Subject == s.subject(anchorWord); {
		case isAnchor:
		case inPartition && !strings.Contains(f.Subject, "\x7f"):
			return n, s.purge(ctx, "", last, nil)
		case inPartition && f.Sequence > s.seen:
			s.seen = max(f.Sequence, s.inbox.CachedInfo().State.LastSeq)
			return n, s.purge(ctx, "", last, nil)
		default:
			if err := s.deadLetter(ctx, f); err != nil {
				return n, s.purge(ctx, "", last, err)
			}
			n, last = n+1, f.Sequence
		}
		from = f.Sequence + 1
	}
	return n, s.purge(ctx, "", last, nil)
}

// next reads the next message of the inbox from its leader: headers of stored messages can forge
// the answer of another replica.
func (s *strays) next(ctx context.Context, filter string, from uint64) (*found, error) {
	subject, err := json.Marshal(filter)
	if err != nil {
		return nil, err
	}
	return s.reader.nextOf(ctx, s.names.inbox, subject, from)
}

func (s *strays) deadLetter(ctx context.Context, f *found) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	h, _ := f.header() // headers that cannot be read are none
	d := broker.Delivery{Sequence: f.Sequence, StoredAt: f.Time, Header: events.Header(h), Body: f.Data}
	d.Subject, d.Partition = s.publishedAs(f.Subject)
	return s.dead.StoreDeadLetter(ctx, d, broker.Cause{Reason: "malformed", By: "inbox",
		Detail: "no consumer takes a message with this subject; encode *, > and control characters in its words"})
}

// purge removes the messages of the inbox up to a sequence number, 0 for none, whose stored subject
// matches a filter, "" for any. err is an earlier error.
func (s *strays) purge(ctx context.Context, filter string, upTo uint64, err error) error {
	if upTo == 0 {
		return err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	up := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSequence(upTo + 1)}
	if filter != "" {
		up = append(up, jetstream.WithPurgeSubject(filter))
	}
	return cmp.Or(err, s.inbox.Purge(ctx, up...))
}
