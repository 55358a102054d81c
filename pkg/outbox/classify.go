package outbox

import (
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// class is the sort of a message. It says by which lane the message goes to the broker.
type class int

const (
	// prompt messages are published at once, in the order of the commits.
	prompt class = iota
	// task is a task for direct delivery. It waits for no earlier message; it is published when
	// it is done, and until then its outbox entry stays.
	task
	// delayed messages have a lane of their own, so that ten thousand timers of a day do not hold
	// up the timer of a moment.
	delayed
	// distant timers are published a quarter of a second later: many are withdrawn by then, because
	// the call that they were to end has ended, and neither is published.
	distant
	// withdrawal takes back a task or a timer. It goes with the delayed messages, but not before
	// the message that it takes back: it would withdraw nothing.
	withdrawal

	classes int = iota
)

const (
	// laterFrom is the delay from which on a message is delayed. Messages with a shorter one wait
	// at their receiver.
	laterFrom = time.Second
	// farFrom is from when on a timer is distant: with the usual waits it is in time even if this
	// process dies and a sweep publishes it.
	farFrom = 30 * time.Second
)

// classifier tells the class of a message from the message and the time alone.
type classifier struct {
	tasks, timers string // how the subjects of tasks and timers begin
	direct        bool   // tasks are delivered directly
}

func newClassifier(prefix string) classifier {
	return classifier{tasks: subjectsOf(prefix, events.VerbTask), timers: subjectsOf(prefix, events.VerbTimer)}
}

// classify returns the class of a message of a commit that is published now.
func (c *classifier) classify(m events.Wire, now time.Time) class {
	switch {
	case m.Purge:
		return withdrawal
	case m.NotBefore.After(now.Add(farFrom)) && strings.HasPrefix(m.Subject, c.timers):
		return distant
	case m.NotBefore.After(now.Add(laterFrom)):
		return delayed
	case c.direct && strings.HasPrefix(m.Subject, c.tasks):
		return task
	}
	return prompt
}

// subjectsOf is how the subjects of a verb begin.
func subjectsOf(prefix string, verb events.Verb) string { return prefix + "." + string(verb) + "." }
