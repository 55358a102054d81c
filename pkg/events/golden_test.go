package events_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares with a file, or writes it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v\nrun the test with -rewrite to write it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed. What is stored and what is in flight must stay readable; if that is so, run with "+
			"-rewrite.\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// goldenNames lists the golden files of a folder, without their ending.
func goldenNames(t *testing.T, folder, ending string) []string {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ending)
		if !ok {
			t.Errorf("%s: a golden file ends in %s", filepath.Join(folder, f.Name()), ending)
		}
		names = append(names, name)
	}
	return names
}

// sameNames checks that two lists have the same names in any order.
func sameNames(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s: %q is missing", what, name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%s: %q belongs to nothing", what, name)
		}
	}
}

// empty lists the fields of a struct that are empty, those of structs inside it included, each type
// once.
func empty(v reflect.Value, path string, seen map[reflect.Type]bool) []string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() || seen[v.Type()] {
		return nil
	}
	seen[v.Type()] = true
	var out []string
	for i := range v.NumField() {
		name := path + "." + v.Type().Field(i).Name
		if v.Field(i).IsZero() {
			out = append(out, name)
		} else {
			out = append(out, empty(v.Field(i), name, seen)...)
		}
	}
	return out
}

func TestFullExamplesFillEveryField(t *testing.T) {
	full := map[string]bool{}
	check := func(name string, v any) {
		typ := reflect.TypeOf(v).Elem().Name()
		full[typ] = full[typ] || name == "full"
		if name != "full" {
			return
		}
		for _, field := range empty(reflect.ValueOf(v), typ, map[reflect.Type]bool{}) {
			t.Errorf("the full example leaves %s empty", field)
		}
	}
	for _, x := range eventExamples {
		check(x.name, x.fact)
	}
	for _, x := range messageExamples {
		check(x.name, x.message.Content)
	}
	for typ, ok := range full {
		if !ok {
			t.Errorf("%s has no example called full", typ)
		}
	}
}

// normal makes equal facts look the same: times in UTC, nil for empty slices and maps. It changes
// the value behind the pointer.
func normal(pointer any) any {
	normalize(reflect.ValueOf(pointer).Elem())
	return pointer
}

func normalize(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			normalize(v.Elem())
		}
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
		}
	case reflect.Struct:
		if t, ok := v.Interface().(time.Time); ok {
			v.Set(reflect.ValueOf(t.UTC()))
			return
		}
		for i := range v.NumField() {
			normalize(v.Field(i))
		}
	}
}

// wantError checks that there is an error that says all of the words; without words there must be
// none.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Errorf("unexpected error: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("no error; want one that says %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// wire encodes a message and checks that it can be decoded.
func wire(t testing.TB, m events.Message) events.Wire {
	t.Helper()
	w, err := events.Encode(events.DefaultPrefix, m)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
