// Package openapi has the tests that services/jobs conforms to its /openapi.json. It is a module of
// its own, because the product does not need a reader of such documents.
package openapi
