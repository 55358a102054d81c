package client

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/query"
)

// System looks after the running orchestrators and workers: see [Client.System]. It is safe for
// concurrent use.
type System struct{ c *Client }

// System returns the part of the client that looks after the running orchestrators and workers.
func (c *Client) System() System { return System{c} }

// Status asks one orchestrator for the orchestrators, partitions and backlogs of the system.
func (s System) Status(ctx context.Context) (SystemStatus, error) {
	x, err := s.c.data.asker.System(ctx)
	if err != nil {
		return SystemStatus{}, err
	}
	return systemOf(x), nil
}

// Metrics counts the instances, executions and events of the database.
func (s System) Metrics(ctx context.Context) (Metrics, error) {
	m, err := s.c.data.reader().Metrics(ctx)
	if err != nil {
		return Metrics{}, err
	}
	out := Metrics{Executions: m.Executions, Events: m.Events, OutboxEntries: m.OutboxEntries,
		Tombstones: m.Tombstones, Instances: make(map[Status]int64, len(m.Instances))}
	for status, n := range m.Instances {
		out.Instances[Status(status)] = n
	}
	return out, nil
}

// Processes asks all orchestrators and workers for their current work, and lists the answers by
// kind and id. Processes that are too busy to answer within a moment are missing. It is not an
// error if none answers.
func (s System) Processes(ctx context.Context) ([]Process, error) {
	all, err := process.All(ctx, s.c.broker)
	return convert(all, processOf), err
}

// LogLevels asks all orchestrators and workers for their log levels. It is not an error if none
// answers.
func (s System) LogLevels(ctx context.Context) ([]LogLevel, error) {
	return s.SetLogLevel(ctx, LogLevelChange{})
}

// SetLogLevel asks orchestrators and workers to change their log level, and returns the answers of
// those that the change names. [LogLevel.Problem] is why one has not changed it.
func (s System) SetLogLevel(ctx context.Context, change LogLevelChange) ([]LogLevel, error) {
	c := process.Change{Level: change.Level, Process: change.Process}
	if change.For != 0 {
		c.For = change.For.String()
	}
	all, err := process.Levels(ctx, s.c.broker, c)
	return convert(all, func(l process.Logging) LogLevel { return LogLevel(l) }), err
}

// Recover has the orchestrators compare the broker with the database, and publish missing messages.
// It returns before they do. They recover by themselves when the broker has lost everything; use
// this after a partial loss.
func (s System) Recover(ctx context.Context) (Recovery, error) {
	r, err := s.c.data.asker.Recover(ctx)
	return Recovery(r), err
}

// SystemStatus describes a running system: its orchestrators, partitions and backlogs.
type SystemStatus struct {
	// AnsweredBy is the orchestrator that has answered, Now the time of its clock.
	AnsweredBy    string         `json:"answered_by"`
	Now           time.Time      `json:"now"`
	Prefix        string         `json:"prefix"`
	Orchestrators []Orchestrator `json:"orchestrators"`
	Partitions    []Partition    `json:"partitions"`
	// TaskQueues are the task queues, by activity; MoreTaskQueues counts others that are not
	// listed.
	TaskQueues     []TaskQueue `json:"task_queues"`
	MoreTaskQueues int         `json:"more_task_queues,omitempty"`
}

// Orchestrator is a running orchestrator, with the partitions that it owns.
type Orchestrator struct {
	ID   string `json:"id"`
	Host string `json:"host,omitempty"`
	// Build names its binary, Engine is its engine version.
	Build  string `json:"build,omitempty"`
	Engine int    `json:"engine"`
	// Leaving means that it is shutting down.
	Leaving bool `json:"leaving,omitempty"`
	// Code has the versions of each orchestration that it knows.
	Code       map[string][]string `json:"code"`
	Partitions []int               `json:"partitions"`
}

// Backlog counts messages of a partition or task queue.
type Backlog struct {
	// Waiting counts undelivered messages, Held those delivered and not acknowledged.
	Waiting int64 `json:"waiting"`
	Held    int64 `json:"held"`
	// Receivers counts the open requests for more.
	Receivers int `json:"receivers"`
}

// Partition is a part of the inbox. Its owner receives its messages; a draining one gets no new
// messages.
type Partition struct {
	Partition int    `json:"partition"`
	Owner     string `json:"owner,omitempty"`
	Draining  bool   `json:"draining,omitempty"`
	Backlog
}

// TaskQueue is the task queue of an activity with a tag.
type TaskQueue struct {
	Activity string `json:"activity"`
	Tag      string `json:"tag,omitempty"`
	Backlog
}

// Recovery is the answer to [System.Recover].
type Recovery struct {
	// Within is the time within which the orchestrators begin, such as "1m0s".
	Within string `json:"within"`
}

// Metrics counts what the database has.
type Metrics struct {
	Instances map[Status]int64 `json:"instances"`
	// Executions counts current and former ones, Events those of the executions that are kept.
	Executions int64 `json:"executions"`
	Events     int64 `json:"events"`
	// OutboxEntries counts messages that are stored and not yet removed, Tombstones the deleted
	// instances that are not removed yet.
	OutboxEntries int64 `json:"outbox_entries"`
	Tombstones    int64 `json:"tombstones"`
}

// The kinds of processes.
const (
	KindOrchestrator string = process.Orchestrator
	KindWorker       string = process.Worker
)

// Process describes a running orchestrator or worker.
type Process struct {
	// Kind is [KindOrchestrator] or [KindWorker].
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Host string `json:"host,omitempty"`
	// Build names its binary.
	Build string `json:"build,omitempty"`
	// System is the id that the database and NATS of an orchestrator have in common.
	System string `json:"system,omitempty"`
	// Began is when it began, and Now the time of its clock.
	Began time.Time `json:"began"`
	Now   time.Time `json:"now"`
	// OtherAccount says that it is in another NATS account than the client. Processes of one
	// account must trust each other: see docs/security.md.
	OtherAccount bool `json:"other_account,omitempty"`
	// Problem is why it does not do its job, for example because its database does not answer.
	Problem string `json:"problem,omitempty"`
	// Warnings are what operators should look at, although it does its job: a setting of a stream
	// that differs from the setup, for example.
	Warnings []string `json:"warnings,omitempty"`
	// Works describes the work of a worker.
	Works *Works `json:"works,omitempty"`
	// Unknown are instances whose messages wait with an orchestrator that cannot take them.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Rounds are the rounds of an orchestrator that have been running for more than 2 seconds.
	Rounds []LongRound `json:"rounds,omitempty"`
	// Quarantined are the instances whose messages an orchestrator has quarantined, those that it
	// tries now first. MoreQuarantined counts those that are not listed.
	Quarantined     []Quarantined `json:"quarantined,omitempty"`
	MoreQuarantined int           `json:"more_quarantined,omitempty"`
}

// Works describes the work of a worker.
type Works struct {
	// Draining means that it takes no new tasks.
	Draining bool `json:"draining,omitempty"`
	// Slots is how many activities it can run at once, Used how many it runs.
	Slots int `json:"slots"`
	Used  int `json:"used"`
	// Tags describes for operators which tasks it takes. Activities lists the activities that it
	// knows, and Queues its task queues.
	Tags       string        `json:"tags,omitempty"`
	Activities []string      `json:"activities"`
	Queues     []WorkerQueue `json:"queues"`
	// Sessions are the sessions of the worker.
	Sessions []string `json:"sessions,omitempty"`
	// Holds are the activity tasks that it has taken, the oldest first; More counts those that are
	// not listed.
	Holds []Held `json:"holds"`
	More  int    `json:"more,omitempty"`
}

// WorkerQueue is a task queue from which a worker takes tasks.
type WorkerQueue struct {
	Tag      string `json:"tag,omitempty"`
	Activity string `json:"activity"`
}

// Held is an activity task that a worker has taken.
type Held struct {
	Instance string    `json:"instance"`
	Activity string    `json:"activity"`
	Tag      string    `json:"tag,omitempty"`
	Session  string    `json:"session,omitempty"`
	Attempt  int       `json:"attempt"`
	Since    time.Time `json:"since"`
	// Stopping is why its context has ended. GivenUp means that the worker no longer waits for it
	// while it still runs.
	Stopping string `json:"stopping,omitempty"`
	GivenUp  bool   `json:"given_up,omitempty"`
}

// String describes the task for operators.
func (h Held) String() string {
	return fmt.Sprintf("%q of instance %q (since %s)", h.Activity, h.Instance, h.Since.Format(time.RFC3339))
}

// Unknown is an instance whose messages wait for an orchestrator that can take them.
type Unknown struct {
	Instance string    `json:"instance"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	Since    time.Time `json:"since"`
}

// LongRound is a round that has been running for long: the code of the instance loops or blocks,
// and does not return to the library. Until its first round ends, the database does not have the
// instance.
type LongRound struct {
	Instance      string    `json:"instance"`
	Orchestration string    `json:"orchestration,omitempty"`
	Version       string    `json:"version,omitempty"`
	Since         time.Time `json:"since"`
	// Abandoned means that the orchestrator has given up its goroutine and uses another one.
	Abandoned bool `json:"abandoned,omitempty"`
}

// Quarantined is an instance with quarantined messages. NATS has redelivered them often, so that
// they may kill their process: the orchestrator tries them one at a time. If the start is one of
// them, the database does not have the instance.
type Quarantined struct {
	Instance string `json:"instance"`
	// Messages counts its quarantined messages. Start means that its start is one of them.
	Messages int  `json:"messages"`
	Start    bool `json:"start,omitempty"`
	// Since is when the orchestrator received the first of them.
	Since time.Time `json:"since"`
	// Attempt is the attempt that has begun; 0: the instance waits for its turn.
	Attempt int `json:"attempt,omitempty"`
}

// LogLevelChange asks processes to change their log level.
type LogLevelChange struct {
	// Level is debug, info, warn or error; "" changes nothing.
	Level string
	// For is the time after which the level changes back; 0: it stays until the process ends.
	For time.Duration
	// Process is the id of an orchestrator or a worker; "" means all.
	Process string
}

// LogLevel is the log level of a process.
type LogLevel struct {
	// Command is the command that started the process: dev, orchestrator or worker. IDs are those
	// of the services in it.
	Command string   `json:"command"`
	IDs     []string `json:"ids"`
	Level   string   `json:"level"`
	// Until is when the level changes back to the one before; zero if it stays.
	Until time.Time `json:"until,omitzero"`
	// Problem is why the level was not changed.
	Problem string `json:"problem,omitempty"`
}

func systemOf(x query.System) SystemStatus {
	return SystemStatus{AnsweredBy: x.AnsweredBy, Now: x.Now, Prefix: x.Prefix, MoreTaskQueues: x.MoreTaskQueues,
		Orchestrators: convert(x.Orchestrators, func(o query.Orchestrator) Orchestrator { return Orchestrator(o) }),
		Partitions: convert(x.Partitions, func(p query.Partition) Partition {
			return Partition{Partition: p.Partition, Owner: p.Owner, Draining: p.Draining, Backlog: Backlog(p.Backlog)}
		}),
		TaskQueues: convert(x.TaskQueues, func(q query.TaskQueue) TaskQueue {
			return TaskQueue{Activity: q.Activity, Tag: q.Tag, Backlog: Backlog(q.Backlog)}
		})}
}

func processOf(p process.Process) Process {
	out := Process{Kind: p.Kind, ID: p.ID, Host: p.Host, Build: p.Build, System: p.System, Began: p.Began, Now: p.Now,
		OtherAccount: p.OtherAccount, Problem: p.Problem, Warnings: p.Warnings,
		Unknown:     convert(p.Unknown, func(u process.Unknown) Unknown { return Unknown(u) }),
		Rounds:      convert(p.Rounds, func(x process.Round) LongRound { return LongRound(x) }),
		Quarantined: convert(p.Quarantined, func(x process.Quarantined) Quarantined { return Quarantined(x) }),

		MoreQuarantined: p.MoreQuarantined}
	if w := p.Works; w != nil {
		out.Works = &Works{Draining: w.Draining, Slots: w.Slots, Used: w.Used, Tags: w.Tags, Activities: w.Activities,
			Queues:   convert(w.Queues, func(q process.Queue) WorkerQueue { return WorkerQueue(q) }),
			Sessions: w.Sessions, More: w.More,
			Holds: convert(w.Holds, func(h process.Held) Held { return Held(h) })}
	}
	return out
}
