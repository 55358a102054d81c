package cockroach_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/jobs/jobstest"
	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// asRole makes a role with a password that may only connect, and gives its address of a database.
// Roles are of the whole server, so it is dropped with the test.
func asRole(tb testing.TB, conn *pgx.Conn, address, password string) (role, asRole string) {
	tb.Helper()
	role = "role_" + strings.ToLower(rand.Text()[:10])
	execute(tb, conn, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", // as it is from PostgreSQL 15 on
		fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", role, strings.ReplaceAll(password, "'", "''")))
	tb.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		dropping, err := pgx.Connect(ctx, address)
		if err == nil {
			_, err = dropping.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role)
			dropping.Close(ctx)
		}
		if err != nil {
			tb.Error(err)
		}
	})
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return role, u.String()
}

// TestARoleThatMayNotChangeTables runs everything as a role that has nothing but SELECT, INSERT,
// UPDATE and DELETE.
func TestARoleThatMayNotChangeTables(t *testing.T) {
	pgtest.Need(t)
	address := pgtest.Database(t)
	openStore(t, address, cockroach.Options{})
	conn := connect(t, address)
	role, limited := asRole(t, conn, address, "secret")
	for _, table := range strings.Fields(
		"schema system instances history executions values attributes outbox marks job_queues " +
			"jobs job_locks job_keys") {
		execute(t, conn, "GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_"+table+" TO "+role)
	}
	for name, mode := range map[string]cockroach.SchemaMode{"verify": cockroach.Verify, "migrate": cockroach.Migrate} {
		t.Run(name, func(t *testing.T) {
			now := historytest.Began.Add(24 * time.Hour)
			s := openStore(t, limited, cockroach.Options{Schema: mode, Now: func() time.Time { return now }})
			wholeLife(t, s, name)
		})
	}
	t.Run("only reading the version", func(t *testing.T) {
		execute(t, conn, "REVOKE INSERT, UPDATE, DELETE ON rondo_schema FROM "+role)
		openStore(t, limited, cockroach.Options{})
		openStore(t, limited, cockroach.Options{Schema: cockroach.Verify})
	})
}

// wholeLife executes every kind of operation that processes execute on a store.
func wholeLife(t *testing.T, s *cockroach.Store, id string) {
	t.Helper()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := historytest.NewActor(id+"-a"), historytest.NewActor(id+"-b")
	commitAll(t, s, a.StartAndCall(historytest.WithAttributes(map[string]string{"region": "eu"})), b.StartAndCall())
	commitAll(t, s, a.Set("k", "1"), b.Note())
	commitAll(t, s, a.ContinueAsNew(), b.Remove("k"))
	known, err := s.Load(ctx, []string{a.ID, b.ID}, nil)
	if err != nil || len(known[0].History) != 1 || len(known[1].History) != 4 {
		t.Fatalf("%+v, %v", known, err)
	}
	until := historytest.Began.Add(48 * time.Hour)
	take := history.Lease{Before: historytest.Began.Add(25 * time.Hour), Until: until, Limit: 100}
	entries, err := s.LeaseOutbox(ctx, take)
	ok(err)
	overdue, err := s.LeaseOverdue(ctx, take)
	ok(err)
	if len(entries) == 0 || len(overdue) != 2 {
		t.Errorf("%d outbox entries, %d overdue instances", len(entries), len(overdue))
	}
	for _, p := range entries {
		ok(s.RemoveOutbox(ctx, []history.OutboxKey{p.Key}))
	}
	_, err = s.List(ctx, history.Filter{Attributes: map[string]string{"region": "eu"}}, history.Page{})
	ok(err)
	_, err = s.Metrics(ctx)
	ok(err)
	_, err = s.Prune(ctx, a.ID, history.Keep{})
	ok(err)
	commitAll(t, s, a.Complete("1"), b.Complete("1"))
	commitAll(t, s, a.Start(historytest.WithMessage("again")))
	_, err = s.Delete(ctx, []string{a.ID, b.ID}, history.Deletion{Force: true})
	ok(err)
	for more := true; more; {
		more, err = s.Tidy(ctx)
		ok(err)
	}
	jobstest.GoOn(t, s.Queues())
}

func TestARoleThatMayNotCreateTables(t *testing.T) {
	pgtest.Need(t)
	address := pgtest.Database(t)
	_, limited := asRole(t, connect(t, address), address, "secret")
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := pgfault.Start(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
	creates := make(chan pgfault.Statement, 100)
	proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		if pgfault.Is("CREATE TABLE")(s) {
			creates <- s
		}
		return pgfault.Pass
	})
	for name, open := range map[string]func() error{
		"Open": func() error {
			_, err := cockroach.Open(t.Context(), proxy.DSN(limited), cockroach.Options{})
			return err
		},
		"MigrateSchema": func() error {
			_, _, err := cockroach.MigrateSchema(t.Context(), proxy.DSN(limited), cockroach.Options{})
			return err
		},
	} {
		err := open()
		if history.ClassOf(err) != history.Permanent {
			t.Fatalf("%s: %v: %v", name, history.ClassOf(err), err)
		}
		if !strings.Contains(err.Error(), "run `rondo migrate` with a role that may create and change tables") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(creates); n != 1 {
			t.Errorf("%s: it was tried %d times", name, n)
		}
		<-creates
	}
}

func TestARoleThatLacksARight(t *testing.T) {
	pgtest.Need(t)
	address := pgtest.Database(t)
	openStore(t, address, cockroach.Options{})
	conn := connect(t, address)
	role, limited := asRole(t, conn, address, "secret")
	lacks := func(what string, err error) {
		t.Helper()
		if history.ClassOf(err) != history.Permanent || !strings.Contains(err.Error(),
			"grant SELECT, INSERT, UPDATE and DELETE on the tables rondo_* to this role, "+
				"as deploy/sql/grants.sql does") {
			t.Errorf("%s: %v: %v", what, history.ClassOf(err), err)
		}
	}
	_, err := cockroach.Open(t.Context(), limited, cockroach.Options{})
	lacks("nothing", err)
	execute(t, conn, "GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA public TO "+role)
	s := openStore(t, limited, cockroach.Options{})
	a := historytest.NewActor("a")
	commitAll(t, s, a.Start())
	_, err = s.Commit(t.Context(), historytest.Batch(t, a.Note()))
	lacks("all but UPDATE", err)
	if _, err := s.List(t.Context(), history.Filter{}, history.Page{}); err != nil {
		t.Errorf("it may read: %v", err)
	}
}
