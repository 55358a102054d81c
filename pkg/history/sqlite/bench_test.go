package sqlite_test

import (
	"testing"

	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// BenchmarkFile measures with a file whose every commit is forced onto the disk.
func BenchmarkFile(b *testing.B) {
	historytest.Bench(b, func(tb testing.TB) *historytest.Database { return databaseWith(tb, sqlite.Options{}) })
}
