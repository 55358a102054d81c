package historytest

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// valueTests are about reading values, and about what pruning and deleting do to them. Here there
// is one table of values, which each commit changes: what others keep apart as the changes of the
// running execution is never seen apart.
var valueTests = []test{
	{"kv_store/kv_get_nonexistent", testNoSuchValue},
	{"kv_store/kv_snapshot_in_fetch", testValuesInHistory},
	{"kv_store/kv_snapshot_after_clear_single", testValuesAfterRemoval},
	{"kv_store/kv_snapshot_after_clear_all", testValuesAfterClearing},
	{"kv_store/kv_prune_preserves_overwritten", testPruneKeepsOverwritten},
	{"kv_store/kv_prune_preserves_all_keys", testPruneKeepsValues},
	{"kv_store/kv_delete_instance_cascades", testDeleteValues},
	{"kv_store/kv_get_unknown_instance", testValuesOfNobody},
	{"kv_store/kv_snapshot_empty", testNoValues},
	{"kv_store/kv_prune_current_execution_protected", testPruneKeepsCurrentValues},
	{"kv_store/kv_delete_instance_with_children", testDeleteValuesOfChildren},
	{"kv_store/values_of_the_running_execution_are_seen", testValuesOfRunning},
	{"kv_store/kv_delta_snapshot_includes_completed_execution", testValuesOfFormer},
	{"kv_store/kv_delta_client_reads_merged", testValuesOfBoth},
	{"kv_store/kv_delta_merged_on_completion", testValuesOfCompleted},
	{"kv_store/kv_delta_merged_on_can", testValuesOfContinued},
	{"kv_store/kv_delta_delete_instance_cascades", testDeleteValuesOfRunning},
	{"kv_store/kv_delta_prune_untouched_key_survives", testPruneKeepsUntouched},
	{"kv_store/values_of_the_next_incarnation_after_a_deletion", testValuesOfReused},
}

// noValue checks that there is no value under a key.
func (s *reader) noValue(id, key string) {
	s.Helper()
	if v, ok, err := s.Value(s.ctx(), id, key); ok || err != nil || asJSON(v) != asJSON(history.Value{}) {
		s.Fatalf("value %q of %q: %+v, %v, %v", key, id, v, ok, err)
	}
}

// testNoSuchValue: a key that was never set, or only looks like one that was, has no value, and
// that is no error.
func testNoSuchValue(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("key", `1`))
	for _, k := range []string{"other", "", "KEY", "key ", "ke", "key1", "k%", "ke_", "key\x00", "\xff",
		strings.Repeat("k", 10_000)} {
		s.noValue("a", k)
	}
	s.valuesAre("a", map[string]string{"key": `1`})
}

// testValuesInHistory: the values in the history of a loaded instance equal those that readers
// find.
func testValuesInHistory(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(Together(a.Set("k", `1`), a.Set("l", `2`)))
	s.commit(a.Set("k", `3`))
	got := make(map[string]string)
	for _, e := range s.load("a").History {
		if set, ok := e.Fact.(*events.ValueSet); ok {
			got[set.Key] = string(set.Value)
		}
	}
	s.equal("values in the history", got, map[string]string{"k": `3`, "l": `2`})
	s.valuesAre("a", got)
}

// testValuesAfterRemoval: a value that was removed is not there after the end, and the others are.
func testValuesAfterRemoval(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(Together(a.Set("k", `1`), a.Set("l", `2`)))
	s.commit(a.Remove("k"))
	s.commit(a.Complete(`1`))
	s.valuesAre("a", map[string]string{"l": `2`})
	s.noValue("a", "k")
}

// testValuesAfterClearing: when all were removed, none is there after the end.
func testValuesAfterClearing(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(Together(a.Set("k", `1`), a.Set("l", `2`)))
	s.commit(Together(a.Remove("k", "l"), a.Complete(`1`)))
	s.valuesAre("a", nil)
	s.equal("stats", []int64{int64(s.stats("a").Values), s.stats("a").ValueBytes}, []int64{0, 0})
}

// testPruneKeepsOverwritten: a value outlives the execution that has set it first.
func testPruneKeepsOverwritten(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("k", `1`))
	s.commit(a.ContinueAsNew())
	s.commit(a.Set("k", `2`))
	s.prune(a, history.Keep{}, 2)
	s.valuesAre("a", map[string]string{"k": `2`})
}

// testPruneKeepsValues: pruning removes no value, whichever executions have set them.
func testPruneKeepsValues(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	want := make(map[string]string)
	for _, k := range []string{"one", "two", "three", "four"} {
		s.commit(a.Set(k, `"`+k+`"`))
		want[k] = `"` + k + `"`
		s.commit(a.ContinueAsNew())
	}
	s.prune(a, history.Keep{Last: 3}, 3, 4, 5)
	s.valuesAre("a", want)
	s.prune(a, history.Keep{}, 5)
	s.valuesAre("a", want)
	s.equal("who set the first",
		must[map[string]history.Value](s, "values")(s.Values(s.ctx(), "a"))["one"].Execution, 1)
}

// testDeleteValues: deleting an instance removes its values, and counts them.
func testDeleteValues(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a", "b")
	s.commit(Together(a[0].Set("k", `1`), a[0].Set("l", `2`)), a[1].Set("k", `3`))
	s.equal("values deleted", s.remove(history.Deletion{Force: true}, "a").Values, 2)
	s.valuesAre("a", nil)
	s.noValue("a", "k")
	s.valuesAre("b", map[string]string{"k": `3`})
}

// testValuesOfNobody: an instance that is not there has no values, and that is no error.
func testValuesOfNobody(t *testing.T, db *Database) {
	s := open(t, db)
	for _, id := range []string{"nobody", "", "\x00", "\xff"} {
		s.valuesAre(id, nil)
		s.noValue(id, "k")
	}
	if values := must[map[string]history.Value](s, "values")(s.Values(s.ctx(), "nobody")); values == nil {
		t.Error("no values are a nil map; others write to it")
	}
}

// testNoValues: an instance that never set a value has none.
func testNoValues(t *testing.T, db *Database) {
	s := open(t, db)
	s.begin("a")
	s.valuesAre("a", nil)
	s.noValue("a", "k")
}

// testPruneKeepsCurrentValues: pruning an instance with one execution changes nothing.
func testPruneKeepsCurrentValues(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("k", `1`))
	s.prune(a, history.Keep{Last: 1}, 1)
	s.valuesAre("a", map[string]string{"k": `1`})
}

// testDeleteValuesOfChildren: the values of all descendants go, too.
func testDeleteValuesOfChildren(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p", "q")
	a := s.child(p[0], "a")
	b := s.child(a, "b")
	s.commit(p[0].Set("k", `1`), a.Set("k", `2`), b.Set("k", `3`), p[1].Set("k", `4`))
	s.equal("values deleted", s.remove(history.Deletion{Force: true}, "p").Values, 3)
	for _, id := range []string{"p", "a", "b"} {
		s.valuesAre(id, nil)
	}
	s.valuesAre("q", map[string]string{"k": `4`})
}

// testValuesOfRunning: readers see the values of the running execution at once, with each commit.
func testValuesOfRunning(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.ContinueAsNew())
	s.commit(a.Set("k", `1`))
	s.valuesAre("a", map[string]string{"k": `1`})
	s.commit(a.Set("k", `2`))
	s.valuesAre("a", map[string]string{"k": `2`})
}

// testValuesOfFormer: the values that an execution has set are still there in the next.
func testValuesOfFormer(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("k", `1`))
	s.commit(a.ContinueAsNew())
	s.valuesAre("a", map[string]string{"k": `1`})
	s.commit(a.Note())
	s.valuesAre("a", map[string]string{"k": `1`})
}

// testValuesOfBoth: readers see what former executions have set together with what the running one
// has set, removed and left alone.
func testValuesOfBoth(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(Together(a.Set("left", `1`), a.Set("changed", `1`), a.Set("removed", `1`)))
	s.commit(a.ContinueAsNew())
	s.commit(Together(a.Set("changed", `2`), a.Set("new", `2`), a.Remove("removed")))
	s.valuesAre("a", map[string]string{"left": `1`, "changed": `2`, "new": `2`})
	s.noValue("a", "removed")
}

// testValuesOfCompleted: the end changes no value; it may come in the same turn as one.
func testValuesOfCompleted(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("k", `1`))
	s.commit(Together(a.Set("l", `2`), a.Complete(`1`)))
	s.valuesAre("a", map[string]string{"k": `1`, "l": `2`})
}

// testValuesOfContinued: continuing as new changes no value; it may come in the same turn as one
// that is set, and as one that is removed.
func testValuesOfContinued(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(Together(a.Set("k", `1`), a.Set("l", `1`)))
	s.commit(Together(a.Set("m", `2`), a.ContinueAsNew()))
	s.valuesAre("a", map[string]string{"k": `1`, "l": `1`, "m": `2`})
	s.commit(Together(a.Remove("k"), a.ContinueAsNew()))
	s.valuesAre("a", map[string]string{"l": `1`, "m": `2`})
}

// testDeleteValuesOfRunning: what the running execution has set goes with a forced deletion, though
// it never ended.
func testDeleteValuesOfRunning(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("k", `1`))
	s.commit(a.ContinueAsNew())
	s.commit(a.Set("l", `2`))
	s.equal("values deleted", s.remove(history.Deletion{Force: true}, "a").Values, 2)
	s.valuesAre("a", nil)
}

// testPruneKeepsUntouched: a value that only a pruned execution has touched survives, and can still
// be removed.
func testPruneKeepsUntouched(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("old", `1`))
	s.commit(a.ContinueAsNew())
	s.commit(a.Set("new", `2`))
	s.commit(a.ContinueAsNew())
	s.prune(a, history.Keep{}, 3)
	s.valuesAre("a", map[string]string{"old": `1`, "new": `2`})
	s.commit(a.Remove("old"))
	s.valuesAre("a", map[string]string{"new": `2`})
}

// testValuesOfReused: an instance that reuses a deleted one's id begins without values.
func testValuesOfReused(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(Together(a.Set("k", `1`), a.Set("l", `1`)))
	s.remove(history.Deletion{Force: true}, "a")
	b := NewActor("a")
	s.commit(Together(b.StartAndCall(WithMessage("another start")), b.Set("l", `2`)))
	s.valuesAre("a", map[string]string{"l": `2`})
}
