// Package tidy checks the repository's own rules: imports, purity, sizes, words, documents, and
// the exported API. The rules are tests; the package exports nothing.
package tidy
