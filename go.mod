module github.com/rondo-run/rondo

go 1.26.0

require (
	github.com/cockroachdb/datadriven v1.0.3
	go.uber.org/goleak v1.3.0
	golang.org/x/mod v0.42.0
)

require github.com/pmezard/go-difflib v1.0.0 // indirect
