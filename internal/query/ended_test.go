package query

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestEndedIsWrittenAsJSON compares the encodings of a notification with and without reflection,
// for all fields, set and empty.
func TestEndedIsWrittenAsJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text := func() string { return []string{"", "plain", `qu"ote`, "é<&>", "a.b-c/d"}[r.IntN(5)] }
	at := func() time.Time {
		return []time.Time{{}, time.Unix(r.Int64N(2e9), r.Int64N(1e6)*1000).UTC(),
			time.Unix(1, 0).In(time.FixedZone("x", 3600))}[r.IntN(3)]
	}
	for range 2000 {
		e := Ended{
			Instance: text(), Name: text(), Version: text(), Incarnation: text(), Execution: r.Int64N(3),
			Status: round.Status(text()), StartMessage: text(),
			StartedAt: at(), EndedAt: at(), Large: r.IntN(2) == 0, Replaced: r.IntN(2) == 0,
		}
		if r.IntN(2) == 0 {
			e.Parent = &events.Parent{Instance: text(), Incarnation: text(), Execution: 1, Event: 2}
		}
		if r.IntN(2) == 0 {
			e.Error = failure.Errorf(failure.Application, "%s", text())
		}
		e.Output = []codec.Payload{nil, []byte(`{"a":[1,"<"]}`), []byte("no JSON"), []byte(`" spaced "`)}[r.IntN(4)]
		want, err1 := marshal(e)
		got, err2 := e.encode()
		if err1 != nil || err2 != nil || string(got) != string(want) {
			t.Fatalf("%v, %v; got\n%s, want\n%s", err1, err2, got, want)
		}
		if !json.Valid(got) {
			t.Fatalf("no JSON: %s", got)
		}
	}
}
