package natsbroker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// manyAtOnce is the maximum number of subjects in one request. The broker answers for 1,024 at
// most.
const manyAtOnce = 500

var _ broker.Many = (*Bus)(nil)

// HasMany implements broker.Many. Any replica may answer, which may be a little behind.
func (p *publisher) HasMany(ctx context.Context, messages []events.Wire) ([]bool, error) {
	has := make([]bool, len(messages))
	questions := make(map[string]*question) // by stream
	for i, w := range messages {
		places, _, err := p.placesOf(w)
		if err != nil {
			return nil, err
		}
		for _, x := range places {
			name := x.stream.CachedInfo().Config.Name
			if questions[name] == nil {
				questions[name] = &question{of: make(map[string][]int)}
			}
			questions[name].add(x.filter, x.subject, i)
		}
	}
	for stream, q := range questions {
		for len(q.subjects) > 0 {
			n := min(len(q.subjects), manyAtOnce)
			if err := p.reader.askMany(ctx, stream, q.subjects[:n], n, func(x located, _ events.Header) {
				q.found(p, x.subject, messages, has)
			}); err != nil {
				return nil, problem("look for many messages", err)
			}
			q.subjects = q.subjects[n:]
		}
	}
	return has, nil
}

// question asks a stream for many messages.
type question struct {
	subjects []string
	of       map[string][]int // the messages that a subject stands for
}

func (q *question) add(filter, subject string, i int) {
	if len(q.of[subject]) == 0 {
		q.subjects = append(q.subjects, filter)
	}
	q.of[subject] = append(q.of[subject], i)
}

// found records that a message is stored under a subject.
func (q *question) found(p *publisher, subject string, messages []events.Wire, has []bool) {
	if strings.HasPrefix(subject, p.subject("p.")) {
		subject, _ = p.publishedAs(subject)
	}
	for _, i := range q.of[subject] {
		has[i] = true
		p.queues.noteQueue(messages[i].Subject) // its publisher may not have noted it yet
	}
}

// askMany asks a stream for the last messages of some subjects, so many at most.
func (r *reader) askMany(ctx context.Context, stream string, subjects []string, most int,
	found func(x located, h events.Header)) error {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	request, err := json.Marshal(map[string]any{"multi_last": subjects, "batch": most})
	if err != nil {
		return err
	}
	sub, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	_ = sub.SetPendingLimits(-1, -1)
	if err := r.nc.PublishRequest(r.api+"DIRECT.GET."+stream, sub.Subject, request); err != nil {
		return err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		switch status := statusOf(m); status {
		case "":
			if x, ok := storedIn(m); ok { // otherwise it may be forged: nothing is harmed if it counts as missing
				found(x, events.Header(m.Header))
			}
		case "204", "404", "413": // the end, or nothing, or too much for one answer
			return nil
		case "503":
			return jetstream.ErrStreamNotFound
		default:
			return fmt.Errorf("%s %s", status, m.Header.Get("Description"))
		}
	}
}
