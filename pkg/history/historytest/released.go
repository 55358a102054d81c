package historytest

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rondo-run/rondo/pkg/history"
)

var makeFixture = flag.Bool("fixture", false,
	"write the fixture of the newest version of the tables; do it once, when the version is released")

// Released is a store whose tables have been released in some versions. Its fixtures are in
// testdata, two files for each version: the tables as plain SQL, and what its stores read from
// them.
type Released struct {
	// Version is the newest.
	Version int
	// Make makes a new database, fills it, and gives it as plain SQL, and its store.
	Make func(t *testing.T) (script string, s history.Store)
	// Open loads a script into an empty database, opens it, and checks that its tables are those of
	// the newest version.
	Open func(t *testing.T, script string) history.Store
}

// Test opens the database of each released version, and commits further turns.
func (r Released) Test(t *testing.T) {
	if *makeFixture {
		r.write(t)
	}
	newest, _ := fixtureOf(r.Version)
	if _, err := os.Stat(newest); err != nil {
		t.Errorf("version %d of the tables has no fixture: run go test -run %s -fixture in this directory (%v)",
			r.Version, t.Name(), err)
	}
	for version := 1; version <= r.Version; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			file, reading := fixtureOf(version)
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			once, err := os.ReadFile(reading)
			if err != nil {
				t.Fatal(err)
			}
			s := r.Open(t, string(script))
			Compare(t, Reading(t, s), once)
			GoOn(t, s)
		})
	}
	if files, _ := filepath.Glob("testdata/schema-*"); len(files) != 2*r.Version {
		t.Errorf("the fixtures are %q", files)
	}
}

func fixtureOf(version int) (script, reading string) {
	name := fmt.Sprintf("testdata/schema-%04d", version)
	return name + ".sql", name + ".json"
}

// write writes the fixture of the newest version.
func (r Released) write(t *testing.T) {
	file, reading := fixtureOf(r.Version)
	if _, err := os.Stat(file); err == nil {
		t.Fatalf("%s is there; a fixture of a released version never changes", file)
	}
	script, s := r.Make(t)
	for name, data := range map[string][]byte{file: []byte(script), reading: Reading(t, s)} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Unchanged checks that the files in migrations are as they were released, by their SHA-256. None
// of them ever changes: a database that was made with one would differ from others of the same
// version. A change needs a new migration.
func Unchanged(t *testing.T, released map[string]string) {
	t.Helper()
	files, err := filepath.Glob("migrations/*")
	if err != nil || len(files) != len(released) {
		t.Errorf("there are %d migrations, and %d in this test's list: add the new one (%v)", len(files),
			len(released), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprintf("%x", sha256.Sum256(data)), released[filepath.Base(file)]; got != want {
			t.Errorf("%s has SHA-256 %s, released was %q: a migration that was released never changes, write a new one",
				file, got, want)
		}
	}
}
