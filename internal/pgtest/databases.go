package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Create makes an empty database and gives its DSN, and how to drop it.
func (c *Cluster) Create() (dsn string, drop func() error, err error) {
	// No session can be connected to template0, so several databases can be created from it at the
	// same time.
	return c.create("template0")
}

// create copies a template. Its name is one that no other process uses on this server.
func (s *server) create(template string) (dsn string, drop func() error, err error) {
	name := "test_" + strings.ToLower(rand.Text()[:16])
	if err := s.copyDatabase(name, template); err != nil {
		return "", nil, err
	}
	return s.dsn(name), func() error {
		if !s.running() {
			return nil
		}
		return s.do("DROP DATABASE " + name + " WITH (FORCE)")
	}, nil
}

// Template is a database that each server makes once, and of which each test gets a copy: copying
// tables costs less than creating them.
type Template struct {
	// Name identifies the contents: templates of the same name are the same. It may contain
	// lower-case letters, digits and _.
	Name string
	// Make fills an empty database, and closes its connections.
	Make func(ctx context.Context, dsn string) error
}

// Database creates a copy of the template. It is otherwise like the function [Database].
func (t Template) Database(tb testing.TB) string {
	tb.Helper()
	s, err := sharedForTests()
	if err != nil {
		tb.Fatal(err)
	}
	name, err := s.templates.find(s, t)
	if err != nil {
		tb.Fatal(err)
	}
	dsn, drop, err := s.create(name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := drop(); err != nil {
			tb.Error(err)
		}
	})
	return dsn
}

// templates are those that this process has made or found on a server.
type templates struct {
	sync.Mutex
	found map[string]bool
}

// find gives the name of a template's database. If no process has made it, find does.
func (m *templates) find(s *server, t Template) (name string, err error) {
	m.Lock()
	defer m.Unlock()
	name = "template_" + t.Name
	if m.found[name] {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.makeTemplate(ctx, name, t.Make); err != nil {
		return "", fmt.Errorf("pgtest: make %s: %w", name, err)
	}
	if m.found == nil {
		m.found = make(map[string]bool)
	}
	m.found[name] = true
	return name, nil
}

// makeTemplate makes a template's database, unless it exists. A lock, which ends with the
// connection, keeps other processes from making it at the same time. The database gets its name
// when it is complete: a process that is killed before leaves one of another name.
func (s *server) makeTemplate(ctx context.Context, name string, fill func(context.Context, string) error) error {
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil {
		return err
	}
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)",
		name).Scan(&exists); err != nil || exists {
		return err
	}
	making := "making_" + strings.ToLower(rand.Text()[:16])
	if err := s.copyDatabase(making, "template0"); err != nil {
		return err
	}
	if err := fill(ctx, s.dsn(making)); err != nil {
		return err
	}
	for _, statement := range []string{"ALTER DATABASE " + making + " ALLOW_CONNECTIONS false",
		"ALTER DATABASE " + making + " RENAME TO " + name} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// copyDatabase creates a database from a template. PostgreSQL 15 and later would write all pages to
// the log, unless they are told to copy the files, as earlier versions do.
func (s *server) copyDatabase(name, template string) error {
	return s.execute(func(ctx context.Context, conn *pgx.Conn) error {
		statement := "CREATE DATABASE " + name + " TEMPLATE " + template
		major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
		if n, err := strconv.Atoi(major); err == nil && n >= 15 {
			statement += " STRATEGY file_copy"
		}
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

// do executes a statement as the superuser.
func (s *server) do(sql string) error {
	err := s.execute(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
	if err != nil {
		return fmt.Errorf("pgtest: %s: %w", sql, err)
	}
	return nil
}

// execute calls f with the connection that is kept for statements about databases.
func (s *server) execute(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.admin.Lock()
	defer s.admin.Unlock()
	if s.admin.conn == nil || s.admin.conn.IsClosed() || s.admin.conn.Ping(ctx) != nil { // the server was restarted
		conn, err := pgx.Connect(ctx, s.dsn("postgres"))
		if err != nil {
			return err
		}
		s.admin.conn = conn
	}
	return f(ctx, s.admin.conn)
}
