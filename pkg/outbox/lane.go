package outbox

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/events"
)

// maxQueued bounds the messages that wait to be published on each lane; callers with more have to
// wait.
const maxQueued = 20_000

// lane is one way from the commits to the broker. It knows which messages wait and which are in
// flight; the [sender] publishes them. It is safe for concurrent use.
type lane struct {
	most int           // messages at once; 0: all that wait
	each bool          // the messages of a commit do not wait for those of others
	rest time.Duration // for how long something waits for others, or for its withdrawal
	// withdrawable is how the subjects of messages begin that may be withdrawn before they are
	// published; "": none may.
	withdrawable string

	sending sync.WaitGroup // of a lane with each

	mu      sync.Mutex
	queue   []segment
	waiting int            // messages that are queued, or in flight to the broker
	age     time.Time      // since when the first of them waits
	unsent  map[string]int // of them, those that may be withdrawn, by subject
	behind  []segment      // withdrawals of such messages
	room    signal.Signal
	work    signal.Signal
}

// segment is the messages of a commit that take one lane together.
type segment struct {
	messages []events.Wire
	entry    *entry
}

// sender publishes what a lane gives, and then calls its method sent.
type sender func(ctx context.Context, l *lane, segments []segment, messages []events.Wire)

func newLane(withdrawable string) *lane {
	l := &lane{withdrawable: withdrawable, room: signal.New(), work: signal.New()}
	if withdrawable != "" {
		l.unsent = make(map[string]int)
	}
	return l
}

// wait keeps those withdrawals back that are of messages which the broker does not have yet, and
// returns the others.
func (l *lane) wait(withdrawn []events.Wire, e *entry) (free []events.Wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var behind []events.Wire
	for _, m := range withdrawn {
		if l.unsent[m.Subject] > 0 {
			behind = append(behind, m)
		} else {
			free = append(free, m)
		}
	}
	if len(behind) > 0 {
		l.behind = append(l.behind, segment{behind, e})
	}
	return free
}

// takeBack drops the messages from the queue that are withdrawn, together with their withdrawals,
// and lets withdrawals of messages in flight follow them. It returns the other withdrawals, and the
// entries of which nothing is open any more.
func (l *lane) takeBack(withdrawn []events.Wire, e *entry) (others []events.Wire, settled []*entry) {
	if len(withdrawn) == 0 {
		return nil, nil
	}
	var behind []events.Wire
	l.mu.Lock()
	for _, m := range withdrawn {
		switch of, there := l.drop(m.Subject); {
		case there:
			if of.settle(1, nil) {
				settled = append(settled, of)
			}
			if e.settle(1, nil) {
				settled = append(settled, e)
			}
		case l.unsent[m.Subject] > 0:
			behind = append(behind, m)
		default:
			others = append(others, m)
		}
	}
	if len(behind) > 0 {
		l.add(segment{behind, e})
	}
	l.mu.Unlock()
	if len(behind) > 0 {
		l.work.Set()
	}
	l.room.Set()
	return others, settled
}

// drop takes the last message of a subject out of the queue, and returns its entry.
func (l *lane) drop(subject string) (of *entry, there bool) {
	if l.unsent[subject] == 0 {
		return nil, false
	}
	for n := len(l.queue) - 1; n >= 0; n-- {
		x := &l.queue[n]
		i := slices.IndexFunc(x.messages, func(m events.Wire) bool { return m.Subject == subject })
		if i < 0 {
			continue
		}
		if x.messages[i].Purge {
			return nil, false // it was withdrawn before
		}
		of = x.entry
		l.count(x.messages[i:i+1], -1)
		x.messages = slices.Delete(x.messages, i, i+1)
		l.waiting--
		if len(x.messages) == 0 {
			l.queue = slices.Delete(l.queue, n, n+1)
		}
		return of, true
	}
	return nil, false
}

// count notes that a message that may be withdrawn is in flight, or that it has arrived. Its
// withdrawal is then published.
func (l *lane) count(messages []events.Wire, by int) {
	if l.unsent == nil {
		return
	}
	for _, m := range messages {
		if m.Purge || !strings.HasPrefix(m.Subject, l.withdrawable) {
			continue
		}
		if l.unsent[m.Subject] += by; l.unsent[m.Subject] == 0 {
			delete(l.unsent, m.Subject)
		}
	}
}

// freed takes the withdrawals that need not wait any more.
func (l *lane) freed() (free []segment) {
	l.behind = slices.DeleteFunc(l.behind, func(x segment) bool {
		waits := slices.ContainsFunc(x.messages, func(m events.Wire) bool { return l.unsent[m.Subject] > 0 })
		if !waits {
			free = append(free, x)
		}
		return !waits
	})
	return free
}

// add takes a segment without asking whether there is room.
func (l *lane) add(x segment) {
	if l.waiting == 0 {
		l.age = time.Now()
	}
	l.queue = append(l.queue, x)
	l.waiting += len(x.messages)
	l.count(x.messages, 1)
}

// put takes a segment. It blocks while there is no room.
func (l *lane) put(ctx context.Context, x segment) error {
	if len(x.messages) == 0 {
		return nil
	}
	for {
		l.mu.Lock()
		if l.waiting == 0 || l.waiting+len(x.messages) <= maxQueued {
			l.add(x)
			l.mu.Unlock()
			l.work.Set()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-l.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take takes the next segments out of the queue.
func (l *lane) take() (segments []segment, messages []events.Wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		x := l.queue[0]
		if l.most > 0 && len(messages) > 0 && len(messages)+len(x.messages) > l.most {
			break
		}
		l.queue = l.queue[1:]
		segments, messages = append(segments, x), append(messages, x.messages...)
	}
	if len(l.queue) == 0 {
		l.queue = nil
	}
	return segments, messages
}

// run publishes until the context ends, and then the rest of the queue, until the second one ends.
func (l *lane) run(ctx, drain context.Context, send sender) {
	for {
		l.publish(drain, send)
		select {
		case <-l.work:
			l.linger(ctx)
		case <-ctx.Done():
			l.publish(drain, send)
			l.sending.Wait()
			return
		}
	}
}

// linger waits for messages that go together with those that are there, or takes them back.
func (l *lane) linger(ctx context.Context) {
	if l.rest == 0 {
		return
	}
	select {
	case <-time.After(l.rest):
	case <-ctx.Done():
	}
}

// publish publishes everything that is in the queue, as much as may be in one go.
func (l *lane) publish(ctx context.Context, send sender) {
	for ctx.Err() == nil {
		segments, messages := l.take()
		if len(segments) == 0 {
			return
		}
		if l.each {
			l.sending.Go(func() { send(ctx, l, segments, messages) })
		} else {
			send(ctx, l, segments, messages)
		}
	}
}

// sent notes that messages are in flight no longer, and returns the withdrawals that waited for
// them.
func (l *lane) sent(messages []events.Wire) (free []segment) {
	l.mu.Lock()
	l.waiting -= len(messages)
	l.age = time.Now()
	l.count(messages, -1)
	free = l.freed()
	l.mu.Unlock()
	l.room.Set()
	return free
}

// give passes on messages that have waited elsewhere.
func (l *lane) give(segments []segment) {
	if len(segments) == 0 {
		return
	}
	l.mu.Lock()
	for _, x := range segments {
		l.add(x)
	}
	l.mu.Unlock()
	l.work.Set()
}

// length tells how many messages wait, and for how long the first one.
func (l *lane) length() (messages int, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.behind {
		messages += len(x.messages)
	}
	if l.waiting > 0 {
		messages, since = messages+l.waiting, time.Since(l.age)
	}
	return messages, since
}
