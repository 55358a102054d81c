package cockroach_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

func BenchmarkPostgreSQL(b *testing.B) {
	pgtest.Need(b)
	cluster := pgtest.Start(b, pgtest.Fsync(true))
	historytest.Bench(b, func(tb testing.TB) *historytest.Database {
		address := cluster.Database(tb)
		db := database(tb, address)
		db.ServerCPU = backends(tb, address)
		return db
	})
}

// backends measures the CPU time of the processes that serve a store's connections, where the system tells it. It looks for them once, when it is asked for the first time.
func backends(tb testing.TB, address string) func(history.Store) time.Duration {
	var pids []int32
	return func(s history.Store) (spent time.Duration) {
		if pids == nil {
			if err := s.Ping(tb.Context()); err != nil {
				tb.Fatal(err)
			}
			conn := connect(tb, address)
			rows, err := conn.Query(tb.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rondo'")
			if err == nil {
				pids, err = pgx.CollectRows(rows, pgx.RowTo[int32])
			}
			if err != nil || len(pids) == 0 {
				tb.Fatal("no connection of the store's was found", err)
			}
		}
		for _, pid := range pids {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)) // the first number is nanoseconds
			if err != nil {
				return 0
			}
			n, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
			if err != nil {
				return 0
			}
			spent += time.Duration(n)
		}
		return spent
	}
}
