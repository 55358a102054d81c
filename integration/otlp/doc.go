// Package otlp has the tests of Rondo's telemetry over OTLP: services run as processes of their
// own, and export to the receiver of the OpenTelemetry Collector, which runs in the test. The tests
// check each span. It is a module of its own, because the product does not need a collector.
package otlp
