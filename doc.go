// Package rondo is the root of Rondo: durable execution on NATS JetStream and CockroachDB or PostgreSQL.
//
// An orchestration is ordinary Go code that must not be lost half-way: it calls activities, waits for timers, events and queues, starts other
// orchestrations. Everything it did is kept as history, so that after a crash, a restart or the loss of a machine it goes on where it was.
// One service decides by replaying that code, another executes the activities; all they share is messages.
//
// This package has no code of its own. The parts are:
//
//   - pkg/orchestration: what authors of orchestrations import
//   - pkg/activity: what authors of activities import
//   - pkg/events: the vocabulary of history and messages
//   - pkg/round: the pure function from history and messages to what must follow
//   - pkg/rondotest: runs orchestrations in tests, in virtual time
//   - internal/program: runs the code of an orchestration on coroutines
//
// The packages may import each other in one direction only; tidy_test.go has the table and checks it.
package rondo
