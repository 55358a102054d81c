package events_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
)

const goldenEvents = "testdata/events"

func TestEveryKindHasAGoldenFile(t *testing.T) {
	var kinds, examples []string
	for _, k := range events.Kinds() {
		kinds = append(kinds, string(k))
	}
	for _, x := range eventExamples {
		examples = append(examples, string(x.fact.Kind()))
	}
	sameNames(t, "examples", examples, kinds)
	if !*rewrite {
		sameNames(t, goldenEvents, goldenNames(t, goldenEvents, ".json"), kinds)
	}
}

// A golden file holds the examples of one kind by name, indented; on the wire the same stands
// without white space.
func TestEventsAreWrittenAsInTheGoldenFiles(t *testing.T) {
	for _, kind := range events.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			cases := map[string]json.RawMessage{}
			for _, x := range eventExamples {
				if x.fact.Kind() == kind {
					cases[x.name] = encodeEvent(t, x.event())
				}
			}
			golden(t, filepath.Join(goldenEvents, string(kind)+".json"), indented(t, cases))
		})
	}
}

func TestGoldenEventsAreReadAsTheyWere(t *testing.T) {
	for _, x := range eventExamples {
		t.Run(string(x.fact.Kind())+"/"+x.name, func(t *testing.T) {
			decodesTo(t, goldenEvent(t, x), x.event())
			decodesTo(t, encodeEvent(t, x.event()), x.event())
		})
	}
}

// goldenEvent is an example as it stands in its file, white space included.
func goldenEvent(t *testing.T, x eventExample) []byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(goldenEvents, string(x.fact.Kind())+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]json.RawMessage
	if err := json.Unmarshal(file, &cases); err != nil {
		t.Fatal(err)
	}
	return cases[x.name]
}

func TestAnEventIsOneLineOfJSON(t *testing.T) {
	for _, x := range eventExamples {
		data := encodeEvent(t, x.event())
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, compact.Bytes()) {
			t.Errorf("%s has white space:\n%s", x.fact.Kind(), data)
		}
		if strings.Contains(string(data), `\u003c`) {
			t.Errorf("%s is escaped for HTML:\n%s", x.fact.Kind(), data)
		}
	}
}

func encodeEvent(t testing.TB, e events.Event) []byte {
	t.Helper()
	data, err := events.EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decodesTo(t *testing.T, data []byte, want events.Event) {
	t.Helper()
	got, err := events.DecodeEvent(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back as\n%+v %+v\nwant\n%+v %+v", got, got.Fact, want, want.Fact)
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
