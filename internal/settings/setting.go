// Package settings has the settings of programs: flags, environment variables and lines of a YAML
// file. It reads them into a configuration, and prints them for operators.
//
// A configuration is a struct, app.Config for one. The tag of a field names its setting:
//
//	Slots int `setting:"slots"`
//
// All settings are in one table, see [For]. It determines flags, variables, help and documents.
package settings

import (
	"fmt"
	"reflect"

	"github.com/rondo-run/rondo/internal/x/redact"
)

// Setting is a line of the table of settings.
type Setting struct {
	// Name is the flag, without dashes.
	Name string
	// Env is the environment variable.
	Env string
	// Section is the heading of its explanation, Help the explanation. The word in backticks there
	// stands for the value.
	Section, Help string
	// Secret is never shown, and may stand in a file.
	Secret bool
	// Switch needs no value: it is on when it is there.
	Switch bool

	of   []string // the commands that have it
	kind kind
}

// Get returns the value as text. Secrets are hidden, passwords in addresses too. The configuration
// is a pointer to a struct with a field for the setting.
func (s Setting) Get(config any) string {
	v := s.kind.get(s.field(config))
	if s.Secret && v != "" {
		return redact.Hidden
	}
	return redact.Addresses(v)
}

// Set changes the value. The error names the problem and valid values.
func (s Setting) Set(config any, value string) error {
	if err := s.kind.set(s.field(config), value); err != nil {
		return err
	}
	return s.Check(config)
}

// Check validates the value, which a program may have set without Set.
func (s Setting) Check(config any) error {
	if s.kind.check == nil {
		return nil
	}
	return s.kind.check(s.field(config))
}

// field is a pointer to the field of a configuration. It panics if there is none.
func (s Setting) field(config any) any {
	v, ok := fieldOf(reflect.ValueOf(config).Elem(), s.Name)
	if !ok {
		panic(fmt.Sprintf("no field of %T has the tag `setting:%q`", config, s.Name))
	}
	return v.Addr().Interface()
}

func fieldOf(v reflect.Value, name string) (field reflect.Value, ok bool) {
	for n := range v.NumField() {
		switch f := v.Type().Field(n); {
		case f.Tag.Get("setting") == name:
			return v.Field(n), true
		case f.Type.Kind() == reflect.Struct && f.IsExported():
			if field, ok = fieldOf(v.Field(n), name); ok {
				return field, true
			}
		}
	}
	return field, false
}
