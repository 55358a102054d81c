// Package otlp has the tests of what Rondo tells by OpenTelemetry: services run as processes of
// their own, and send to the receiver of the OpenTelemetry Collector, which runs in the test. What
// arrives there is looked at span by span. It is a module of its own, because the product does not
// need a collector.
package otlp
