// Package codec encodes the values of orchestrations and activities.
//
// A [Codec] turns a value into a [Payload], and back. The default is [JSON]. A codec of your own
// may encrypt or compress: orchestrators, workers, clients and tests must all have the same one.
package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/x/jsonw"
	"github.com/rondo-run/rondo/internal/x/plural"
)

// Payload is a value of the user's, encoded by a [Codec]: usually JSON, but any bytes will do (an
// encrypting codec makes such). It is kept in its canonical form: JSON without idle white space,
// other bytes as they are. In the JSON of events and messages a JSON payload stands as itself, and
// is readable; other bytes stand as {"$bytes": "<base64>"}.
type Payload []byte

// None is the type of an input or a result that has nothing to say. In JSON it is {}; as an input,
// no bytes at all will do.
type None = struct{}

// bytesKey marks a payload that could not stand as itself.
const bytesKey = `{"$bytes":`

// Canonical brings bytes that came from outside into the form that history will hold, so that code
// sees the same bytes before and after a replay.
func Canonical(data []byte) Payload {
	if len(data) == 0 {
		return nil
	}
	if isBare(data) || !isJSON(data) || standsAsItself(data) {
		return Payload(data)
	}
	var b bytes.Buffer
	b.Grow(len(data))
	if err := json.Compact(&b, data); err != nil {
		return Payload(data)
	}
	return b.Bytes()
}

func isJSON(data []byte) bool { return utf8.Valid(data) && json.Valid(data) }

// String makes a payload readable.
func (p Payload) String() string {
	if utf8.Valid(p) {
		return string(p)
	}
	return plural.Count(len(p), "byte")
}

// MarshalJSON implements [json.Marshaler].
func (p Payload) MarshalJSON() ([]byte, error) {
	if len(p) == 0 {
		return []byte("null"), nil
	}
	if isBare(p) && !bytes.HasPrefix(p, []byte(bytesKey)) {
		return p, nil
	}
	return []byte(bytesKey + `"` + base64.StdEncoding.EncodeToString(p) + `"}`), nil
}

// maxDepth bounds how deep JSON nests that stands as itself. encoding/json gives up at 10,000
// levels, and what wraps the payload adds some.
const maxDepth = 9_000

// standsAsItself reports whether JSON has no white space outside strings, so that it comes back as
// the same bytes, and does not nest too deep to be wrapped.
func standsAsItself(p []byte) bool {
	inString, depth := false, 0
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			return false
		case !inString && (c == '{' || c == '['):
			if depth++; depth > maxDepth {
				return false
			}
		case !inString && (c == '}' || c == ']'):
			depth--
		}
	}
	return true
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Payload) UnmarshalJSON(data []byte) error {
	canonical := Payload(bytes.Clone(bytes.TrimSpace(data)))
	if !standsAsItself(canonical) {
		canonical = Canonical(canonical)
	}
	if !bytes.HasPrefix(canonical, []byte(bytesKey)) {
		*p = canonical
		return nil
	}
	var wrapped struct {
		Bytes []byte `json:"$bytes"`
	}
	if err := jsonw.UnmarshalStrict(canonical, &wrapped); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	*p = wrapped.Bytes
	return nil
}

// Codec turns values into payloads and back. The same codec must be given to orchestrators, workers
// and clients. It is the place for encryption and compression. Both methods may be called
// concurrently. Encode need not give the same bytes twice, but Decode(Encode(v)) must give v; a
// Codec that reads a clock or the network inside an orchestration breaks replay.
type Codec interface {
	Encode(v any) (Payload, error)
	Decode(p Payload, v any) error
}

// Strict is a Codec that can also refuse data that is not quite what a value takes. Starts by
// name are checked with it, if the codec can; a codec around another one forwards the call.
type Strict interface {
	Codec
	// DecodeStrict is Decode, but fields that v has no place for are an error, and so is nothing at
	// all where v needs something.
	DecodeStrict(p Payload, v any) error
}

// JSON is the default codec: encoding/json. A string is also read from bytes that are not JSON, so
// that operators can publish plain words by hand.
type JSON struct{}

// Encode implements Codec.
func (JSON) Encode(v any) (Payload, error) {
	if s, ok := v.(string); ok && isPlain(s) { // there are many
		return append(append(append(make(Payload, 0, len(s)+2), '"'), s...), '"'), nil
	}
	data, err := jsonw.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T as JSON: %w", v, err)
	}
	return data, nil
}

// Decode implements Codec. Nothing at all decodes to the zero value.
func (JSON) Decode(p Payload, v any) error {
	if len(p) == 0 {
		return nil
	}
	if s, ok := v.(*string); ok && s != nil && len(p) >= 2 && p[0] == '"' && p[len(p)-1] == '"' &&
		isPlain(p[1:len(p)-1]) {
		*s = string(p[1 : len(p)-1])
		return nil
	}
	err := json.Unmarshal(p, v)
	if err == nil {
		return nil
	}
	if s, ok := v.(*string); ok && !json.Valid(p) && utf8.Valid(p) {
		*s = string(p)
		return nil
	}
	return fmt.Errorf("decode %s into %T: %w", excerpt(p), v, err)
}

// DecodeStrict implements [Strict].
func (c JSON) DecodeStrict(p Payload, v any) error {
	if isMissing(p, reflect.TypeOf(v).Elem()) {
		return errors.New("a value is needed, and there is none")
	}
	if _, ok := v.(*string); ok && len(p) > 0 && p[0] == '"' { // it has no fields
		return c.Decode(p, v)
	}
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	strict := d.Decode(v)
	if strict == nil && d.InputOffset() == int64(len(p)) {
		return nil
	}
	if err := c.Decode(p, v); err != nil || !json.Valid(p) || strict == nil {
		return err // a text may stand there as it is
	}
	return errors.New(strings.TrimPrefix(strict.Error(), "json: "))
}

// isMissing reports whether data would leave a value as it is, although the type needs some.
func isMissing(p Payload, t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(jsonUnmarshaler) {
		return len(p) == 0
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		return false
	case reflect.Map, reflect.Slice:
		return len(p) == 0 // nil is written as null
	case reflect.Struct:
		return t.NumField() > 0 && (len(p) == 0 || string(p) == "null")
	}
	return len(p) == 0 || string(p) == "null"
}

var jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()

// isPlain recognises text that JSON writes as it is, between quotation marks.
func isPlain[T string | Payload](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// excerpt shows the beginning of a payload in an error message.
func excerpt(p Payload) string {
	const most = 60
	s := p.String()
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
