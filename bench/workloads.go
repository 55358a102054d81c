package main

import "context"

// workload is something that is measured, in one or several variants.
type workload struct {
	name     string
	about    string
	unit     string // that N counts
	database string // the only one that it can be measured with, "" if any
	variants []variant
}

// variant is one way to run a workload.
type variant struct {
	name       string
	needs      needs
	leavesOpen bool // instances wait at its end
	run        func(ctx context.Context, r *run) error
}

// workloads are all workloads, in the order in which they run. Those with an s at the end have
// inline steps instead of activities.
var workloads = []workload{
	{name: "W1", about: "orchestrations of one activity", unit: "orchestrations",
		variants: flows(once.Name(), 1, 128, 1000)},
	{name: "W1s", about: "orchestrations of one inline step", unit: "orchestrations",
		variants: flows(onceStep.Name(), 1, 128, 1000)},
	{name: "W2", about: "10 activities in sequence", unit: "activities", variants: flows(sequence.Name(), 10, 64, 256)},
	{name: "W2s", about: "10 inline steps in sequence", unit: "steps",
		variants: flows(sequenceStep.Name(), 10, 64, 256)},
	{name: "W3", about: "one orchestration with 500 activities in parallel", unit: "activities",
		variants: wide(fan.Name())},
	{name: "W3s", about: "one orchestration with 500 inline steps in parallel", unit: "steps",
		variants: wide(fanStep.Name())},
	{name: "W4", about: "how long one orchestration of one activity takes, with nothing else going on",
		unit: "orchestrations", variants: idle(once)},
	{name: "W4s", about: "the same with an inline step", unit: "orchestrations", variants: idle(onceStep)},
	{name: "W5", about: "one orchestration with 1,000 activities in sequence", unit: "activities",
		variants: long(sequence.Name())},
	{name: "W5s", about: "one orchestration with 1,000 inline steps in sequence", unit: "steps",
		variants: long(sequenceStep.Name())},
	{name: "W6", about: "5 activities of 10 ms in parallel, against what the activities themselves take",
		unit:     "orchestrations",
		variants: naps(2, 4, 100)},
	{name: "W7", about: "many instances that wait for events and timers", unit: "instances",
		variants: []variant{{name: "parked", leavesOpen: true, run: parking}}},
	{name: "W8", about: "W1 with several orchestrators", unit: "orchestrations", database: "postgres",
		variants: replicas()},
	{name: "W9", about: "how long it takes until instances go on after kill -9", unit: "orchestrations",
		variants: crashes()},
	{name: "W10", about: "half of what the machine can do, for long: activities, steps, timers and events",
		unit: "orchestrations", variants: []variant{{name: "steady", run: steady}}},
	{name: "W11", about: "queues over HTTP: push, pop with a lock, acknowledge", unit: "items", variants: queueing()},
	{name: "W12", about: "1,000 schedules, and 50 that start a run every other second", unit: "runs",
		variants: []variant{{name: "idle", run: schedules}}},
}
