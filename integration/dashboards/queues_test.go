package dashboards_test

import (
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
)

// This file is about the queues that are served over HTTP: their dashboard and their alerts. The
// demonstration pushes nothing, so all of it is tried on series that are made up.

// brokenOff are the statuses of requests to which the service or the database was not equal. 507 is
// a queue that is full, which is its consumers' matter.
var brokenOff = anyOf(status, "500", "503")

func queues() board {
	v := dashboardView(queue)
	stands := func(metric string) []query { return rare(v.most(metric, by{queue}), "{{queue}}") }
	return board{
		file: "queues", title: "Rondo: queues",
		about: "The queues that are served over HTTP: whether consumers keep up, and what becomes of items.", view: v,
		rows: []row{
			{"What is wrong", []panel{
				{title: "The oldest item that can be popped", unit: inSeconds,
					about:   "How old it is, in each queue. If it grows, consumers do not keep up, or there are none.",
					queries: stands(telemetry.MetricQueueOldest)},
				{title: "Dead items", unit: inNumbers,
					about:   "Items that were handed out too often. They stay until somebody requeues or removes them.",
					queries: stands(telemetry.MetricQueueDead)},
				{title: "Locks that were not ended in time", unit: aSecond,
					about: "Items whose lock has expired, and those that are dead now. Their consumers have died, " +
						"or need more time than they ask for.",
					queries: rare(v.rate(telemetry.MetricQueueItems, by{change},
						anyOf(change, telemetry.ItemsExpired, telemetry.ItemsDied)), "{{change}}")},
				{title: "Requests that have failed", unit: aSecond,
					about: "500 is a fault of the service, of which the log says more; 503 is the database that did " +
						"not answer in time.",
					queries: rare(v.rate(telemetry.MetricQueueRequests, by{operation, status}, brokenOff),
						"{{operation}}: {{status}}")},
			}},
			{"How fast", []panel{
				{title: "All requests", unit: inSeconds,
					about: "From when a request came until its answer was on its way.", queries: []query{
						{expr: v.quantile(0.5, telemetry.MetricQueueDuration, nil),
							legend: "half are faster", rare: true},
						{expr: v.quantile(0.99, telemetry.MetricQueueDuration, nil),
							legend: "99 of 100 are faster", rare: true},
					}},
				{title: "By what was asked", unit: inSeconds, about: "99 of 100 are faster.",
					queries: rare(v.quantile(0.99, telemetry.MetricQueueDuration, by{operation}), "{{operation}}")},
			}},
			{"How much", []panel{
				{title: "Requests", unit: aSecond, about: "By what was asked.",
					queries: rare(v.rate(telemetry.MetricQueueRequests, by{operation}), "{{operation}}")},
				{title: "Answers", unit: aSecond, about: "By their status.",
					queries: rare(v.rate(telemetry.MetricQueueRequests, by{status}), "{{status}}")},
				{title: "What becomes of items", unit: aSecond,
					about: "pushed, popped, acknowledged, returned by who had popped them, expired with their " +
						"lock, died, or started as instances.",
					queries: rare(v.rate(telemetry.MetricQueueItems, by{change}), "{{change}}")},
			}},
			{"Why", []panel{
				{title: "Items that can be popped", unit: inNumbers,
					about:   "In each of the first 100 queues by their names.",
					queries: stands(telemetry.MetricQueueDepth)},
				{title: "Items that are locked", unit: inNumbers, about: "Popped and not acknowledged.",
					queries: stands(telemetry.MetricQueueLocked)},
				{title: "Requests that were refused", unit: aSecond,
					about: "423: the queue is locked. 410: the lock has expired. 404: no such lock or queue. 429: " +
						"too many requests. 507: the queue is full. docs/queues.md has all of them.",
					queries: rare(v.rate(telemetry.MetricQueueRequests, by{operation, status},
						noneOf(status, "200", "500", "503")), "{{operation}}: {{status}}")},
			}},
		},
	}
}

// onQueues are series of what the demonstration does not do.
func onQueues() (all []string) {
	of := `queue="orders"`
	for _, s := range []string{"200", "423", "503"} {
		all = append(all, counter(telemetry.MetricQueueRequests, `operation="pop",status="`+s+`"`, "0+60x60"))
	}
	for _, c := range []string{telemetry.ItemsPushed, telemetry.ItemsPopped, telemetry.ItemsAcknowledged,
		telemetry.ItemsReturned, telemetry.ItemsExpired, telemetry.ItemsDied, telemetry.ItemsStarted} {
		all = append(all, counter(telemetry.MetricQueueItems, `change="`+c+`"`, "0+60x60"))
	}
	for _, m := range []string{telemetry.MetricQueueDepth, telemetry.MetricQueueLocked, telemetry.MetricQueueDead,
		telemetry.MetricQueueOldest} {
		all = append(all, gauge(m, of, "3x60"))
	}
	return append(all, took(telemetry.MetricQueueDuration, `operation="pop"`, 0.004)...)
}

func queueAlerts() []alert {
	expired := calmly.rate(telemetry.MetricQueueItems, by{space}, is(change, telemetry.ItemsExpired))
	popped := calmly.rate(telemetry.MetricQueueItems, by{space}, is(change, telemetry.ItemsPopped))
	return []alert{
		{
			name: "RondoQueueItemsOld", hold: 10 * time.Minute,
			expr:        quickly.most(telemetry.MetricQueueOldest, by{space, queue}) + " > 600",
			summary:     "an item waits in queue {{ $labels.queue }} for {{ $value | humanizeDuration }}",
			description: "Nobody pops it, although it could be popped.",
			means: "Consumers of this queue do not keep up, are not there, or a lock that is extended again " +
				"and again keeps everybody else out.",
			because: "Ten minutes are longer than the longest lock that nobody extends, twice. If your items " +
				"may wait for longer, raise it.",
			look: []string{"queues: The oldest item that can be popped", "queues: Items that can be popped",
				"queues: Items that are locked", "queues: Requests that were refused"},
			do: []string{"`GET /queue/…` says how the queue stands: items that can be popped, locks, and until when.",
				"If nothing is locked, look at the consumers.",
				"If it is always locked, have them pop with `mode=concurrent`, and start more of them.",
				"If they are at work, pop several items at once with `count`."},
			bad: []string{gauge(telemetry.MetricQueueOldest, `queue="orders"`, "0+60x40")},
			fine: []string{gauge(telemetry.MetricQueueOldest, `queue="orders"`, "0+60x15 0x30"),
				gauge(telemetry.MetricQueueOldest, `queue="mail"`, "600x40")},
		},
		{
			name: "RondoQueueDeadItems", hold: 5 * time.Minute,
			expr:        quickly.most(telemetry.MetricQueueDead, by{space, queue}) + " > 0",
			summary:     "{{ $value }} items of queue {{ $labels.queue }} are dead",
			description: "They were handed out as often as the queue's settings allow, and never acknowledged.",
			means:       "Consumers cannot do what these items ask for, or die of it. Nobody gets them any more.",
			because:     "Each of them is work that is not done. It fires until they are requeued or removed.",
			look:        []string{"queues: Dead items", "queues: Locks that were not ended in time"},
			do: []string{"`GET /queue/…/dead` lists them, with the reason that the last consumer gave.",
				"Mend the consumers; then `POST /queue/…/dead/requeue`, or `DELETE /queue/…/dead`."},
			bad:  []string{gauge(telemetry.MetricQueueDead, `queue="orders"`, "0x5 1x30")},
			fine: []string{gauge(telemetry.MetricQueueDead, `queue="orders"`, "0x5 1x4 0x30")},
		},
		{
			name: "RondoQueueRequestsFail", critical: true, hold: 5 * time.Minute,
			expr: quickly.rate(telemetry.MetricQueueRequests, by{space},
				brokenOff) + " / " + quickly.rate(telemetry.MetricQueueRequests, by{space}) + " > 0.05",
			summary:     "{{ $value | humanizePercentage }} of the requests to queues fail",
			description: "They are answered with 500 or 503.",
			means: "The database does not answer in time, or something is wrong in the service. Who pushes " +
				"cannot, and who pops gets nothing.",
			because: "A failover of the database costs seconds of 503, which clients try again. One in twenty, " +
				"for five minutes, is more than that.",
			look: []string{"queues: Requests that have failed", "queues: All requests",
				"storage-and-broker: Operations of the database", "storage-and-broker: The pool of the database"},
			do: []string{"503: see whether the database is well: RondoNoCommits, RondoPoolExhausted.",
				"500: the logs of the orchestrators have the error beside `a request to a queue has failed`, with " +
					"its `request_id`."},
			bad: []string{counter(telemetry.MetricQueueRequests, `operation="push",status="503"`, "0+6x60"),
				counter(telemetry.MetricQueueRequests, `operation="push",status="200"`, "0+60x60")},
			fine: []string{counter(telemetry.MetricQueueRequests, `operation="push",status="503"`, "0+3x60"),
				counter(telemetry.MetricQueueRequests, `operation="push",status="507"`, "0+60x60"),
				counter(telemetry.MetricQueueRequests, `operation="push",status="200"`, "0+1x60")},
		},
		{
			name: "RondoQueueLocksExpire", hold: 10 * time.Minute,
			expr:    expired + " / " + popped + " > 0.1",
			summary: "the locks of {{ $value | humanizePercentage }} of the items expire",
			description: "Their consumers have not acknowledged, returned or extended them in time. The items are " +
				"popped again.",
			means: "Consumers need more time than they ask for, so that work is done twice; or they die.",
			because: "A consumer that dies leaves one lock. One item in ten, for ten minutes, is " +
				"more than a deployment.",
			look: []string{"queues: Locks that were not ended in time", "queues: What becomes of items"},
			do: []string{"Compare how long the work takes with `ttl_seconds`: ask for more, or extend the " +
				"lock while the work goes on.",
				"If consumers crash, find out why; set `max_attempts`, so that an item that crashes them is " +
					"dead-lettered."},
			bad: []string{counter(telemetry.MetricQueueItems, `change="expired"`, "0+10x60"),
				counter(telemetry.MetricQueueItems, `change="popped"`, "0+60x60")},
			fine: []string{counter(telemetry.MetricQueueItems, `change="expired"`, "0+5x60"),
				counter(telemetry.MetricQueueItems, `change="popped"`, "0+60x60")},
		},
	}
}
