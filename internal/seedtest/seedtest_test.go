package seedtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// failing is a test that has failed.
type failing struct {
	testing.TB
	cleanups []func()
}

func (f *failing) Failed() bool        { return true }
func (f *failing) Cleanup(do func())   { f.cleanups = append(f.cleanups, do) }
func (f *failing) Name() string        { return "TestFailing" }
func (f *failing) Logf(string, ...any) {}
func (f *failing) end() {
	for _, do := range f.cleanups {
		do()
	}
}

func TestSeedsThatFailAreKept(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(ledgerVariable, "1")
	for range 2 { // the second time, the ledger has it
		f := &failing{TB: t}
		Keep(f, "TestFailing", 7)
		Keep(f, "TestOther", 8)
		f.end()
	}
	f := &failing{TB: t}
	drawn := Draw(f)
	f.end()
	if got := Kept(t, "TestFailing"); !slices.Equal(got, []uint64{7, drawn}) {
		t.Errorf("the ledger has %d, want 7 and %d", got, drawn)
	}
	if got := Kept(t, "TestOther"); !slices.Equal(got, []uint64{8}) {
		t.Errorf("the ledger has %d, want 8", got)
	}
}

func TestWithoutALedgerNothingIsKept(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(ledgerVariable, "")
	f := &failing{TB: t}
	Keep(f, "TestFailing", 7)
	f.end()
	if got := Kept(t, "TestFailing"); len(got) != 0 {
		t.Errorf("the ledger has %d", got)
	}
}

func TestABadLineIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seeds.txt")
	if err := os.WriteFile(path, []byte("# a comment\n\nTestA 1\nTestB one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := read(path, "TestA"); err == nil || !slices.Contains([]string{path + ":4"}, err.Error()[:len(path)+2]) {
		t.Errorf("the error is %v, want one of line 4", err)
	}
}
