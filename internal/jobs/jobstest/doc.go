// Package queuetest is the conformance suite of [queue.Store]: what every store of queues must do,
// a model to compare stores with, and what can be checked of the tables behind their backs.
package queuetest
