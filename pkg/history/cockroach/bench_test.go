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

// BenchmarkPostgreSQL measures with a server of its own, which waits for the disk.
//
// Where the server's time goes, in batches of 100 (two turns for each orchestration, 133 us when
// this was measured, before later changes): about a third are the secondary indexes of the
// instances, of which the one by name takes half; the rest of the instances' rows took another
// third; history a quarter, half of it for its index. Of a commit of one turn, a fifth is spent on
// preparing the execution of its statement, a sixth on writing the log through to the disk.
//
// Changes that were tried and are not worth their cost:
//   - UPDATE … FROM unnest(…) instead of ON CONFLICT DO UPDATE for turns that go on saves perhaps 3
//     us, but a plan that was made while the table was small joins with all of it.
//   - Other fill factors of rondo_instances (50, 100) make no difference: a turn that ends an
//     instance changes what indexes are made of.
//   - An outbox that is not compressed (STORAGE EXTERNAL) saves 1 us, and writes 180 bytes more of
//     log for each orchestration.
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

// backends measures the CPU time of the processes that serve a store's connections, where the
// system tells it. It looks for them once, when it is asked for the first time.
func backends(tb testing.TB, address string) func(history.Store) time.Duration {
	var pids []int32
	return func(s history.Store) (spent time.Duration) {
		if pids == nil {
			if err := s.Ping(tb.Context()); err != nil {
				tb.Fatal(err)
			}
			conn := connect(tb, address)
			rows, err := conn.Query(tb.Context(),
				"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rondo'")
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
