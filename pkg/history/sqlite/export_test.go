package sqlite

import (
	"context"
	"slices"

	"github.com/rondo-run/rondo/pkg/history/internal/sqljobs"
)

// Statements are the statements that write the rows of turns, and those about queues.
func Statements() []string {
	all := sqljobs.Statements(dialect)
	for _, in := range []*insertion{insertInstances, insertHistory, insertExecutions, insertValues, insertAttributes} {
		all = append(all, in.statements[0])
	}
	for _, u := range updates {
		all = append(all, u.statement)
	}
	return slices.Compact(all)
}

// WithDriver lets a driver of that name make the connections.
func (o Options) WithDriver(name string) Options {
	o.driver = name
	return o
}

// Exec runs a statement behind the store's back. A test has no other way to reach a database in
// memory.
func (s *Store) Exec(ctx context.Context, statement string, args ...any) error {
	w, err := s.db.writer.take(ctx)
	if err != nil {
		return err
	}
	defer s.db.writer.give(w)
	_, err = w.conn.ExecContext(ctx, statement, args...)
	return err
}
