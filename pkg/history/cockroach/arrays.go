package cockroach

import (
	"database/sql"
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// packed is an array as the protocol takes it, in its binary form. A commit has dozens of arrays with a value for each turn. Written like this, they take a quarter of
// the time that pgx needs for slices, which it looks at one value after the other through interfaces, and texts need not be quoted and parsed.
type packed []byte

// pack makes an array of rows; one appends the value of a row, or says that there is none.
func pack[E any](rows []E, kind uint32, size int, one func(b []byte, row E) (_ []byte, valid bool)) packed {
	const lengths = 5 * 4
	b := make([]byte, lengths, lengths+len(rows)*(4+size))
	binary.BigEndian.PutUint32(b[8:], kind)
	if len(rows) == 0 {
		return b[:12] // of no dimension
	}
	binary.BigEndian.PutUint32(b, 1)
	binary.BigEndian.PutUint32(b[12:], uint32(len(rows)))
	binary.BigEndian.PutUint32(b[16:], 1) // where it begins to count
	for _, row := range rows {
		n := len(b)
		var valid bool
		b, valid = one(append(b, 0, 0, 0, 0), row)
		length := uint32(len(b) - n - 4)
		if !valid {
			binary.BigEndian.PutUint32(b[4:], 1)
			length, b = 1<<32-1, b[:n+4]
		}
		binary.BigEndian.PutUint32(b[n:], length)
	}
	return b
}

// packs makes a function that packs one column of rows.
func packs[E any](kind uint32, size int, one func(b []byte, row E) (_ []byte, valid bool)) func([]E) packed {
	return func(rows []E) packed { return pack(rows, kind, size, one) }
}

func int2s[E any](f func(E) int16) func([]E) packed {
	return packs(pgtype.Int2OID, 2, func(b []byte, row E) ([]byte, bool) { return binary.BigEndian.AppendUint16(b, uint16(f(row))), true })
}

func nullInt2s[E any](f func(E) (int16, bool)) func([]E) packed {
	return packs(pgtype.Int2OID, 2, func(b []byte, row E) ([]byte, bool) {
		n, valid := f(row)
		return binary.BigEndian.AppendUint16(b, uint16(n)), valid
	})
}

func int8s[E any](f func(E) int64) func([]E) packed {
	return packs(pgtype.Int8OID, 8, func(b []byte, row E) ([]byte, bool) { return binary.BigEndian.AppendUint64(b, uint64(f(row))), true })
}

func nullInt8s[E any](f func(E) sql.NullInt64) func([]E) packed {
	return packs(pgtype.Int8OID, 8, func(b []byte, row E) ([]byte, bool) {
		n := f(row)
		return binary.BigEndian.AppendUint64(b, uint64(n.Int64)), n.Valid
	})
}

func bools[E any](f func(E) bool) func([]E) packed {
	return packs(pgtype.BoolOID, 1, func(b []byte, row E) ([]byte, bool) {
		if f(row) {
			return append(b, 1), true
		}
		return append(b, 0), true
	})
}

func texts[E any](f func(E) string) func([]E) packed {
	return packs(pgtype.TextOID, 24, func(b []byte, row E) ([]byte, bool) { return append(b, f(row)...), true })
}

func nullTexts[E any](f func(E) sql.NullString) func([]E) packed {
	return packs(pgtype.TextOID, 24, func(b []byte, row E) ([]byte, bool) {
		s := f(row)
		return append(b, s.String...), s.Valid
	})
}

// blobs has NULL for nil.
func blobs[E any](f func(E) []byte) func([]E) packed {
	return func(rows []E) packed {
		size := 0 // they differ too much to be guessed
		for _, row := range rows {
			size += len(f(row))
		}
		return pack(rows, pgtype.ByteaOID, size/max(1, len(rows))+1, func(b []byte, row E) ([]byte, bool) {
			data := f(row)
			return append(b, data...), data != nil
		})
	}
}

// epoch is where PostgreSQL begins to count microseconds.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// times has NULL for no time.
func times[E any](f func(E) time.Time) func([]E) packed {
	return packs(pgtype.TimestamptzOID, 8, func(b []byte, row E) ([]byte, bool) {
		at := f(row)
		return binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()-epoch)), !at.IsZero()
	})
}

// packedCodec lets pgx take arrays that are packed already.
type packedCodec struct{ *pgtype.ArrayCodec }

// takePacked changes what a connection knows of arrays.
func takePacked(conn *pgx.Conn) {
	m := conn.TypeMap()
	for _, oid := range []uint32{
		pgtype.Int2ArrayOID, pgtype.Int8ArrayOID, pgtype.BoolArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.TimestamptzArrayOID,
	} {
		if t, ok := m.TypeForOID(oid); ok {
			if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
				m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: packedCodec{codec}})
			}
		}
	}
}

// PreferredFormat implements [pgtype.Codec].
func (packedCodec) PreferredFormat() int16 { return pgtype.BinaryFormatCode }

// PlanEncode implements [pgtype.Codec].
func (c packedCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(packed); ok && format == pgtype.BinaryFormatCode {
		return asPacked{}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type asPacked struct{}

// Encode implements [pgtype.EncodePlan].
func (asPacked) Encode(value any, b []byte) ([]byte, error) { return append(b, value.(packed)...), nil }
