package worker

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// copyOf is a task that the stream delivers; held is the worker that its publisher has named.
func copyOf(subject, held string) broker.Delivery {
	d := broker.Delivery{Subject: subject, Header: events.Header{events.HeaderIncarnation: {"9f"}}}
	if held != "" {
		d.Header[events.HeaderHeld] = []string{held}
	}
	return d
}

// done remembers a task with an answer of so many bytes.
func (l *lasted) done(subject string, now time.Time, bytesOfAnswer int) {
	key := keyOf(copyOf(subject, ""))
	l.note(key, now, events.Wire{Subject: "done", DirectTo: "o", Body: bytes.Repeat([]byte("x"), bytesOfAnswer)})
	l.keep(key, now)
}

// The age of the memory counts, although nothing else has been done since.
func TestTasksAreRememberedForAWhile(t *testing.T) {
	var l lasted
	now := time.Now()
	l.done("a", now, 1)
	for _, age := range []time.Duration{0, lastedFor} {
		answer, done := l.find(copyOf("a", ""), "w", now.Add(age))
		if !done || len(answer.Body) != 1 || answer.DirectTo != "" {
			t.Errorf("after %v: done: %t, with the answer %v", age, done, answer)
		}
	}
	if _, done := l.find(copyOf("a", "w"), "w", now.Add(lastedFor+1)); done {
		t.Error("it is remembered for longer")
	}
}

// The answers that a worker keeps are bounded. The oldest ones go first, and then only the copy
// that was stored during the execution counts as done.
func TestAnswersOfRememberedTasksAreBounded(t *testing.T) {
	var l lasted
	now := time.Now()
	const size, n = 1 << 20, 40
	for i := range n {
		l.done(fmt.Sprint(i), now, size)
	}
	kept := 0
	for i := range n {
		answer, done := l.find(copyOf(fmt.Sprint(i), ""), "w", now)
		if done {
			kept++
		}
		if done != (answer.Subject != "") || done != (i > n-maxAnswers/size) {
			t.Errorf("%d of %d: done: %t, with %d bytes", i, n, done, len(answer.Body))
		}
		if _, done := l.find(copyOf(fmt.Sprint(i), "w"), "w", now); !done {
			t.Errorf("%d: the copy that was stored meanwhile is executed again", i)
		}
		if _, done := l.find(copyOf(fmt.Sprint(i), "other"), "w", now); done && answer.Subject == "" {
			t.Errorf("%d: what another worker executes counts as done, without an answer", i)
		}
	}
	if kept == 0 || l.bytes > maxAnswers {
		t.Errorf("%d answers with %d bytes are kept", kept, l.bytes)
	}
	l.done("later", now.Add(lastedFor+1), 10)
	if len(l.known) != 1 || len(l.order) != 1 || l.bare != 0 || l.bytes != l.order[0].size() {
		t.Errorf("later: %d known, %d kept, %d without answers, %d bytes", len(l.known), len(l.order), l.bare, l.bytes)
	}
}
