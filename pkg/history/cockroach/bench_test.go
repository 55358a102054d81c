package cockroach_test

import (
	"testing"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

func BenchmarkPostgreSQL(b *testing.B) {
	pgtest.Need(b)
	cluster := pgtest.Start(b, pgtest.Fsync(true))
	historytest.Bench(b, func(tb testing.TB) *historytest.Database { return database(tb, cluster.Database(tb)) })
}
