// Package queuetest is the conformance suite of [queue.Store]: what every store of queues must do.
package queuetest
