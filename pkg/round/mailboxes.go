package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// mailboxes are those of an instance, with their unread messages. A message is unread until a read
// takes it; then it is held until the code has looked at it. Kept events are in mailboxes of their
// own, one for each name.
type mailboxes struct {
	boxes       map[boxName]*mailbox
	held        map[int64]message // by the read that has taken it
	unread      int
	unreadBytes int64
}

// boxName names a mailbox, or, with event, the mailbox of the kept events of a name.
type boxName struct {
	name  string
	event bool
}

func mailboxOf(name string) boxName { return boxName{name: name} }
func keptOf(event string) boxName   { return boxName{name: event, event: true} }

// mailbox is one of the instance's mailboxes.
type mailbox struct {
	name     boxName
	messages []message // unread, oldest first
	reads    []int64   // open reads, oldest first; only when there are no unread messages; see calls.waits for events
}

type message struct {
	id      int64
	mailbox boxName
	data    codec.Payload
	message string
	sent    time.Time
	restart *events.Restart
}

// unread gives up an open read.
func (b *mailbox) unread(read int64) {
	if i := slices.Index(b.reads, read); i >= 0 {
		b.reads = slices.Delete(b.reads, i, i+1)
	}
}

// box returns the mailbox of a name.
func (m *mailboxes) box(name boxName) *mailbox {
	b := m.boxes[name]
	if b == nil {
		if m.boxes == nil {
			m.boxes = make(map[boxName]*mailbox, 1)
		}
		b = &mailbox{name: name}
		m.boxes[name] = b
	}
	return b
}

// add puts a message behind the others of its mailbox.
func (m *mailboxes) add(b *mailbox, x message) {
	b.messages = append(b.messages, x)
	m.unread++
	m.unreadBytes += int64(len(x.data))
}

// room reports whether there is room for so many messages of so many bytes.
func (m *mailboxes) room(messages, bytes int) bool {
	return m.unread+messages <= events.MaxMailbox && m.unreadBytes+int64(bytes) <= events.MaxMailboxBytes
}

// take gives the oldest unread message of a mailbox to a read.
func (m *mailboxes) take(b *mailbox, read int64) coro.Answer {
	x := m.remove(b)
	if m.held == nil {
		m.held = make(map[int64]message, 1)
	}
	m.held[read] = x
	return coro.Answer{ID: read, Payload: x.data, Held: true}
}

// remove removes the oldest unread message of a mailbox.
func (m *mailboxes) remove(b *mailbox) message {
	x := b.messages[0]
	b.messages[0] = message{}
	b.messages = b.messages[1:]
	m.unread--
	m.unreadBytes -= int64(len(x.data))
	return x
}

// consumed forgets the message that the code has looked at.
func (m *mailboxes) consumed(read int64) { delete(m.held, read) }

// putBack returns the message that a read has taken to its place in its mailbox. It returns nil if
// the read holds none.
func (m *mailboxes) putBack(read int64) *mailbox {
	x, ok := m.held[read]
	if !ok {
		return nil
	}
	delete(m.held, read)
	b := m.box(x.mailbox)
	at, _ := slices.BinarySearchFunc(b.messages, x.id, func(x message, id int64) int { return int(x.id - id) })
	b.messages = slices.Insert(b.messages, at, x)
	m.unread++
	m.unreadBytes += int64(len(x.data))
	return b
}

// oldest is the event id of the oldest unread message of a mailbox, 0 if there is none.
func (m *mailboxes) oldest(name boxName) int64 {
	if b := m.boxes[name]; b != nil && len(b.messages) > 0 {
		return b.messages[0].id
	}
	return 0
}

// reader is the oldest open read of a mailbox, 0 if there is none.
func (m *mailboxes) reader(name boxName) int64 {
	if b := m.boxes[name]; b != nil && len(b.reads) > 0 {
		return b.reads[0]
	}
	return 0
}

// count is the number of unread messages of a mailbox.
func (m *mailboxes) count(name boxName) int {
	if b := m.boxes[name]; b != nil {
		return len(b.messages)
	}
	return 0
}

// unreadMessages lists all unread messages, oldest first, those included that were taken and not
// looked at.
func (m *mailboxes) unreadMessages() []message {
	all := m.untakenMessages()
	for _, x := range m.held {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b message) int { return int(a.id - b.id) })
	return all
}

// untakenMessages lists the messages that no read has taken, oldest first. That is all that history
// tells by itself: what a read has taken, the code may have looked at or not.
func (m *mailboxes) untakenMessages() []message {
	var all []message
	for _, b := range m.boxes {
		all = append(all, b.messages...)
	}
	slices.SortFunc(all, func(a, b message) int { return int(a.id - b.id) })
	return all
}
