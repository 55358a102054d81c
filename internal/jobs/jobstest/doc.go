// Package jobstest is the conformance suite of [jobs.Store], with a model to compare stores with,
// and checks of the tables behind the stores.
package jobstest
