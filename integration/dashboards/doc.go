// Package dashboards makes the dashboards in deploy/grafana, the alert rules in deploy/prometheus
// and docs/alerts.md, and has the tests that evaluate all of their queries with Prometheus' own
// engine on the metrics of a running Rondo. It is a module of its own, because the product does not
// need Prometheus.
package dashboards
