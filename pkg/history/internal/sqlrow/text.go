package sqlrow

import (
	"database/sql"
	"strings"

	"github.com/rondo-run/rondo/pkg/codec"
)

// Text is s as every database takes it.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
}

// Storable reports whether a text can be in a database as it is.
func Storable(s string) bool { return s == Text(s) }

// Key is the id of an instance, or the key of a value, as a parameter: one that no database could
// hold becomes the empty one, which no row has.
func Key(s string) string {
	if !Storable(s) {
		return ""
	}
	return s
}

// NullText is Text, and NULL for an empty one.
func NullText(s string) sql.NullString {
	return sql.NullString{String: Text(s), Valid: s != ""}
}

// Payload is the value of a column as a payload: nil where the database has an empty value.
func Payload(b []byte) codec.Payload {
	if len(b) == 0 {
		return nil
	}
	return b
}
