package dashboards_test

import "github.com/rondo-run/rondo/internal/telemetry"

// This file has the dashboards. Each has the same four rows: faults, latencies, amounts, and
// causes.

// board is a dashboard.
type board struct {
	file, title, about string
	view               view
	rows               []row
}

// row is a line of panels under a heading.
type row struct {
	title  string
	panels []panel
}

// panel is one picture. Its queries share a unit.
type panel struct {
	title, about, unit string
	queries            []query
	// number makes it one number that turns red from bad on, if that is not 0.
	number bool
	bad    float64
}

// query is one of a panel. Rare ones are about events that a healthy demonstration does not have.
type query struct {
	expr, legend string
	rare         bool
}

func one(expr, legend string) []query  { return []query{{expr: expr, legend: legend}} }
func rare(expr, legend string) []query { return []query{{expr: expr, legend: legend, rare: true}} }

// Units, as Grafana names them.
const (
	inNumbers    = "short"
	inSeconds    = "s"
	inBytes      = "bytes"
	aSecond      = "cps"
	bytesASecond = "Bps"
	asShare      = "percentunit"
)

// The names of labels are short here, because they occur everywhere.
const (
	orchestration = telemetry.LabelOrchestration
	activity      = telemetry.LabelActivity
	tag           = telemetry.LabelTag
	status        = telemetry.LabelStatus
	outcome       = telemetry.LabelOutcome
	reason        = telemetry.LabelReason
	kind          = telemetry.LabelErrorKind
	verb          = telemetry.LabelVerb
	phase         = telemetry.LabelPhase
	source        = telemetry.LabelSource
	operation     = telemetry.LabelOperation
	class         = telemetry.LabelClass
	lane          = telemetry.LabelLane
	direction     = telemetry.LabelDirection
	partition     = telemetry.LabelPartition
	queue         = telemetry.LabelQueue
	change        = telemetry.LabelChange
)

// notFailed excludes successes, and outcomes that do not depend on the code of activities.
var notFailed = noneOf(outcome, "success", telemetry.TaskPending, telemetry.TaskCancelled, telemetry.TaskReturned)

func dashboardView(more ...string) view {
	return view{variables: append([]string{"namespace", "job", "instance"}, more...), window: "$__rate_interval",
		span: "$__range"}
}

// halves are the median and the slowest hundredth of a histogram.
func halves(v view, metric string, conditions ...where) []query {
	return []query{
		{expr: v.quantile(0.5, metric, nil, conditions...), legend: "half are faster"},
		{expr: v.quantile(0.99, metric, nil, conditions...), legend: "99 of 100 are faster"},
	}
}

// down are processes that were scraped within a day and do not answer now.
func down(conditions string) string {
	return `up` + conditions + ` == 0 and on (namespace, job, instance) last_over_time(` +
		name(telemetry.MetricBuildInfo) + `[1d])`
}

var boards = []board{overview(), orchestrations(), workers(), storageAndBroker(), queues()}

func overview() board {
	v := dashboardView()
	return board{
		file: "overview", title: "Rondo: overview",
		about: "Whether all is well, and where to look if it is not.", view: v,
		rows: []row{
			{"What is wrong", []panel{
				{title: "Alerts that fire", number: true, bad: 1, unit: inNumbers,
					about: "The alerts of deploy/prometheus/rules.yaml. docs/alerts.md says what " +
						"each means and what to do.",
					queries: rare(`sum by (alertname) (ALERTS{alertname=~"Rondo.*",alertstate="firing",namespace=~"$namespace"})`, "{{alertname}}")},
				{title: "Processes that do not answer", number: true, bad: 1, unit: inNumbers,
					about: "Processes that told their metrics within a day and do not any more.",
					queries: rare(orZero(`count(`+
						down(`{namespace=~"$namespace",job=~"$job",instance=~"$instance"}`)+`)`), "")},
				{title: "Instances that do not go on", number: true, bad: 1, unit: inNumbers,
					about: "By why: code (it does not come back), halted (it does not fit its history), " +
						"unregistered and newer_engine (no orchestrator that runs can take them).",
					queries: one(v.sum(telemetry.MetricInstancesStuck, by{reason}), "{{reason}}")},
				{title: "Dead letters", number: true, bad: 1, unit: inNumbers,
					about: "Messages that were dead-lettered in the chosen time: see rondo " +
						"deadletters. Dropped are those for which NATS had no room.",
					queries: []query{
						{expr: orZero(v.happened(telemetry.MetricDeadLetters, nil)), legend: "kept", rare: true},
						{expr: orZero(v.happened(telemetry.MetricDeadLettersDropped, nil)), legend: "dropped",
							rare: true},
					}},
				{title: "Poison", number: true, bad: 1, unit: inNumbers,
					about: "Instances that were failed in the chosen time because a message for them was tried too " +
						"often, and work that has killed its workers.",
					queries: []query{
						{expr: orZero(v.happened(telemetry.MetricOrchestrationPoison, nil)),
							legend: "instances", rare: true},
						{expr: orZero(v.happened(telemetry.MetricActivityExecutions, nil, is(outcome, "poison"))),
							legend: "tasks", rare: true},
					}},
				{title: "Sent by somebody else", number: true, bad: 1, unit: inNumbers,
					about: "Messages that a sweep has published in the chosen time, because the process that " +
						"stored them has not. Normally 0.",
					queries: rare(orZero(v.happened(telemetry.MetricOutboxSwept, nil)), "")},
			}},
			{"How fast", []panel{
				{title: "How long instances live", unit: inSeconds,
					about: "From the first start to the end. Most of it is waiting: for " +
						"activities, timers and people.",
					queries: halves(v, telemetry.MetricOrchestrationDuration)},
				{title: "Rounds", unit: inSeconds,
					about: "From the arrival of the first message of a round until its messages are settled. This " +
						"is what the engine itself takes.",
					queries: halves(v, telemetry.MetricRoundDuration, is(phase, telemetry.PhaseTotal.String()))},
				{title: "Timers fire late by", unit: inSeconds,
					about:   "How long after they were due timers have fired.",
					queries: halves(v, telemetry.MetricTimerLateness)},
			}},
			{"How much", []panel{
				{title: "Instances", unit: aSecond, about: "Started, and ended by how.", queries: []query{
					{expr: v.rate(telemetry.MetricOrchestrationStarts, nil), legend: "started"},
					{expr: v.rate(telemetry.MetricOrchestrationCompletions, by{status}), legend: "{{status}}"},
				}},
				{title: "Rounds and work", unit: aSecond,
					about: "Rounds that were decided, and work that workers are done with.", queries: []query{
						{expr: v.rate(telemetry.MetricRounds, nil), legend: "rounds"},
						{expr: v.rate(telemetry.MetricActivityExecutions, nil), legend: "tasks"},
					}},
				{title: "Processes", unit: inNumbers,
					about: "Orchestrators that are alive, as they see each other, processes that are ready, and " +
						"processes by what they are built from. Two builds at once are a deployment that is under " +
						"way, or one that got stuck.", queries: []query{
						{expr: v.sum(telemetry.MetricReady, nil), legend: "ready"},
						{expr: v.most(telemetry.MetricMembers, nil), legend: "orchestrators"},
						{expr: aggregate("count", by{telemetry.LabelBuild}, telemetry.MetricBuildInfo,
							v.selector(telemetry.MetricBuildInfo, "")), legend: "{{build}}"},
					}},
			}},
			{"Why", []panel{
				{title: "What waits", unit: inNumbers,
					about: "Messages for instances that no orchestrator has taken, work that no worker has taken, " +
						"and messages that are committed and not published.", queries: []query{
						{expr: v.sum(telemetry.MetricPartitionWait, nil), legend: "messages"},
						{expr: v.sum(telemetry.MetricTaskWaiting, nil), legend: "tasks"},
						{expr: v.most(telemetry.MetricOutboxEntries, nil), legend: "outbox"},
					}},
				{title: "Clocks", unit: inSeconds,
					about: "How far the clocks of the orchestrators are ahead of those of NATS and of the database, " +
						"the furthest of them.", queries: []query{
						{expr: v.most(telemetry.MetricClockAhead, by{telemetry.LabelClock}), legend: "{{clock}}"},
					}},
				{title: "How full it is", unit: asShare,
					about: "Slots of workers, connections to the database, and what orchestrators may hold. What " +
						"stays at 100 % is what everything waits for; only instances may, if there are enough of them.",
					queries: []query{
						{expr: v.sum(telemetry.MetricInstancesHydrated,
							nil) + " / " + v.sum(telemetry.MetricInstancesLimit,
							nil), legend: "instances"},
						{expr: v.sum(telemetry.MetricInstancesMemory,
							nil) + " / " + v.sum(telemetry.MetricInstancesMost,
							nil), legend: "memory of instances"},
						{expr: v.sum(telemetry.MetricMessagesHeld,
							nil) + " / " + v.sum(telemetry.MetricMessagesLimit, nil),
							legend: "messages"},
						{expr: v.sum(telemetry.MetricMessagesMemory, nil) + " / " + v.sum(telemetry.MetricMessagesMost,
							nil), legend: "memory of messages"},
						{expr: v.sum(telemetry.MetricWorkerSlotsUsed, nil) + " / " + v.sum(telemetry.MetricWorkerSlots,
							nil), legend: "slots"},
						{expr: v.sum(telemetry.MetricStoreConnections, nil,
							is(telemetry.LabelState, "used")) + " / " + v.sum(telemetry.MetricStoreMax, nil),
							legend: "connections to the database"},
					}},
				{title: "Memory", unit: inBytes,
					about: "What processes take, and about how much of that is for instances and for messages.",
					queries: []query{
						{expr: `sum(process_resident_memory_bytes{namespace=~"$namespace",job=~"$job",instance=~"$instance"})`, legend: "processes"},
						{expr: v.sum(telemetry.MetricInstancesMemory, nil), legend: "instances"},
						{expr: v.sum(telemetry.MetricMessagesMemory, nil), legend: "messages"},
					}},
			}},
		},
	}
}

func orchestrations() board {
	v := dashboardView(orchestration)
	return board{
		file: "orchestrations", title: "Rondo: orchestrations",
		about: "What becomes of instances, and what rounds take their time with.", view: v,
		rows: []row{
			{"What is wrong", []panel{
				{title: "Instances that have failed", unit: aSecond,
					about: "By orchestration and the kind of the error. application is what your code has returned; " +
						"the other kinds are the engine's.",
					queries: one(v.rate(telemetry.MetricOrchestrationFailures, by{orchestration, kind}),
						"{{orchestration}}: {{error_kind}}")},
				{title: "Stopped by the engine", unit: aSecond,
					about: "How often the engine has halted or failed an instance because of its code: " +
						"nondeterminism, a deadlock, a limit.",
					queries: append(rare(v.rate(telemetry.MetricOrchestrationFaults, by{orchestration, kind}),
						"{{orchestration}}: {{error_kind}}"),
						query{expr: v.rate(telemetry.MetricOrchestrationPoison, by{orchestration}),
							legend: "{{orchestration}}: poison", rare: true})},
				{title: "Instances that do not go on", unit: inNumbers,
					about:   "By why. rondo show INSTANCE says what would help.",
					queries: one(v.sum(telemetry.MetricInstancesStuck, by{reason}), "{{reason}}")},
				{title: "Near a limit", unit: aSecond,
					about: "Instances that have come to four fifths of a limit, by which one. Beyond it, their " +
						"calls are refused, or they fail.",
					queries: rare(v.rate(telemetry.MetricNearLimit, by{orchestration, reason}),
						"{{orchestration}}: {{reason}}")},
			}},
			{"How fast", []panel{
				{title: "How long instances live", unit: inSeconds,
					about: "99 of 100 are faster, by orchestration; from the first start on, over all executions.",
					queries: one(v.quantile(0.99, telemetry.MetricOrchestrationDuration, by{orchestration}),
						"{{orchestration}}")},
				{title: "Executions", unit: inSeconds,
					about: "The mean, by orchestration and how they have ended. Those that continue as new are " +
						"shorter than their instances.",
					queries: one(v.mean(telemetry.MetricExecutionDuration, by{orchestration, status}),
						"{{orchestration}}: {{status}}")},
				{title: "What rounds take their time with", unit: inSeconds,
					about: "99 of 100 are faster, by phase: wait (until it is decided), decide (the code), batch " +
						"and commit (the database), publish, and ack (until its messages are settled).",
					queries: one(v.quantile(0.99, telemetry.MetricRoundDuration, by{phase}), "{{phase}}")},
				{title: "The code of orchestrations", unit: inSeconds,
					about: "99 of 100 rounds are decided faster, replaying included. This blocks a processor.",
					queries: one(v.quantile(0.99, telemetry.MetricOrchestrationDecide, by{orchestration}),
						"{{orchestration}}")},
				{title: "Inline steps", unit: inSeconds, about: "99 of 100 are faster. They run in the orchestrator.",
					queries: rare(v.quantile(0.99, telemetry.MetricStepDuration, by{orchestration}),
						"{{orchestration}}")},
				{title: "Waiting for children", unit: inSeconds,
					about: "The mean, until the child has ended or was given up.",
					queries: rare(v.mean(telemetry.MetricChildDuration,
						by{orchestration, telemetry.LabelChild, outcome}),
						"{{orchestration}} → {{child}}: {{outcome}}")},
			}},
			{"How much", []panel{
				{title: "Started", unit: aSecond,
					about: "Executions by who has started them: a client, a schedule, a parent, an instance that " +
						"launches it, or the execution before it.",
					queries: one(v.rate(telemetry.MetricOrchestrationStarts,
						by{orchestration, telemetry.LabelInitiatedBy}), "{{orchestration}}: {{initiated_by}}")},
				{title: "Ended", unit: aSecond, about: "Instances by how they have ended.",
					queries: one(v.rate(telemetry.MetricOrchestrationCompletions, by{orchestration, status}),
						"{{orchestration}}: {{status}}")},
				{title: "What they call", unit: aSecond,
					about: "Children, inline steps, and executions that continue as new.", queries: []query{
						{expr: v.rate(telemetry.MetricChildCalls, by{telemetry.LabelChild}),
							legend: "child {{child}}", rare: true},
						{expr: v.rate(telemetry.MetricStepExecutions, by{outcome}),
							legend: "step: {{outcome}}", rare: true},
						{expr: v.rate(telemetry.MetricOrchestrationContinuations, nil),
							legend: "continued as new", rare: true},
					}},
				{title: "Histories", unit: inNumbers,
					about: "Events and rounds of an execution when it ends, in the mean. A history that grows " +
						"without end should continue as new.", queries: []query{
						{expr: v.mean(telemetry.MetricExecutionEvents, by{orchestration}),
							legend: "{{orchestration}}: events"},
						{expr: v.mean(telemetry.MetricExecutionRounds, by{orchestration}),
							legend: "{{orchestration}}: rounds"},
					}},
				{title: "Sizes", unit: inBytes,
					about: "99 of 100 are smaller: histories, and the inputs and results of " +
						"orchestrations and activities.", queries: []query{
						{expr: v.quantile(0.99, telemetry.MetricExecutionBytes, nil), legend: "history"},
						{expr: v.quantile(0.99, telemetry.MetricPayloadSize, by{telemetry.LabelPayload}),
							legend: "{{payload}}"},
					}},
				{title: "In memory", unit: inNumbers,
					about: "Instances that orchestrators know of, those that need not be read, those that are at " +
						"work, and inline steps that run.", queries: []query{
						{expr: v.sum(telemetry.MetricInstancesActive, nil), legend: "known"},
						{expr: v.sum(telemetry.MetricInstancesHydrated, nil), legend: "in memory"},
						{expr: v.sum(telemetry.MetricInstancesBusy, by{phase}), legend: "{{phase}}"},
						{expr: v.sum(telemetry.MetricStepsRunning, nil), legend: "steps"},
					}},
			}},
			{"Why", []panel{
				{title: "Where instances come from", unit: aSecond,
					about: "Rounds by whether the instance was in memory, is new, or had to be read and replayed; " +
						"and those that were forgotten because there was no room.", queries: []query{
						{expr: v.rate(telemetry.MetricRounds, by{source}), legend: "{{source}}"},
						{expr: v.rate(telemetry.MetricEvictions, nil), legend: "forgotten", rare: true},
					}},
				{title: "Replaying", unit: aSecond,
					about: "Events that were replayed, and instances that were read from the " +
						"database, by what came of that.", queries: []query{
						{expr: v.rate(telemetry.MetricReplayedEvents, nil), legend: "events", rare: true},
						{expr: v.rate(telemetry.MetricLoads, by{outcome}), legend: "read: {{outcome}}", rare: true},
					}},
				{title: "What became of messages", unit: aSecond,
					about: "By what they are and what was done with them. What was returned or is " +
						"tried again comes back.",
					queries: one(v.rate(telemetry.MetricReceipts, by{verb, telemetry.LabelVerdict}),
						"{{verb}}: {{verdict}}")},
				{title: "Messages that came again", unit: aSecond,
					about: "Handed out before (a process has died, or was too slow), so often that they are decided " +
						"alone, and handed over to another orchestrator.", queries: []query{
						{expr: v.rate(telemetry.MetricRedeliveries, by{verb}), legend: "again: {{verb}}", rare: true},
						{expr: v.rate(telemetry.MetricQuarantined, by{verb}),
							legend: "under suspicion: {{verb}}", rare: true},
						{expr: v.rate(telemetry.MetricHandovers, by{outcome}),
							legend: "handed over: {{outcome}}", rare: true},
					}},
				{title: "In one round", unit: inNumbers,
					about: "Messages that a round takes, and events that it appends, in the mean.", queries: []query{
						{expr: v.mean(telemetry.MetricRoundMessages, nil), legend: "messages"},
						{expr: v.mean(telemetry.MetricRoundEvents, nil), legend: "events"},
					}},
				{title: "Waiting for activities", unit: inSeconds,
					about: "The mean time from when an attempt was asked for until its end was known. What is more " +
						"than the activity takes was spent in queues.",
					queries: one(v.mean(telemetry.MetricCallDuration, by{activity, outcome}),
						"{{activity}}: {{outcome}}")},
			}},
			{"Schedules", []panel{
				{title: "Runs of schedules", unit: aSecond,
					about: "Started, by why; missed: not started within the catch-up time; skipped, because the " +
						"run before had not ended.", queries: []query{
						{expr: v.rate(telemetry.MetricScheduleRuns, by{reason}), legend: "{{reason}}", rare: true},
						{expr: v.rate(telemetry.MetricScheduleMissed, nil), legend: "missed", rare: true},
						{expr: v.rate(telemetry.MetricScheduleSkipped, nil), legend: "skipped", rare: true},
					}},
				{title: "How late runs are started", unit: inSeconds,
					about: "99 of 100 runs of schedules are committed sooner after their time.", queries: []query{
						{expr: v.quantile(0.99, telemetry.MetricScheduleDelay, nil), legend: "99 of 100", rare: true},
					}},
			}},
		},
	}
}

func workers() board {
	v := dashboardView(activity)
	return board{
		file: "workers", title: "Rondo: workers", about: "What activities do, and what waits for workers.", view: v,
		rows: []row{
			{"What is wrong", []panel{
				{title: "Work that has not succeeded", unit: aSecond,
					about: "By activity and outcome. app_error is what your code has returned; timeouts say which " +
						"time limit was over.",
					queries: one(v.rate(telemetry.MetricActivityExecutions, by{activity, outcome}, notFailed),
						"{{activity}}: {{outcome}}")},
				{title: "Share that fails", unit: asShare,
					about: "Of all attempts. Most are tried again, so this costs time before it costs anything else.",
					queries: one(v.rate(telemetry.MetricActivityExecutions, by{activity},
						notFailed)+" / "+v.rate(telemetry.MetricActivityExecutions, by{activity}), "{{activity}}")},
				{title: "Work without workers", unit: inNumbers,
					about: "Work that waits although nobody asks for such work and nobody has any: no worker runs " +
						"that takes it.",
					queries: rare(withoutWorkers(v), "{{activity}} {{tag}}")},
				{title: "Activities that ignore their end", unit: inNumbers,
					about:   "They were given up and still run. Each holds memory, and whatever else it has.",
					queries: one(v.sum(telemetry.MetricWorkerStuck, by{"instance"}), "{{instance}}")},
			}},
			{"How fast", []panel{
				{title: "Activities", unit: inSeconds, about: "99 of 100 are faster, on the worker.",
					queries: one(v.quantile(0.99, telemetry.MetricActivityDuration, by{activity}), "{{activity}}")},
				{title: "Until they begin", unit: inSeconds,
					about: "99 of 100 have waited less in the broker and for a slot. If it grows, " +
						"there are too few workers.",
					queries: one(v.quantile(0.99, telemetry.MetricActivityQueue, by{activity, tag}),
						"{{activity}} {{tag}}")},
				{title: "Until results are stored", unit: inSeconds,
					about:   "How long the broker took to store completions.",
					queries: halves(v, telemetry.MetricWorkerPublish)},
			}},
			{"How much", []panel{
				{title: "Work that is done", unit: aSecond, about: "By activity, however it has ended.",
					queries: one(v.rate(telemetry.MetricActivityExecutions, by{activity}), "{{activity}}")},
				{title: "Attempts", unit: aSecond,
					about: "Work by which attempt it was. Much of 2, 3 and 4+ means that much fails.",
					queries: one(v.rate(telemetry.MetricActivityExecutions, by{telemetry.LabelAttempt}),
						"attempt {{attempt}}")},
				{title: "Slots", unit: inNumbers,
					about: "How much workers may run at once, how much of that they do, and what they have taken.",
					queries: []query{
						{expr: v.sum(telemetry.MetricWorkerSlots, nil), legend: "slots"},
						{expr: v.sum(telemetry.MetricWorkerSlotsUsed, nil), legend: "used"},
						{expr: v.sum(telemetry.MetricWorkerHeld, nil), legend: "taken"},
						{expr: v.sum(telemetry.MetricWorkerSessions, nil), legend: "sessions"},
					}},
			}},
			{"Why", []panel{
				{title: "Work that waits", unit: inNumbers, about: "No worker has taken it.",
					queries: one(v.most(telemetry.MetricTaskWaiting, by{activity, tag}), "{{activity}} {{tag}}")},
				{title: "Who asks for work", unit: inNumbers,
					about: "Requests of workers that wait for work, and work that they have, stored or by direct " +
						"delivery. Where all are 0, no worker takes it.", queries: []query{
						{expr: v.most(telemetry.MetricTaskReceivers, by{activity, tag}),
							legend: "asked: {{activity}} {{tag}}"},
						{expr: v.most(telemetry.MetricTaskHeld, by{activity, tag}),
							legend: "taken: {{activity}} {{tag}}"},
						{expr: v.sum(telemetry.MetricTaskDirect, by{activity, tag}),
							legend: "direct: {{activity}} {{tag}}"},
					}},
				{title: "How full each worker is", unit: asShare, about: "Slots that are taken.",
					queries: one(v.sum(telemetry.MetricWorkerSlotsUsed,
						by{"instance"})+" / "+v.sum(telemetry.MetricWorkerSlots, by{"instance"}), "{{instance}}")},
				{title: "How work came", unit: aSecond,
					about: "new, again (handed out before: a worker has died, or did not say that it works), or " +
						"from another worker, because of its session.",
					queries: one(v.rate(telemetry.MetricActivityDeliveries, by{source}), "{{source}}")},
				{title: "Heartbeats, and what went back", unit: aSecond,
					about: "Work goes back when a worker may not begin as much of it in a second.", queries: []query{
						{expr: v.rate(telemetry.MetricActivityHeartbeats, by{activity}),
							legend: "heartbeats: {{activity}}", rare: true},
						{expr: v.rate(telemetry.MetricActivityLimited, by{activity}),
							legend: "back: {{activity}}", rare: true},
					}},
				{title: "Processors", unit: inNumbers, about: "How many processors each process keeps busy.",
					queries: one(`sum by (instance) (rate(process_cpu_seconds_total{namespace=~"$namespace",job=~"$job",instance=~"$instance"}[$__rate_interval]))`, "{{instance}}")},
			}},
		},
	}
}

func storageAndBroker() board {
	v := dashboardView()
	return board{
		file: "storage-and-broker", title: "Rondo: storage and broker",
		about: "The database, NATS, and the outbox between them.", view: v,
		rows: []row{
			{"What is wrong", []panel{
				{title: "Commits that were not stored", unit: aSecond,
					about: "By class. retry and contended are tried again; of an ambiguous one nobody knows, and it " +
						"is looked up; permanent and corrupt need people.",
					queries: rare(v.rate(telemetry.MetricCommitAttempts, by{outcome}, not(outcome, "stored")),
						"{{outcome}}")},
				{title: "Turns that were not committed", unit: aSecond,
					about: "conflict: another orchestrator was first, which is normal while partitions move, and " +
						"nothing else. The others are about instances that were removed meanwhile.",
					queries: rare(v.rate(telemetry.MetricTurns, by{outcome}, not(outcome, "committed")),
						"{{outcome}}")},
				{title: "Errors of the database", unit: aSecond, about: "By operation and class.",
					queries: rare(v.rate(telemetry.MetricStoreErrors, by{operation, class}),
						"{{operation}}: {{class}}")},
				{title: "Connections to NATS", unit: inNumbers,
					about: "Processes that are connected, and how often connections were lost and made in the " +
						"chosen time.", queries: []query{
						{expr: v.sum(telemetry.MetricNATSConnected, nil), legend: "connected"},
						{expr: v.happened(telemetry.MetricNATSDisconnects, nil), legend: "lost"},
						{expr: v.happened(telemetry.MetricNATSReconnects, nil), legend: "made again"},
					}},
				{title: "Errors of NATS", unit: aSecond,
					about: "slow_consumer: a process did not take what was sent to it, and it was " +
						"dropped; it comes again.",
					queries: one(v.rate(telemetry.MetricNATSErrors, by{reason}), "{{reason}}")},
				{title: "Sent again", unit: aSecond,
					about: "swept: stored by a process that has not published it. healed: an instance that is " +
						"overdue " +
						"waits for it, or the broker has lost it. Both are normally 0.", queries: []query{
						{expr: v.rate(telemetry.MetricOutboxSwept, nil), legend: "swept", rare: true},
						{expr: v.rate(telemetry.MetricOutboxHealed, nil), legend: "healed", rare: true},
					}},
			}},
			{"How fast", []panel{
				{title: "Operations of the database", unit: inSeconds,
					about:   "99 of 100 are faster, with all they have tried again.",
					queries: one(v.quantile(0.99, telemetry.MetricStoreDuration, by{operation}), "{{operation}}")},
				{title: "Publishing", unit: inSeconds,
					about:   "How long the broker took to store what was published in one go; 99 of 100 are faster.",
					queries: one(v.quantile(0.99, telemetry.MetricOutboxDuration, by{lane}), "{{lane}}")},
				{title: "NATS answers within", unit: inSeconds, about: "The last time it was asked.",
					queries: one(v.most(telemetry.MetricNATSRoundTrip, by{"instance"}), "{{instance}}")},
			}},
			{"How much", []panel{
				{title: "Commits", unit: aSecond, about: "Those that were stored, and the turns in them.",
					queries: []query{
						{expr: v.rate(telemetry.MetricCommitAttempts, nil, is(outcome, "stored")), legend: "commits"},
						{expr: v.rate(telemetry.MetricTurns, nil, is(outcome, "committed")), legend: "turns"},
					}},
				{title: "In one commit", unit: inNumbers,
					about: "The mean. Many turns share a commit when there is much to do, which is why it gets " +
						"cheaper then.", queries: []query{
						{expr: v.mean(telemetry.MetricCommitTurns, nil), legend: "turns"},
						{expr: v.mean(telemetry.MetricCommitEvents, nil), legend: "events"},
					}},
				{title: "Published", unit: aSecond,
					about: "Messages by whether they are wanted now or later, and by whether the broker took " +
						"them. What fails is published by a sweep.",
					queries: one(v.rate(telemetry.MetricOutboxPublished, by{lane, outcome}), "{{lane}}: {{outcome}}")},
				{title: "Over the connections to NATS", unit: bytesASecond, about: "What the protocol needs included.",
					queries: one(v.rate(telemetry.MetricNATSBytes, by{direction}), "{{direction}}")},
				{title: "Messages over them", unit: aSecond,
					about: "What the protocol needs included; and results that went straight to an " +
						"orchestrator, or were to.", queries: []query{
						{expr: v.rate(telemetry.MetricNATSMessages, by{direction}), legend: "{{direction}}"},
						{expr: v.rate(telemetry.MetricNATSDirect, by{telemetry.LabelOutcome}),
							legend: "direct delivery, {{outcome}}"},
					}},
				{title: "Messages that are held", unit: inNumbers, about: "Taken from the broker and not settled.",
					queries: one(v.sum(telemetry.MetricMessagesHeld, by{"instance"}), "{{instance}}")},
			}},
			{"Why", []panel{
				{title: "The outbox", unit: inNumbers,
					about: "Rows in the database, counted up to 10,000, and messages that orchestrators have " +
						"committed and not published.", queries: []query{
						{expr: v.most(telemetry.MetricOutboxEntries, nil), legend: "rows"},
						{expr: v.sum(telemetry.MetricOutboxUnpublished, nil), legend: "not published"},
					}},
				{title: "How old it is", unit: inSeconds,
					about: "The oldest row, and the message that has waited longest in an orchestrator.",
					queries: []query{
						{expr: v.most(telemetry.MetricOutboxAge, nil), legend: "row"},
						{expr: v.most(telemetry.MetricOutboxUnpublishedAge, nil), legend: "not published"},
					}},
				{title: "Messages that wait", unit: inNumbers, about: "In each partition.",
					queries: one(v.most(telemetry.MetricPartitionWait, by{partition}), "{{partition}}")},
				{title: "Partitions", unit: inNumbers,
					about: "What each orchestrator owns, and messages of a partition that are " +
						"handed out and not settled.", queries: []query{
						{expr: v.sum(telemetry.MetricPartitions, by{"instance"}), legend: "owned by {{instance}}"},
						{expr: v.most(telemetry.MetricPartitionHeld, by{partition}), legend: "held of {{partition}}"},
					}},
				{title: "The pool of the database", unit: inNumbers,
					about: "Connections, and how many there may be in each process.", queries: []query{
						{expr: v.sum(telemetry.MetricStoreConnections, by{telemetry.LabelState}), legend: "{{state}}"},
						{expr: v.sum(telemetry.MetricStoreMax, nil), legend: "limit"},
					}},
				{title: "Waiting for a connection", unit: inNumbers,
					about: "How often in a second somebody waits for a connection to the database, and how many " +
						"wait at any time.", queries: []query{
						{expr: v.rate(telemetry.MetricStoreWaits, nil), legend: "a second"},
						{expr: v.rate(telemetry.MetricStoreWaited, nil), legend: "wait"},
					}},
			}},
		},
	}
}

// withoutWorkers are tasks that wait although no worker asks for them and none has any.
func withoutWorkers(v view) string {
	keep := by{"namespace", activity, tag}
	return v.most(telemetry.MetricTaskWaiting, keep) + " > 0 unless (" + v.most(telemetry.MetricTaskReceivers,
		keep) + " > 0 or " + v.most(telemetry.MetricTaskHeld, keep) + " > 0)"
}
