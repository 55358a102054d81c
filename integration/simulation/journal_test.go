package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// A journal has the facts that only an observer sees: the process that executed an activity, and
// the faults that hit an instance, so that a second execution can be explained, or not.
type journal struct {
	executions map[string][]execution
	troubles   map[string][]time.Time // by instance
	upheavals  []upheaval
	far        map[string]bool // timers that are far off, by subject: whether they were withdrawn
	published  map[string]bool // those that the broker has got
	swept      map[string]bool // messages of which a sweep has leased the outbox entry, by subject
}

// execution is one call of an activity's function.
type execution struct {
	at       time.Time
	by       string
	instance string
}

// upheaval is something that may befall everything that is in flight.
type upheaval struct{ from, till time.Time }

func newJournal() journal {
	return journal{
		executions: make(map[string][]execution), troubles: make(map[string][]time.Time), far: make(map[string]bool),
		published: make(map[string]bool),
		swept:     make(map[string]bool),
	}
}

// executed notes that the function of an activity is called.
func (w *world) executed(r *road, i activity.ExecutionInfo) {
	if r.isDead() {
		return // nothing of it has an effect
	}
	key := fmt.Sprint(i.IdempotencyKey, " attempt ", i.Attempt)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executions[key] = append(w.executions[key], execution{time.Now(), r.name, i.Instance})
}

// trouble notes that something has befallen a message, or a call about an instance.
func (w *world) trouble(kind, what string) {
	w.count(kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	instance, _ := events.DecodeToken(what[strings.LastIndexByte(what, '.')+1:]) // lookups always name an instance
	w.troubles[instance] = append(w.troubles[instance], time.Now())
}

// upheaval notes that everything in flight may be lost, late or twice, for some time.
func (w *world) upheaval(lasts time.Duration) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upheavals = append(w.upheavals, upheaval{now, now.Add(max(lasts, 0))})
}

// explained is how long before an execution something may have happened that explains it: as long
// as a worker keeps a task that it was delivered, and then some.
const explained = 45 * time.Second

// unexplained lists the activities that were executed twice though nothing has befallen them.
func (w *world) unexplained() (faults []string) {
	for _, key := range slices.Sorted(maps.Keys(w.executions)) {
		all := w.executions[key]
		for i := 1; i < len(all); i++ {
			w.counts["executed again"]++
			from, till := all[i-1].at.Add(-explained), all[i].at
			within := func(t time.Time) bool { return !t.Before(from) && !t.After(till) }
			if slices.ContainsFunc(w.troubles[all[i].instance], within) {
				continue
			}
			if slices.ContainsFunc(w.upheavals, func(u upheaval) bool {
				return !u.till.Before(from) && !u.from.After(till)
			}) {
				continue
			}
			faults = append(faults,
				fmt.Sprintf("an activity was executed twice though nothing has befallen it: %s of %s, by %s after "+
					"%v and by %s after %v", key,
					all[i].instance, all[i-1].by, all[i-1].at.Sub(w.begun), all[i].by, all[i].at.Sub(w.begun)))
		}
	}
	return faults
}

// sends notes the messages that a commit of a process stores in the outbox. mu is held.
func (w *world) sends(r *road, messages []events.Wire) {
	for _, m := range messages {
		switch {
		case m.Purge && r.delivers(m.Subject):
			w.counts["withdrawal waits for its task"]++
		case !strings.HasPrefix(m.Subject, "rondo.timer-due."):
		case m.Purge:
			if _, is := w.far[m.Subject]; is {
				w.far[m.Subject] = true
			}
		case time.Until(m.NotBefore) > 30*time.Second:
			w.far[m.Subject] = false
		}
	}
}

// countFar counts the timers that were withdrawn before they were published.
func (w *world) countFar() {
	for subject, withdrawn := range w.far {
		switch {
		case withdrawn && !w.published[subject]:
			w.counts["far timer withdrawn unpublished"]++
		case w.published[subject]:
			w.counts["far timer published"]++
		}
	}
}

// lineOf is the connection of an orchestrator, seen from where it publishes.
type lineOf struct {
	*brokersim.Bus
	r *road
}

// Publish watches for a withdrawal during a publication: the publisher must not withdraw a task
// that it still delivers, because a worker would execute the task in vain. Messages that a sweep
// publishes may be withdrawn meanwhile.
func (l lineOf) Publish(ctx context.Context, messages ...events.Wire) error {
	r := l.r
	r.mu.Lock()
	for _, m := range messages {
		if m.Purge && r.flying[m.Subject] > 0 && !r.w.isSwept(m.Subject) {
			r.w.fault(fmt.Sprintf("%s withdraws %s while it publishes it", r.name, m.Subject))
		}
	}
	for _, m := range messages {
		if m.Direct {
			r.flying[m.Subject]++
		}
		if !m.Purge {
			r.w.publishes(r, m)
			r.w.sees(m.Subject)
		}
	}
	r.mu.Unlock()
	err := l.Bus.Publish(ctx, messages...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		if m.Direct {
			r.flying[m.Subject]--
		}
	}
	return err
}

// delivers reports whether a process delivers a task at the moment.
func (r *road) delivers(subject string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flying[subject] > 0
}

// sweeps sees which outbox entries a sweep takes.
func (w *world) sweeps(entries []history.OutboxEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range entries {
		for _, m := range p.Messages {
			w.swept[m.Subject] = true
			w.counts["swept"]++
		}
	}
}

func (w *world) isSwept(subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.swept[subject]
}

func (w *world) sees(subject string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published[subject] = true
}

// fault notes a fault of the services.
func (w *world) fault(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, what)
}

// unreached lists the events that must occur in some of a few hundred worlds, and have not: then
// the simulation proves nothing about them.
func unreached(counts map[string]int) (never []string) {
	for _, what := range []string{
		// direct delivery
		"task received directly", "result received directly", "store after all", "still executes", "handed over",
		"executed again",
		"two commits at once", "one of two commits fails", "small commit delayed", // commits
		// the outbox
		"far timer published", "far timer withdrawn unpublished", "withdrawal waits for its task", "swept",
		"stop", "hiccup", "code stands still", "handed to a process that stands still", "late: task", "late: result",
		"kill", "restart", "cut", "cutoff", "disconnect", "powerloss", "forget", "partitions", "outage",
		// company
		"floods", "id used again", "instance deleted", "letter said again", "odd headers",
		"continued as new with unread letters",
		"away", "leap", "intruder refused", "messages in time", "messages taken after a timer",
		// schedules
		"schedule triggered", "schedule backfilled", "schedule resumed", "two change a schedule",
		"a stand-in looks at a schedule", "change of a schedule unanswered", "start of a run sent again",
		"run skipped", "run buffered", "run cancelled", "run terminated", "run caught up", "run missed",
	} {
		if counts[what] == 0 {
			never = append(never, what)
		}
	}
	return never
}

const (
	// groupDelay is for how long an orchestrator delays a small commit, and delayedBelow how many
	// turns a small one has.
	groupDelay   = 500 * time.Microsecond
	delayedBelow = 24
)

// beginCommit and endCommit see how a process commits.
func (r *road) beginCommit(turns int) (second bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commits++; r.commits > 1 {
		r.w.count("two commits at once")
	}
	if r.turns >= 4 && turns < delayedBelow && r.commits == 1 && time.Since(r.ended) == groupDelay {
		r.w.count("small commit delayed")
	}
	return r.commits > 1
}

func (r *road) endCommit(turns int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commits--; r.commits > 0 && err != nil {
		r.w.count("one of two commits fails")
	}
	r.ended, r.turns = time.Now(), turns
}
