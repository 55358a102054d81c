package cockroach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rondo-run/rondo/pkg/history"
)

// The table of SQLSTATEs. A code stands before its class, the first two characters.
var states = map[string]history.Class{
	"40001": history.Contended, // serialization_failure: CockroachDB's "restart transaction"
	"40P01": history.Contended, // deadlock_detected
	"55P03": history.Contended, // lock_not_available
	"40003": history.Ambiguous, // statement_completion_unknown: CockroachDB's "result is ambiguous"

	"57014":  history.Retry,   // query_canceled: the statement's time limit; in CockroachDB a commit is ambiguous
	"57P01":  history.Retry,   // admin_shutdown
	"57P02":  history.Retry,   // crash_shutdown
	"57P03":  history.Retry,   // cannot_connect_now: it is starting
	"57P05":  history.Retry,   // idle_session_timeout
	readOnly: history.Retry,   // a standby that has not taken over yet, or that was the primary
	"25P03":  history.Retry,   // idle_in_transaction_session_timeout
	"25P04":  history.Retry,   // transaction_timeout, of PostgreSQL 17
	"26000":  history.Retry,   // invalid_sql_statement_name: a prepared statement that a proxy has lost
	"08":     history.Retry,   // connection exceptions; during a commit they are ambiguous
	"53":     history.Retry,   // insufficient resources: disk, memory, connections
	"58":     history.Retry,   // system errors of the server
	"XX001":  history.Corrupt, // data_corrupted
	"XX002":  history.Corrupt, // index_corrupted
}

// unstorable are the classes of errors that come from the data, and not from the database: one turn
// of a batch has them, and the others do not.
var unstorable = map[string]bool{
	"22": true, // data exceptions
	"23": true, // constraints: a key of history that is there already
	"54": true, // program limits: an index row that is too long
}

// class is the class of an error. committing is the database in which a commit was in flight, so
// that a lost connection leaves its end unknown; noCommit if there was none.
func class(err error, committing flavour) history.Class {
	begun := committing != noCommit
	var classified *history.Error
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &classified):
		return classified.Class
	case errors.As(err, &connect):
		return connectClass(connect)
	case errors.As(err, &pg):
		if pg.Code == "23505" && (pg.TableName == "rondo_outbox" || pg.ConstraintName == "rondo_outbox_pkey") {
			// two outbox entries of the same microsecond drew the same number; the next try draws
			// another
			return history.Contended
		}
		if pg.Code == "0A000" && strings.Contains(pg.Message, "cached plan") {
			return history.Retry // "cached plan must not change result type", after a migration
		}
		c, ok := states[pg.Code]
		if !ok && len(pg.Code) == 5 {
			c, ok = states[pg.Code[:2]]
		}
		switch {
		case begun && pg.SeverityUnlocalized == "PANIC": // the record of the commit may have reached the disk
			return history.Ambiguous
		case !ok:
			return history.Permanent
		case begun && c == history.Retry && endsConnection(pg.Code):
			return history.Ambiguous
		case committing == cockroachdb && pg.Code == canceled:
			return history.Ambiguous
		case !begun && c == history.Ambiguous:
			return history.Retry
		}
		return c
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, pgx.ErrTxCommitRollback):
		return history.Retry
	}
	// During a commit this is not to be relied on: when the connection is lost while pgx waits for
	// the answer, it may say that nothing was sent.
	if !begun && pgconn.SafeToRetry(err) {
		return history.Retry
	}
	if isLost(err) {
		if begun {
			return history.Ambiguous
		}
		return history.Retry
	}
	return history.Permanent
}

// canceled is the code of query_canceled: a time limit of the server, or an operator, has ended the
// statement. CockroachDB commits a statement outside a transaction as part of executing it, and
// gives this error whatever has become of the commit. PostgreSQL gives it only if nothing was
// committed.
const canceled = "57014"

// readOnly is the code of read_only_sql_transaction.
const readOnly = "25006"

// endsConnection reports whether an error may come instead of the answer to a commit that has
// happened.
func endsConnection(code string) bool {
	return code[:2] == "08" || code == "57P01" || code == "57P02" || code == "25P04"
}

// isLost reports whether the connection was lost, or given up because time ran out.
func isLost(err error) bool {
	var n net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &n) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || pgconn.Timeout(err) ||
		err.Error() == "conn closed"
}

// connectClass distinguishes a server that is not reachable yet from a wrong address.
func connectClass(err *pgconn.ConnectError) history.Class {
	var pg *pgconn.PgError
	switch {
	case isUntrusted(err):
		return history.Permanent
	case !errors.As(err, &pg):
		return history.Retry
	}
	switch pg.Code[:2] {
	case "28", "3D", "42": // wrong password, no such database, no rights
		return history.Permanent
	}
	return history.Retry
}

// isUntrusted reports whether the server was reached, but cannot prove its identity, or does not
// encrypt.
func isUntrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || strings.Contains(err.Error(), "server refused TLS connection")
}

// isUnstorable reports whether the error is about the data.
func isUnstorable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && len(pg.Code) == 5 && unstorable[pg.Code[:2]] &&
		class(err, noCommit) == history.Permanent
}

// fail wraps an error with its class.
func fail(op string, c history.Class, err error) error {
	var classified *history.Error
	if err == nil || errors.As(err, &classified) && classified.Class == c {
		return err
	}
	return &history.Error{Class: c, Op: op, Err: explain(op, err)}
}

// explain adds remedies to errors that operators meet when they set up a system.
func explain(op string, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if isUntrusted(err) {
			return fmt.Errorf("%w; turn TLS on at the server, with a certificate for that host from an authority "+
				"that the address names (sslrootcert); "+
				"only where nobody can listen, say sslmode=disable", err)
		}
		return err
	}
	switch pg.Code {
	case "28P01", "28000":
		return fmt.Errorf("%w; check the user, the password and sslmode in the address, and whether the server lets "+
			"that user in from here", err)
	case "3D000":
		return fmt.Errorf("%w; create it, or correct its name in the address", err)
	case "42P01":
		return fmt.Errorf("%w; has `rondo migrate` been run, and in this database and schema?", err)
	case "42501":
		if op == migrating {
			return fmt.Errorf("%w; run `rondo migrate` with a role that may create and change tables, after that "+
				"this role needs no such right", err)
		}
		return &history.DeniedError{Err: fmt.Errorf(
			"%w; grant SELECT, INSERT, UPDATE and DELETE on the tables rondo_* to this role, as "+
				"deploy/sql/grants.sql does", err)}
	case "53300":
		return fmt.Errorf("%w; lower the pool's size, or raise the server's max_connections", err)
	}
	return err
}
