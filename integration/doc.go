// Package integration has the tests of the whole system: real NATS servers, real databases, and
// services that are stopped, killed and cut off at every point.
package integration
