// Package sqlrow is what all code on SQL databases builds on: the tables with their columns, the
// rows that turns become and that states are loaded from, and the migrations. [Dialect] is how the
// databases differ in plain statements, [Transactor] how transactions run. The statements of the
// commit are in the store of each database.
package sqlrow

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// DB runs statements. Parameters are $1, $2, …
type DB interface {
	// Query calls scan for each row.
	Query(ctx context.Context, scan func(Row) error, statement string, args ...any) error
	// Exec gives the number of rows that were changed.
	Exec(ctx context.Context, statement string, args ...any) (int64, error)
}

// Statement is a statement with its parameters.
type Statement struct {
	Text string
	Args []any
}

// Together is a DB that can be sent several statements at once. It gives how many rows each has
// changed.
type Together interface {
	ExecAll(ctx context.Context, statements []Statement) ([]int64, error)
}

// Row is a row to be scanned.
type Row interface{ Scan(into ...any) error }

// Transactor runs functions in transactions, and again if the database asks for it.
type Transactor interface {
	// Read runs statements that change nothing.
	Read(ctx context.Context, op string, f func(DB) error) error
	// ReadOften is for statements of which there are few, so that they are worth preparing.
	ReadOften(ctx context.Context, op string, f func(DB) error) error
	// Write runs f in one transaction. f must not keep anything from an earlier try.
	Write(ctx context.Context, op string, f func(DB) error) error
	// WriteOnce is like Write for a function that must not take effect twice: after a commit with
	// an unknown outcome it calls doubted, and f must find out if it is run again.
	WriteOnce(ctx context.Context, op string, doubted func(), f func(DB) error) error
}

// Dialect is how databases differ in plain statements.
type Dialect struct {
	// Shards is the number of shards that are in use, 1 or [history.Shards].
	Shards int
	// Time is how a time is passed as a parameter.
	Time func(time.Time) any
	// Lock ends a SELECT that locks the rows that it reads.
	Lock string
	// Clock is the time on the clock of the database, as an expression. It is empty where the
	// database has the clock of this process.
	Clock string
	// ReadFirst says that jobs are read before they are taken: a bound from a subquery does not
	// keep the database from reading all rows behind that bound.
	ReadFirst bool
	// Garbage says that removed rows of tables and indexes stay for hours, and that searches walk
	// over them.
	Garbage bool
	// Exclusive says that only one process can write to the database at a time.
	Exclusive bool
}

// Shard is the shard of an instance.
func (d Dialect) Shard(instance string) int16 {
	if d.Shards == 1 {
		return 0
	}
	return history.ShardOf(instance)
}

// The statuses of a row whose instance was deleted. An execution that is being pruned is Deleting,
// too.
const (
	Deleting = "deleting" // its other rows are still being erased
	Deleted  = "deleted"  // all of it is gone
)

// Alive is the condition that a row is not a tombstone.
const Alive = `status NOT IN ('deleting', 'deleted')`
