// Package jobstest is the conformance suite of [jobs.Store]: what every store of queues must do,
// a model to compare stores with, and what can be checked of the tables behind their backs.
package jobstest
