package dashboards_test

import (
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
)

// This file is about the job queues over HTTP: their dashboard and their alerts. The demonstration
// pushes no jobs, so the tests use made-up series.

// brokenOff are the statuses of requests that the service or the database failed to handle. 507 is
// a full queue, which is its consumers' matter.
var brokenOff = anyOf(status, "500", "503")

func queues() board {
	v := dashboardView(queue)
	stands := func(metric string) []query { return rare(v.most(metric, by{queue}), "{{queue}}") }
	return board{
		file: "job-queues", title: "Rondo: job queues",
		about: "The queues that are served over HTTP: whether consumers keep up, and what becomes of jobs.", view: v,
		rows: []row{
			{"What is wrong", []panel{
				{title: "The oldest job that can be popped", unit: inSeconds,
					about:   "How old it is, in each queue. If it grows, consumers do not keep up, or there are none.",
					queries: stands(telemetry.MetricJobsOldest)},
				{title: "Dead jobs", unit: inNumbers,
					about:   "Jobs that were popped too often. They stay until a caller requeues or removes them.",
					queries: stands(telemetry.MetricJobsDead)},
				{title: "Locks that were not ended in time", unit: aSecond,
					about: "Jobs whose lock has expired, and those that are dead now. Their consumers have died, " +
						"or need more time than they ask for.",
					queries: rare(v.rate(telemetry.MetricJobs, by{change},
						anyOf(change, telemetry.JobsExpired, telemetry.JobsDied)), "{{change}}")},
				{title: "Requests that have failed", unit: aSecond,
					about: "500 is a fault of the service, of which the log says more; 503 is the database that did " +
						"not answer in time.",
					queries: rare(v.rate(telemetry.MetricJobsRequests, by{operation, status}, brokenOff),
						"{{operation}}: {{status}}")},
			}},
			{"How fast", []panel{
				{title: "All requests", unit: inSeconds,
					about: "From when a request came until its answer was on its way.", queries: []query{
						{expr: v.quantile(0.5, telemetry.MetricJobsDuration, nil),
							legend: "half are faster", rare: true},
						{expr: v.quantile(0.99, telemetry.MetricJobsDuration, nil),
							legend: "99 of 100 are faster", rare: true},
					}},
				{title: "By what was asked", unit: inSeconds, about: "99 of 100 are faster.",
					queries: rare(v.quantile(0.99, telemetry.MetricJobsDuration, by{operation}), "{{operation}}")},
			}},
			{"How much", []panel{
				{title: "Requests", unit: aSecond, about: "By what was asked.",
					queries: rare(v.rate(telemetry.MetricJobsRequests, by{operation}), "{{operation}}")},
				{title: "Answers", unit: aSecond, about: "By their status.",
					queries: rare(v.rate(telemetry.MetricJobsRequests, by{status}), "{{status}}")},
				{title: "What becomes of jobs", unit: aSecond,
					about: "pushed, popped, acknowledged, returned by who had popped them, expired with their " +
						"lock, died, or started as instances.",
					queries: rare(v.rate(telemetry.MetricJobs, by{change}), "{{change}}")},
			}},
			{"Why", []panel{
				{title: "Jobs that can be popped", unit: inNumbers,
					about:   "In each of the first 100 queues by their names.",
					queries: stands(telemetry.MetricJobsDepth)},
				{title: "Jobs that are locked", unit: inNumbers, about: "Popped and not acknowledged.",
					queries: stands(telemetry.MetricJobsLocked)},
				{title: "Requests that were refused", unit: aSecond,
					about: "423: the queue is locked. 410: the lock has expired. 404: no such lock or queue. 429: " +
						"too many requests. 507: the queue is full. docs/job-queues.md has all of them.",
					queries: rare(v.rate(telemetry.MetricJobsRequests, by{operation, status},
						noneOf(status, "200", "500", "503")), "{{operation}}: {{status}}")},
			}},
		},
	}
}

// onQueues are series of job queues, which the demonstration does not have.
func onQueues() (all []string) {
	of := `queue="orders"`
	for _, s := range []string{"200", "423", "503"} {
		all = append(all, counter(telemetry.MetricJobsRequests, `operation="pop",status="`+s+`"`, "0+60x60"))
	}
	for _, c := range []string{telemetry.JobsPushed, telemetry.JobsPopped, telemetry.JobsAcknowledged,
		telemetry.JobsReturned, telemetry.JobsExpired, telemetry.JobsDied, telemetry.JobsStarted} {
		all = append(all, counter(telemetry.MetricJobs, `change="`+c+`"`, "0+60x60"))
	}
	for _, m := range []string{telemetry.MetricJobsDepth, telemetry.MetricJobsLocked, telemetry.MetricJobsDead,
		telemetry.MetricJobsOldest} {
		all = append(all, gauge(m, of, "3x60"))
	}
	return append(all, took(telemetry.MetricJobsDuration, `operation="pop"`, 0.004)...)
}

func queueAlerts() []alert {
	expired := calmly.rate(telemetry.MetricJobs, by{space}, is(change, telemetry.JobsExpired))
	popped := calmly.rate(telemetry.MetricJobs, by{space}, is(change, telemetry.JobsPopped))
	return []alert{
		{
			name: "RondoJobsOld", hold: 10 * time.Minute,
			expr:        quickly.most(telemetry.MetricJobsOldest, by{space, queue}) + " > 600",
			summary:     "a job waits in queue {{ $labels.queue }} for {{ $value | humanizeDuration }}",
			description: "Nobody pops it, although it could be popped.",
			means: "Consumers of this queue do not keep up, are not there, or a lock that is extended again " +
				"and again keeps everybody else out.",
			because: "Ten minutes are longer than twice the longest lock that is not extended. If your jobs " +
				"may wait for longer, raise it.",
			look: []string{"job-queues: The oldest job that can be popped", "job-queues: Jobs that can be popped",
				"job-queues: Jobs that are locked", "job-queues: Requests that were refused"},
			do: []string{"`GET /queue/…` says how the queue stands: jobs that can be popped, locks, and until when.",
				"If nothing is locked, look at the consumers.",
				"If it is always locked, have them pop with `mode=concurrent`, and start more of them.",
				"If they are at work, pop several jobs at once with `count`."},
			bad: []string{gauge(telemetry.MetricJobsOldest, `queue="orders"`, "0+60x40")},
			fine: []string{gauge(telemetry.MetricJobsOldest, `queue="orders"`, "0+60x15 0x30"),
				gauge(telemetry.MetricJobsOldest, `queue="mail"`, "600x40")},
		},
		{
			name: "RondoJobsDead", hold: 5 * time.Minute,
			expr:        quickly.most(telemetry.MetricJobsDead, by{space, queue}) + " > 0",
			summary:     "{{ $value }} jobs of queue {{ $labels.queue }} are dead",
			description: "They were handed out as often as the queue's settings allow, and never acknowledged.",
			means:       "Consumers cannot do what these jobs ask for, or die of it. No pop returns them any more.",
			because:     "Each of them is work that is not done. It fires until they are requeued or removed.",
			look:        []string{"job-queues: Dead jobs", "job-queues: Locks that were not ended in time"},
			do: []string{"`GET /queue/…/dead` lists them, with the reason that the last consumer gave.",
				"Mend the consumers; then `POST /queue/…/dead/requeue`, or `DELETE /queue/…/dead`."},
			bad:  []string{gauge(telemetry.MetricJobsDead, `queue="orders"`, "0x5 1x30")},
			fine: []string{gauge(telemetry.MetricJobsDead, `queue="orders"`, "0x5 1x4 0x30")},
		},
		{
			name: "RondoJobsRequestsFail", critical: true, hold: 5 * time.Minute,
			expr: quickly.rate(telemetry.MetricJobsRequests, by{space},
				brokenOff) + " / " + quickly.rate(telemetry.MetricJobsRequests, by{space}) + " > 0.05",
			summary:     "{{ $value | humanizePercentage }} of the requests to queues fail",
			description: "They are answered with 500 or 503.",
			means: "The database does not answer in time, or something is wrong in the service. Who pushes " +
				"cannot, and who pops gets nothing.",
			because: "A failover of the database costs seconds of 503, which clients try again. One in twenty, " +
				"for five minutes, is more than that.",
			look: []string{"job-queues: Requests that have failed", "job-queues: All requests",
				"storage-and-broker: Operations of the database", "storage-and-broker: The pool of the database"},
			do: []string{"503: see whether the database is well: RondoNoCommits, RondoPoolExhausted.",
				"500: the logs of the orchestrators have the error beside `a request to a queue has failed`, with " +
					"its `request_id`."},
			bad: []string{counter(telemetry.MetricJobsRequests, `operation="push",status="503"`, "0+6x60"),
				counter(telemetry.MetricJobsRequests, `operation="push",status="200"`, "0+60x60")},
			fine: []string{counter(telemetry.MetricJobsRequests, `operation="push",status="503"`, "0+3x60"),
				counter(telemetry.MetricJobsRequests, `operation="push",status="507"`, "0+60x60"),
				counter(telemetry.MetricJobsRequests, `operation="push",status="200"`, "0+1x60")},
		},
		{
			name: "RondoJobsLocksExpire", hold: 10 * time.Minute,
			expr:    expired + " / " + popped + " > 0.1",
			summary: "the locks of {{ $value | humanizePercentage }} of the jobs expire",
			description: "Their consumers have not acknowledged, returned or extended them in time. The jobs are " +
				"popped again.",
			means: "Consumers need more time than they ask for, so that work is done twice; or they die.",
			because: "A consumer that dies leaves one lock. One job in ten, for ten minutes, is " +
				"more than a deployment.",
			look: []string{"job-queues: Locks that were not ended in time", "job-queues: What becomes of jobs"},
			do: []string{"Compare how long the work takes with `ttl_seconds`: ask for more, or extend the " +
				"lock while the work goes on.",
				"If consumers crash, find out why; set `max_attempts`, so that a job that crashes them is " +
					"dead-lettered."},
			bad: []string{counter(telemetry.MetricJobs, `change="expired"`, "0+10x60"),
				counter(telemetry.MetricJobs, `change="popped"`, "0+60x60")},
			fine: []string{counter(telemetry.MetricJobs, `change="expired"`, "0+5x60"),
				counter(telemetry.MetricJobs, `change="popped"`, "0+60x60")},
		},
	}
}
