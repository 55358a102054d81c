package jsonw_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/x/jsonw"
)

// all has a field of each kind.
type all struct {
	Text   string            `json:"text"`
	Maybe  string            `json:"maybe,omitempty"`
	Number int64             `json:"number"`
	Some   int64             `json:"some,omitempty"`
	Share  float64           `json:"share,omitempty"`
	Is     bool              `json:"is,omitempty"`
	At     time.Time         `json:"at"`
	Late   time.Time         `json:"late,omitzero"`
	Raw    json.RawMessage   `json:"raw"`
	More   map[string]string `json:"more,omitempty"`
	In     struct {
		Text string `json:"text"`
	} `json:"in"`
}

func (a *all) write() ([]byte, error) {
	o := jsonw.Begin([]byte("before "))
	o.Text("text", a.Text)
	o.TextIf("maybe", a.Maybe)
	o.Number("number", a.Number)
	o.NumberIf("some", a.Some)
	o.ShareIf("share", a.Share)
	o.TrueIf("is", a.Is)
	o.Time("at", a.At)
	o.TimeIf("late", a.Late)
	o.Raw("raw", a.Raw, nil)
	o.OtherIf("more", a.More, len(a.More) > 0)
	o.Nested("in", func(o *jsonw.Object) { o.Text("text", a.In.Text) })
	return o.End()
}

// FuzzObject compares objects and errors with those of encoding/json.
func FuzzObject(f *testing.F) {
	f.Add("a", int64(1), 0.5, true, int64(0))
	f.Add("", int64(0), 0.0, false, int64(math.MaxInt64))
	f.Add("<é\u2028\"\\\n\x00\xff", int64(math.MinInt64), 1e-7, true, int64(-1))
	f.Add("ok ~", int64(-5), math.Inf(1), true, int64(1_700_000_000_000_000_001))
	f.Fuzz(func(t *testing.T, text string, n int64, share float64, is bool, at int64) {
		a := all{Text: text, Maybe: text, Number: n, Some: n, Share: share, Is: is, At: time.Unix(0, at).UTC(),
			Raw: json.RawMessage(`{"x":[1]}`)}
		a.In.Text = text
		if is {
			a.Late, a.More = time.Unix(at, n%1e9), map[string]string{text: text}
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		wantErr := enc.Encode(&a)
		got, err := a.write()
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v, want %v", err, wantErr)
		}
		if err == nil && string(got) != "before "+string(bytes.TrimRight(want.Bytes(), "\n")) {
			t.Errorf("got\n%s, want\n%s", got, want.Bytes())
		}
	})
}

// Shares are written as encoding/json does at the borders between its two forms, too: rounded to
// nothing, one would be lost.
func TestSharesAreWrittenAsJSON(t *testing.T) {
	for _, x := range []float64{1, 0.1, 1e-6, 9.9e-7, 1e-7, 2.5e-9, 5e-324, 1e20, 9.99e20, 1e21, 1.5e300, -1, -1e-7,
		-1e21, math.MaxFloat64} {
		want, err := json.Marshal(map[string]float64{"share": x})
		if err != nil {
			t.Fatal(err)
		}
		o := jsonw.Begin(nil)
		o.ShareIf("share", x)
		if got, err := o.End(); err != nil || string(got) != string(want) {
			t.Errorf("%v is written as %s (%v), want %s", x, got, err, want)
		}
	}
}
