package sqlite

import "context"

// WithDriver lets a driver of that name make the connections.
func (o Options) WithDriver(name string) Options {
	o.driver = name
	return o
}

// Exec runs a statement behind the back of whoever uses the store. A database in memory can be
// reached in no other way.
func (s *Store) Exec(ctx context.Context, statement string, args ...any) error {
	w, err := s.writer.take(ctx)
	if err != nil {
		return err
	}
	defer s.writer.give(w)
	_, err = w.conn.ExecContext(ctx, statement, args...)
	return err
}
