package check

import (
	"fmt"
	"slices"

	"github.com/rondo-run/rondo/pkg/events"
)

// mail is what is known of the queues of an execution.
type mail struct {
	unread  map[string][]int64 // by queue, oldest first
	waiting map[string][]int64 // reads that wait for a message, oldest first
	letters map[int64]letter   // everything that was put in, by event
	given   map[int64]int64    // by read: the message that it has
	queueOf map[int64]string   // by read
	readBy  map[int64]int64    // by message: the read that has it
}

// letter is a queue message, so that it is known again in the next execution.
type letter struct {
	queue, message, data string
}

func newMail() mail {
	return mail{
		unread: make(map[string][]int64), waiting: make(map[string][]int64), letters: make(map[int64]letter),
		given: make(map[int64]int64), queueOf: make(map[int64]string), readBy: make(map[int64]int64),
	}
}

// judge says what is wrong with a read before it is noted down.
func (m *mail) judge(f *events.QueueRead) (rule Rule, expected, found string) {
	unread := m.unread[f.Queue]
	if f.Message == 0 {
		if len(unread) > 0 {
			return ReadOrder, fmt.Sprintf("event %d, the oldest message of queue %q", unread[0], f.Queue),
				"a read that waits for another one"
		}
		return "", "", ""
	}
	expected = fmt.Sprintf("an unread message of queue %q", f.Queue)
	by, taken := m.readBy[f.Message]
	l, there := m.letters[f.Message]
	switch {
	case taken:
		return ReadTwice, expected, fmt.Sprintf("event %d, which the read of event %d has", f.Message, by)
	case !there || l.queue != f.Queue:
		return ReadNothing, expected, fmt.Sprintf("event %d, which put nothing into it", f.Message)
	case unread[0] != f.Message:
		return ReadOrder, fmt.Sprintf("event %d, the oldest message of queue %q", unread[0], f.Queue),
			fmt.Sprintf("event %d", f.Message)
	}
	return "", "", ""
}

// put adds a message, which goes to who waits the longest.
func (m *mail) put(id int64, f *events.MessageQueued) {
	m.letters[id] = letter{f.Queue, f.Message, string(f.Data)}
	m.unread[f.Queue] = append(m.unread[f.Queue], id)
	m.handOutOf(f.Queue)
}

// read notes a read, which has its message already or waits for one.
func (m *mail) read(id int64, f *events.QueueRead) {
	m.queueOf[id] = f.Queue
	if f.Message == 0 {
		m.waiting[f.Queue] = append(m.waiting[f.Queue], id)
		return
	}
	m.unread[f.Queue] = slices.DeleteFunc(m.unread[f.Queue], func(x int64) bool { return x == f.Message })
	m.give(id, f.Message)
}

func (m *mail) give(read, message int64) {
	m.given[read], m.readBy[message] = message, read
}

// giveUp ends a read: it no longer waits, or its message goes back to where it was.
func (m *mail) giveUp(read int64) {
	queue := m.queueOf[read]
	if message, ok := m.given[read]; ok {
		delete(m.given, read)
		delete(m.readBy, message)
		at, _ := slices.BinarySearch(m.unread[queue], message)
		m.unread[queue] = slices.Insert(m.unread[queue], at, message)
		return
	}
	m.waiting[queue] = slices.DeleteFunc(m.waiting[queue], func(x int64) bool { return x == read })
}

// handOut gives unread messages to reads that wait.
func (m *mail) handOut() {
	for queue := range m.waiting {
		m.handOutOf(queue)
	}
}

func (m *mail) handOutOf(queue string) {
	for len(m.unread[queue]) > 0 && len(m.waiting[queue]) > 0 {
		m.give(m.waiting[queue][0], m.unread[queue][0])
		m.waiting[queue], m.unread[queue] = m.waiting[queue][1:], m.unread[queue][1:]
	}
}

// rest counts the messages that nobody has, and those that a read has: whether the code has looked
// at one of those, history does not tell.
func (m *mail) rest() (unread, read map[letter]int) {
	unread, read = make(map[letter]int), make(map[letter]int)
	for id, l := range m.letters {
		if _, ok := m.readBy[id]; ok {
			read[l]++
		} else {
			unread[l]++
		}
	}
	return unread, read
}

// waits counts the unread messages.
func (m *mail) waits() (n int) {
	for _, list := range m.unread {
		n += len(list)
	}
	return n
}
