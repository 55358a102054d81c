// Package report tells operators and clients about an orchestrator: it answers queries and
// discovery requests, and exports gauges.
package report

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// Broker is the part of the broker that a Reporter needs.
type Broker interface {
	query.Broker
	broker.Publisher
	Backlogs
	Prefix() string
	Flaws() []broker.Flaw
	broker.PendingStarts
}

// Config has the settings of a Reporter.
type Config struct {
	ID, Build string
	Began     time.Time
	// System returns the id of the system.
	System  func() string
	Members Members
	// Ready returns the reason why the orchestrator is not ready, or nil.
	Ready func(ctx context.Context) error
	// Recover has the orchestrators check what the broker has, and returns within what time.
	Recover func(ctx context.Context) (within time.Duration, err error)
	// Await returns nil once the database may be used, or an error when the context ends first.
	Await func(ctx context.Context) error
	// CheckStart reports whether the code of a start is here, and why its input would fail the
	// instance.
	CheckStart func(s *events.Start) (known bool, bad *failure.Error)
	// Schedules has the schedules.
	Schedules query.Schedules
	// Rounds lists the rounds that have been running for long.
	Rounds func() []Round
	// Quarantined lists the instances with quarantined messages, those that are tried now first.
	Quarantined func() []Quarantined
	Logger      *slog.Logger
}

// Round is a round that has been running for long.
type Round struct {
	Instance, Orchestration, Version string
	Since                            time.Time
	// Abandoned means that the orchestrator has given up its goroutine and uses another one.
	Abandoned bool
}

// Quarantined is an instance whose messages an orchestrator has quarantined.
type Quarantined struct {
	Instance string
	Messages int
	Start    bool      // its start is one of them
	Since    time.Time // when this orchestrator received the first of them
	Attempt  int       // that has begun; 0: it waits for its turn
}

// Reporter answers requests of clients.
type Reporter struct {
	config Config
	broker Broker
	store  query.Store
}

// Serve answers requests of clients, until stop is called.
func Serve(b Broker, store query.Store, c Config) (stop func(), err error) {
	r := &Reporter{config: c, broker: b, store: store}
	questions, err := query.Answer(b, store,
		query.Options{ID: r.config.ID, Logger: c.Logger, Explain: r.explain, System: r.system, Recover: r.recoverSoon,
			Await: c.Await, CheckStart: c.CheckStart, Schedules: c.Schedules, Pending: b, Publisher: b,
			Prefix: b.Prefix()})
	if err != nil {
		return nil, err
	}
	calls, err := process.Handle(b, r.present)
	if err != nil {
		questions()
		return nil, err
	}
	return func() { calls(); questions() }, nil
}

// present describes this process, in answer to a discovery request.
func (r *Reporter) present(ctx context.Context) process.Process {
	p := process.Process{Kind: process.Orchestrator, ID: r.config.ID, Build: r.config.Build, Began: r.config.Began,
		System: r.config.System()}
	ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin) // the database may not respond
	defer cancel()
	if err := r.config.Ready(ctx); err != nil {
		p.Problem = err.Error()
	}
	for _, f := range r.broker.Flaws() {
		if !f.Harmful {
			p.Warnings = append(p.Warnings, f.String())
		}
	}
	for _, u := range r.config.Members.Unknown() {
		p.Unknown = append(p.Unknown,
			process.Unknown{Instance: u.Instance, Reason: string(u.Reason), Detail: u.Detail, Since: u.Since})
	}
	for _, x := range r.config.Rounds() {
		p.Rounds = append(p.Rounds, process.Round(x))
	}
	for _, x := range r.config.Quarantined() {
		p.Quarantined = append(p.Quarantined, process.Quarantined(x))
	}
	return p
}

// maxExplained bounds the task queues that are read to explain the waits of an instance.
const maxExplained = 10

// explain notes why an instance may be stuck: no worker takes its activity tasks, or no
// orchestrator runs its code.
func (r *Reporter) explain(ctx context.Context, w *query.Waiting) {
	if w.Name != "" && !w.Status.Ended() && !r.config.Members.AnybodyKnows(w.Name, w.Version) {
		w.Notes = append(w.Notes, fmt.Sprintf("no orchestrator that is running knows %q version %s", w.Name, w.Version))
	}
	seen := make(map[broker.TaskQueueName]bool)
	for _, x := range w.Waits {
		q := broker.TaskQueueName{Tag: x.Tag, Activity: x.Name}
		if x.Kind != round.WaitsForActivity || seen[q] || len(seen) >= maxExplained {
			continue
		}
		seen[q] = true
		b, err := r.broker.TaskBacklog(ctx, q)
		if err != nil || b.Receivers > 0 || b.Held > 0 {
			continue // it is a hint, no more
		}
		note := fmt.Sprintf("no worker takes activity %q", x.Name)
		if x.Tag != "" {
			note += fmt.Sprintf(" with tag %q", x.Tag)
		}
		w.Notes = append(w.Notes, note)
	}
}
