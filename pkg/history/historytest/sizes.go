package historytest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// sizeTests are about turns that are large or have odd text in them.
var sizeTests = []test{
	{"commit/values_of_16_MiB", manyLargeValues},
	{"commit/25000_events_in_one_turn", manyEvents},
	{"commit/a_history_of_many_bytes", largeEvents},
	{"commit/many_turns_in_one_batch", manyTurns},
	{"commit/large_outputs", largeOutputs},
	{"commit/odd_texts", oddTexts},
	{"commit/long_ids", longIDs},
	{"commit/ids_that_differ_in_case_only", idsInOtherCase},
	{"commit/payloads_that_are_not_JSON", binaryPayloads},
	{"commit/times_keep_their_microseconds", times},
	{"commit/large_errors", largeErrors},
	{"commit/attributes_at_their_limits", largeAttributes},
}

// manyLargeValues shows that a turn may set as many values as there may be, each as large as it may
// be, and remove them.
func manyLargeValues(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	var turns []*round.Turn
	var keys []string
	want := make(map[string]history.Value)
	large := `"` + strings.Repeat("x", events.MaxValue-2) + `"`
	for i := range racetest.Size(events.MaxValues, 8) {
		keys = append(keys, fmt.Sprintf("%0*d", events.MaxValueKey, i))
		turns = append(turns, a.Set(keys[i], large))
		want[keys[i]] = value(large, 1, Began)
	}
	s.commit(Together(turns...))
	got, err := s.Values(s.ctx(), "a")
	if err != nil || len(got) != len(want) {
		t.Fatal(len(got), err)
	}
	for key := range want {
		if !bytes.Equal(got[key].Data, want[key].Data) {
			t.Fatalf("value %s has %d bytes", key, len(got[key].Data))
		}
	}
	if k := s.load("a"); k.Unreadable != nil || k.Row.HistoryBytes != a.Row.HistoryBytes ||
		len(k.History) != 1+len(keys) {
		t.Fatal(k.Unreadable, k.Row.HistoryBytes, len(k.History))
	}
	s.commit(a.Remove(keys...))
	s.hasValues("a", nil)
}

// manyEvents shows that a turn may have as many events as the code may say in one round.
func manyEvents(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	n := racetest.Size(events.MaxTurnEvents, 2500)
	facts := make([]events.Fact, n-1)
	for i := range facts {
		facts[i] = a.Call("charge")
	}
	s.commit(Together(a.Start(), a.Say(facts...)))
	k := s.load("a")
	if k.Unreadable != nil || len(k.History) != n {
		t.Fatal(k.Unreadable, len(k.History))
	}
	s.sameEvents("a", 1, k.History, a.Events[1])
	s.commit(a.Complete("1"))
	if s.load("a").Row.LastEvent != int64(n)+1 {
		t.Fatal("the end was not stored")
	}
	s.delete("a")
	s.absent("a")
}

// largeEvents shows that a turn may have events that are larger together than what a database takes
// in one statement.
func largeEvents(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	turns := []*round.Turn{a.Start()}
	for range racetest.Size(24, 2) {
		turns = append(turns, a.Say(&events.EventReceived{Wait: 1, Name: "large",
			Data: codec.Payload(`"` + strings.Repeat("x", events.MaxPayload-2) + `"`)}))
	}
	s.commit(Together(turns...))
	s.same(a)
}

// manyTurns shows that a batch may have a thousand turns of every kind, and that each is stored as
// if it were alone.
func manyTurns(t *testing.T, db *Database) {
	s := open(t, db)
	var turns []*round.Turn
	var actors []*Actor
	for i := range 1000 {
		a := NewActor(fmt.Sprint("a", i))
		actors = append(actors, a)
		turn := a.StartAndCall()
		switch i % 5 {
		case 1:
			turn = Together(turn, a.Set("k", "1"))
		case 2:
			turn = Together(turn, a.ContinueAsNew())
		case 3:
			turn = Together(turn, a.Remove("k"))
		case 4:
			turn = Together(turn, a.Complete("1"))
		}
		turns = append(turns, turn)
	}
	s.commit(turns...)
	for _, a := range actors[:10] {
		s.same(a)
	}
	if n := len(s.messages(s.lease(1000, time.Hour))); n != 1000 {
		t.Fatal(n)
	}
}

// largeOutputs shows that a batch may have outputs and statuses that are large together.
func largeOutputs(t *testing.T, db *Database) {
	s := open(t, db)
	var turns []*round.Turn
	var actors []*Actor
	output := `"` + strings.Repeat("o", events.MaxPayload-2) + `"`
	status := `"` + strings.Repeat("s", events.MaxStatus-2) + `"`
	for i := range racetest.Size(6, 1) {
		a := NewActor(fmt.Sprint("a", i))
		actors = append(actors, a)
		turns = append(turns, Together(a.Start(), a.SetStatus(status), a.Complete(output)))
	}
	s.commit(turns...)
	for _, a := range actors {
		s.same(a)
	}
}

// oddTexts shows that the store takes texts from outside that databases refuse, with U+FFFD in the
// place of each character that they refuse, and that empty texts stay empty.
func oddTexts(t *testing.T, db *Database) {
	s := open(t, db)
	for i, text := range []string{"", "a\x00b", "a\xffb", "\xed\xa0\x80", "\x00", "a\u2028b\u0001", "a'b\"c\\d$1",
		strings.Repeat("é", 1000)} {
		a := NewActor(fmt.Sprint("a", i))
		turn := Together(a.Start(WithName("orders", "1.0.0"), WithMessage(text),
			WithAttributes(map[string]string{"x" + text: text}), func(x *events.Started) {
				x.Trace = text
			}), a.Fail(text))
		turn.Row.Version = text
		s.commit(turn)
		k := s.load(a.ID)
		if k.Unreadable != nil || len(k.History) != 2 {
			t.Fatalf("%q: %+v", text, k)
		}
		clean := strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
		for what, got := range map[string]string{"trace": k.Row.Trace, "version": k.Row.Version,
			"start message": k.Row.StartMessage} {
			if got != clean {
				t.Errorf("%s %q became %q", what, text, got)
			}
		}
		if len(k.Row.Attributes) != 1 || k.Row.Error == nil {
			t.Errorf("%q: %+v", text, k.Row)
		}
		again := Resume(k, Began)
		s.commit(again.Start(WithMessage("again")))
		s.same(again)
	}
}

// longIDs shows that ids may be as long as they may, in any script, as parents and children, too.
func longIDs(t *testing.T, db *Database) {
	s := open(t, db)
	var parent *Actor
	for i, unit := range []string{"x", "ü", "語", "🙂", "'", "%"} {
		id := strings.Repeat(unit, events.MaxInstanceID/len(unit))
		id = id[:len(id)-len(unit)] + strings.Repeat("y", len(unit))
		if events.CheckInstance(id) != nil {
			t.Fatal(id)
		}
		a := NewActor(id)
		attributes := map[string]string{strings.Repeat(unit, events.MaxAttribute/len(unit)): strings.Repeat(unit,
			events.MaxAttribute/len(unit))}
		options := []Option{WithAttributes(attributes), WithName(strings.Repeat("n", events.MaxName), "1.0.0")}
		if i > 0 {
			options = append(options, WithParent(parent))
		}
		s.commit(a.StartAndCall(options...))
		s.commit(a.everything())
		s.same(a)
		parent = a
	}
}

// idsInOtherCase shows that ids are compared byte by byte: neither case nor accents nor white space
// nor normal forms make two ids one.
func idsInOtherCase(t *testing.T, db *Database) {
	s := open(t, db)
	ids := []string{"order", "Order", "ORDER", "ordér", "orde\u0301r", "order.", "o rder", "0rder", "ｏrder", "ß", "ss",
		"ı", "i", "I", "İ"}
	var turns []*round.Turn
	for _, id := range ids {
		a := NewActor(id)
		turns = append(turns, Together(a.Start(), a.Set("k", `"`+id+`"`)))
	}
	s.commit(turns...)
	for _, id := range ids {
		s.hasValues(id, map[string]history.Value{"k": value(`"`+id+`"`, 1, Began)})
	}
	s.delete("Order", "I")
	for i, k := range s.loadAll(nil, ids...) {
		if deleted := ids[i] == "Order" || ids[i] == "I"; (k.Row.Execution == 0) != deleted {
			t.Fatalf("%q: %+v", ids[i], k)
		}
	}
}

// binaryPayloads shows that what users store need not be JSON: input, output, status, value and
// details come back byte for byte.
func binaryPayloads(t *testing.T, db *Database) {
	s := open(t, db)
	for i, data := range []string{"\x00\x01\xff", "{", "plain words", "{ \"n\" : 1 }", `{"$bytes":"AA=="}`, "null",
		"\\x00", strings.Repeat("\xfe", 1000)} {
		a := NewActor(fmt.Sprint("a", i))
		s.commit(Together(a.Start(func(x *events.Started) {
			x.Input = codec.Payload(data)
		}), a.SetStatus(data), a.Set("k", data)))
		s.same(a)
		s.hasValues(a.ID, map[string]history.Value{"k": value(data, 1, Began)})
		s.status(a.ID, 0, history.CustomStatus{Data: codec.Payload(data), Version: 1, Changed: true})
		s.commit(a.Complete(data))
		k := s.load(a.ID)
		if string(k.Row.Output) != data || string(k.Row.CustomStatus) != data {
			t.Fatalf("%q became %q and %q", data, k.Row.Output, k.Row.CustomStatus)
		}
		s.same(a)
		b := NewActor(fmt.Sprint("b", i))
		turn := Together(b.Start(), b.Fail("broken"))
		b.Row.Error.Details = codec.Payload(data)
		s.commit(turn)
		if got := s.load(b.ID).Row.Error; got == nil || string(got.Details) != data && data != "null" {
			t.Fatalf("%q became %+v", data, got)
		}
	}
}

// times shows that times come back as they were, to the microsecond, in UTC, before 1970 and after
// 2100, too.
func times(t *testing.T, db *Database) {
	s := open(t, db)
	for i, at := range []time.Time{
		Began.Add(123456 * time.Microsecond), time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC),
		time.Date(2199, 1, 1, 0, 0, 0, 1000, time.UTC),
		Began.In(time.FixedZone("", 5*3600+1800)).Add(time.Microsecond),
	} {
		a := NewActor(fmt.Sprint("a", i)).At(at)
		s.commit(Together(a.Start(), a.Set("k", "1"), a.Complete("1")))
		row := s.load(a.ID).Row
		for _, got := range []time.Time{row.StartedAt, row.UpdatedAt, row.EndedAt, s.info(a.ID).CreatedAt} {
			if !got.Equal(at) || got.Location() != time.UTC {
				t.Errorf("%v became %v", at, got)
			}
		}
		s.hasValues(a.ID, map[string]history.Value{"k": value("1", 1, at)})
	}
}

// largeErrors shows that errors come back with all they say: kinds, types, stacks and causes.
func largeErrors(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	var e *failure.Error
	for range events.MaxErrorCauses {
		e = &failure.Error{Kind: failure.Application, Type: "declined", Message: strings.Repeat("m<>&\u2028", 100),
			Source: `activity "charge"`, NonRetryable: true,
			Details: codec.Payload(`{"code":51}`), Attempts: 3, Stack: strings.Repeat("main.go:1\n", 1000), Cause: e}
	}
	turn := Together(a.Start(), a.Fail("broken"))
	a.Row.Error = e
	turn.Row = a.Row
	s.commit(turn)
	s.same(a)
}

// largeAttributes shows that an instance may have as many attributes as there may be, and can be
// found by each, and by none of them when it is deleted. A filter with more finds nothing.
func largeAttributes(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	attributes := make(map[string]string)
	for i := range events.MaxAttributes {
		attributes[fmt.Sprintf("%0*d", events.MaxAttribute, i)] = strings.Repeat("v", events.MaxAttribute)
	}
	s.commit(a.Start(WithAttributes(attributes)))
	s.same(a)
	count := func(want int64) {
		t.Helper()
		for name, value := range attributes {
			n, err := s.Count(s.ctx(), history.Filter{Attributes: map[string]string{name: value}}, 0)
			if err != nil || n != want {
				t.Fatalf("%d instances are found by %q, want %d (%v)", n, name, want, err)
			}
		}
	}
	count(1)
	s.delete("a")
	count(0)
	for i := range 40_000 {
		attributes[fmt.Sprint(i)] = "v"
	}
	n, err := s.Count(s.ctx(), history.Filter{Attributes: attributes}, 0)
	if err != nil || n != 0 {
		t.Errorf("%d instances have %d attributes (%v)", n, len(attributes), err)
	}
	l, err := s.List(s.ctx(), history.Filter{Attributes: attributes}, history.Page{})
	if err != nil || len(l.Instances) > 0 || l.Next != "" {
		t.Errorf("%d instances have %d attributes (%v)", len(l.Instances), len(attributes), err)
	}
}
