package historytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// ---- Rows of history with several events.

// loadTurn shows that an event that cannot be read is named even if it is one of many of a turn,
// and that those before it can be read.
func loadTurn(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Notes(4)))
	encode := func(list ...events.Event) (lines []string) {
		for _, e := range list {
			data, err := events.EncodeEvent(e)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(data))
		}
		return lines
	}
	all := encode(a.Events[1]...)
	for name, lines := range map[string][]string{
		"spoilt":     {all[0], all[1], "{", all[3], all[4]},
		"left out":   {all[0], all[1], all[3], all[4]},
		"twice":      {all[0], all[1], all[1], all[2], all[3]},
		"cut short":  {all[0], all[1]},
		"one behind": {all[0], all[1], all[3], all[4], all[2]},
	} {
		s.db.exec(t, "UPDATE rondo_history SET data = $1 WHERE instance = 'a'", []byte(strings.Join(lines, "\n")))
		t.Log(name)
		s.isUnreadable(s.load("a").Unreadable,
			history.UnreadableError{Instance: "a", Execution: 1, Event: 3, Column: "data"})
		_, err := s.Events(s.ctx(), "a", 1, 1, 4)
		s.isUnreadable(err, history.UnreadableError{Instance: "a", Execution: 1, Event: 3, Column: "data"})
		list, err := s.Events(s.ctx(), "a", 1, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		s.sameEvents("a", 1, list, a.Events[1][:2])
	}
	s.db.exec(t, "UPDATE rondo_history SET data = $1 WHERE instance = 'a'",
		[]byte(strings.Join(append(all, all[4]), "\n")))
	s.isUnreadable(s.load("a").Unreadable,
		history.UnreadableError{Instance: "a", Execution: 1, Event: 5, Column: "data"})
}

// loadLines shows that the contents of a payload do not end a line of a row.
func loadLines(t *testing.T, db *Database) {
	s := open(t, db)
	for i, data := range []string{"\"a\\nb\"", "{\n \"a\":\n 1\n}", "no JSON\nat all\n", "\n", "\x00\n\xff"} {
		a := NewActor(fmt.Sprint("a", i))
		s.commit(Together(a.Start(func(x *events.Started) { x.Input = codec.Payload(data) }), a.Say(
			&events.EventReceived{Wait: 1, Name: "note", Data: codec.Payload(data)},
			&events.EventReceived{Wait: 1, Name: "note", Data: codec.Payload(data)})))
		if k := s.load(a.ID); k.Unreadable != nil || len(k.History) != 3 {
			t.Fatalf("%q: %+v", data, k.Unreadable)
		}
	}
}

// loadParts shows that a turn of very many events, and of large ones, can be read from everywhere.
func loadParts(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	large := codec.Payload(`"` + strings.Repeat("x", 20<<10) + `"`)
	say := &events.EventReceived{Wait: 1, Name: "note", Data: large}
	s.commit(Together(a.Start(), a.Notes(70), a.Say(say, say, say)))
	s.same(a)
	for after := range a.Row.LastEvent {
		for _, limit := range []int{1, 3, 40} {
			list, err := s.Events(s.ctx(), "a", 1, after, limit)
			if err != nil {
				t.Fatal(after, limit, err)
			}
			s.sameEvents("a", 1, list, a.Events[1][after:min(after+int64(limit), a.Row.LastEvent)])
		}
	}
}
