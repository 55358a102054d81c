package historytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// stateTests are about the custom status and the values that a commit writes.
var stateTests = []test{
	{"custom_status/custom_status_set", statusSet},
	{"custom_status/custom_status_clear", statusClear},
	{"custom_status/custom_status_none_preserves", statusPreserved},
	{"custom_status/custom_status_version_increments", statusVersions},
	{"custom_status/custom_status_polling_no_change", statusPolled},
	{"custom_status/custom_status_nonexistent_instance", statusOfNobody},
	{"custom_status/custom_status_default_on_new_instance", statusOfNew},
	{"custom_status/status_of_a_new_incarnation", statusOfNewIncarnation},
	{"kv_store/kv_set_and_get", valueSet},
	{"kv_store/kv_overwrite", valueOverwritten},
	{"kv_store/kv_clear_single", valueRemoved},
	{"kv_store/kv_clear_all", valuesCleared},
	{"kv_store/kv_execution_id_tracking", valueExecution},
	{"kv_store/kv_cross_execution_overwrite", valueOverwrittenLater},
	{"kv_store/kv_cross_execution_remove_readd", valueSetAgainLater},
	{"kv_store/kv_instance_isolation", valuesOfTwo},
	{"kv_store/kv_clear_nonexistent_key", valueRemovedThatIsNot},
	{"kv_store/kv_set_after_clear", valueSetAfterClear},
	{"kv_store/kv_empty_value", valueEmpty},
	{"kv_store/kv_large_value", valueLarge},
	{"kv_store/kv_special_chars_in_key", valueKeys},
	{"kv_store/kv_snapshot_cross_execution", valuesOfTwoExecutions},
	{"kv_store/kv_clear_isolation", valuesClearedOfOne},
	{"kv_store/kv_delta_tombstone_overrides_store", valueRemovedLater},
	{"kv_store/kv_delta_clear_all_tombstones_store", valuesClearedLater},
	{"kv_store/values_of_a_refused_turn", valuesRefused},
	{"kv_store/values_of_a_new_incarnation", valuesOfNewIncarnation},
}

// status checks the custom status that a reader gets if it knows a version.
func (s *reader) status(id string, known int64, want history.CustomStatus) {
	s.Helper()
	got, err := s.CustomStatus(s.ctx(), id, known)
	if err != nil {
		s.Fatalf("custom status of %q: %v", id, err)
	}
	if string(got.Data) != string(want.Data) || got.Version != want.Version || got.Changed != want.Changed {
		s.Fatalf("custom status of %q for one who knows version %d: %+v, want %+v", id, known, got, want)
	}
}

// hasValues checks an instance's values: key, what it is set to, and by which execution.
func (s *reader) hasValues(id string, want map[string]history.Value) {
	s.Helper()
	got, err := s.Values(s.ctx(), id)
	if err != nil {
		s.Fatalf("values of %q: %v", id, err)
	}
	same := func(a, b history.Value) bool {
		return string(a.Data) == string(b.Data) && a.Execution == b.Execution && a.Set.Equal(b.Set)
	}
	if !maps.EqualFunc(got, want, same) {
		s.Fatalf("values of %q:\n%s\nwant\n%s", id, asJSON(got), asJSON(want))
	}
	for key := range want {
		one, ok, err := s.Value(s.ctx(), id, key)
		if err != nil || !ok || !same(one, want[key]) {
			s.Fatalf("value %q of %q: %+v, %v, %v; want %+v", key, id, one, ok, err, want[key])
		}
	}
}

// value is a value as the store should have it.
func value(data string, execution int64, set time.Time) history.Value {
	return history.Value{Data: codec.Payload(data), Execution: execution, Set: set}
}

// statusSet shows that a status is stored as it is, for readers and for the next round, and that
// its version rises.
func statusSet(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	s.commit(a.SetStatus(`{"done":50}`))
	s.status("a", 0, history.CustomStatus{Data: codec.Payload(`{"done":50}`), Version: 1, Changed: true})
	s.same(a)
}

// statusClear shows that a cleared status is none, of a new version.
func statusClear(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	s.commit(a.SetStatus(`"half"`))
	s.commit(a.SetStatus(""))
	s.status("a", 1, history.CustomStatus{Version: 2, Changed: true})
	s.same(a)
}

// statusPreserved shows that turns that do not touch the status keep it: further events, the next
// execution and the end.
func statusPreserved(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	s.commit(a.SetStatus(`"half"`))
	half := history.CustomStatus{Data: codec.Payload(`"half"`), Version: 1, Changed: true}
	s.commit(a.Note())
	s.status("a", 0, half)
	s.commit(a.ContinueAsNew())
	s.status("a", 0, half)
	s.commit(a.Remove("nothing")) // a turn that the stores commit in another way
	s.status("a", 0, half)
	s.commit(a.Complete("1"))
	s.status("a", 0, half)
	s.same(a)
}

// statusVersions shows that the version counts each setting and clearing, also within one turn.
func statusVersions(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	for i, text := range []string{`"a"`, `"a"`, "", "", `"b"`} {
		s.commit(a.SetStatus(text))
		s.status("a", int64(i), history.CustomStatus{Data: codec.Payload(text), Version: int64(i) + 1, Changed: true})
	}
	s.commit(Together(a.SetStatus(`"c"`), a.SetStatus(`"d"`)))
	s.status("a", 5, history.CustomStatus{Data: codec.Payload(`"d"`), Version: 7, Changed: true})
	s.same(a)
}

// statusPolled shows that a reader that knows the version gets no data, and that the version counts
// and not the text.
func statusPolled(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	s.status("a", 0, history.CustomStatus{})
	s.commit(a.SetStatus(`"half"`))
	s.status("a", 1, history.CustomStatus{Version: 1})
	s.commit(a.SetStatus(`"half"`))
	s.status("a", 1, history.CustomStatus{Data: codec.Payload(`"half"`), Version: 2, Changed: true})
	s.status("a", 2, history.CustomStatus{Version: 2})
}

// statusOfNobody shows that there is no status where there is no instance: never, not yet, and no
// longer.
func statusOfNobody(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.status("nobody", 0, history.CustomStatus{})
	s.commit(a.Start())
	s.commit(a.SetStatus(`"half"`))
	s.delete("a")
	s.status("a", 0, history.CustomStatus{})
	s.status("a", 1, history.CustomStatus{Changed: true})
}

// statusOfNew shows that a new instance has none, of version 0, unless its first turn sets one.
func statusOfNew(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	s.commit(a.StartAndCall(), Together(b.Start(), b.SetStatus(`"begun"`)))
	s.status("a", 0, history.CustomStatus{})
	s.status("b", 0, history.CustomStatus{Data: codec.Payload(`"begun"`), Version: 1, Changed: true})
	s.same(a)
	s.same(b)
}

// statusOfNewIncarnation shows that a restart begins without the former incarnation's status, even
// where the versions are the same.
func statusOfNewIncarnation(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	for _, x := range []*Actor{a, b} {
		s.commit(x.Start())
		s.commit(x.SetStatus(`"old"`))
		s.commit(x.Complete("1"))
	}
	s.commit(a.Start(WithMessage("again")), Together(b.Start(WithMessage("again")), b.SetStatus(`"new"`)))
	s.status("a", 1, history.CustomStatus{Changed: true})
	s.status("b", 0, history.CustomStatus{Data: codec.Payload(`"new"`), Version: 1, Changed: true})
	s.same(a)
	s.same(b)
}

// valueSet shows that a value is there for readers as soon as the turn is committed, with its
// execution and time.
func valueSet(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	s.hasValues("a", nil)
	s.commit(a.At(Began.Add(time.Second)).Set("k", `{"n":1}`))
	s.hasValues("a", map[string]history.Value{"k": value(`{"n":1}`, 1, Began.Add(time.Second))})
	s.same(a)
}

// valueOverwritten shows that the last value wins.
func valueOverwritten(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	s.commit(a.Set("k", "1"))
	s.commit(a.At(Began.Add(time.Minute)).Set("k", "2"))
	s.hasValues("a", map[string]history.Value{"k": value("2", 1, Began.Add(time.Minute))})
}

// valueRemoved shows that one value goes and the others stay, in a turn that sets one, too.
func valueRemoved(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "2")))
	s.commit(Together(a.Remove("k"), a.Set("m", "3")))
	s.hasValues("a", map[string]history.Value{"l": value("2", 1, Began), "m": value("3", 1, Began)})
}

// valuesCleared shows that one turn can remove all values.
func valuesCleared(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "2"), a.Set("m", "3")))
	s.commit(a.Remove("k", "l", "m"))
	s.hasValues("a", nil)
	s.same(a)
}

// valueExecution shows that a value has the execution that set it last.
func valueExecution(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "1")))
	s.commit(a.ContinueAsNew())
	s.commit(a.Set("k", "2"))
	s.hasValues("a", map[string]history.Value{"k": value("2", 2, Began), "l": value("1", 1, Began)})
}

// valueOverwrittenLater shows that the value of a later execution is the one that is read, also if
// that begins in the same turn.
func valueOverwrittenLater(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1")))
	s.commit(Together(a.ContinueAsNew(), a.Set("k", "2")))
	s.hasValues("a", map[string]history.Value{"k": value("2", 2, Began)})
	s.same(a)
}

// valueSetAgainLater shows a value that is set, removed and set again in three executions.
func valueSetAgainLater(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1")))
	s.commit(Together(a.ContinueAsNew(), a.Remove("k")))
	s.hasValues("a", nil)
	s.commit(Together(a.ContinueAsNew(), a.Set("k", "3")))
	s.hasValues("a", map[string]history.Value{"k": value("3", 3, Began)})
}

// valuesOfTwo shows that two instances have values of their own under the same key, when they set
// them in one batch, too.
func valuesOfTwo(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	s.commit(Together(a.Start(), a.Set("k", "1")), Together(b.Start(), b.Set("k", "2")))
	s.hasValues("a", map[string]history.Value{"k": value("1", 1, Began)})
	s.hasValues("b", map[string]history.Value{"k": value("2", 1, Began)})
}

// valueRemovedThatIsNot shows that removing a value that does not exist is not an error.
func valueRemovedThatIsNot(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1")))
	s.commit(a.Remove("nothing"))
	s.hasValues("a", map[string]history.Value{"k": value("1", 1, Began)})
	s.same(a)
}

// valueSetAfterClear shows that a turn may clear everything and then set something.
func valueSetAfterClear(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "2")))
	turn := Together(a.Remove("k", "l"), a.Set("m", "3"), a.Set("k", "4"))
	turn.ClearValues = true
	turn.Values = slices.DeleteFunc(turn.Values, func(v round.ValueChange) bool { return v.Removed })
	s.commit(turn)
	s.hasValues("a", map[string]history.Value{"m": value("3", 1, Began), "k": value("4", 1, Began)})
}

// valueEmpty shows that an empty value is a value.
func valueEmpty(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("empty", ""), a.Set("text", `""`)))
	s.hasValues("a", map[string]history.Value{"empty": value("", 1, Began), "text": value(`""`, 1, Began)})
	s.same(a)
}

// valueLarge shows that the largest value that there may be is stored as it is.
func valueLarge(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	large := `"` + strings.Repeat("x", events.MaxValue-2) + `"`
	s.commit(Together(a.Start(), a.Set("k", large)))
	s.hasValues("a", map[string]history.Value{"k": value(large, 1, Began)})
	s.same(a)
}

// valueKeys shows that keys may be any text, and differ as bytes do.
func valueKeys(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	turn := a.Start()
	want := make(map[string]history.Value)
	keys := []string{"a b", "a/b", "a.b", "a%b", "a_b", "a\"b'c", "Ä", "ä", "K", "k", "日本語", "🙂", " ",
		strings.Repeat("ü", events.MaxValueKey/2)}
	for i, key := range keys {
		turn = Together(turn, a.Set(key, fmt.Sprint(i)))
		want[key] = value(fmt.Sprint(i), 1, Began)
	}
	s.commit(turn)
	s.hasValues("a", want)
	s.commit(a.Remove(keys[:3]...))
	for _, key := range keys[:3] {
		delete(want, key)
	}
	s.hasValues("a", want)
}

// valuesOfTwoExecutions shows that values of different executions are there together.
func valuesOfTwoExecutions(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.ContinueAsNew(), a.Set("l", "2")))
	// Both were set in a turn that ended in execution 2.
	s.commit(Together(a.ContinueAsNew(), a.Set("m", "3")))
	got, err := s.Values(s.ctx(), "a")
	if err != nil || len(got) != 3 || string(got["k"].Data) != "1" || string(got["l"].Data) != "2" ||
		string(got["m"].Data) != "3" {
		t.Fatal(got, err)
	}
	s.same(a)
}

// valuesClearedOfOne shows that clearing touches one instance only.
func valuesClearedOfOne(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "1")),
		Together(b.Start(), b.Set("k", "2"), b.Set("l", "2")))
	all := a.Note()
	all.ClearValues = true
	s.commit(all, b.Remove("k"))
	s.hasValues("a", nil)
	s.hasValues("b", map[string]history.Value{"l": value("2", 1, Began)})
}

// valueRemovedLater shows that a value that an earlier execution has set is gone when a later one
// has removed it.
func valueRemovedLater(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "2")))
	s.commit(a.ContinueAsNew())
	s.commit(a.Remove("k"))
	s.hasValues("a", map[string]history.Value{"l": value("2", 1, Began)})
	if _, ok, err := s.Value(s.ctx(), "a", "k"); ok || err != nil {
		t.Fatal("k is still there", err)
	}
}

// valuesClearedLater shows the same for all values at once.
func valuesClearedLater(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "2")))
	s.commit(Together(a.ContinueAsNew(), a.Remove("k", "l")))
	s.hasValues("a", nil)
}

// valuesRefused shows that a turn that is refused changes no value, beside one that is taken.
func valuesRefused(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "1")), b.Start())
	for _, stale := range []func(*Actor) *round.Turn{
		func(x *Actor) *round.Turn { return x.Set("k", "stale") },
		func(x *Actor) *round.Turn { return Together(x.Remove("k"), x.Set("m", "stale")) },
	} {
		late := stale(a.Clone())
		s.commit(a.Note())
		s.verdicts(s.try(late, b.Set("k", "2")), history.Conflict, history.Committed)
		s.hasValues("a", map[string]history.Value{"k": value("1", 1, Began), "l": value("1", 1, Began)})
		s.hasValues("b", map[string]history.Value{"k": value("2", 1, Began)})
	}
}

// valuesOfNewIncarnation shows that a restart begins without the values of the former incarnation.
func valuesOfNewIncarnation(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "2")))
	s.commit(a.Complete("1"))
	s.hasValues("a", map[string]history.Value{"k": value("1", 1, Began), "l": value("2", 1, Began)})
	s.commit(Together(a.Start(WithMessage("again")), a.Set("l", "3")))
	s.hasValues("a", map[string]history.Value{"l": value("3", 2, Began)})
}
