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

// manyAtOnce bounds the subjects of one question. The broker answers for 1,024 at most.
const manyAtOnce = 500

var _ broker.Many = (*Bus)(nil)

// HasMany implements broker.Many. Any replica may answer, which may be a little behind.
func (b *Bus) HasMany(ctx context.Context, messages []events.Wire) ([]bool, error) {
	has := make([]bool, len(messages))
	questions := make(map[string]*question) // by stream
	for i, w := range messages {
		places, _, err := b.placesOf(w)
		if err != nil {
			return nil, err
		}
		for _, p := range places {
			name := p.stream.CachedInfo().Config.Name
			if questions[name] == nil {
				questions[name] = &question{of: make(map[string][]int)}
			}
			questions[name].add(p.filter, p.subject, i)
		}
	}
	for stream, q := range questions {
		for len(q.subjects) > 0 {
			n := min(len(q.subjects), manyAtOnce)
			if err := b.askMany(ctx, stream, q.subjects[:n], func(subject string) {
				q.found(b, subject, messages, has)
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

// found notes that there is something under a subject.
func (q *question) found(b *Bus, subject string, messages []events.Wire, has []bool) {
	if strings.HasPrefix(subject, b.subject("p.")) {
		subject, _ = b.publishedAs(subject)
	}
	for _, i := range q.of[subject] {
		has[i] = true
		b.noteQueue(messages[i].Subject) // whoever published it may not have come to that
	}
}

// askMany asks a stream under which subjects there is something.
func (b *Bus) askMany(ctx context.Context, stream string, subjects []string, found func(subject string)) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	question, err := json.Marshal(map[string]any{"multi_last": subjects, "batch": len(subjects)})
	if err != nil {
		return err
	}
	sub, err := b.nc.SubscribeSync(b.nc.NewInbox())
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	_ = sub.SetPendingLimits(-1, -1)
	if err := b.nc.PublishRequest(b.api+"DIRECT.GET."+stream, sub.Subject, question); err != nil {
		return err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			found(m.Header.Get("Nats-Subject"))
		case "204", "404", "413": // the end, or nothing, or too much for one answer
			return nil
		case "503":
			return jetstream.ErrStreamNotFound
		default:
			return fmt.Errorf("%s %s", status, m.Header.Get("Description"))
		}
	}
}
