package telemetry

import (
	"fmt"
	"strings"
	"time"
)

// The names of metrics. Those with a unit of "s" or "By" end in _seconds and _bytes where
// Prometheus reads them, and counters in _total.
const (
	MetricBuildInfo  = "rondo.build_info"
	MetricReady      = "rondo.ready"
	MetricClockAhead = "rondo.clock.ahead"

	MetricOrchestrationStarts        = "rondo.orchestration.starts"
	MetricOrchestrationCompletions   = "rondo.orchestration.completions"
	MetricOrchestrationFailures      = "rondo.orchestration.failures"
	MetricOrchestrationPoison        = "rondo.orchestration.poison"
	MetricOrchestrationFaults        = "rondo.orchestration.faults"
	MetricOrchestrationContinuations = "rondo.orchestration.continuations"
	MetricOrchestrationDuration      = "rondo.orchestration.duration"
	MetricOrchestrationDecide        = "rondo.orchestration.decide.duration"
	MetricExecutionDuration          = "rondo.execution.duration"
	MetricExecutionRounds            = "rondo.execution.rounds"
	MetricExecutionEvents            = "rondo.execution.history.events"
	MetricExecutionBytes             = "rondo.execution.history.size"
	MetricPayloadSize                = "rondo.payload.size"
	MetricChildCalls                 = "rondo.child.calls"
	MetricChildDuration              = "rondo.child.duration"
	MetricCallDuration               = "rondo.activity.call.duration"
	MetricTimerLateness              = "rondo.timer.lateness"
	MetricStepExecutions             = "rondo.step.executions"
	MetricStepDuration               = "rondo.step.duration"
	MetricStepsRunning               = "rondo.steps.running"

	MetricRounds         = "rondo.rounds"
	MetricRoundDuration  = "rondo.round.duration"
	MetricRoundMessages  = "rondo.round.messages"
	MetricRoundEvents    = "rondo.round.events"
	MetricReplayedEvents = "rondo.replayed.events"
	MetricCommitAttempts = "rondo.commit.attempts"
	MetricCommitTurns    = "rondo.commit.turns"
	MetricCommitEvents   = "rondo.commit.events"
	MetricTurns          = "rondo.turns"
	MetricLoads          = "rondo.instance.loads"
	MetricEvictions      = "rondo.instance.evictions"
	MetricNearLimit      = "rondo.instance.near_limit"

	MetricInstancesActive   = "rondo.instances.active"
	MetricInstancesHydrated = "rondo.instances.hydrated"
	MetricInstancesMemory   = "rondo.instances.memory"
	MetricInstancesLimit    = "rondo.instances.limit"
	MetricInstancesMost     = "rondo.instances.memory.limit"
	MetricInstancesBusy     = "rondo.instances.busy"
	MetricInstancesStuck    = "rondo.instances.stuck"
	MetricMessagesHeld      = "rondo.messages.held"
	MetricMessagesMemory    = "rondo.messages.memory"
	MetricMessagesLimit     = "rondo.messages.limit"
	MetricMessagesMost      = "rondo.messages.memory.limit"

	MetricReceipts           = "rondo.receipts"
	MetricRedeliveries       = "rondo.messages.redelivered"
	MetricQuarantined        = "rondo.messages.quarantined"
	MetricHandovers          = "rondo.messages.handed_over"
	MetricDeadLetters        = "rondo.dead_letters"
	MetricDeadLettersDropped = "rondo.dead_letters.dropped"
	MetricPartitionWait      = "rondo.partition.waiting"
	MetricPartitionHeld      = "rondo.partition.held"
	MetricPartitions         = "rondo.partitions.owned"
	MetricMembers            = "rondo.orchestrators"

	MetricOutboxEntries        = "rondo.outbox.entries"
	MetricOutboxAge            = "rondo.outbox.age"
	MetricOutboxUnpublished    = "rondo.outbox.unpublished"
	MetricOutboxUnpublishedAge = "rondo.outbox.unpublished.age"
	MetricOutboxPublished      = "rondo.outbox.published"
	MetricOutboxDuration       = "rondo.outbox.publish.duration"
	MetricOutboxSwept          = "rondo.outbox.swept"
	MetricOutboxHealed         = "rondo.outbox.healed"

	MetricScheduleRuns    = "rondo.schedule.runs"
	MetricScheduleDelay   = "rondo.schedule.delay"
	MetricScheduleMissed  = "rondo.schedule.missed"
	MetricScheduleSkipped = "rondo.schedule.skipped"

	MetricJobsRequests = "rondo.jobs.requests"
	MetricJobsDuration = "rondo.jobs.request.duration"
	MetricJobs         = "rondo.jobs"
	MetricJobsDepth    = "rondo.jobs.depth"
	MetricJobsLocked   = "rondo.jobs.locked"
	MetricJobsDead     = "rondo.jobs.dead"
	MetricJobsOldest   = "rondo.jobs.oldest.age"

	MetricTaskWaiting   = "rondo.task.waiting"
	MetricTaskHeld      = "rondo.task.held"
	MetricTaskDirect    = "rondo.task.direct"
	MetricTaskReceivers = "rondo.task.receivers"

	MetricActivityExecutions = "rondo.activity.executions"
	MetricActivityDuration   = "rondo.activity.duration"
	MetricActivityQueue      = "rondo.activity.queue.duration"
	MetricActivityDeliveries = "rondo.activity.deliveries"
	MetricActivityHeartbeats = "rondo.activity.heartbeats"
	MetricActivityLimited    = "rondo.activity.rate_limited"
	MetricWorkerSlots        = "rondo.worker.slots"
	MetricWorkerSlotsUsed    = "rondo.worker.slots.used"
	MetricWorkerSessions     = "rondo.worker.sessions"
	MetricWorkerStuck        = "rondo.worker.stuck"
	MetricWorkerHeld         = "rondo.worker.held"
	MetricWorkerPublish      = "rondo.worker.publish.duration"

	MetricStoreDuration    = "rondo.store.operation.duration"
	MetricStoreErrors      = "rondo.store.errors"
	MetricStoreConnections = "rondo.store.connections"
	MetricStoreMax         = "rondo.store.connections.limit"
	MetricStoreWaits       = "rondo.store.connection.waits"
	MetricStoreWaited      = "rondo.store.connection.wait.duration"

	MetricNATSConnected   = "rondo.nats.connected"
	MetricNATSReconnects  = "rondo.nats.reconnects"
	MetricNATSDisconnects = "rondo.nats.disconnects"
	MetricNATSErrors      = "rondo.nats.errors"
	MetricNATSRoundTrip   = "rondo.nats.round_trip"
	MetricNATSMessages    = "rondo.nats.messages"
	MetricNATSBytes       = "rondo.nats.io"
	MetricNATSDirect      = "rondo.nats.direct"
)

// The labels of metrics. None of them ever has the id of an instance, of an execution or of a
// process, nor any other value without a limit.
const (
	LabelOrchestration = "orchestration" // a registered name, or [Unregistered]
	LabelVersion       = "version"       // a registered version
	LabelChild         = "child"         // the first 200 names; then [Other]
	// on a worker, a registered name; elsewhere the first 200 names, then [Other]
	LabelActivity    = "activity"
	LabelClock       = "clock" // nats or database
	LabelTag         = "tag"   // the first 50, then [Other]; "" for none
	LabelInitiatedBy = "initiated_by"
	LabelStatus      = "status"
	LabelOutcome     = "outcome"
	LabelAttempt     = "attempt"
	LabelErrorKind   = "error_kind"
	LabelReason      = "reason"
	LabelVerb        = "verb"
	LabelVerdict     = "verdict"
	LabelPhase       = "phase"
	LabelSource      = "source"
	LabelLane        = "lane"
	LabelPartition   = "partition"
	LabelQueue       = "queue"  // the first 100, then [Other]
	LabelChange      = "change" // the change of jobs
	LabelOperation   = "operation"
	LabelClass       = "class"
	LabelState       = "state"
	LabelDirection   = "direction"
	LabelPayload     = "payload"
	LabelBuild       = "build"
	LabelEngine      = "engine"
	LabelGo          = "go"
)

// The values of labels for a name that is not registered, and for names beyond a limit.
const (
	Unregistered = "unregistered"
	Other        = "other"
)

// Type is the type of a metric.
type Type string

// The types. The value of an observed metric is read at each export.
const (
	Counter         Type = "counter"
	Histogram       Type = "histogram"
	Gauge           Type = "gauge"
	ObservedCounter Type = "observed counter"
)

// Described is the description of a metric.
type Described struct {
	Name   string
	Type   Type
	Unit   string
	Labels []string
	// Help describes its value.
	Help string
	// Buckets are the bounds of a histogram.
	Buckets []float64
}

// PrometheusName is its name in Prometheus; for a histogram, the prefix of its series.
func (d Described) PrometheusName() string {
	name := strings.ReplaceAll(d.Name, ".", "_")
	switch d.Unit {
	case "s":
		name += "_seconds"
	case "By":
		name += "_bytes"
	}
	if d.Type == Counter || d.Type == ObservedCounter {
		name += "_total"
	}
	return name
}

// ---- Buckets.

var (
	// quick is for durations from parts of a millisecond to a minute: rounds, commits, publishing.
	quick = seconds(100*time.Microsecond, 250*time.Microsecond, 500*time.Microsecond, time.Millisecond,
		2500*time.Microsecond, 5*time.Millisecond, 10*time.Millisecond, 25*time.Millisecond,
		50*time.Millisecond, 100*time.Millisecond, 250*time.Millisecond, 500*time.Millisecond, time.Second,
		2500*time.Millisecond, 5*time.Second, 10*time.Second, 30*time.Second, time.Minute)
	// working is for durations from milliseconds to a day: activities, and waiting for them.
	working = seconds(time.Millisecond, 5*time.Millisecond, 10*time.Millisecond, 25*time.Millisecond,
		50*time.Millisecond, 100*time.Millisecond, 250*time.Millisecond, 500*time.Millisecond,
		time.Second, 2500*time.Millisecond, 5*time.Second, 10*time.Second, 30*time.Second, time.Minute, 5*time.Minute,
		15*time.Minute, time.Hour, 6*time.Hour, 24*time.Hour)
	// living is for durations from milliseconds to weeks: executions and children.
	living = seconds(5*time.Millisecond, 25*time.Millisecond, 100*time.Millisecond, 250*time.Millisecond,
		500*time.Millisecond, time.Second, 2500*time.Millisecond, 5*time.Second, 10*time.Second,
		30*time.Second, time.Minute, 5*time.Minute, 15*time.Minute, time.Hour, 6*time.Hour, 24*time.Hour,
		3*24*time.Hour, 7*24*time.Hour, 30*24*time.Hour)
	few   = []float64{1, 2, 3, 5, 8, 13, 21, 50, 100, 200, 500}
	many  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000}
	sizes = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
)

func seconds(all ...time.Duration) []float64 {
	out := make([]float64, len(all))
	for i, d := range all {
		out[i] = d.Seconds()
	}
	return out
}

// ---- The table.

func labels(all ...string) []string { return all }

var described = []Described{
	{Name: MetricBuildInfo, Type: Gauge, Labels: labels(LabelBuild, LabelEngine, LabelGo),
		Help: "Always 1; its labels say which binary runs."},
	{Name: MetricReady, Type: Gauge, Help: "1 if `/readyz` said ok when it was asked last, 0 otherwise."},
	{Name: MetricClockAhead, Type: Gauge, Unit: "s", Labels: labels(LabelClock),
		Help: "How far the clock of this machine is ahead of that of nats and of that of the database."},

	// Orchestrations.
	{Name: MetricOrchestrationStarts, Type: Counter, Unit: "{execution}",
		Labels: labels(LabelOrchestration, LabelVersion, LabelInitiatedBy),
		Help:   "Executions that were started, by who started them: client, schedule, launched, parent or continued."},
	{Name: MetricOrchestrationCompletions, Type: Counter, Unit: "{instance}",
		Labels: labels(LabelOrchestration, LabelVersion, LabelStatus),
		Help:   "Instances that have ended, by how: completed, failed, cancelled or terminated."},
	{Name: MetricOrchestrationFailures, Type: Counter, Unit: "{instance}",
		Labels: labels(LabelOrchestration, LabelVersion, LabelErrorKind),
		Help:   "Instances that have failed, by the kind of their error."},
	{Name: MetricOrchestrationPoison, Type: Counter, Unit: "{instance}", Labels: labels(LabelOrchestration),
		Help: "Instances that were failed because a message for them was tried too often."},
	{Name: MetricOrchestrationFaults, Type: Counter, Unit: "{fault}",
		Labels: labels(LabelOrchestration, LabelErrorKind),
		Help:   "How often the engine has stopped the code of an instance: it halted or failed it."},
	{Name: MetricOrchestrationContinuations, Type: Counter, Unit: "{execution}",
		Labels: labels(LabelOrchestration, LabelVersion),
		Help:   "Executions that have continued as new."},
	{Name: MetricOrchestrationDuration, Type: Histogram, Unit: "s",
		Labels: labels(LabelOrchestration, LabelVersion, LabelStatus), Buckets: living,
		Help: "How long instances have lived when they end, from their first start on, over all executions."},
	{Name: MetricOrchestrationDecide, Type: Histogram, Unit: "s", Labels: labels(LabelOrchestration), Buckets: quick,
		Help: "How long the code of an orchestration has taken for one round, replaying included."},
	{Name: MetricExecutionDuration, Type: Histogram, Unit: "s",
		Labels: labels(LabelOrchestration, LabelVersion, LabelStatus), Buckets: living,
		Help: "How long executions have taken when they end; those that continue as new, too."},
	{Name: MetricExecutionRounds, Type: Histogram, Unit: "{round}", Labels: labels(LabelOrchestration), Buckets: many,
		Help: "How many rounds have written to the history of an execution when it ends."},
	{Name: MetricExecutionEvents, Type: Histogram, Unit: "{event}", Labels: labels(LabelOrchestration), Buckets: many,
		Help: "How many events the history of an execution has when it ends."},
	{Name: MetricExecutionBytes, Type: Histogram, Unit: "By", Labels: labels(LabelOrchestration), Buckets: sizes,
		Help: "How large the history of an execution is when it ends."},
	{Name: MetricPayloadSize, Type: Histogram, Unit: "By", Labels: labels(LabelPayload), Buckets: sizes,
		Help: "How large the inputs and results of orchestrations and activities are."},
	{Name: MetricChildCalls, Type: Counter, Unit: "{call}", Labels: labels(LabelOrchestration, LabelChild),
		Help: "Children that were started, by the orchestration that has and the one that is started."},
	{Name: MetricChildDuration, Type: Histogram, Unit: "s",
		Labels: labels(LabelOrchestration, LabelChild, LabelOutcome), Buckets: living,
		Help: "How long children have been waited for: until they were completed or failed, or were given up."},
	{Name: MetricCallDuration, Type: Histogram, Unit: "s", Labels: labels(LabelActivity, LabelOutcome),
		Buckets: working,
		Help: "How long orchestrations have waited for attempts of activities: until one was completed or failed, " +
			"or was given up."},
	{Name: MetricTimerLateness, Type: Histogram, Unit: "s", Buckets: quick,
		Help: "How long after they were due timers have fired."},
	{Name: MetricStepExecutions, Type: Counter, Unit: "{execution}", Labels: labels(LabelOrchestration, LabelOutcome),
		Help: "Inline steps that have run, by how that ended."},
	{Name: MetricStepDuration, Type: Histogram, Unit: "s", Labels: labels(LabelOrchestration, LabelOutcome),
		Buckets: quick,
		Help:    "How long inline steps have taken."},
	{Name: MetricStepsRunning, Type: Gauge, Unit: "{step}", Help: "Inline steps that run, or wait for their time."},

	// Rounds.
	{Name: MetricRounds, Type: Counter, Unit: "{round}", Labels: labels(LabelOrchestration, LabelSource),
		Help: "Rounds that were decided, by where the instance came from: it was in memory, its history was " +
			"replayed, or it is new."},
	{Name: MetricRoundDuration, Type: Histogram, Unit: "s", Labels: labels(LabelPhase), Buckets: quick,
		Help: "How long the phases of rounds take: wait (from the arrival of its first message until it is " +
			"decided), decide, batch (until its commit begins), commit, publish (handing over to the publisher), " +
			"ack (from there until its messages are settled), and total."},
	{Name: MetricRoundMessages, Type: Histogram, Unit: "{message}", Buckets: few,
		Help: "How many messages a round has taken."},
	{Name: MetricRoundEvents, Type: Histogram, Unit: "{event}", Buckets: many,
		Help: "How many events a round has appended."},
	{Name: MetricReplayedEvents, Type: Counter, Unit: "{event}", Labels: labels(LabelOrchestration),
		Help: "Events that were replayed because an instance was not in memory."},
	{Name: MetricCommitAttempts, Type: Counter, Unit: "{commit}", Labels: labels(LabelOutcome),
		Help: "Commits by how they ended: stored, or the class of the error. Those that are not stored are tried " +
			"again; of an ambiguous one nobody knows."},
	{Name: MetricCommitTurns, Type: Histogram, Unit: "{turn}", Buckets: few, Help: "How many turns share a commit."},
	{Name: MetricCommitEvents, Type: Histogram, Unit: "{event}", Buckets: many,
		Help: "How many events a commit writes."},
	{Name: MetricTurns, Type: Counter, Unit: "{turn}", Labels: labels(LabelOutcome),
		Help: "Turns by what became of them in their commit: committed, conflict, deleted, parent_deleted, deleting " +
			"or unstorable."},
	{Name: MetricLoads, Type: Counter, Unit: "{instance}", Labels: labels(LabelOutcome),
		Help: "Instances that were read from the store because they were not in memory: found, new, unreadable, or " +
			"failed and tried again."},
	{Name: MetricEvictions, Type: Counter, Unit: "{instance}",
		Help: "Instances that were forgotten although they run, because there was no room for them."},

	{Name: MetricNearLimit, Type: Counter, Unit: "{instance}", Labels: labels(LabelOrchestration, LabelReason),
		Help: "Instances that have come to four fifths of a limit: values, open, mailbox_messages, mailbox_bytes, " +
			"history_events or history_bytes."},

	// Instances and messages in memory.
	{Name: MetricInstancesActive, Type: Gauge, Unit: "{instance}",
		Help: "Instances that this process knows of just now."},
	{Name: MetricInstancesHydrated, Type: Gauge, Unit: "{instance}",
		Help: "Instances in memory, so that they need not be read."},
	{Name: MetricInstancesMemory, Type: Gauge, Unit: "By", Help: "About how much memory those take."},
	{Name: MetricInstancesLimit, Type: Gauge, Unit: "{instance}", Help: "How many instances there may be in memory."},
	{Name: MetricInstancesMost, Type: Gauge, Unit: "By", Help: "About how much memory they may take."},
	{Name: MetricInstancesBusy, Type: Gauge, Unit: "{instance}", Labels: labels(LabelPhase),
		Help: "Instances that are being loaded, decided or committed."},
	{Name: MetricInstancesStuck, Type: Gauge, Unit: "{instance}", Labels: labels(LabelReason),
		Help: "Instances that do not go on, by why: code (it does not come back), halted (it does not fit its " +
			"history; of all orchestrators, exported by one of them), unregistered or newer_engine (no orchestrator " +
			"that runs can take them)."},
	{Name: MetricMessagesHeld, Type: Gauge, Unit: "{message}",
		Help: "Messages that were taken from the broker and are not settled."},
	{Name: MetricMessagesMemory, Type: Gauge, Unit: "By", Help: "About how much memory those take."},
	{Name: MetricMessagesLimit, Type: Gauge, Unit: "{message}",
		Help: "How many messages may be held before no more are taken."},
	{Name: MetricMessagesMost, Type: Gauge, Unit: "By",
		Help: "About how much memory they may take before no more are taken."},

	// Messages.
	{Name: MetricReceipts, Type: Counter, Unit: "{message}", Labels: labels(LabelVerb, LabelVerdict, LabelReason),
		Help: "What became of messages for instances."},
	{Name: MetricRedeliveries, Type: Counter, Unit: "{message}", Labels: labels(LabelVerb),
		Help: "Redelivered messages for instances."},
	{Name: MetricQuarantined, Type: Counter, Unit: "{message}", Labels: labels(LabelVerb),
		Help: "Messages that were redelivered so often that a round takes each alone."},
	{Name: MetricHandovers, Type: Counter, Unit: "{message}", Labels: labels(LabelOutcome),
		Help: "Messages that were handed over to an orchestrator that can take them: accepted, or refused by it."},
	{Name: MetricDeadLetters, Type: Counter, Unit: "{message}", Labels: labels(LabelVerb, LabelReason),
		Help: "Messages that were dead-lettered."},
	{Name: MetricDeadLettersDropped, Type: Counter, Unit: "{message}", Labels: labels(LabelVerb, LabelReason),
		Help: "Messages that were dropped because NATS had no room for their dead letters."},
	{Name: MetricPartitionWait, Type: Gauge, Unit: "{message}", Labels: labels(LabelPartition),
		Help: "Messages that wait in a partition of this orchestrator."},
	{Name: MetricPartitionHeld, Type: Gauge, Unit: "{message}", Labels: labels(LabelPartition),
		Help: "Messages of a partition of this orchestrator that were delivered and are not settled."},
	{Name: MetricPartitions, Type: Gauge, Unit: "{partition}",
		Help: "Partitions that this orchestrator takes messages from."},
	{Name: MetricMembers, Type: Gauge, Unit: "{orchestrator}",
		Help: "Orchestrators that are alive, as this one sees it."},

	// The outbox.
	{Name: MetricOutboxEntries, Type: Gauge, Unit: "{entry}",
		Help: "Rows of the outbox, of all orchestrators, up to 10,000; exported by one of them."},
	{Name: MetricOutboxAge, Type: Gauge, Unit: "s",
		Help: "How old the oldest row of the outbox is; exported by one orchestrator."},
	{Name: MetricOutboxUnpublished, Type: Gauge, Unit: "{message}",
		Help: "Messages that were committed here and are not published."},
	{Name: MetricOutboxUnpublishedAge, Type: Gauge, Unit: "s", Help: "How long the first of them has waited."},
	{Name: MetricOutboxPublished, Type: Counter, Unit: "{message}", Labels: labels(LabelLane, LabelOutcome),
		Help: "Messages that were given to the broker, by whether they are wanted now or later; what fails is " +
			"published by a sweep."},
	{Name: MetricOutboxDuration, Type: Histogram, Unit: "s", Labels: labels(LabelLane), Buckets: quick,
		Help: "How long the broker took to store what was published in one go."},
	{Name: MetricOutboxSwept, Type: Counter, Unit: "{message}",
		Help: "Messages that were published by a sweep because the process that stored them has not: normally none."},
	{Name: MetricOutboxHealed, Type: Counter, Unit: "{message}",
		Help: "Messages that were published again because an instance that is overdue waits for them, or the broker " +
			"has lost them."},

	// Schedules.
	{Name: MetricScheduleRuns, Type: Counter, Unit: "{run}", Labels: labels(LabelReason),
		Help: "Runs of schedules that were started, by why: schedule, catch-up, trigger or backfill."},
	{Name: MetricScheduleDelay, Type: Histogram, Unit: "s", Buckets: quick,
		Help: "How long after its time a run was committed, its jitter left out; only runs that were started in time."},
	{Name: MetricScheduleMissed, Type: Counter, Unit: "{run}",
		Help: "Runs of schedules that were not started within the catch-up time: normally none."},
	{Name: MetricScheduleSkipped, Type: Counter, Unit: "{run}",
		Help: "Runs of schedules that were left out, because the run before had not ended."},

	// Task queues.
	{Name: MetricTaskWaiting, Type: Gauge, Unit: "{task}", Labels: labels(LabelActivity, LabelTag),
		Help: "Activity tasks that no worker has taken, as one orchestrator reports them."},
	{Name: MetricTaskHeld, Type: Gauge, Unit: "{task}", Labels: labels(LabelActivity, LabelTag),
		Help: "Activity tasks that workers have taken and not settled, as one orchestrator reports them."},
	{Name: MetricTaskDirect, Type: Gauge, Unit: "{task}", Labels: labels(LabelActivity, LabelTag),
		Help: "Activity tasks that this orchestrator has in direct delivery at once: the mean over the last minute. " +
			"They are in no stream, so they do not count as waiting or taken."},
	{Name: MetricTaskReceivers, Type: Gauge, Unit: "{request}", Labels: labels(LabelActivity, LabelTag),
		Help: "Open pull requests of workers for such tasks, as one orchestrator reports them."},

	// Activities.
	{Name: MetricActivityExecutions, Type: Counter, Unit: "{execution}",
		Labels: labels(LabelActivity, LabelTag, LabelOutcome, LabelAttempt),
		Help: "Activity tasks that a worker has settled, by outcome (success, pending, app_error, panic, cancelled, " +
			"returned, poison, infrastructure, limit, unreadable, other, and timeout_ with which one) and by which " +
			"attempt it was: 1, 2, 3 or 4+."},
	{Name: MetricActivityDuration, Type: Histogram, Unit: "s", Labels: labels(LabelActivity, LabelTag, LabelOutcome),
		Buckets: working,
		Help:    "How long activities that were called have taken on a worker."},
	{Name: MetricActivityQueue, Type: Histogram, Unit: "s", Labels: labels(LabelActivity, LabelTag), Buckets: working,
		Help: "How long tasks have waited in the broker and for a slot, at their first delivery."},
	{Name: MetricActivityDeliveries, Type: Counter, Unit: "{task}",
		Labels: labels(LabelActivity, LabelTag, LabelSource),
		Help: "Activity tasks that were delivered to a worker: new, again (redelivered), or from another worker, " +
			"because of their session."},
	{Name: MetricActivityHeartbeats, Type: Counter, Unit: "{heartbeat}", Labels: labels(LabelActivity),
		Help: "Heartbeats of activities."},
	{Name: MetricActivityLimited, Type: Counter, Unit: "{task}", Labels: labels(LabelActivity),
		Help: "Activity tasks that a worker nacked because of its rate limit."},
	{Name: MetricWorkerSlots, Type: Gauge, Unit: "{slot}", Help: "Activities that this worker may run at once."},
	{Name: MetricWorkerSlotsUsed, Type: Gauge, Unit: "{slot}", Help: "Slots that are taken."},
	{Name: MetricWorkerSessions, Type: Gauge, Unit: "{session}", Help: "Sessions that this worker has."},
	{Name: MetricWorkerStuck, Type: Gauge, Unit: "{activity}",
		Help: "Activities that were given up and still run: they ignore their contexts."},
	{Name: MetricWorkerHeld, Type: Gauge, Unit: "{task}",
		Help: "Activity tasks that this worker has taken and not settled."},
	{Name: MetricWorkerPublish, Type: Histogram, Unit: "s", Labels: labels(LabelOutcome), Buckets: quick,
		Help: "How long it took until completions that were published in one go were taken by their orchestrators, " +
			"or stored by the broker."},

	// Job queues.
	{Name: MetricJobsRequests, Type: Counter, Unit: "{request}", Labels: labels(LabelOperation, LabelStatus),
		Help: "Requests to job queues, by what was asked for and the HTTP status of the answer."},
	{Name: MetricJobsDuration, Type: Histogram, Unit: "s", Labels: labels(LabelOperation), Buckets: quick,
		Help: "How long requests to job queues have taken."},
	{Name: MetricJobs, Type: Counter, Unit: "{job}", Labels: labels(LabelChange),
		Help: "Jobs, by what has become of them: pushed, popped, acknowledged, returned, expired (the " +
			"lock was not ended in time), died (tried too often), or started as instances."},
	{Name: MetricJobsDepth, Type: Gauge, Unit: "{job}", Labels: labels(LabelQueue),
		Help: "Jobs that can be popped; of the first 100 job queues, exported by each process that serves them."},
	{Name: MetricJobsLocked, Type: Gauge, Unit: "{job}", Labels: labels(LabelQueue),
		Help: "Jobs that are popped and not acknowledged."},
	{Name: MetricJobsDead, Type: Gauge, Unit: "{job}", Labels: labels(LabelQueue),
		Help: "Dead jobs: they were tried too often, and no pop returns them."},
	{Name: MetricJobsOldest, Type: Gauge, Unit: "s", Labels: labels(LabelQueue),
		Help: "How old the oldest job is that can be popped."},

	// The database and the broker.
	{Name: MetricStoreDuration, Type: Histogram, Unit: "s", Labels: labels(LabelOperation, LabelStatus), Buckets: quick,
		Help: "How long operations of the database have taken, with all they have tried again, by whether they " +
			"ended ok or with an error."},
	{Name: MetricStoreErrors, Type: Counter, Unit: "{error}", Labels: labels(LabelOperation, LabelClass),
		Help: "Operations of the database that have failed, by the class of the error."},
	{Name: MetricStoreConnections, Type: Gauge, Unit: "{connection}", Labels: labels(LabelState),
		Help: "Connections to the database: used and idle."},
	{Name: MetricStoreMax, Type: Gauge, Unit: "{connection}",
		Help: "How many connections to the database there may be."},
	{Name: MetricStoreWaits, Type: ObservedCounter, Unit: "{wait}",
		Help: "How often somebody has waited for a connection to the database."},
	{Name: MetricStoreWaited, Type: ObservedCounter, Unit: "s", Help: "How long that was, all together."},
	{Name: MetricNATSConnected, Type: Gauge, Help: "1 while there is a connection to NATS, 0 otherwise."},
	{Name: MetricNATSReconnects, Type: ObservedCounter, Unit: "{connection}",
		Help: "How often the connection to NATS was made again."},
	{Name: MetricNATSDisconnects, Type: ObservedCounter, Unit: "{connection}",
		Help: "How often the connection to NATS was lost."},
	{Name: MetricNATSErrors, Type: ObservedCounter, Unit: "{error}", Labels: labels(LabelReason),
		Help: "Errors that NATS has told of: slow_consumer or other."},
	{Name: MetricNATSRoundTrip, Type: Gauge, Unit: "s", Help: "How long NATS took to answer, when it was asked last."},
	{Name: MetricNATSMessages, Type: ObservedCounter, Unit: "{message}", Labels: labels(LabelDirection),
		Help: "Messages that went over the connection to NATS, what the protocol needs included."},
	{Name: MetricNATSBytes, Type: ObservedCounter, Unit: "By", Labels: labels(LabelDirection),
		Help: "Bytes of those messages."},
	{Name: MetricNATSDirect, Type: ObservedCounter, Unit: "{message}", Labels: labels(LabelOutcome),
		Help: "What workers have sent straight to an orchestrator, results and that work has begun, and " +
			"orchestrators to a worker, which is work, by what became of it: delivered, or stored in a stream after " +
			"all."},
}

// Descriptions lists all metrics.
func Descriptions() []Described { return append([]Described(nil), described...) }

// Reference returns the reference of all metrics in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("\n| metric | where Prometheus reads it | type | unit | labels | what it tells |\n| --- | --- | " +
		"--- | --- | --- | --- |\n")
	for _, d := range described {
		unit, labels := d.Unit, "–"
		if unit == "" {
			unit = "–"
		}
		if len(d.Labels) > 0 {
			labels = "`" + strings.Join(d.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", d.Name, d.PrometheusName(), d.Type,
			strings.Trim(unit, "{}"), labels, d.Help)
	}
	return b.String()
}
