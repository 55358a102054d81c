package cockroach

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rondo-run/rondo/pkg/history"
)

// TestAServerThatPanicsDuringACommit shows that the outcome of a commit during which the server
// panicked is ambiguous: its record may have reached the disk.
func TestAServerThatPanicsDuringACommit(t *testing.T) {
	for _, code := range []string{"58030", "53100", "XX000"} {
		if c := class(&pgconn.PgError{Severity: "PANIC", SeverityUnlocalized: "PANIC", Code: code},
			postgres); c != history.Ambiguous {
			t.Errorf("%s: %v", code, c)
		}
	}
}

// TestAServerThatDoesNotKnowTheOutcome shows that statement_completion_unknown, which CockroachDB
// answers as "result is ambiguous", makes the outcome of a commit ambiguous. A store that only
// retried such a commit would take its own turn for one of another process. Before a commit, the
// statement is retried.
func TestAServerThatDoesNotKnowTheOutcome(t *testing.T) {
	unknown := &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "40003"}
	for in, want := range map[flavour]history.Class{cockroachdb: history.Ambiguous, noCommit: history.Retry} {
		if c := class(unknown, in); c != want {
			t.Errorf("a commit in flight in %d: %v, want %v", in, c, want)
		}
	}
}

// TestAServerThatCancelsACommit shows that query_canceled leaves the outcome of a commit unknown on
// CockroachDB only. A cancelled statement within a transaction has changed nothing.
func TestAServerThatCancelsACommit(t *testing.T) {
	cancelled := &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "57014"}
	for in, want := range map[flavour]history.Class{cockroachdb: history.Ambiguous, postgres: history.Retry,
		noCommit: history.Retry} {
		if c := class(cancelled, in); c != want {
			t.Errorf("a commit in flight in %d: %v, want %v", in, c, want)
		}
	}
}

// TestAServerThatEndsATransaction shows that transaction_timeout of PostgreSQL 17, which ends the
// connection, is tried again, and that the outcome is not known if it comes during a commit.
func TestAServerThatEndsATransaction(t *testing.T) {
	ended := &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "25P04"}
	for in, want := range map[flavour]history.Class{postgres: history.Ambiguous, noCommit: history.Retry} {
		if c := class(ended, in); c != want {
			t.Errorf("a commit in flight in %d: %v, want %v", in, c, want)
		}
	}
}
