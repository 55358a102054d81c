package sqlrow

import (
	"fmt"
	"time"
)

// Builder puts a statement together with its parameters.
type Builder struct {
	Dialect
	Args []any
}

// Arg adds a parameter and gives its place, $1 for the first.
func (b *Builder) Arg(v any) string {
	b.Args = append(b.Args, v)
	return fmt.Sprintf("$%d", len(b.Args))
}

// TimeArg is Arg for a time, which databases take in different forms.
func (b *Builder) TimeArg(t time.Time) string { return b.Arg(b.Time(t)) }

// TextArg is Arg for a text in a list of VALUES: CockroachDB cannot infer its type there.
func (b *Builder) TextArg(s string) string { return "CAST(" + b.Arg(s) + " AS TEXT)" }
