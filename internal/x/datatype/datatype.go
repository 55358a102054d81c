// Package datatype checks the types of inputs and results when their code is registered.
package datatype

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

var marshalers = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler](),
	reflect.TypeFor[encoding.BinaryMarshaler]()}

// Check returns an error if no codec can store values of a type: channels and functions, pointers
// to them, and lists and maps of them, unless their type encodes itself. What names the value.
func Check[T any](what string) error {
	t := reflect.TypeFor[T]()
	if bad := unstorable(t, make(map[reflect.Type]bool)); bad != nil {
		return fmt.Errorf("the %s has type %v, and a %v cannot be stored; use a type that is written as JSON, or "+
			"struct{} for nothing", what, t, bad.Kind())
	}
	return nil
}

// unstorable finds the type within t that cannot be stored; nil if there is none.
func unstorable(t reflect.Type, seen map[reflect.Type]bool) reflect.Type {
	if seen[t] || slices.ContainsFunc(marshalers, func(m reflect.Type) bool {
		return t.Implements(m) || reflect.PointerTo(t).Implements(m)
	}) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return t
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return unstorable(t.Elem(), seen)
	default: // fields of structs may have a tag or a codec that leaves them out
		return nil
	}
}
