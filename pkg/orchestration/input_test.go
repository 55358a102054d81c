package orchestration_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

type address struct {
	Street string `json:"street"`
	Zip    *int   `json:"zip,omitempty"`
}

type order struct {
	SKU    string           `json:"sku"`
	Cents  int              `json:"cents"`
	Gift   bool             `json:"gift"`
	Due    time.Time        `json:"due"`
	To     address          `json:"to"`
	Notes  []string         `json:"notes"`
	Within time.Duration    `json:"within"`
	Labels map[string]int64 `json:"labels"`
}

// noise is an input that cannot be read without a panic.
type noise struct{}

func (*noise) UnmarshalJSON([]byte) error { panic("too loud") }

func takes[In any](name string, opts ...orchestration.BindOption) orchestration.Binding {
	return orchestration.Define[In, string](name).Bind(func(*oc, In) (string, error) { return "done", nil }, opts...)
}

func TestInputsAreChecked(t *testing.T) {
	r, err := orchestration.NewRegistry(
		takes[order]("order"), takes[order]("lenient", orchestration.IgnoreUnknownFields()), takes[struct{}]("nothing"),
		takes[*order]("perhaps"),
		takes[string]("text"), takes[[]string]("list"), takes[noise]("noise"), takes[int]("number"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, input string
		lenient     bool
		says        string // part of the error; "" if there is none
	}{
		{"order", `{"sku":"piano","cents":900000}`, false, ""},
		{"order", `{"sku":"piano","cent":900000}`, false,
			`invalid input: unknown field "cent"; its fields are sku, cents, gift, due, to, notes, within, labels`},
		{"order", `{"to":{"stret":"x"}}`, false, `unknown field "stret"`},
		{"order", `{"sku":"piano","cent":900000}`, true, ""},
		{"order", `{"cents":"many"}`, true, `invalid input: want int, got JSON string in field "cents"`},
		{"order", ``, false, "a value is needed, and there is none"},
		{"order", `null`, false, "a value is needed"},
		{"order", ``, true, ""},
		{"order", `{}`, false, ""},
		{"lenient", `{"cent":1}`, false, ""},
		{"nothing", ``, false, ""},
		{"nothing", `{}`, false, ""},
		{"nothing", `{"a":1}`, false, `unknown field "a"`},
		{"perhaps", ``, false, ""},
		{"perhaps", `null`, false, ""},
		{"text", `plain words`, false, ""},
		{"text", ``, false, "a value is needed"},
		{"list", `null`, false, ""},
		{"list", ``, false, "a value is needed"},
		{"noise", `{}`, false, "decoding it panics: too loud"},
		{"number", `7`, false, ""},
		{"number", `300000000000000000000`, false, "want int, got JSON number"},
		{"somebody else's", `7`, false, ""},
	} {
		got := r.CheckInput(c.name, "1.0.0", codec.JSON{}, codec.Payload(c.input), !c.lenient)
		switch {
		case c.says == "" && got != nil, c.says != "" && (got == nil || !strings.Contains(got.Message, c.says)):
			t.Errorf("%s %q (lenient: %v): %v, want %q", c.name, c.input, c.lenient, got, c.says)
		case got != nil && (got.Type != orchestration.TypeMismatch || !got.NonRetryable):
			t.Errorf("%s %q: %+v", c.name, c.input, got)
		}
	}
}

func TestExampleInputsAreTaken(t *testing.T) {
	r, err := orchestration.NewRegistry(takes[order]("order"), takes[struct{}]("nothing"), takes[*address]("perhaps"),
		takes[int]("number"), takes[noise]("noise"),
		takes[any]("any"), takes[[]address]("list"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"order":   `{"sku":"text","cents":1,"gift":false,"due":"2030-01-02T03:04:05Z","to":{"street":"text","zip":1},"notes":["text"],"within":1,"labels":null}`,
		"nothing": `{}`, "perhaps": `{"street":"text","zip":1}`, "number": `1`, "noise": ``, "any": `null`,
		"list": `[{"street":"text","zip":1}]`, "nobody": ``,
	} {
		if got := string(r.ExampleInput(name)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestStartWithAMistypedField starts with a misspelt field: what the compiler has not checked is
// refused, and the instance says why.
func TestStartWithAMistypedField(t *testing.T) {
	env := rondotest.New(t, takes[order]("order"))
	wrong := codec.Payload(`{"sku":"piano","cent":900000}`)
	start := func(id string, opts ...orchestration.StartOption) error {
		if _, _, err := orchestration.StartInstance(t.Context(), env, "order", wrong,
			append(opts, orchestration.ID(id))...); err != nil {
			t.Fatal(err)
		}
		o, err := env.Outcome(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if o.Error == nil {
			return nil
		}
		return o.Error
	}
	if err := start("a"); !errors.Is(err, orchestration.OfType(orchestration.TypeMismatch)) ||
		!strings.Contains(err.Error(), `unknown field "cent"`) {
		t.Errorf("got %v", err)
	}
	if err := start("b", orchestration.IgnoreUnknownFields()); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestNewerClient starts with a contract that has a field more: it was checked by the compiler, and
// the orchestrator may be older.
func TestNewerClient(t *testing.T) {
	type newer struct {
		order
		Colour string
	}
	env := rondotest.New(t, takes[order]("order"))
	if _, err := orchestration.Define[newer, string]("order").Run(t.Context(), env, newer{Colour: "red"}); err != nil {
		t.Error(err)
	}
}
