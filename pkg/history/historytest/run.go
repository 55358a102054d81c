package historytest

import (
	"slices"
	"strings"
	"testing"
)

// test is a subtest. Its name is that of a section and a row of the table in the package's comment,
// or of a behaviour that the table does not have. It gets an empty database, and opens the stores
// it wants.
type test struct {
	name string
	run  func(t *testing.T, db *Database)
}

// tests are all subtests of the suite.
func tests() []test {
	return slices.Concat(commitTests, sizeTests, loadTests, stateTests, outboxTests, wakeTests, zombieTests,
		concurrentTests, propertyTests, scheduleTests, adminTests, auditTests, observerTests)
}

// Run runs the suite. fresh makes a new, empty database.
//
// The subtests of a section share a database, which is emptied before each: making one takes much
// longer than what most of them do with it. One that cannot be emptied from outside is made for
// each.
func Run(t *testing.T, fresh func(testing.TB) *Database) {
	all := tests()
	for len(all) > 0 {
		section, _, _ := strings.Cut(all[0].name, "/")
		n := slices.IndexFunc(all, func(x test) bool { return !strings.HasPrefix(x.name, section+"/") })
		if n < 0 {
			n = len(all)
		}
		part := all[:n]
		all = all[n:]
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			runSection(t, part, fresh)
		})
	}
}

func runSection(t *testing.T, part []test, fresh func(testing.TB) *Database) {
	var db *Database
	for _, test := range part {
		_, row, _ := strings.Cut(test.name, "/")
		ok := t.Run(row, func(sub *testing.T) {
			if db == nil || db.Exec == nil {
				db = fresh(t)
			} else {
				db.wipe(sub)
			}
			test.run(sub, db)
		})
		if !ok {
			db = nil // whatever is wrong with it should not fail the others, too
		}
	}
}

// wipe empties a database that has its tables.
func (db *Database) wipe(tb testing.TB) {
	tb.Helper()
	var all []string
	for _, table := range strings.Fields("instances history executions values attributes outbox marks schedules") {
		all = append(all, "DELETE FROM rondo_"+table)
	}
	db.exec(tb, strings.Join(all, "; "))
}
