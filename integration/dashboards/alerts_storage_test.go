package dashboards_test

import (
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
)

func storageAlerts() []alert {
	v, commits := quickly, telemetry.MetricCommitAttempts
	return []alert{
		{
			name: "RondoNoCommits", critical: true, hold: 2 * time.Minute,
			expr: v.rate(commits, by{space}, not(outcome, "stored")) + " > 0 unless " + v.rate(commits,
				by{space}, is(outcome, "stored")) + " > 0",
			summary:     "no commit succeeds",
			description: "{{ printf \"%.2f\" $value }} commits a second fail, and none is stored.",
			means: "The database is away, is full, or refuses. Orchestrators hold what they have, and try " +
				"again by themselves.",
			because: "After five minutes without a single success, two more are enough.",
			look: []string{"storage-and-broker: Commits that were not stored",
				"storage-and-broker: Errors of the database"},
			do: []string{"Bring the database back; everything goes on by itself.",
				"If it is there, the logs have the error: rights, a schema that is too old, a disk."},
			bad: []string{counter(commits, `outcome="retry"`, "0+10x60"),
				counter(commits, `outcome="stored"`, "100x60")},
			fine: []string{counter(commits, `outcome="retry"`, "0+10x60"),
				counter(commits, `outcome="stored"`, "0+1x60")},
		},
		{
			name: "RondoCommitsFail", hold: 10 * time.Minute,
			expr: v.rate(commits, by{space}, not(outcome, "stored")) + " / " + v.rate(commits,
				by{space}) + " > 0.05",
			summary:     "{{ $value | humanizePercentage }} of all commits are not stored",
			description: "They are tried again, which costs time.",
			means:       "Transactions are in each other's way, or connections to the database break.",
			because: "CockroachDB asks for a retry now and then, and PostgreSQL does while it fails over. One " +
				"in twenty, for ten minutes, is more than that.",
			look: []string{"storage-and-broker: Commits that were not stored",
				"storage-and-broker: Operations of the database"},
			do: []string{"contended: look at the load on the database, and at other programs that use it.",
				"retry: look at the network, and at proxies that cut connections."},
			bad: []string{counter(commits, `outcome="contended"`, "0+10x60"),
				counter(commits, `outcome="stored"`, "0+100x60")},
			fine: []string{counter(commits, `outcome="contended"`, "0+5x60"),
				counter(commits, `outcome="stored"`, "0+100x60")},
		},
		{
			name: "RondoCommitsAmbiguous", hold: 0,
			expr:        v.happened(commits, by{space}, is(outcome, "ambiguous")) + " > 5",
			summary:     "of {{ printf \"%.0f\" $value }} commits nobody knew whether they had happened",
			description: "That is looked up, and nothing is lost.",
			means:       "Connections to the database break while commits are in flight.",
			because: "One for each orchestrator is what a failover of the database costs. More within 15 " +
				"minutes means that it happens again and again.",
			look: []string{"storage-and-broker: Commits that were not stored"},
			do:   []string{"Look at what cuts connections: failovers, proxies, time limits."},
			bad:  []string{counter(commits, `outcome="ambiguous"`, "_x10 8x40")},
			fine: []string{counter(commits, `outcome="ambiguous"`, "_x10 4x40")},
		},
		{
			name: "RondoConflicts", hold: 10 * time.Minute,
			expr: v.rate(telemetry.MetricTurns, by{space},
				is(outcome, "conflict")) + " / " + v.rate(telemetry.MetricTurns, by{space}) + " > 0.05",
			summary:     "{{ $value | humanizePercentage }} of all turns conflict",
			description: "Another orchestrator was first. What was decided is thrown away, and decided again.",
			means:       "Two orchestrators work on the same partitions.",
			because:     "It happens for seconds while a partition moves. Ten minutes are no move.",
			look: []string{"storage-and-broker: Turns that were not committed",
				"storage-and-broker: Partitions"},
			do: []string{"`rondo partitions` and `rondo orchestrators`: does one not know that it has lost " +
				"a partition? Restart it.",
				"Two systems with the same database and prefix must not have different NATS servers."},
			bad: []string{counter(telemetry.MetricTurns, `outcome="conflict"`, "0+10x60"),
				counter(telemetry.MetricTurns, `outcome="committed"`, "0+100x60")},
			fine: []string{counter(telemetry.MetricTurns, `outcome="conflict"`, "0+5x60"),
				counter(telemetry.MetricTurns, `outcome="committed"`, "0+100x60")},
		},
		{
			name: "RondoStoreErrors", hold: 0,
			expr: v.happened(telemetry.MetricStoreErrors, by{space, operation, class},
				anyOf(class, "permanent", "corrupt")) + " > 0",
			summary:     "the database refuses {{ $labels.operation }}: {{ $labels.class }}",
			description: "Trying again does not help: somebody must change something.",
			means: "permanent: rights, the schema, or a request that cannot be. corrupt: what is " +
				"stored cannot be read.",
			because: "There should never be one.",
			look:    []string{"storage-and-broker: Errors of the database"},
			do: []string{"The logs have the error.",
				"corrupt: `rondo check` reads all histories and says which are damaged."},
			bad: []string{once(telemetry.MetricStoreErrors, `operation="commit",class="permanent"`)},
			fine: []string{counter(telemetry.MetricStoreErrors,
				`operation="commit",class="contended"`, "0+5x60")},
		},
		{
			name: "RondoPoolExhausted", hold: 10 * time.Minute,
			expr:        v.rate(telemetry.MetricStoreWaited, by{space, "job", "instance"}) + " > 1",
			summary:     "{{ printf \"%.1f\" $value }} operations wait for a connection to the database at any time",
			description: "All connections of {{ $labels.instance }} are taken.",
			means:       "The database is slow, or the pool is too small for what is asked of it.",
			because:     "The counter grows by the seconds that are waited: 1 means that one always waits.",
			look: []string{"storage-and-broker: The pool of the database",
				"storage-and-broker: Waiting for a connection", "storage-and-broker: Operations of the database"},
			do: []string{"If operations are slow, look at the database.",
				"If not, raise `pool_max_conns` in the address of the database, and what the database allows."},
			bad:  []string{counter(telemetry.MetricStoreWaited, "", "0+120x60")},
			fine: []string{counter(telemetry.MetricStoreWaited, "", "0+30x60")},
		},
	}
}

func brokerAlerts() []alert {
	v := quickly
	return []alert{
		{
			name: "RondoReconnects", hold: 0,
			expr: v.happened(telemetry.MetricNATSReconnects, by{space, "job", "instance"}) + " > 5",
			summary: "{{ $labels.instance }} has connected to NATS {{ printf \"%.0f\" $value }} " +
				"times within 15 minutes",
			description: "Each time, what was in flight comes again later.",
			means: "The connection breaks again and again: the network, a proxy, or a server that throws it " +
				"out because it reads too slowly.",
			because: "A rolling restart of three servers costs a process three connections at most.",
			look:    []string{"storage-and-broker: Connections to NATS", "storage-and-broker: Errors of NATS"},
			do: []string{"The logs of NATS say why it has closed connections.",
				"Look at memory and processors of the process."},
			bad:  []string{counter(telemetry.MetricNATSReconnects, "", "0x10 0+1x40")},
			fine: []string{counter(telemetry.MetricNATSReconnects, "", "0x20 1 2 3x40")},
		},
		{
			name: "RondoSlowConsumer", hold: 0,
			expr: v.happened(telemetry.MetricNATSErrors, by{space, "job", "instance"},
				is(reason, "slow_consumer")) + " > 0",
			summary:     "{{ $labels.instance }} does not take what NATS sends to it",
			description: "Messages were dropped on their way to this process. They come again.",
			means: "The process is short of processors or memory, or stood still. Or clients send more requests of " +
				"the API than orchestrators answer: the database may be slow.",
			because: "Orchestrators and workers take no more than they have room for, and clients wait for " +
				"answers, so it should not happen.",
			look: []string{"storage-and-broker: Errors of NATS", "workers: Processors", "overview: Memory"},
			do:   []string{"Give it more processors, or less at once: `--slots`, `--max-messages`."},
			bad:  []string{counter(telemetry.MetricNATSErrors, `reason="slow_consumer"`, "0x10 2x40")},
			fine: []string{counter(telemetry.MetricNATSErrors, `reason="slow_consumer"`, "2x60"),
				counter(telemetry.MetricNATSErrors, `reason="other"`, "0+1x60")},
		},
	}
}
