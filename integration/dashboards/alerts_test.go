package dashboards_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
)

// This file has the alerts: their conditions, their delays, and the actions for the operator. Each
// is shown to fire on the series of bad, and not on those of fine.

// alert is a rule, with its text in docs/alerts.md.
type alert struct {
	name     string
	critical bool
	hold     time.Duration // for
	expr     string
	// summary and description are templates of Prometheus.
	summary, description string
	// means explains the condition, because the limits.
	means, because string
	// look are panels, as "board: title".
	look []string
	do   []string
	// bad are series on which it fires, and fine some on which it just does not. Both have a value
	// a minute.
	bad, fine []string
}

func (a alert) severity() string {
	if a.critical {
		return "critical"
	}
	return "warning"
}

func (a alert) anchor() string { return strings.ToLower(a.name) }

// group is a section of the file and of the document.
type group struct {
	name, title, about string
	alerts             []alert
}

// Alerts evaluate all scraped series, over these times.
var (
	quickly = view{window: "5m", span: "15m"}
	calmly  = view{window: "10m", span: "15m"}
)

const space = "namespace"

// ---- Series that are made up.

// labelled writes labels, with those of a target.
func labelled(labels string) string {
	if labels != "" {
		labels += ","
	}
	return "{" + labels + `namespace="shop",job="rondo",instance="a:1"}`
}

// gauge and counter are series with values in the notation of promtool.
func gauge(metric, labels, values string) string {
	return name(metric) + labelled(labels) + " " + values
}
func counter(metric, labels, values string) string {
	return gauge(metric, labels, values)
}

// once is a counter that is not there until it happens for the first time, after ten minutes.
func once(metric, labels string) string { return counter(metric, labels, "_x10 1x50") }

// took is a histogram of calls that each lasted so long, sixty times a minute.
func took(metric, labels string, each float64) (all []string) {
	if labels != "" {
		labels += ","
	}
	for _, b := range append(described(metric).Buckets, 0) {
		le, values := strconv.FormatFloat(b, 'g', -1, 64), "0x60"
		if b == 0 {
			le = "+Inf"
		}
		if b == 0 || each <= b {
			values = "0+60x60"
		}
		all = append(all, name(metric)+"_bucket"+labelled(labels+`le="`+le+`"`)+" "+values)
	}
	labels = strings.TrimSuffix(labels, ",")
	return append(all, name(metric)+"_count"+labelled(labels)+" 0+60x60",
		fmt.Sprintf("%s_sum%s 0+%vx60", name(metric), labelled(labels), 60*each))
}

// ---- The rules.

var groups = []group{
	{"rondo-processes", "Processes", "Somebody is not there, or cannot do anything.", processAlerts()},
	{"rondo-tasks", "Work that waits", "Messages and work wait, and nothing or too little is done about it.",
		workAlerts()},
	{"rondo-instances", "Instances and activities", "Code fails, does not fit, or does not end.", instanceAlerts()},
	{"rondo-outbox", "The outbox",
		"What was committed is not published as it should be. Nothing is lost: it stands in the database.",
		outboxAlerts()},
	{"rondo-storage", "The database", "Commits fail, or take too long.", storageAlerts()},
	{"rondo-broker", "NATS", "The connections to NATS.", brokerAlerts()},
	{"rondo-queues", "Queues", "The [queues](job-queues.md) that are served over HTTP.", queueAlerts()},
}

func processAlerts() []alert {
	owned := name(telemetry.MetricPartitions)
	waiting := name(telemetry.MetricPartitionWait)
	counted := "count by (namespace) (count by (namespace, partition) (" + waiting + "))"
	return []alert{
		{
			name: "RondoProcessDown", critical: true, hold: 2 * time.Minute, expr: down(""),
			summary:     "{{ $labels.instance }} of {{ $labels.job }} does not answer",
			description: "Prometheus cannot scrape a process that told Rondo's metrics within the last day.",
			means: "A process is gone, hangs, or cannot be reached. Others take over: its messages after 5 " +
				"seconds, its work after 30.",
			because: "Two minutes are longer than a restart. A process that has not been a target of Prometheus " +
				"for a day is forgotten; one that was taken out of the targets on purpose is, at once.",
			look: []string{"overview: Processes that do not answer", "overview: Processes"},
			do: []string{"Look why it has ended: its last log lines, its exit code, memory.",
				"`rondo orchestrators` and `rondo workers` tell who is alive.",
				"If it runs and only the scrape fails, look at `--listen` and at the network."},
			bad: []string{`up{namespace="shop",job="rondo",instance="a:1"} 1x5 0x30`,
				gauge(telemetry.MetricBuildInfo, `build="1",engine="1",go="1"`, "1x5")},
			fine: []string{`up{namespace="shop",job="rondo",instance="a:1"} 1x30`,
				`up{namespace="shop",job="other",instance="b:1"} 0x30`,
				gauge(telemetry.MetricBuildInfo, `build="1",engine="1",go="1"`, "1x30")},
		},
		{
			name: "RondoNotReady", critical: true, hold: 2 * time.Minute,
			expr:        name(telemetry.MetricReady) + " == 0",
			summary:     "{{ $labels.instance }} of {{ $labels.job }} is not ready",
			description: "The process runs, answers, and takes no messages or work.",
			means: "It waits for NATS or the database, has lost one of them, cannot commit, or too much of " +
				"its code does not come back.",
			because: "Two minutes are enough to connect and to make or check tables and streams.",
			look: []string{"overview: Processes", "storage-and-broker: Connections to NATS",
				"storage-and-broker: Errors of the database"},
			do: []string{"Ask `/readyz` of this process: it says what is missing.",
				"If `/livez` fails, too, restart it; otherwise it goes on by itself when what it waits for is back."},
			bad:  []string{gauge(telemetry.MetricReady, "", "1x5 0x30")},
			fine: []string{gauge(telemetry.MetricReady, "", "1x5 0 1x30")},
		},
		{
			name: "RondoNoOrchestrator", critical: true, hold: 2 * time.Minute,
			expr: fmt.Sprintf(
				"(group by (namespace) (last_over_time(%s[1d])) unless group by (namespace) (%s > 0)) or "+
					"absent(last_over_time(%s[1d]))", owned, owned, owned),
			summary: "no orchestrator takes messages",
			description: "No orchestrator that is scraped owns a partition, or none is scraped at " +
				"all. No instance goes on.",
			means: "All orchestrators are away, or not one of them is ready. Clients can still start and " +
				"signal instances: NATS keeps that.",
			because: "A lonely orchestrator that is restarted owns its partitions again within seconds; two " +
				"minutes leave room for a slow start.",
			look: []string{"overview: Processes", "storage-and-broker: Partitions"},
			do: []string{"Ask `/readyz` of an orchestrator: it says what it waits for.",
				"If none runs, start one.",
				"If Prometheus does not scrape any, mend that: the other alerts are blind."},
			bad:  []string{gauge(telemetry.MetricPartitions, "", "8x5 0x30")},
			fine: []string{gauge(telemetry.MetricPartitions, "", "8x5 0 8x30")},
		},
		{
			name: "RondoPartitionWithoutOwner", critical: true, hold: 5 * time.Minute,
			expr:        counted + " < max_over_time((" + counted + ")[1h:1m])",
			summary:     "{{ $value }} partitions have an owner, and there were more",
			description: "Nobody takes the messages of some partitions, so that the instances in them do not go on.",
			means: "An orchestrator has ended and the others have not taken its partitions, or one that owns " +
				"them does not tell about them.",
			because: "Partitions change hands within seconds. If you have made their number smaller, this fires " +
				"for an hour.",
			look: []string{"storage-and-broker: Partitions", "storage-and-broker: Messages that wait"},
			do: []string{"`rondo partitions` tells the owner of each.", "Ask `/readyz` of the orchestrators.",
				"Restart the one that `rondo orchestrators` shows without partitions."},
			bad: []string{gauge(telemetry.MetricPartitionWait, `partition="0"`, "0x40"),
				gauge(telemetry.MetricPartitionWait, `partition="1"`, "0x10")},
			fine: []string{gauge(telemetry.MetricPartitionWait, `partition="0"`, "0x40"),
				gauge(telemetry.MetricPartitionWait, `partition="1"`, "0x10 _ _ 0x20")},
		},
		{
			name: "RondoNotConnected", critical: true, hold: 2 * time.Minute,
			expr:        name(telemetry.MetricNATSConnected) + " == 0",
			summary:     "{{ $labels.instance }} has no connection to NATS",
			description: "The process runs and can do nothing. It tries again by itself.",
			means:       "NATS is away, or this process cannot reach it.",
			because:     "NATS servers that are restarted one after the other cost a connection for seconds.",
			look:        []string{"storage-and-broker: Connections to NATS", "storage-and-broker: NATS answers within"},
			do: []string{"If it is all processes, look at NATS; otherwise at this one's network and " +
				"credentials.", "`rondo doctor` from where the process runs."},
			bad:  []string{gauge(telemetry.MetricNATSConnected, "", "1x5 0x30")},
			fine: []string{gauge(telemetry.MetricNATSConnected, "", "1x5 0 1x30")},
		},
	}
}

func workAlerts() []alert {
	v := quickly
	keep, kinds := by{space, partition}, by{space, activity, tag}
	waiting, work := v.most(telemetry.MetricPartitionWait, keep), v.most(telemetry.MetricTaskWaiting, kinds)
	before := func(metric string, keep by) string {
		return aggregate("max", keep, metric, name(metric)+" offset 10m")
	}
	slotsWorking := []string{gauge(telemetry.MetricWorkerSlotsUsed, "", "100x60"),
		gauge(telemetry.MetricWorkerSlots, "", "100x60")}
	return []alert{
		{
			name: "RondoNothingProcessed", critical: true, hold: 5 * time.Minute,
			expr: v.sum(telemetry.MetricPartitionWait, by{space}) + " > 0 unless " +
				v.rate(telemetry.MetricTurns, by{space}, is(outcome, "committed")) + " > 0",
			summary: "{{ $value }} messages wait, and nothing is processed",
			description: "Messages for instances wait in NATS, and no orchestrator has committed " +
				"anything for five minutes.",
			means: "Orchestrators own their partitions and do nothing: the database does not take commits, or " +
				"code blocks all of them.",
			because: "Any commit at all keeps it quiet; five minutes without one, while something waits, are " +
				"never normal.",
			look: []string{"overview: What waits", "storage-and-broker: Commits that were not stored",
				"orchestrations: What rounds take their time with"},
			do: []string{"`rondo doctor` says whether the database answers.",
				"`rondo orchestrators` says which code does not come back.",
				"Restart an orchestrator if neither tells anything; nothing is lost by that."},
			bad: []string{gauge(telemetry.MetricPartitionWait, `partition="0"`, "0x5 7x30"),
				counter(telemetry.MetricTurns, `outcome="committed"`, "0+60x5 300x30")},
			fine: []string{gauge(telemetry.MetricPartitionWait, `partition="0"`, "0x5 7x30"),
				counter(telemetry.MetricTurns, `outcome="committed"`, "0+1x35")},
		},
		{
			name: "RondoPartitionLag", hold: 15 * time.Minute,
			expr:        waiting + " > 1000 and " + waiting + " > " + before(telemetry.MetricPartitionWait, keep),
			summary:     "{{ $value }} messages wait in partition {{ $labels.partition }}, and more and more do",
			description: "More is sent to instances than orchestrators get done.",
			means:       "It is too much work for the orchestrators or the database, or one partition's owner is slow.",
			because: "1,000 messages are a second's work. A burst is over within 15 minutes; what still grows " +
				"then does not stop by itself.",
			look: []string{"storage-and-broker: Messages that wait",
				"orchestrations: What rounds take their time with", "overview: How full it is"},
			do: []string{"If the commit phase is slow, look at the database.",
				"If processors are busy, start more orchestrators, up to the number of partitions.",
				"If it is one partition, restart its owner: `rondo partitions` names it."},
			bad:  []string{gauge(telemetry.MetricPartitionWait, `partition="3"`, "0+200x40")},
			fine: []string{gauge(telemetry.MetricPartitionWait, `partition="3"`, "5000-100x40")},
		},
		{
			name: "RondoWorkWithoutWorkers", critical: true, hold: 5 * time.Minute, expr: withoutWorkers(view{}),
			summary:     "nobody takes work for {{ $labels.activity }} {{ $labels.tag }}",
			description: "{{ $value }} activity tasks wait. No worker asks for such work, and none has any.",
			means:       "No worker that runs has this activity, or none takes this tag, or all have lost NATS.",
			because: "Workers ask again at once, and those that are full have some. Five minutes leave room for " +
				"a deployment.",
			look: []string{"workers: Work without workers", "workers: Who asks for work"},
			do: []string{"`rondo workers` tells what those that run take.",
				"Start a worker that has the activity, with its tag in `--tags`."},
			bad: []string{gauge(telemetry.MetricTaskWaiting, `activity="train",tag="gpu"`, "3x30"),
				gauge(telemetry.MetricTaskReceivers, `activity="train",tag="gpu"`, "0x30"),
				gauge(telemetry.MetricTaskHeld, `activity="train",tag="gpu"`, "0x30")},
			fine: []string{gauge(telemetry.MetricTaskWaiting, `activity="train",tag="gpu"`, "3x30"),
				gauge(telemetry.MetricTaskReceivers, `activity="train",tag="gpu"`, "0x30"),
				gauge(telemetry.MetricTaskHeld, `activity="train",tag="gpu"`, "1x30")},
		},
		{
			name: "RondoWorkPilesUp", hold: 15 * time.Minute,
			expr: work + " > 1000 and " + work + " > " + before(telemetry.MetricTaskWaiting, kinds),
			summary: "{{ $value }} activity tasks wait for {{ $labels.activity }} {{ $labels.tag " +
				"}}, and more and more do",
			description: "More is asked of workers than they get done.",
			means:       "There are too few workers for this activity, or it has become slow.",
			because: "As for RondoPartitionLag: what grows for 15 minutes is no burst. If your activities take " +
				"minutes, 100 may be a better limit than 1,000.",
			look: []string{"workers: Work that waits", "workers: Activities", "workers: Until they begin"},
			do: []string{"If the activity has become slow, look at what it calls.",
				"Start more workers, or give them more `--slots`."},
			bad:  []string{gauge(telemetry.MetricTaskWaiting, `activity="train",tag=""`, "0+200x40")},
			fine: []string{gauge(telemetry.MetricTaskWaiting, `activity="train",tag=""`, "5000x40")},
		},
		{
			name: "RondoSlotsSaturated", hold: 15 * time.Minute,
			expr: v.sum(telemetry.MetricWorkerSlotsUsed, by{space}) + " / " + v.sum(telemetry.MetricWorkerSlots,
				by{space}) + " > 0.95 and " +
				v.sum(telemetry.MetricTaskWaiting, by{space}) + " > 0",
			summary:     "{{ $value | humanizePercentage }} of all slots are taken, and work waits",
			description: "Workers are as busy as they may be.",
			means:       "Work waits for a slot, not for anything else.",
			because: "Full slots alone are good use of workers, so it is only about those that have work " +
				"waiting, for 15 minutes.",
			look: []string{"workers: Slots", "workers: How full each worker is", "workers: Processors"},
			do: []string{"If their processors are idle, give workers more `--slots`; if not, start more workers.",
				"If activities hang, give them time limits."},
			bad: append([]string{gauge(telemetry.MetricTaskWaiting, `activity="train",tag=""`, "5x60")},
				slotsWorking...),
			fine: append([]string{gauge(telemetry.MetricTaskWaiting, `activity="train",tag=""`, "0x60")},
				slotsWorking...),
		},
		{
			name: "RondoRoundsSlow", hold: 10 * time.Minute,
			expr: calmly.quantile(0.99, telemetry.MetricRoundDuration, by{space},
				is(phase, telemetry.PhaseTotal.String())) + " > 1",
			summary:     "one of 100 rounds takes more than {{ $value | humanizeDuration }}",
			description: "From the arrival of its first message until a round's messages are settled.",
			means:       "Everything works, slowly.",
			because: "99 of 100 whole orders take less than 40 ms on a small machine with room to spare. A " +
				"second is what people notice.",
			look: []string{"orchestrations: What rounds take their time with",
				"orchestrations: The code of orchestrations", "storage-and-broker: Operations of the database"},
			do: []string{"See which phase it is: wait and decide are processors and code, commit is the " +
				"database, ack is NATS."},
			bad:  took(telemetry.MetricRoundDuration, `phase="total"`, 2),
			fine: took(telemetry.MetricRoundDuration, `phase="total"`, 0.9),
		},
		{
			name: "RondoTimersLate", hold: 10 * time.Minute,
			expr:        calmly.quantile(0.99, telemetry.MetricTimerLateness, by{space}) + " > 5",
			summary:     "one of 100 timers fires more than {{ $value | humanizeDuration }} late",
			description: "Timers are messages that NATS delivers when they are due.",
			means:       "Orchestrators are behind, NATS is slow, or timers had been lost and were sent again.",
			because: "Timers fire within milliseconds. 5 seconds is how long the messages of an orchestrator " +
				"that has died stay with it.",
			look: []string{"overview: Timers fire late by", "storage-and-broker: Sent again"},
			do: []string{"If messages wait, see RondoPartitionLag.",
				"If many are healed, NATS has lost messages: see [reliability](reliability.md)."},
			bad:  took(telemetry.MetricTimerLateness, "", 20),
			fine: took(telemetry.MetricTimerLateness, "", 4),
		},
		{
			name: "RondoSchedulesLate", hold: 10 * time.Minute,
			expr:        calmly.quantile(0.99, telemetry.MetricScheduleDelay, by{space}) + " > 5",
			summary:     "one of 100 runs of schedules is started more than {{ $value | humanizeDuration }} late",
			description: "An orchestrator starts the runs of schedules in transactions of the database.",
			means:       "The database is slow, or orchestrators are behind.",
			because: "Runs are started within milliseconds of their times, or after two seconds if the " +
				"orchestrator that looks first has died.",
			look: []string{"orchestrations: How late runs are started",
				"storage-and-broker: Operations of the database"},
			do: []string{"If timers are late, too, see RondoTimersLate.",
				"If operations of the database take long, see RondoPoolExhausted and the database itself.",
				"If many schedules are due at the same second, give them a jitter (`--jitter`)."},
			bad:  took(telemetry.MetricScheduleDelay, "", 20),
			fine: took(telemetry.MetricScheduleDelay, "", 4),
		},
		{
			name: "RondoSchedulesMissed", hold: 0,
			expr:        quickly.happened(telemetry.MetricScheduleMissed, by{space}) + " > 0",
			summary:     "{{ printf \"%.0f\" $value }} runs of schedules were not started, and will not be",
			description: "No orchestrator looked at a schedule for longer than its catch-up time (`--catch-up`).",
			means: "All orchestrators were away, or could not reach the database or NATS, or all of them " +
				"refused to decide because of their clocks.",
			because: "It is 0 unless something was away for longer than a catch-up time. A paused schedule " +
				"misses nothing.",
			look: []string{"orchestrations: Runs of schedules"},
			do: []string{"The log has a line `runs of a schedule were missed` for each schedule: it names the " +
				"schedule, how many, and the last one.",
				"Start them with `rondo schedules backfill ID FROM TO` if they are still wanted.",
				"If such absences are normal, give the schedule a longer `--catch-up`."},
			bad:  []string{once(telemetry.MetricScheduleMissed, "")},
			fine: []string{counter(telemetry.MetricScheduleMissed, "", "7x60")},
		},
		{
			name: "RondoClockWrong", critical: true, hold: time.Minute,
			expr: "abs(" + name(telemetry.MetricClockAhead) + ") > 5",
			summary: "the clock of {{ $labels.instance }} is {{ $value | humanizeDuration }} off that of " +
				"{{ $labels.clock }}",
			description: "An orchestrator whose clock is wrong by more than `--max-clock-skew` decides nothing.",
			means: "The clock of that machine, of NATS or of the database is wrong. From 10 seconds on, the " +
				"orchestrator decides nothing, and is not ready.",
			because: "Machines with NTP differ by milliseconds. 5 seconds leave time to react.",
			look:    []string{"overview: Processes", "overview: Timers fire late by", "overview: Clocks"},
			do: []string{"Compare the clocks: `rondo doctor`, and `date` on the machines of NATS and of the " +
				"database. If all orchestrators report the same clock, that one is wrong.",
				"Let all machines have the time from NTP."},
			bad:  []string{gauge(telemetry.MetricClockAhead, `clock="nats"`, "-9x60")},
			fine: []string{gauge(telemetry.MetricClockAhead, `clock="nats"`, "-4x60")},
		},
		{
			name: "RondoMemoryBound", hold: 15 * time.Minute,
			expr: v.rate(telemetry.MetricEvictions, by{space, "job", "instance"}) + " > 1",
			summary: "{{ $labels.instance }} forgets {{ printf \"%.0f\" $value }} instances a second" +
				" that still run",
			description: "There is no room for them, so they are read and replayed when they go on.",
			means: "More instances are at work than an orchestrator may keep in memory. That is safe; it " +
				"costs processors and reads.",
			because: "One a second is nothing, and still says that the bound is reached.",
			look: []string{"orchestrations: Where instances come from", "orchestrations: Replaying",
				"overview: Memory"},
			do: []string{"Raise `--max-instances` and `--max-instance-memory` if there is memory.",
				"Start more orchestrators."},
			bad:  []string{counter(telemetry.MetricEvictions, "", "0+120x60")},
			fine: []string{counter(telemetry.MetricEvictions, "", "0+30x60")},
		},
		{
			name: "RondoNoRoomForMessages", hold: 15 * time.Minute,
			expr: full(telemetry.MetricMessagesHeld, telemetry.MetricMessagesLimit) + " or " +
				full(telemetry.MetricMessagesMemory, telemetry.MetricMessagesMost),
			summary: "{{ $labels.instance }} holds {{ $value | humanizePercentage }} of the " +
				"messages that it may hold",
			description: "It takes no more before some are settled; they wait in NATS.",
			means: "An orchestrator is as full of messages as it may be. That is safe; it is what bounds its " +
				"memory under overload.",
			because: "A burst fills it for seconds. After 15 minutes, more comes than is done.",
			look: []string{"overview: How full it is", "storage-and-broker: Messages that are held",
				"orchestrations: What rounds take their time with"},
			do: []string{"See RondoPartitionLag.",
				"If one instance gets most of them, it cannot be spread: split it.",
				"Raise `--max-messages` and `--max-message-memory` only if commits wait for messages."},
			bad: []string{gauge(telemetry.MetricMessagesHeld, "", "20000x60"),
				gauge(telemetry.MetricMessagesLimit, "", "20000x60")},
			fine: []string{gauge(telemetry.MetricMessagesHeld, "", "18000x60"),
				gauge(telemetry.MetricMessagesLimit, "", "20000x60"), gauge(telemetry.MetricMessagesMemory, "",
					"100x60"), gauge(telemetry.MetricMessagesMost, "", "200x60")},
		},
	}
}

// full is the condition that a metric is above 95 % of its limit, in each process.
func full(metric, limit string) string {
	keep := by{space, "job", "instance"}
	return quickly.sum(metric, keep) + " / " + quickly.sum(limit, keep) + " > 0.95"
}

func instanceAlerts() []alert {
	v := quickly
	failing := calmly.rate(telemetry.MetricActivityExecutions, by{space, activity},
		notFailed) + " / " + calmly.rate(telemetry.MetricActivityExecutions, by{space, activity}) + " > 0.5 and " +
		calmly.rate(telemetry.MetricActivityExecutions, by{space, activity}) + " > 0.05"
	return []alert{
		{
			name: "RondoInstancesStuck", hold: 10 * time.Minute,
			expr:    v.sum(telemetry.MetricInstancesStuck, by{space, reason}, not(reason, "halted")) + " > 0",
			summary: "{{ $value }} instances do not go on: {{ $labels.reason }}",
			description: "code: the code does not come back. unregistered, newer_engine: no orchestrator that runs " +
				"can take them.",
			means: "Code is not deployed that is needed, or an orchestration blocks instead of waiting by its context.",
			because: "Ten minutes are longer than most deployments, during which old and new orchestrators hand " +
				"messages to each other.",
			look: []string{"overview: Instances that do not go on"},
			do: []string{"`rondo orchestrators` names instances, and the code that is missing.",
				"Deploy the orchestration or version that is asked for, or an orchestrator as new as the one before.",
				"For code: mend it and restart the orchestrator; after 16 of these `/livez` fails."},
			bad:  []string{gauge(telemetry.MetricInstancesStuck, `reason="unregistered"`, "0x5 2x30")},
			fine: []string{gauge(telemetry.MetricInstancesStuck, `reason="unregistered"`, "0x5 2x8 0x30")},
		},
		{
			name: "RondoInstancesHalted", hold: 5 * time.Minute,
			expr:        v.most(telemetry.MetricInstancesStuck, by{space}, is(reason, "halted")) + " > 0",
			summary:     "{{ $value }} instances are halted",
			description: "Their code does not fit their histories. They wait until somebody deploys code that does.",
			means:       "An orchestration was changed while instances of it were running.",
			because:     "There should never be one. Five minutes leave room for a deployment that is taken back.",
			look:        []string{"orchestrations: Stopped by the engine", "overview: Instances that do not go on"},
			do: []string{"`rondo list --status halted` names them, `rondo show order-1` says where code " +
				"and history differ.",
				"Put the change behind `ctx.Patched`, or bring the old version back; they go on by themselves."},
			bad: []string{gauge(telemetry.MetricInstancesStuck, `reason="halted"`, "0x5 1x30")},
			fine: []string{gauge(telemetry.MetricInstancesStuck, `reason="halted"`, "0x5 1x3 0x30"),
				gauge(telemetry.MetricInstancesStuck, `reason="code"`, "1x30")},
		},
		{
			name: "RondoDeadLetters", hold: 0,
			expr:        v.happened(telemetry.MetricDeadLetters, by{space, verb, reason}) + " > 0",
			summary:     "{{ printf \"%.0f\" $value }} messages were dead-lettered: {{ $labels.reason }}",
			description: "A {{ $labels.verb }} message could not be taken. It is kept for people to look at.",
			means:       "Somebody sends what nobody can read, or a message has killed those who took it.",
			because:     "Each one is a message that was sent in vain. It fires for 15 minutes after the last.",
			look:        []string{"overview: Dead letters", "orchestrations: What became of messages"},
			do: []string{"`rondo deadletters list` lists them with the reason, `rondo " +
				"deadletters show 7` shows one.",
				"Mend what sends them, or what takes them; then `rondo deadletters replay 7`, or " +
					"`rondo deadletters drop 7`."},
			bad:  []string{once(telemetry.MetricDeadLetters, `verb="start",reason="unreadable"`)},
			fine: []string{counter(telemetry.MetricDeadLetters, `verb="start",reason="unreadable"`, "3x60")},
		},
		{
			name: "RondoDeadLettersDropped", critical: true, hold: 0,
			expr: v.happened(telemetry.MetricDeadLettersDropped, by{space, verb, reason}) + " > 0",
			summary: "{{ printf \"%.0f\" $value }} messages were dropped: {{ $labels.reason }}, and NATS had no " +
				"room for dead letters",
			description: "A {{ $labels.verb }} message could not be taken, and could not be dead-lettered for 15 " +
				"minutes.",
			means: "The storage of NATS is full. Messages that no instance can take are lost from then on.",
			because: "Each one is a message that is in no stream any more. It fires for 15 minutes after the " +
				"last.",
			look: []string{"overview: Dead letters", "storage-and-broker: Connections to NATS"},
			do: []string{"Make room for NATS: look at its disks and the limits of the account. `rondo doctor` " +
				"shows a stream near its bound, but not that the account or a disk is full.",
				"`rondo deadletters drop` removes old dead letters. The log of the orchestrators has the subject of " +
					"each message that was dropped."},
			bad: []string{once(telemetry.MetricDeadLettersDropped, `verb="mailbox",reason="unknown_instance"`)},
			fine: []string{counter(telemetry.MetricDeadLettersDropped, `verb="mailbox",reason="unknown_instance"`,
				"3x60")},
		},
		{
			name: "RondoPoison", hold: 0,
			expr:        v.happened(telemetry.MetricOrchestrationPoison, by{space, orchestration}) + " > 0",
			summary:     "an instance of {{ $labels.orchestration }} was failed because of a message",
			description: "A message for it was tried too often, each time without an end.",
			means: "Each orchestrator that took the message has died of it, or its code " +
				"does not come back with it.",
			because: "The engine gives up after many attempts. By then, orchestrators have been dying for a while.",
			look:    []string{"overview: Poison", "orchestrations: Messages that came again"},
			do: []string{"Look at what orchestrators have died of: memory, a crash in the code.",
				"Mend the code, and start the instance again."},
			bad:  []string{once(telemetry.MetricOrchestrationPoison, `orchestration="fulfil"`)},
			fine: []string{counter(telemetry.MetricOrchestrationPoison, `orchestration="fulfil"`, "3x60")},
		},
		{
			name: "RondoPoisonWork", hold: 0,
			expr: v.happened(telemetry.MetricActivityExecutions, by{space, activity},
				is(outcome, "poison")) + " > 0",
			summary:     "{{ $labels.activity }} has killed its workers",
			description: "Work was handed out too often and never came to an end. It has failed.",
			means:       "Workers die while they execute this activity: of memory, or of a crash.",
			because:     "It is given up after ten workers.",
			look:        []string{"overview: Poison", "workers: Work that has not succeeded", "workers: How work came"},
			do: []string{"Look at what workers have died of.",
				"Mend the activity, and start the instance again."},
			bad: []string{once(telemetry.MetricActivityExecutions,
				`activity="resize",tag="",outcome="poison",attempt="1"`)},
			fine: []string{once(telemetry.MetricActivityExecutions,
				`activity="resize",tag="",outcome="app_error",attempt="1"`)},
		},
		{
			name: "RondoActivityFailing", hold: 10 * time.Minute, expr: failing,
			summary:     "{{ $value | humanizePercentage }} of {{ $labels.activity }} fails",
			description: "More than half of the attempts of the last ten minutes.",
			means: "What the activity calls does not work, or the activity does not. Most attempts are " +
				"repeated, so instances may only wait.",
			because: "Attempts that fail are everyday; half of them are not. Less than three attempts a minute " +
				"are too few to judge. Lower it for activities that must not fail.",
			look: []string{"workers: Share that fails", "workers: Work that has not succeeded",
				"workers: Attempts"},
			do: []string{"The outcome says whether it is the code (app_error, panic) or a time limit.",
				"The logs of the workers have each error.",
				"If it is what the activity calls, mend that; attempts go on as their policies say."},
			bad: []string{counter(telemetry.MetricActivityExecutions,
				`activity="charge",tag="",outcome="app_error",attempt="1"`, "0+60x60"),
				counter(telemetry.MetricActivityExecutions,
					`activity="charge",tag="",outcome="success",attempt="2"`, "0+50x60")},
			fine: []string{counter(telemetry.MetricActivityExecutions,
				`activity="charge",tag="",outcome="app_error",attempt="1"`, "0+60x60"),
				counter(telemetry.MetricActivityExecutions,
					`activity="charge",tag="",outcome="success",attempt="2"`, "0+60x60")},
		},
		{
			name: "RondoActivitiesDoNotEnd", hold: 10 * time.Minute,
			expr:        v.sum(telemetry.MetricWorkerStuck, by{space, "job", "instance"}) + " > 0",
			summary:     "{{ $value }} activities on {{ $labels.instance }} were given up and still run",
			description: "They ignore their contexts.",
			means: "An activity goes on after its time limit, or after nobody waits for it. It may do what " +
				"another attempt does again.",
			because: "Ten minutes are enough for one that just tidies up.",
			look:    []string{"workers: Activities that ignore their end"},
			do: []string{"Pass the context to everything that the activity calls.",
				"Restarting the worker ends them."},
			bad:  []string{gauge(telemetry.MetricWorkerStuck, "", "0x5 1x30")},
			fine: []string{gauge(telemetry.MetricWorkerStuck, "", "0x5 1x8 0x30")},
		},
	}
}

func outboxAlerts() []alert {
	v := quickly
	failed := v.rate(telemetry.MetricOutboxPublished, by{space}, is(outcome, "failed"))
	return []alert{
		{
			name: "RondoOutboxOld", critical: true, hold: 5 * time.Minute,
			expr:        v.most(telemetry.MetricOutboxAge, by{space}) + " > 60",
			summary:     "the oldest row of the outbox is {{ $value | humanizeDuration }} old",
			description: "Instances do not go on whose messages, timers or work are in it.",
			means:       "NATS does not take messages, or nobody sweeps.",
			because: "Messages are published within milliseconds of their commit, and what a dead process has " +
				"left within 15 seconds. A minute, for five, is neither.",
			look: []string{"storage-and-broker: How old it is", "storage-and-broker: The outbox",
				"storage-and-broker: Published"},
			do: []string{"`rondo doctor` shows streams that are not as they should be, and a stream near its bound. " +
				"It does not show that the NATS account or a disk is full: look at both.",
				"Look for `outbox entries cannot be read` in the logs: then a row is damaged."},
			bad:  []string{gauge(telemetry.MetricOutboxAge, "", "0x5 60+60x30")},
			fine: []string{gauge(telemetry.MetricOutboxAge, "", "0x5 59x30")},
		},
		{
			name: "RondoOutboxDeep", hold: 10 * time.Minute,
			expr:        v.most(telemetry.MetricOutboxEntries, by{space}) + " > 5000",
			summary:     "{{ $value }} messages stand in the outbox",
			description: "They are counted up to 10,000.",
			means:       "More is committed than is published, or published rows are not removed.",
			because: "A row is there for as long as publishing takes, so even 1,000 commits a second keep less " +
				"than 100. 5,000 is half of where counting ends.",
			look: []string{"storage-and-broker: The outbox", "storage-and-broker: Publishing"},
			do:   []string{"See how long NATS takes to store a message: its disks, its replicas."},
			bad:  []string{gauge(telemetry.MetricOutboxEntries, "", "0x5 10000x30")},
			fine: []string{gauge(telemetry.MetricOutboxEntries, "", "0x5 4999x30")},
		},
		{
			name: "RondoSwept", hold: 0,
			expr: v.happened(telemetry.MetricOutboxSwept, by{space}) + " > 0",
			summary: "{{ printf \"%.0f\" $value }} messages were published by a sweep instead of their " +
				"orchestrator",
			description: "A process has committed them and not published them within ten seconds.",
			means: "An orchestrator has died between a commit and its publishing, or could not publish. " +
				"Nothing is lost, and there is nothing to do; it is about why.",
			because: "It is 0 unless something dies, also while processes are restarted in peace.",
			look:    []string{"overview: Sent by somebody else", "storage-and-broker: Sent again"},
			do: []string{"Look which orchestrator has ended without saying goodbye, and why.",
				"If none has, see RondoPublishingFails."},
			bad:  []string{once(telemetry.MetricOutboxSwept, "")},
			fine: []string{counter(telemetry.MetricOutboxSwept, "", "7x60")},
		},
		{
			name: "RondoHealed", hold: 0,
			expr:        v.happened(telemetry.MetricOutboxHealed, by{space}) + " > 10",
			summary:     "{{ printf \"%.0f\" $value }} messages were published again because they were overdue",
			description: "NATS had them, and does not any more; or they wait there for too long.",
			means: "NATS has lost messages: a stream was deleted or purged, a server has lost its disk, or a " +
				"limit was reached.",
			because: "Under overload, single ones come too late and are sent again, which does no harm. More " +
				"than ten within 15 minutes are a loss.",
			look: []string{"storage-and-broker: Sent again", "overview: Timers fire late by"},
			do: []string{"Look what has happened to NATS.",
				"`rondo recover` has the orchestrators look at everything at once; see [reliability](reliability.md)."},
			bad:  []string{counter(telemetry.MetricOutboxHealed, "", "_x10 20x40")},
			fine: []string{counter(telemetry.MetricOutboxHealed, "", "_x10 9x40")},
		},
		{
			name: "RondoPublishingFails", hold: 5 * time.Minute,
			expr:        failed + " > 0",
			summary:     "{{ printf \"%.2f\" $value }} messages a second are not taken by NATS",
			description: "They stand in the outbox, and are published by a sweep later.",
			means: "NATS refuses messages, because it is full, or because of a setting, such as a missing " +
				"permission. If it does not answer, or a stream has no leader, publishers wait, and " +
				"RondoOutboxOld fires.",
			because: "One failure keeps it up for five minutes, so it takes several, over ten minutes.",
			look:    []string{"storage-and-broker: Published", "storage-and-broker: NATS answers within"},
			do: []string{"The logs of the orchestrators have the error.",
				"`rondo doctor` shows a stream near its bound, but not that the NATS account or a disk is full: " +
					"look at its disks and the limits of the account."},
			bad: []string{counter(telemetry.MetricOutboxPublished, `lane="now",outcome="failed"`, "0+5x60")},
			fine: []string{counter(telemetry.MetricOutboxPublished, `lane="now",outcome="failed"`, "0x10 1x50"),
				counter(telemetry.MetricOutboxPublished, `lane="now",outcome="published"`, "0+60x60")},
		},
	}
}
