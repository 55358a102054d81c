// Package brokersim simulates the outside of a system: a broker in memory that outlives processes,
// and a path between the broker and each process on which messages are late or get lost. It keeps
// the contract of package broker, as brokertest checks, so that the real services run on it.
package brokersim
