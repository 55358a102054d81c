package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestADatabaseWithoutTheRowOfItsSystem: a database without the row is damaged. It is no new one,
// to which a process gives an identity again and again.
func TestADatabaseWithoutTheRowOfItsSystem(t *testing.T) {
	b := newBench(t, filepath.Join(t.TempDir(), "rondo.db"))
	now, err := b.store.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.direct.Exec("DELETE FROM rondo_system"); err != nil {
		t.Fatal(err)
	}
	const want = "the table rondo_system has lost its row"
	if s, err := b.store.Identity(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the identity is %+v, %v", s, err)
	}
	if s, ok, err := b.store.SetIdentity(t.Context(), now, "other", 0); ok || err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("it was set to %+v, %v, %v", s, ok, err)
	}
}
