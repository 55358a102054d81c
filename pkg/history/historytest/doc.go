// Package historytest is the suite that every store must pass.
//
// # Contents
//
// [Run] runs the suite on one kind of database. A test is named after its section and after what it
// shows. The tables in testdata/behaviours.txt have a line for each behaviour that a store of
// durable executions must show, and name the tests that show it in Rondo. Not every behaviour is
// the store's: the store keeps histories and the data of instances, while the broker keeps messages
// and decides which process receives them. Scenarios of package round name the sections by their
// numbers. The suite also has tests that stand in no table: they show what this store guarantees
// beyond that.
//
// # How to read the tables
//
//	store         tests of this suite
//	core          tests of pure packages, mostly of package round: x.txt is a scenario in its
//	              testdata, and * stands for several
//	bus           a property of the broker, shown by the broker's suite
//	worker        what the worker does about it
//	orchestrator  what the orchestrator does about it
//	not           why it does not apply here; the text behind that shows what happens instead
//
// Where a line names several, each shows a part of it.
//
// Other systems have a lock for an instance, and a token for the lock. Here a turn names the
// version of the row that it was decided on, and the store takes the turn if the row still has that
// version. Other systems keep the values of the running execution apart. Here they are in the one
// table of values, from the commit on. A replay does not read that table: it finds the values in
// history, which begins with those of the execution before.
package historytest
