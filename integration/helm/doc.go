// Package helm renders the chart in deploy/helm/rondo, makes its schema, and has the tests of the
// result: that Kubernetes accepts it, that the program accepts its settings, and that it runs as it
// should. It is a module of its own, because the product needs neither Helm nor Kubernetes.
//
//	render.go      rendering: values in, objects out
//	schema.go      values.schema.json, and the table in the chart's README.md
//	settings.go    the part of the schema that is made from the program's table of settings
package helm
