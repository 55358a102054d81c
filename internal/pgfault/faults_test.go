package pgfault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgfault"
)

// ---- A statement fails.

func TestAStatementFails(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		w.proxy.Inject(pgfault.Once(insert, fail))
		w.wantCode(try(1), injected)
		w.wantNumbers("none")
		if err := try(2); err != nil {
			t.Error(err)
		}
		w.wantNumbers("2")
		w.wantUsable(conn)
	})
}

func TestAStatementFailsAndSoDoesItsTransaction(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		w.do(conn, "BEGIN")
		if err := try(1); err != nil {
			t.Fatal(err)
		}
		w.proxy.Inject(pgfault.Once(insert, fail))
		w.wantCode(try(2), injected)
		w.wantCode(try(3), aborted)
		if tag, err := conn.Exec(t.Context(), "COMMIT"); err != nil || tag.String() != "ROLLBACK" {
			t.Errorf("the COMMIT gave %q, %v", tag, err)
		}
		w.wantNumbers("none")
		w.wantUsable(conn)
	})
}

func TestAStatementFailsInATransactionThatHasFailedAlready(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	for _, way := range []way{{"extended", pgx.QueryExecModeExec}, {"simple", pgx.QueryExecModeSimpleProtocol}} {
		// the others would prepare it first, and fail
		w.do(conn, "BEGIN")
		w.proxy.Inject(pgfault.Once(insert, fail))
		w.wantCode(way.insert(t.Context(), conn, 1), injected)
		w.proxy.Inject(pgfault.Once(insert, pgfault.FailBefore("40003", "worse luck")))
		w.wantCode(way.insert(t.Context(), conn, 2), "40003")
		w.do(conn, "ROLLBACK")
		w.wantUsable(conn)
	}
}

func TestAStatementFailsAndTheSavepointHolds(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		w.do(conn, "BEGIN")
		if err := try(1); err != nil {
			t.Fatal(err)
		}
		w.do(conn, "SAVEPOINT s")
		w.proxy.Inject(pgfault.Once(insert, fail))
		w.wantCode(try(2), injected)
		w.do(conn, "ROLLBACK TO s")
		if err := try(3); err != nil {
			t.Error(err)
		}
		w.do(conn, "COMMIT")
		w.wantNumbers("1 3")
		w.wantUsable(conn)
	})
}

// inTransaction opens a transaction in which 1 was inserted.
func inTransaction(w *world) (*pgx.Conn, pgx.Tx) {
	conn := w.through()
	tx, err := conn.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.do(conn, "INSERT INTO a VALUES ($1)", 1)
	return conn, tx
}

// commits are the ways in which a client can send a COMMIT.
var commits = []way{{"extended", pgx.QueryExecModeExec}, {"simple", pgx.QueryExecModeSimpleProtocol},
	{"prepared", pgx.QueryExecModeCacheStatement}}

func TestACommitFails(t *testing.T) {
	for _, way := range commits {
		for _, sql := range []string{"commit", "COMMIT;", "end work", "  Commit and chain"} {
			t.Run(way.name+", "+sql, func(t *testing.T) {
				w := newWorld(t)
				conn, _ := inTransaction(w)
				for range 2 {
					w.proxy.Inject(pgfault.Once(func(s pgfault.Statement) bool { return s.SQL == sql }, fail))
					_, err := conn.Exec(t.Context(), sql, way.mode)
					w.wantCode(err, injected)
					w.wantNumbers("none")
					w.wantUsable(conn) // and the transaction is over
					w.do(conn, "BEGIN")
					w.do(conn, "INSERT INTO a VALUES ($1)", 1)
				}
				w.do(conn, sql)
				w.wantNumbers("1")
			})
		}
	}
}

func TestACommitOfATransactionThatHasFailedFails(t *testing.T) {
	w := newWorld(t)
	conn, _ := inTransaction(w)
	if _, err := conn.Exec(t.Context(), "nonsense"); err == nil {
		t.Fatal("nonsense was understood")
	}
	w.proxy.Inject(pgfault.Once(commit, fail))
	_, err := conn.Exec(t.Context(), "commit")
	w.wantCode(err, injected)
	w.wantUsable(conn)
	_, err = conn.Exec(t.Context(), "commit") // outside of a transaction
	if err != nil {
		t.Error(err)
	}
	w.proxy.Inject(pgfault.Once(commit, fail))
	_, err = conn.Exec(t.Context(), "commit")
	w.wantCode(err, injected)
	w.wantUsable(conn)
}

func TestABeginFails(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	w.proxy.Inject(pgfault.Once(pgfault.Is("begin"), fail))
	_, err := conn.Begin(t.Context())
	w.wantCode(err, injected)
	w.proxy.Inject(nil)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatalf("the second time: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAStatementOfABatchFails(t *testing.T) {
	for k := 1; k <= 3; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			w := newWorld(t)
			conn := w.through()
			for range 2 { // the second time it is prepared
				w.proxy.Inject(pgfault.Once(nth(k, insert), fail))
				each, end := send(t.Context(), conn, batch(3))
				for i, err := range each[:k-1] {
					if err != nil {
						t.Errorf("statement %d: %v", i+1, err)
					}
				}
				w.wantCode(each[k-1], injected)
				w.wantCode(end, injected)
				w.wantNumbers("none") // a batch is one transaction
				w.wantUsable(conn)
			}
			if _, err := send(t.Context(), conn, batch(3)); err != nil {
				t.Error(err)
			}
			w.wantNumbers("1 2 3")
		})
	}
}

func TestAStatementOfABatchInATransactionFails(t *testing.T) {
	w := newWorld(t)
	conn, _ := inTransaction(w)
	w.proxy.Inject(pgfault.Once(nth(2, insert), fail))
	_, err := send(t.Context(), conn, batch(3))
	w.wantCode(err, injected)
	_, err = conn.Exec(t.Context(), "SELECT 1")
	w.wantCode(err, aborted)
	w.do(conn, "ROLLBACK")
	w.wantNumbers("none")
	w.wantUsable(conn)
}

// withCommit gives a batch that is a transaction, and has one more statement behind it.
func withCommit() *pgx.Batch {
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue("INSERT INTO a VALUES ($1)", 1)
	b.Queue("commit")
	b.Queue("INSERT INTO a VALUES ($1)", 2)
	return b
}

func TestACommitInABatchFails(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	w.proxy.Inject(pgfault.Once(commit, fail))
	each, _ := send(t.Context(), conn, withCommit())
	if each[0] != nil || each[1] != nil {
		t.Errorf("what comes before the COMMIT: %v, %v", each[0], each[1])
	}
	w.wantCode(each[2], injected)
	w.wantNumbers("none")
	w.wantUsable(conn)
	if _, err := send(t.Context(), conn, withCommit()); err != nil {
		t.Error(err)
	}
	w.wantNumbers("1 2")
}

func TestAFailureEndsAtTheNextSync(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	w.proxy.Inject(pgfault.Once(nth(2, insert), fail))
	p := conn.PgConn().StartPipeline(t.Context())
	for n := range 5 {
		p.SendQueryParams(fmt.Sprintf("INSERT INTO a VALUES (%d)", n), nil, nil, nil, nil)
		if n == 2 {
			if err := p.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		w.wantCode(err, injected)
	}
	w.wantNumbers("3 4")
	w.wantUsable(conn)
}

// ---- The connection is cut before a statement.

func TestAConnectionIsCutBeforeAStatement(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		other := w.through()
		w.proxy.Inject(pgfault.Once(insert, pgfault.CutBefore))
		w.wantLost(conn, try(1))
		w.wantNumbers("none")
		w.wantUsable(other)
	})
}

func TestAConnectionIsCutInATransaction(t *testing.T) {
	for name, fault := range map[string]pgfault.Fault{"before a statement": pgfault.CutBefore,
		"after a statement": pgfault.CutAfter} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
				w.do(conn, "BEGIN")
				if err := try(1); err != nil {
					t.Fatal(err)
				}
				w.proxy.Inject(pgfault.Once(insert, fault))
				w.wantLost(conn, try(2))
				w.wantUnlocked()
				w.wantNumbers("none")
			})
		})
	}
}

func TestAConnectionIsCutBeforeTheCommit(t *testing.T) {
	w := newWorld(t)
	conn, tx := inTransaction(w)
	w.proxy.Inject(pgfault.Once(commit, pgfault.CutBefore))
	w.wantLost(conn, tx.Commit(t.Context()))
	w.wantUnlocked()
	w.wantNumbers("none")
}

func TestAConnectionIsCutInABatch(t *testing.T) {
	for k := 1; k <= 3; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			w := newWorld(t)
			conn := w.through()
			w.proxy.Inject(pgfault.Once(nth(k, insert), pgfault.CutBefore))
			_, err := send(t.Context(), conn, batch(3))
			w.wantLost(conn, err)
			w.wantUnlocked()
			w.wantNumbers("none")
		})
	}
}

// ---- The connection is cut after a statement.

func TestAConnectionIsCutAfterAStatement(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		other := w.through()
		w.proxy.Inject(pgfault.Once(insert, pgfault.CutAfter))
		w.wantLost(conn, try(1))
		w.wantNumbers("1")
		w.wantUnlocked()
		w.wantUsable(other)
	})
}

func TestAConnectionIsCutAfterTheCommit(t *testing.T) {
	w := newWorld(t)
	conn, tx := inTransaction(w)
	w.proxy.Inject(pgfault.Once(commit, pgfault.CutAfter))
	w.wantLost(conn, tx.Commit(t.Context()))
	w.wantNumbers("1")
	for _, way := range commits {
		conn, _ := inTransaction(w)
		w.proxy.Inject(pgfault.Once(commit, pgfault.CutAfter))
		_, err := conn.Exec(t.Context(), "commit", way.mode)
		w.wantLost(conn, err)
	}
	w.wantNumbers("1 1 1 1")
}

func TestAConnectionIsCutAfterABatch(t *testing.T) {
	for k := 1; k <= 3; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			w := newWorld(t)
			conn := w.through()
			w.proxy.Inject(pgfault.Once(nth(k, insert), pgfault.CutAfter))
			each, err := send(t.Context(), conn, batch(3))
			w.wantLost(conn, err)
			w.wantLost(conn, each[k-1])
			w.wantNumbers("1 2 3") // a batch is one transaction
		})
	}
	t.Run("with a commit", func(t *testing.T) {
		w := newWorld(t)
		conn := w.through()
		w.proxy.Inject(pgfault.Once(commit, pgfault.CutAfter))
		_, err := send(t.Context(), conn, withCommit())
		w.wantLost(conn, err)
		w.wantNumbers("1 2")
	})
}

func TestAConnectionIsCutAfterAStatementThatFailed(t *testing.T) {
	w := newWorld(t)
	for _, sql := range []string{
		"SELECT 1 / $1::int", // fails when it is bound
		"SELECT 1 / n FROM generate_series($1::int, 0) AS n",
	} {
		for _, way := range ways {
			conn := w.through()
			w.proxy.Inject(pgfault.Once(pgfault.Is("select"), pgfault.CutAfter))
			_, err := conn.Exec(t.Context(), sql, way.mode, 0)
			w.wantLost(conn, err)
		}
	}
}

func TestAConnectionIsCutAfterAStatementThatWasSkipped(t *testing.T) {
	w := newWorld(t)
	for _, sql := range []string{"SELECT 1 / $1::int", "SELECT 1 / n FROM generate_series($1::int, 0) AS n"} {
		conn := w.through()
		w.proxy.Inject(pgfault.Once(insert, pgfault.CutAfter))
		b := new(pgx.Batch)
		b.Queue(sql, 0)
		b.Queue("INSERT INTO a VALUES ($1)", 1)
		each, _ := send(t.Context(), conn, b)
		w.wantCode(each[0], "22012")
		w.wantUnlocked()
		w.wantNumbers("none")
		_, err := conn.Exec(t.Context(), "SELECT 1")
		if err == nil {
			t.Error("the connection was not cut")
		}
	}
}

// ---- The answer does not come.

func TestAStatementStalls(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		w.proxy.Inject(pgfault.Once(insert, pgfault.Stall))
		over := make(chan error)
		go func() { over <- try(1) }()
		if s := <-w.proxy.Stalled(); !insert(s) {
			w.Errorf("the statement that stalled is %v", s)
		}
		w.wantNumbers("1")
		select {
		case err := <-over:
			w.Fatalf("the client got an answer: %v", err)
		default:
		}
		w.proxy.Release()
		if err := <-over; err != nil {
			w.Error(err)
		}
		w.wantUsable(conn)
	})
}

func TestTheClientGivesUpWaiting(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, _ func(n int) error) {
		ctx, cancel := context.WithCancel(w.Context())
		w.do(conn, "BEGIN")
		w.proxy.Inject(pgfault.Once(insert, pgfault.Stall))
		over := make(chan error)
		go func() {
			_, err := conn.Exec(ctx, "INSERT INTO a VALUES (1)")
			over <- err
		}()
		<-w.proxy.Stalled()
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			w.Errorf("the client got %v", err)
		}
		<-conn.PgConn().CleanupDone()
		w.do(w.direct, "BEGIN; LOCK TABLE a; COMMIT") // waits until the server has noticed
		w.wantNumbers("none")
	})
}

func TestACommitStalls(t *testing.T) {
	w := newWorld(t)
	conn, tx := inTransaction(w)
	w.proxy.Inject(pgfault.Once(commit, pgfault.Stall))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- tx.Commit(ctx) }()
	<-w.proxy.Stalled()
	w.wantNumbers("1")
	cancel()
	w.wantLost(conn, <-over)
	w.wantNumbers("1")
}

func TestABatchStalls(t *testing.T) {
	w := newWorld(t)
	conn := w.through()
	w.proxy.Inject(pgfault.Once(nth(2, insert), pgfault.Stall))
	over := make(chan error)
	go func() {
		_, err := send(t.Context(), conn, batch(3))
		over <- err
	}()
	<-w.proxy.Stalled()
	w.wantNumbers("1 2 3")
	w.proxy.Release()
	if err := <-over; err != nil {
		t.Error(err)
	}
	w.wantUsable(conn)
}

func TestStalledConnectionsAreClosedWithTheTest(t *testing.T) {
	const clients = 30
	over := make(chan error, clients)
	t.Run("test", func(t *testing.T) {
		w := newWorld(t)
		var conns []*pgx.Conn
		for range clients {
			conn, err := pgx.Connect(t.Context(), w.proxy.DSN(w.dsn))
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		w.proxy.Inject(func(pgfault.Statement) pgfault.Fault { return pgfault.Stall })
		for i, conn := range conns {
			go func() {
				_, err := conn.Exec(context.Background(), fmt.Sprintf("INSERT INTO a VALUES (%d)", i))
				over <- err
			}()
		}
		for range conns {
			<-w.proxy.Stalled()
		}
	})
	for range clients {
		if err := <-over; err == nil {
			t.Error("the client got an answer")
		}
	}
}

// ---- A statement comes late.

func TestAStatementIsHeld(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		held, until := make(chan struct{}), make(chan struct{})
		hook := pgfault.Once(insert, pgfault.Hold(until))
		w.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
			defer func() {
				if insert(s) {
					close(held)
				}
			}()
			return hook(s)
		})
		over := make(chan error)
		go func() { over <- try(1) }()
		<-held
		w.wantNumbers("none")
		w.proxy.Inject(nil)
		close(until)
		if err := <-over; err != nil {
			w.Error(err)
		}
		w.wantNumbers("1")
		w.wantUsable(conn)
	})
}

func TestAStatementComesAfterTheClientHasGone(t *testing.T) {
	eachWay(t, func(w *world, conn *pgx.Conn, try func(n int) error) {
		held, until := make(chan struct{}), make(chan struct{})
		w.proxy.Inject(func(pgfault.Statement) pgfault.Fault {
			close(held)
			return pgfault.Hold(until)
		})
		over := make(chan error)
		go func() { over <- try(1) }()
		<-held
		w.proxy.Refuse(true) // the client's attempt to cancel the statement
		if err := conn.PgConn().Conn().Close(); err != nil {
			w.Error(err)
		}
		w.wantLost(conn, <-over)
		<-conn.PgConn().CleanupDone()
		w.wantNumbers("none")
		close(until)
		w.waitForNumbers("1")
	})
}

// ---- Everything everywhere.

// TestAnywhereAllOrNothing applies each fault to each statement of a program that writes in a
// transaction, first one by one and then in a batch. What the database holds afterwards is all or
// nothing, and which of the two follows from the fault.
func TestAnywhereAllOrNothing(t *testing.T) {
	program := func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO a VALUES ($1)", 0); err != nil {
				return err
			}
			return tx.SendBatch(ctx, batch(2)).Close()
		})
	}
	const statements = 5
	faults := []struct {
		name   string
		fault  pgfault.Fault
		commit string // the numbers in the table if it hits the COMMIT
	}{
		{"pass", pgfault.Pass, "0 1 2"},
		{"fail", fail, "none"},
		{"cut before", pgfault.CutBefore, "none"},
		{"cut after", pgfault.CutAfter, "0 1 2"},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t)
			for n := 1; n <= statements; n++ {
				conn := w.through()
				before := w.proxy.Count()
				w.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
					if s.N == before+n {
						return f.fault
					}
					return pgfault.Pass
				})
				err := program(t.Context(), conn)
				w.wantUnlocked()
				want := "none"
				if f.fault == pgfault.Pass || n == statements {
					want = f.commit
				}
				w.wantNumbers(want)
				if (err == nil) != (f.fault == pgfault.Pass) {
					t.Errorf("at statement %d: the client got %v", n, err)
				}
				if f.fault == pgfault.Pass && w.proxy.Count() != before+statements {
					t.Errorf("the program has %d statements", w.proxy.Count()-before)
				}
				if f.name == "pass" || f.name == "fail" {
					w.wantUsable(conn)
				}
				w.do(w.direct, "TRUNCATE a")
			}
		})
	}
}
