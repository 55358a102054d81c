package cockroach

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/internal/sqljobs"
)

// Statements are those that make the tables on PostgreSQL, the table of versions first.
func Statements() []string {
	all := []string{schemaTable}
	for _, m := range migrations() {
		for _, statement := range m.statements {
			all = append(all, postgres.adapt(statement))
		}
	}
	return all
}

// QueuesForCockroachDB are the queues of a store with the statements that CockroachDB gets.
func QueuesForCockroachDB(s *Store, clock func() time.Time) jobs.Store {
	return sqljobs.NewQueues(cockroachdb.queueDialect(), s.db, clock)
}

// TakeForCockroachDB has a store take the database behind its connections for CockroachDB.
func TakeForCockroachDB(s *Store) { s.db.flavour = cockroachdb }

// ConnectTimeout is how long Open waits for a server at an address.
func ConnectTimeout(address string, options Options) (time.Duration, error) {
	_, timeout, err := poolConfig(address, options.withDefaults())
	return timeout, err
}

// HoldAgainAfter changes, for a test, after what time the row of versions is held anew.
func HoldAgainAfter(tb testing.TB, d time.Duration) {
	before := holdAgain
	holdAgain = d
	tb.Cleanup(func() { holdAgain = before })
}

// Migrated is a database on PostgreSQL with all tables.
var Migrated = pgtest.Template{
	Name: fmt.Sprintf("rondo_%.16x", sha256.Sum256([]byte(strings.Join(Statements(), "\n")))),
	Make: func(ctx context.Context, dsn string) error {
		_, _, err := MigrateSchema(ctx, dsn, Options{})
		return err
	},
}

// Reused opens stores on the connections of stores that were open before: PostgreSQL takes most of
// a small test's time to connect and to plan prepared statements. Only the clock, the observer and
// the log may differ between the stores.
type Reused struct {
	Address string

	mu   sync.Mutex
	free []*pgxpool.Pool
}

// Open opens a store for a test. Its connections are free for the next one when the test has ended,
// unless it has closed them.
func (r *Reused) Open(tb testing.TB, options Options) (*Store, error) {
	clock := options.Now
	options = options.withDefaults()
	pool, err := r.take(tb.Context(), options)
	if err != nil {
		return nil, err
	}
	s, err := start(tb.Context(), newDatabase(pool, options), options, clock)
	if err != nil {
		pool.Close()
		return nil, err
	}
	tb.Cleanup(func() {
		if stat := pool.Stat(); stat.TotalConns() == 0 || stat.AcquiredConns() > 0 {
			pool.Close()
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free = append(r.free, pool)
	})
	return s, nil
}

func (r *Reused) take(ctx context.Context, options Options) (*pgxpool.Pool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		pool := r.free[n-1]
		r.free = slices.Delete(r.free, n-1, n)
		return pool, nil
	}
	config, _, err := poolConfig(r.Address, options)
	if err != nil {
		return nil, err
	}
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
}

// Close closes the connections that are free.
func (r *Reused) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pool := range r.free {
		pool.Close()
	}
	r.free = nil
}
