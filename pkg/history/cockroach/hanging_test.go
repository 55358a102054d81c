package cockroach_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
)

// hanging is a server that accepts connections and logins, and at some point answers no more. It is
// in the bubble of a test, without a network.
type hanging struct {
	version string // of the tables

	mu    sync.Mutex
	hangs func(statement string) bool // called one after the other
}

// options has a store connect to the server, and log to a text.
func (h *hanging) options(logged *strings.Builder) cockroach.Options {
	return cockroach.Options{Log: slog.New(slog.NewTextHandler(logged, nil)), Configure: func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go h.serve(server)
			return client, nil
		}
		c.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	}}
}

// answers returns what becomes of a statement.
func (h *hanging) answers(statement string) (rows []string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hangs(statement) {
		return nil, false
	}
	if strings.HasPrefix(statement, "SELECT version") {
		return []string{h.version}, true
	}
	return nil, true
}

// serve answers a connection until it hangs. Then it reads on, as the system of the server does.
func (h *hanging) serve(conn net.Conn) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	first, err := b.ReceiveStartupMessage()
	if _, cancels := first.(*pgproto3.CancelRequest); err != nil || cancels {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{SecretKey: []byte("1234")})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	var parsed string
	answers := true
	for {
		m, err := b.Receive()
		if err != nil {
			return
		}
		if !answers {
			continue
		}
		var rows []string
		switch m := m.(type) {
		case *pgproto3.Parse:
			parsed = m.Query
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Describe:
			b.Send(&pgproto3.ParameterDescription{ParameterOIDs: h.parameters(parsed)})
			b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("version"),
				DataTypeOID: 20, DataTypeSize: 8}}})
		case *pgproto3.Bind:
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			if rows, answers = h.answers(parsed); answers {
				h.send(b, rows)
			}
		case *pgproto3.Query:
			if rows, answers = h.answers(m.String); answers {
				h.send(b, rows)
				b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			}
		case *pgproto3.Sync:
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Terminate:
			return
		}
		if answers && b.Flush() != nil {
			return
		}
	}
}

// parameters returns the types of those of a statement: only the one that holds the row of versions
// has some.
func (h *hanging) parameters(statement string) []uint32 {
	if strings.HasPrefix(statement, "UPDATE rondo_schema SET holder = $1") {
		return []uint32{pgtype.TextOID, pgtype.IntervalOID, pgtype.Int8OID}
	}
	return nil
}

func (h *hanging) send(b *pgproto3.Backend, rows []string) {
	for _, r := range rows {
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(r)}})
	}
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte("UPDATE 1")})
}

// open opens a store, which must fail with an error after which it is tried again. It returns the
// log, how long that took, and the error.
func (h *hanging) open(t *testing.T) (logged string, took time.Duration, err error) {
	t.Helper()
	var log strings.Builder
	options := h.options(&log)
	options.ConnectTimeout = 5 * time.Second
	began := time.Now()
	s, err := cockroach.Open(t.Context(), "postgres://u@h/d?sslmode=disable", options)
	took = time.Since(began)
	if err == nil {
		s.Close()
		t.Fatal("it is open")
	}
	if history.ClassOf(err) != history.Retry {
		t.Errorf("%v: %v; want one to try again after", history.ClassOf(err), err)
	}
	cleanedUp()
	return log.String(), took, err
}

// cleanedUp lets the goroutines end that clean connections up.
func cleanedUp() { <-time.After(5 * time.Minute) }

// TestAServerThatServesNothing: a server accepts the login, and hangs. Open gives up in time, and
// says what it has waited for.
func TestAServerThatServesNothing(t *testing.T) {
	for _, c := range []struct {
		name, hangs, says string
	}{
		{"a new connection", "SET ", "connect to the database"},
		{"the version of the tables", "SELECT version FROM rondo_schema", "read the version of the tables"},
		{"the marks", "SELECT name, shard, value", "read marks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{version: fmt.Sprint(cockroach.SchemaVersion),
					hangs: func(statement string) bool { return strings.HasPrefix(statement, c.hangs) }}
				_, took, err := h.open(t)
				if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "gave up after 5s") {
					t.Errorf("%v\nwant %q in it, and after what time it gave up", err, c.says)
				}
				if took > 10*time.Second { // on the clock of the bubble: the timeout, and closing
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestAServerThatHangsInAMigration: a statement of a migration has no time limit, because it may
// take long. It is given up if the server answers nothing else either.
func TestAServerThatHangsInAMigration(t *testing.T) {
	for _, c := range []struct {
		name, hangs, says, logs string
	}{
		{"holding the row", "UPDATE rondo_schema SET holder = $1", "migrate the tables", ""},
		{"making a table", "CREATE TABLE IF NOT EXISTS rondo_instances", "read the version of the tables",
			"giving a statement of the migration up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung := false
				h := &hanging{version: "0", hangs: func(statement string) bool {
					hung = hung || strings.HasPrefix(statement, c.hangs)
					return hung
				}}
				logged, took, err := h.open(t)
				if !strings.Contains(err.Error(), c.says) || !strings.Contains(logged, c.logs) {
					t.Errorf("%v\nwant %q in it, and %q in the log:\n%s", err, c.says, c.logs, logged)
				}
				if took > 2*time.Minute { // on the clock of the bubble
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestCloseDoesNotWaitForAServer: a statement was given up because the server hangs, and its
// connection is cleaned up for a while. Close does not wait for that.
func TestCloseDoesNotWaitForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{version: fmt.Sprint(cockroach.SchemaVersion),
			hangs: func(statement string) bool { return strings.HasPrefix(statement, "SELECT clock_timestamp") }}
		var logged strings.Builder
		s, err := cockroach.Open(t.Context(), "postgres://u@h/d?sslmode=disable", h.options(&logged))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Clock(ctx); err == nil {
			t.Fatal("the server does not hang")
		}
		began := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second { // on the clock of the bubble
			t.Errorf("closing took %v", took)
		}
		if !strings.Contains(logged.String(), "still in use") {
			t.Errorf("it logged %q", logged.String())
		}
		cleanedUp()
	})
}
