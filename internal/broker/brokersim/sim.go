// Package brokersim is the outside of a system, simulated: a broker in memory that outlives
// processes, and a way between it and each of them on which things are late or get lost. It keeps
// the contract of package broker, as brokertest checks, so that the real services run on it.
package brokersim
