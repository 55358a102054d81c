// Package openapi has the tests that services/jobs does what /openapi.json says. It
// is a module of its own, because the product does not need what reads such documents.
package openapi
