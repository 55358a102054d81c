package orchestration

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
)

// inputType describes the input of an orchestration without running its code.
type inputType struct {
	of      reflect.Type
	lenient bool
}

func inputOf[In any]() inputType { return inputType{of: reflect.TypeFor[In]()} }

// check tells why data is no input.
func (t inputType) check(enc codec.Codec, data codec.Payload, strict bool) error {
	decode := enc.Decode
	if s, can := enc.(codec.Strict); can && strict {
		decode = s.DecodeStrict
	}
	err := withoutData(guarded(func() error { return decode(data, reflect.New(t.of).Interface()) }))
	if err != nil && strict {
		return fmt.Errorf("%w%s", err, t.fields())
	}
	return err
}

// acceptor makes what tells why data is not of a type.
func acceptor[T any](enc codec.Codec) coro.Accepts {
	return func(data codec.Payload, strict bool) error {
		t := inputOf[T]()
		err := t.check(enc, data, strict)
		if err != nil && !strict {
			return fmt.Errorf("%w%s", err, t.fields())
		}
		return err
	}
}

// withoutData describes why data was refused without showing it: the text is logged, and data is
// not.
func withoutData(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		if inner := errors.Unwrap(err); inner != nil {
			return inner
		}
		return err
	}
	kind, _, _ := strings.Cut(t.Value, " ") // numbers come with their value
	where := ""
	if t.Field != "" {
		where = fmt.Sprintf(" in field %q", t.Field)
	}
	want := t.Type.String()
	if t.Type.Kind() == reflect.Struct && !writesItself(t.Type) { // its name says nothing to a client
		want = "an object"
	}
	return fmt.Errorf("want %s, got JSON %s%s", want, kind, where)
}

// guarded runs decoders, whose methods are the author's, where nothing else would catch their
// panics.
func guarded(decode func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("decoding it panics: %v", r)
		}
	}()
	return decode()
}

// fields lists the fields that an input has, for a client that has mistyped one.
func (t inputType) fields() string {
	names := fieldNames(t.of)
	if len(names) == 0 {
		return ""
	}
	return "; its fields are " + strings.Join(names, ", ")
}

var marshalers = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[encoding.TextUnmarshaler](),
}

// writesItself reports whether a type decides itself how it looks in JSON.
func writesItself(t reflect.Type) bool {
	return slices.ContainsFunc(marshalers, func(m reflect.Type) bool {
		return t.Implements(m) || reflect.PointerTo(t).Implements(m)
	})
}

// fieldNames are the names of a struct's fields in JSON.
func fieldNames(t reflect.Type) (names []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || writesItself(t) {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, ok := nameOf(f); ok && len(f.Index) == 1 || f.IsExported() && len(f.Index) > 1 && ok {
			names = append(names, name)
		}
	}
	return names
}

// nameOf is the name of a field in JSON. Embedded structs have none: their fields stand in their
// place.
func nameOf(f reflect.StructField) (string, bool) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case !f.IsExported(), name == "-", f.Anonymous && name == "":
		return "", false
	case name == "":
		return f.Name, true
	}
	return name, true
}

// example makes up an input that is accepted.
func (t inputType) example() codec.Payload {
	v := reflect.New(t.of).Elem()
	fill(v, 4)
	data, err := json.Marshal(v.Interface())
	if err != nil || t.check(codec.JSON{}, data, true) != nil {
		return nil
	}
	return data
}

// fill puts something into a value that shows what belongs there.
func fill(v reflect.Value, depth int) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case depth == 0, !v.CanSet(), writesItself(v.Type()):
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), depth-1)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth-1)
		}
	}
}
