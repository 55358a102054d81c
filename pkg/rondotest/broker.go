package rondotest

import (
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
)

// broker queues messages in their wire form. Two messages with one id must have the same content.
type broker struct {
	settings  *settings
	queue     *queue
	problems  *problems
	published map[string]string // the content of each message, by its id
}

// publish sends a message, through its wire form.
func (b *broker) publish(m events.Message) {
	w, err := events.Encode(events.DefaultPrefix, m)
	if err != nil {
		b.problems.addf("message to %q cannot be sent: %v", m.Instance, err)
		return
	}
	if w.Purge {
		b.queue.purge(w.Subject)
		return
	}
	content := w.Subject + " " + string(w.Body)
	if before, ok := b.published[m.ID]; ok && m.ID != "" && before != content {
		b.problems.addf("two different messages have the id %s:\n  %s\n  %s", m.ID, before, content)
	}
	b.published[m.ID] = content
	n := b.queue.number()
	back, err := events.Decode(events.DefaultPrefix, w.Subject, w.Header, w.Body, fmt.Sprintf("seq-%d", n))
	if err != nil {
		b.problems.addf("message to %q cannot be read: %v", m.Instance, err)
		return
	}
	v := &envelope{sequence: n, subject: w.Subject, message: back, due: w.NotBefore, later: w.NotBefore,
		sent: b.queue.now}
	if b.queue.isDelayedStart(v) {
		b.queue.replaceDelayed(v)
	}
	if c := b.settings.chaos; c != nil {
		c.post(b.queue, v)
		return
	}
	b.queue.add(v)
}
