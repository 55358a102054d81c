// Package simulation runs the production orchestrator, worker, outbox and sweeps in one process, on
// virtual time, over a broker in memory and SQLite in memory, and disturbs them: messages and
// requests are lost, late, duplicated, or executed without an answer; commits conflict, or have an
// unknown outcome; processes die between any two steps and start again, or freeze; connections
// break; clocks differ; the broker forgets messages that it had acknowledged, or everything.
//
//	a seed ──► the work (work_test.go), the clients (clients_test.go, guests_test.go),
//	       the schedules of half of the worlds (schedules_test.go),
//	       what goes wrong (weather_test.go)
//	       ──► a world that runs until all work has ended (world_test.go)
//	       ──► a verdict: every result is right, every history in order, nothing is left (verdict_test.go),
//	       each occurrence of a schedule has its run (schedules_verdict_test.go),
//	       no activity was executed twice without a reason,
//	           and every path was taken in some world (journal_test.go)
//
// The same seed gives the same world. Each side effect of a process goes through its road
// (road_test.go), at a moment that follows from the seed, the process and the effect. Side effects
// at one moment take turns (turns_test.go): the next one happens when all goroutines are blocked,
// so the Go scheduler has no influence on their order. TestSeedsRepeat runs seeds again, and
// compares each event.
//
// A goroutine between two side effects is not ordered. Therefore code that runs here must not
// depend on the order in which goroutines run that one event has woken, nor on a select with two
// ready cases, nor on the order of a map. If a seed differs, TestSeedsRepeat prints the first
// events that do; -repeat says how often each seed runs:
//
//	go test -run '^TestSeedsRepeat$' ./integration/simulation -v -seed 1 -seeds 100 -repeat 10
//
// testdata/seeds.txt has seeds that failed once. TestFormerSeeds and TestSeedsRepeat play them.
//
// mutants_test.go, mutants_delivery_test.go, mutants_receipts_test.go and mutants_schedules_test.go
// have mistakes that are planted into the code of the product, and show that the simulation finds
// each of them.
//
//	make sim                 # a fixed set of seeds, then fresh ones for two minutes
//	make sim SEED=7 N=1      # one of them again, with its log
//	make mutants             # plant the mistakes
package simulation
