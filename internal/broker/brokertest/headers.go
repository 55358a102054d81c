package brokertest

import (
	"fmt"
	"strings"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// knownHeaders publishes messages to an instance and a task, each with a header that services know,
// and with large and many ones that they do not.
func knownHeaders(t *T) {
	b := t.bus()
	r := t.receive(b)
	q := broker.TaskQueueName{Tag: "t", Activity: "a"}
	e, other, task := event(b, "i", "e"), event(b, "j", "other"), work(b, q, "i", "w")
	other.Header = events.Header{}
	for _, w := range []events.Wire{e, other, task} {
		w.Header["X-Large"] = []string{strings.Repeat("x", 30_000)}
		for i := range 1000 {
			w.Header[fmt.Sprint("X-", i)] = []string{""}
		}
	}
	e.Header["Rondo-Version"] = strings.Split("2.3.4.5.6.7.8.9.10", ".")
	t.publish(b, e, task)
	for _, g := range append([]got{r.next()}, t.takeWork(b, q, 1)...) {
		want := "map[Rondo-Id:[e] Rondo-Version:[2 3 4 5 6 7 8 9]]"
		if g.Subject == task.Subject {
			want = "map[Rondo-Id:[w]]"
			delete(g.Header, events.HeaderDirectReply) // if it was delivered directly
		}
		if got := fmt.Sprint(g.Header); got != want {
			t.Errorf("%s came with %d headers, %.200s; want %s", g.Subject, len(g.Header), got, want)
		}
		g.Hold.Ack()
	}
	// One without any header may be a response that NATS sent.
	t.publish(b, other)
	if g := r.take(1)[0]; len(g.Header) != 1 || g.Header[broker.HeaderOthers] == nil {
		t.Errorf("a message with unknown headers only came with %d, such as %.200v", len(g.Header), g.Header)
	}
	t.empty()
}
