package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
)

// mailboxes tracks the mailboxes of an execution. The kept events of a name are one, too: see
// keptEvents.
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

// keptMark begins the names of mailboxes of kept events. No name of a mailbox has it.
const keptMark = "\x00"

// keptEvents is the name of the mailbox of the kept events of a name.
func keptEvents(name string) string { return keptMark + name }

func describeMailbox(name string) string {
	if event, ok := strings.CutPrefix(name, keptMark); ok {
		return fmt.Sprintf("kept event %q", event)
	}
	return fmt.Sprintf("message of mailbox %q", name)
}

// judge returns the rule that a read violates, before the read is noted; "" if none. It takes a
// message; 0: it waits.
func (m *mailboxes) judge(mailbox string, taken int64) (rule Rule, expected, found string) {
	unread := m.unread[mailbox]
	if taken == 0 {
		if len(unread) > 0 {
			return ReadOrder, fmt.Sprintf("event %d, the oldest %s", unread[0], describeMailbox(mailbox)),
				"a read that waits for another one"
		}
		return "", "", ""
	}
	expected = "an unread " + describeMailbox(mailbox)
	by, read := m.readBy[taken]
	l, there := m.messages[taken]
	switch {
	case read:
		return ReadTwice, expected, fmt.Sprintf("event %d, which the read of event %d has", taken, by)
	case !there || l.mailbox != mailbox:
		return ReadNothing, expected, fmt.Sprintf("event %d, which put nothing into it", taken)
	case unread[0] != taken:
		return ReadOrder, fmt.Sprintf("event %d, the oldest %s", unread[0], describeMailbox(mailbox)),
			fmt.Sprintf("event %d", taken)
	}
	return "", "", ""
}

// put adds a message, which goes to the read that has waited the longest.
func (m *mailboxes) put(id int64, x message) {
	m.messages[id] = x
	m.unread[x.mailbox] = append(m.unread[x.mailbox], id)
	m.handOutOf(x.mailbox)
}

// keep adds an event that is kept, and removes the one that it replaces, if any.
func (m *mailboxes) keep(id int64, f *events.EventReceived) {
	name := keptEvents(f.Name)
	if f.Instead != 0 {
		delete(m.messages, f.Instead)
		m.unread[name] = slices.DeleteFunc(m.unread[name], func(x int64) bool { return x == f.Instead })
	}
	m.put(id, message{name, f.Message, string(f.Data)})
}

// read notes a read, which has its message already, or waits for one if that is 0.
func (m *mailboxes) read(id int64, mailbox string, taken int64) {
	m.mailboxOf[id] = mailbox
	if taken == 0 {
		m.waiting[mailbox] = append(m.waiting[mailbox], id)
		return
	}
	m.unread[mailbox] = slices.DeleteFunc(m.unread[mailbox], func(x int64) bool { return x == taken })
	m.give(id, taken)
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

// handOut gives unread messages to reads that wait, and returns those reads.
func (m *mailboxes) handOut() (reads []int64) {
	for mailbox := range m.waiting {
		reads = append(reads, m.handOutOf(mailbox)...)
	}
	return reads
}

func (m *mailboxes) handOutOf(mailbox string) (reads []int64) {
	for len(m.unread[mailbox]) > 0 && len(m.waiting[mailbox]) > 0 {
		reads = append(reads, m.waiting[mailbox][0])
		m.give(m.waiting[mailbox][0], m.unread[mailbox][0])
		m.waiting[mailbox], m.unread[mailbox] = m.waiting[mailbox][1:], m.unread[mailbox][1:]
	}
	return reads
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
