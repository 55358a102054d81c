// Package jsonw writes JSON objects without reflection: the same bytes as encoding/json without
// HTML escaping, several times faster.
package jsonw

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// Object is an object in progress. The methods whose names end with If leave out empty values.
type Object struct {
	b   []byte
	err error // the first one
}

// Begin begins an object behind b.
func Begin(b []byte) Object { return Object{b: append(b, '{')} }

// End returns the object, behind the bytes before it, or the first error.
func (o *Object) End() ([]byte, error) { return append(o.b, '}'), o.err }

func (o *Object) name(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

// Raw writes a value that is JSON already.
func (o *Object) Raw(name string, data []byte, err error) {
	o.name(name)
	if err != nil && o.err == nil {
		o.err = err
	}
	o.b = append(o.b, data...)
}

// Other writes a value of any type with encoding/json; it is for rare ones.
func (o *Object) Other(name string, v any) {
	data, err := marshal(v)
	o.Raw(name, data, err)
}

// OtherIf is Other, unless is is false.
func (o *Object) OtherIf(name string, v any, is bool) {
	if is {
		o.Other(name, v)
	}
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// Text writes a text.
func (o *Object) Text(name, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			o.Other(name, s)
			return
		}
	}
	o.name(name)
	o.b = append(append(append(o.b, '"'), s...), '"')
}

// TextIf writes a text, if it is not empty.
func (o *Object) TextIf(name, s string) {
	if s != "" {
		o.Text(name, s)
	}
}

// Number writes a whole number.
func (o *Object) Number(name string, n int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, n, 10)
}

// NumberIf writes a whole number, if it is not zero.
func (o *Object) NumberIf(name string, n int64) {
	if n != 0 {
		o.Number(name, n)
	}
}

// ShareIf writes a number that need not be whole, if it is not zero.
func (o *Object) ShareIf(name string, x float64) {
	switch {
	case x == 0:
	case x >= 1e-6 && x < 1e21:
		o.name(name)
		o.b = strconv.AppendFloat(o.b, x, 'f', -1, 64)
	default:
		o.Other(name, x)
	}
}

// TrueIf writes true, unless is is false.
func (o *Object) TrueIf(name string, is bool) {
	if is {
		o.name(name)
		o.b = append(o.b, "true"...)
	}
}

// Time writes a time.
func (o *Object) Time(name string, t time.Time) {
	if t.Location() != time.UTC || t.Year() < 0 || t.Year() > 9999 {
		o.Other(name, t)
		return
	}
	o.name(name)
	o.b = append(t.AppendFormat(append(o.b, '"'), time.RFC3339Nano), '"')
}

// TimeIf writes a time, if it is not zero.
func (o *Object) TimeIf(name string, t time.Time) {
	if !t.IsZero() {
		o.Time(name, t)
	}
}

// Nested writes an object in the object.
func (o *Object) Nested(name string, write func(o *Object)) {
	o.name(name)
	o.b = append(o.b, '{')
	write(o)
	o.b = append(o.b, '}')
}

// Marshal is json.Marshal without HTML escaping, so that payloads keep their bytes.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// UnmarshalStrict decodes one value. It refuses unknown fields and anything after the value.
func UnmarshalStrict(data []byte, v any) error {
	if len(data) == 0 {
		return errors.New("no data")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if len(bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")) > 0 {
		return errors.New("unexpected data after the value")
	}
	return nil
}
