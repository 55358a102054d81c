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
			true); c != history.Ambiguous {
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
	for begun, want := range map[bool]history.Class{true: history.Ambiguous, false: history.Retry} {
		if c := class(unknown, begun); c != want {
			t.Errorf("commit in flight %v: %v, want %v", begun, c, want)
		}
	}
}
