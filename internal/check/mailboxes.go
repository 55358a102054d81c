package check

import (
	"fmt"
	"slices"

	"github.com/rondo-run/rondo/pkg/events"
)

// mailboxes tracks the mailboxes of an execution.
type mailboxes struct {
	unread    map[string][]int64 // by mailbox, oldest first
	waiting   map[string][]int64 // reads that wait for a message, oldest first
	messages  map[int64]message  // all messages, by event
	given     map[int64]int64    // by read: the message that it has
	mailboxOf map[int64]string   // by read
	readBy    map[int64]int64    // by message: the read that has it
}

// message identifies a mailbox message also in the next execution.
type message struct {
	mailbox, message, data string
}

func newMail() mailboxes {
	return mailboxes{
		unread: make(map[string][]int64), waiting: make(map[string][]int64), messages: make(map[int64]message),
		given: make(map[int64]int64), mailboxOf: make(map[int64]string), readBy: make(map[int64]int64),
	}
}

// judge returns the rule that a read violates, before the read is noted; "" if none.
func (m *mailboxes) judge(f *events.MailboxRead) (rule Rule, expected, found string) {
	unread := m.unread[f.Mailbox]
	if f.Message == 0 {
		if len(unread) > 0 {
			return ReadOrder, fmt.Sprintf("event %d, the oldest message of mailbox %q", unread[0], f.Mailbox),
				"a read that waits for another one"
		}
		return "", "", ""
	}
	expected = fmt.Sprintf("an unread message of mailbox %q", f.Mailbox)
	by, taken := m.readBy[f.Message]
	l, there := m.messages[f.Message]
	switch {
	case taken:
		return ReadTwice, expected, fmt.Sprintf("event %d, which the read of event %d has", f.Message, by)
	case !there || l.mailbox != f.Mailbox:
		return ReadNothing, expected, fmt.Sprintf("event %d, which put nothing into it", f.Message)
	case unread[0] != f.Message:
		return ReadOrder, fmt.Sprintf("event %d, the oldest message of mailbox %q", unread[0], f.Mailbox),
			fmt.Sprintf("event %d", f.Message)
	}
	return "", "", ""
}

// put adds a message, which goes to the read that has waited the longest.
func (m *mailboxes) put(id int64, f *events.MessageReceived) {
	m.messages[id] = message{f.Mailbox, f.Message, string(f.Data)}
	m.unread[f.Mailbox] = append(m.unread[f.Mailbox], id)
	m.handOutOf(f.Mailbox)
}

// read notes a read, which has its message already or waits for one.
func (m *mailboxes) read(id int64, f *events.MailboxRead) {
	m.mailboxOf[id] = f.Mailbox
	if f.Message == 0 {
		m.waiting[f.Mailbox] = append(m.waiting[f.Mailbox], id)
		return
	}
	m.unread[f.Mailbox] = slices.DeleteFunc(m.unread[f.Mailbox], func(x int64) bool { return x == f.Message })
	m.give(id, f.Message)
}

func (m *mailboxes) give(read, message int64) {
	m.given[read], m.readBy[message] = message, read
}

// giveUp ends a read: it no longer waits, or its message returns to its place in the mailbox.
func (m *mailboxes) giveUp(read int64) {
	mailbox := m.mailboxOf[read]
	if message, ok := m.given[read]; ok {
		delete(m.given, read)
		delete(m.readBy, message)
		at, _ := slices.BinarySearch(m.unread[mailbox], message)
		m.unread[mailbox] = slices.Insert(m.unread[mailbox], at, message)
		return
	}
	m.waiting[mailbox] = slices.DeleteFunc(m.waiting[mailbox], func(x int64) bool { return x == read })
}

// handOut gives unread messages to reads that wait.
func (m *mailboxes) handOut() {
	for mailbox := range m.waiting {
		m.handOutOf(mailbox)
	}
}

func (m *mailboxes) handOutOf(mailbox string) {
	for len(m.unread[mailbox]) > 0 && len(m.waiting[mailbox]) > 0 {
		m.give(m.waiting[mailbox][0], m.unread[mailbox][0])
		m.waiting[mailbox], m.unread[mailbox] = m.waiting[mailbox][1:], m.unread[mailbox][1:]
	}
}

// rest counts the messages without a read, and those that a read has. History does not show whether
// the code has looked at one of the latter.
func (m *mailboxes) rest() (unread, read map[message]int) {
	unread, read = make(map[message]int), make(map[message]int)
	for id, l := range m.messages {
		if _, ok := m.readBy[id]; ok {
			read[l]++
		} else {
			unread[l]++
		}
	}
	return unread, read
}

// waits counts the unread messages.
func (m *mailboxes) waits() (n int) {
	for _, list := range m.unread {
		n += len(list)
	}
	return n
}
