// Package sqladmin reads and removes instances in SQL stores, with plain statements that both
// databases take: [Admin] implements [history.Reader], [history.Remover] and [history.Audit]. It
// has lists with their filters and cursors, the details of one instance, deletion, pruning, and the
// removal of old tombstones. The stores embed it; the commits and the loading are their own.
package sqladmin

import (
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Admin implements [history.Reader], [history.Remover] and [history.Audit] with plain statements.
type Admin struct {
	pages
	now   func() time.Time
	entry func() history.OutboxKey
}

// pages reads instances, executions and events in pages.
type pages struct {
	dialect
	sqlrow.Transactor
	observer sqlrow.Observer // gets the operations
}

// New makes the Admin of a store. The observer gets the operations; now is the clock, and entry
// makes the key of a new outbox entry.
func New(d sqlrow.Dialect, t sqlrow.Transactor, observer sqlrow.Observer, now func() time.Time,
	entry func() history.OutboxKey) *Admin {
	return &Admin{pages: pages{dialect: dialect{d}, Transactor: t, observer: observer}, now: now, entry: entry}
}

// dialect has the queries that need no more than a dialect and a transaction.
type dialect struct{ sqlrow.Dialect }

// builder puts a statement together that has conditions on instances.
type builder struct{ sqlrow.Builder }

// builder begins a statement.
func (d dialect) builder() *builder { return &builder{sqlrow.Builder{Dialect: d.Dialect}} }

// in is the condition that a column has one of some values.
func (b *builder) in(column string, values []string) string {
	places := make([]string, len(values))
	for i, v := range values {
		places[i] = b.Arg(v)
	}
	return column + " IN (" + strings.Join(places, ", ") + ")"
}

// pairs is the condition that a row is one of some instances'.
func (b *builder) pairs(table string, instances []string) string {
	places := make([]string, len(instances))
	for i, id := range instances {
		places[i] = fmt.Sprintf("(%d, %s)", b.Shard(id), b.TextArg(sqlrow.Key(id)))
	}
	if table != "" {
		table += "."
	}
	return "(" + table + "shard, " + table + "instance) IN (VALUES " + strings.Join(places, ", ") + ")"
}

// shardwise asks each shard in turn, so that the index is used, for no more than a limit.
func (d dialect) shardwise(statement string, limit int) string {
	parts := make([]string, d.Shards)
	for shard := range parts {
		parts[shard] = fmt.Sprintf("SELECT * FROM (%s AND i.shard = %d ORDER BY i.created_at LIMIT %d) b%d", statement,
			shard, limit, shard)
	}
	return "SELECT * FROM (" + strings.Join(parts, "\nUNION ALL ") + fmt.Sprintf(") b LIMIT %d", limit)
}
