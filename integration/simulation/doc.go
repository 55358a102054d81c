// Package simulation runs the production orchestrator, worker, outbox and sweeps in one process, on
// virtual time, over a broker in memory and SQLite in memory, and disturbs them: messages and
// requests are lost, late, duplicated, or executed without an answer; commits conflict, or have an
// unknown outcome; processes die between any two steps and start again, or freeze; connections
// break; clocks differ; the broker forgets messages that it had acknowledged, or everything.
//
//	a seed ──► the work (work_test.go), the clients (clients_test.go, guests_test.go),
//	       what goes wrong (weather_test.go)
//	       ──► a world that runs until all work has ended (world_test.go)
//	       ──► a verdict: every result is right, every history in order, nothing is left (verdict_test.go),
//	       no activity was executed twice without a reason,
//	           and every path was taken in some world (journal_test.go)
//
// Each side effect of a process goes through its road (road_test.go), one at a time, each at a
// moment of its own that follows from the seed, the process and the effect; so the same seed gives
// the same world. Two goroutines of a process that are woken at the same moment may still run in
// either order: where that shows, a second run of a seed differs in its details. `TestSeedsRepeat`
// measures how often.
//
// mutants_test.go and mutants_delivery_test.go have mistakes that are planted into the code of the
// product, and show that the simulation finds each of them.
//
//	make sim                 # a fixed set of seeds, then fresh ones for two minutes
//	make sim SEED=7 N=1      # one of them again, with its log
//	make mutants             # plant the mistakes
package simulation
