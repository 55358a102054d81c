package cockroach

import (
	"testing"
	"time"
)

// Statements are those that make the tables on PostgreSQL, the table of versions first.
func Statements() []string {
	all := []string{schemaTable}
	for _, m := range migrations() {
		for _, statement := range m.statements {
			all = append(all, postgres.adapt(statement))
		}
	}
	return all
}

// HoldAgainAfter changes, for a test, after what time the row of versions is held anew.
func HoldAgainAfter(tb testing.TB, d time.Duration) {
	before := holdAgain
	holdAgain = d
	tb.Cleanup(func() { holdAgain = before })
}
