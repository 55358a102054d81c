package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	modernc "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// faultyDriver is SQLite's driver with something before it that fails.
type faultyDriver struct {
	name string
	real modernc.Driver

	mu     sync.Mutex
	steps  int
	inject func(step) fault
	writer *faultyConn // the last connection that was opened for writing
}

// step is something that a driver is asked to do.
type step struct {
	n     int // counted from 1
	kind  string
	sql   string
	write bool // by the connection that writes
}

// The kinds of steps.
const (
	opens    = "open"
	prepares = "prepare"
	execs    = "exec"
	queries  = "query"
	nexts    = "next row"
)

func (s step) String() string { return fmt.Sprintf("step %d (%s %.60s)", s.n, s.kind, s.sql) }

// ends reports whether the step ends the transaction.
func (s step) ends() bool { return s.kind == execs && s.sql == "COMMIT" }

// fault is a fault to inject; the zero value is none.
type fault struct {
	err error
	// late: it happened all the same.
	late bool
	// over: SQLite has ended the transaction along with it.
	over bool
}

var drivers atomic.Int64

// newDriver makes a driver that works until it is told otherwise.
func newDriver() *faultyDriver {
	d := &faultyDriver{name: fmt.Sprintf("faulty-%d", drivers.Add(1))}
	sql.Register(d.name, d)
	return d
}

// set says what goes wrong from now on; nil for nothing.
func (d *faultyDriver) set(inject func(step) fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inject = inject
}

// do does a step, or lets it go wrong.
func (d *faultyDriver) do(c *faultyConn, kind, statement string, f func() error) error {
	d.mu.Lock()
	d.steps++
	s, inject := step{n: d.steps, kind: kind, sql: statement, write: c.write}, d.inject
	d.mu.Unlock()
	if inject == nil {
		return f()
	}
	x := inject(s)
	if x.err == nil {
		return f()
	}
	if x.late {
		_ = f()
	}
	if x.over {
		_ = c.run("ROLLBACK")
	}
	return x.err
}

// Open implements [driver.Driver].
func (d *faultyDriver) Open(name string) (driver.Conn, error) {
	c := &faultyConn{driver: d, write: !strings.Contains(name, "mode=ro")}
	err := d.do(c, opens, "", func() error {
		conn, err := d.real.Open(name)
		if err == nil {
			c.realConn = conn.(realConn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.write {
		d.mu.Lock()
		d.writer = c
		d.mu.Unlock()
	}
	return c, nil
}

// onWriter runs a statement on the connection that writes, without injected faults. No other
// goroutine may use the connection meanwhile.
func (d *faultyDriver) onWriter(statement string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writer.run(statement)
}

// Connect and Driver implement [driver.Connector] with the connection that writes, without injected
// faults: a test has no other way to read a database in memory.
func (d *faultyDriver) Connect(context.Context) (driver.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return lentConn{d.writer.realConn}, nil
}

func (d *faultyDriver) Driver() driver.Driver { return d }

// lentConn is a borrowed connection, which Close leaves open.
type lentConn struct{ realConn }

func (lentConn) Close() error { return nil }

// realConn is what SQLite's connections can do.
type realConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type faultyConn struct {
	realConn
	driver *faultyDriver
	write  bool
}

func (c *faultyConn) run(statement string) error {
	_, err := c.realConn.ExecContext(context.Background(), statement, nil)
	return err
}

func (c *faultyConn) PrepareContext(ctx context.Context, statement string) (driver.Stmt, error) {
	out := &faultyStmt{conn: c, sql: statement}
	err := c.driver.do(c, prepares, statement, func() error {
		s, err := c.realConn.PrepareContext(ctx, statement)
		if err == nil {
			out.realStmt = s.(realStmt)
		}
		return err
	})
	if err != nil {
		if out.realStmt != nil {
			out.realStmt.Close()
		}
		return nil, err
	}
	return out, nil
}

func (c *faultyConn) ExecContext(ctx context.Context, statement string,
	args []driver.NamedValue) (r driver.Result, err error) {
	err = c.driver.do(c, execs, statement, func() (err error) {
		r, err = c.realConn.ExecContext(ctx, statement, args)
		return err
	})
	return r, err
}

func (c *faultyConn) QueryContext(ctx context.Context, statement string,
	args []driver.NamedValue) (driver.Rows, error) {
	return c.query(statement, func() (driver.Rows, error) { return c.realConn.QueryContext(ctx, statement, args) })
}

func (c *faultyConn) query(statement string, f func() (driver.Rows, error)) (driver.Rows, error) {
	out := &faultyRows{conn: c, sql: statement}
	err := c.driver.do(c, queries, statement, func() (err error) {
		out.Rows, err = f()
		return err
	})
	if err != nil {
		if out.Rows != nil {
			out.Rows.Close()
		}
		return nil, err
	}
	return out, nil
}

type realStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type faultyStmt struct {
	realStmt
	conn *faultyConn
	sql  string
}

func (s *faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.conn.driver.do(s.conn, execs, s.sql, func() (err error) {
		r, err = s.realStmt.ExecContext(ctx, args)
		return err
	})
	return r, err
}

func (s *faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(s.sql, func() (driver.Rows, error) { return s.realStmt.QueryContext(ctx, args) })
}

type faultyRows struct {
	driver.Rows
	conn *faultyConn
	sql  string
}

func (r *faultyRows) Next(to []driver.Value) error {
	return r.conn.driver.do(r.conn, nexts, r.sql, func() error { return r.Rows.Next(to) })
}

// ---- Errors.

// sqliteError is an error as SQLite's driver gives it, which has no other way to make one.
func sqliteError(code int) error {
	e := new(modernc.Error)
	set := func(name string, value any) {
		field := reflect.ValueOf(e).Elem().FieldByName(name)
		reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Set(reflect.ValueOf(value))
	}
	set("msg", fmt.Sprintf("a fault: %s (%d)", modernc.ErrorCodeString[code], code))
	set("code", code)
	return e
}

var (
	busy  = sqliteError(codes.SQLITE_BUSY)
	full  = sqliteError(codes.SQLITE_FULL)
	noMem = sqliteError(codes.SQLITE_NOMEM)
	write = sqliteError(codes.SQLITE_IOERR_WRITE)
	fsync = sqliteError(codes.SQLITE_IOERR_FSYNC)
)
