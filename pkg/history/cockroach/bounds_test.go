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
