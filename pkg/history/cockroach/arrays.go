package cockroach

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// packed is an array as the protocol takes it, in its binary form, that is written where it is sent
// from. A commit has dozens of arrays with a value for each turn. Written like this, they take a
// quarter of the time that pgx needs for slices, which it looks at one value after the other
// through interfaces, and texts need not be quoted and parsed.
type packed func(b []byte) []byte

// pack makes an array of rows; one appends the value of a row, or says that there is none.
func pack[E any](b []byte, rows []E, kind uint32, one func(b []byte, row *E) (_ []byte, valid bool)) []byte {
	const lengths = 5 * 4
	start := len(b)
	b = append(b, make([]byte, lengths)...)
	binary.BigEndian.PutUint32(b[start+8:], kind)
	if len(rows) == 0 {
		return b[:start+12] // of no dimension
	}
	binary.BigEndian.PutUint32(b[start:], 1)
	binary.BigEndian.PutUint32(b[start+12:], uint32(len(rows)))
	binary.BigEndian.PutUint32(b[start+16:], 1) // where it begins to count
	for i := range rows {
		n := len(b)
		var valid bool
		b, valid = one(append(b, 0, 0, 0, 0), &rows[i])
		length := uint32(len(b) - n - 4)
		if !valid {
			binary.BigEndian.PutUint32(b[start+4:], 1)
			length, b = 1<<32-1, b[:n+4]
		}
		binary.BigEndian.PutUint32(b[n:], length)
	}
	return b
}

// packs makes a function that packs one column of rows.
func packs[E any](kind uint32, one func(b []byte, row *E) (_ []byte, valid bool)) func([]E) packed {
	return func(rows []E) packed {
		return func(b []byte) []byte { return pack(b, rows, kind, one) }
	}
}

func int2s[E any](f func(*E) int16) func([]E) packed {
	return packs(pgtype.Int2OID, func(b []byte, row *E) ([]byte, bool) {
		return binary.BigEndian.AppendUint16(b, uint16(f(row))), true
	})
}

func nullInt2s[E any](f func(*E) (int16, bool)) func([]E) packed {
	return packs(pgtype.Int2OID, func(b []byte, row *E) ([]byte, bool) {
		n, valid := f(row)
		return binary.BigEndian.AppendUint16(b, uint16(n)), valid
	})
}

func int8s[E any](f func(*E) int64) func([]E) packed {
	return packs(pgtype.Int8OID, func(b []byte, row *E) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(b, uint64(f(row))), true
	})
}

func nullInt8s[E any](f func(*E) sql.NullInt64) func([]E) packed {
	return packs(pgtype.Int8OID, func(b []byte, row *E) ([]byte, bool) {
		n := f(row)
		return binary.BigEndian.AppendUint64(b, uint64(n.Int64)), n.Valid
	})
}

func bools[E any](f func(*E) bool) func([]E) packed {
	return packs(pgtype.BoolOID, func(b []byte, row *E) ([]byte, bool) {
		if f(row) {
			return append(b, 1), true
		}
		return append(b, 0), true
	})
}

func texts[E any](f func(*E) string) func([]E) packed {
	return packs(pgtype.TextOID, func(b []byte, row *E) ([]byte, bool) { return append(b, f(row)...), true })
}

func nullTexts[E any](f func(*E) sql.NullString) func([]E) packed {
	return packs(pgtype.TextOID, func(b []byte, row *E) ([]byte, bool) {
		s := f(row)
		return append(b, s.String...), s.Valid
	})
}

// blobs has NULL for nil.
func blobs[E any](f func(*E) []byte) func([]E) packed {
	return packs(pgtype.ByteaOID, func(b []byte, row *E) ([]byte, bool) {
		data := f(row)
		return append(b, data...), data != nil
	})
}

// epoch is where PostgreSQL begins to count microseconds.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// times has NULL for no time.
func times[E any](f func(*E) time.Time) func([]E) packed {
	return packs(pgtype.TimestamptzOID, func(b []byte, row *E) ([]byte, bool) {
		at := f(row)
		return binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()-epoch)), !at.IsZero()
	})
}

// packedCodec lets pgx take arrays that are packed already.
type packedCodec struct{ *pgtype.ArrayCodec }

// takePacked registers the packed array types with a connection.
func takePacked(conn *pgx.Conn) {
	m := conn.TypeMap()
	for _, oid := range []uint32{
		pgtype.Int2ArrayOID, pgtype.Int8ArrayOID, pgtype.BoolArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID,
		pgtype.TimestamptzArrayOID,
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
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case packed:
			return asPacked{}
		case firstPacked:
			return asFirstPacked{}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type asPacked struct{}

// Encode implements [pgtype.EncodePlan].
func (asPacked) Encode(value any, b []byte) ([]byte, error) { return value.(packed)(b), nil }

// ---- Room for them.

// room has the buffers for the parameters of commits, and for the messages that have them; it stays
// with a connection. By itself pgx begins with a few bytes each time, and grows them little by
// little: that would be a third of everything that an orchestrator allocates.
type room struct{ parameters, messages []byte }

const (
	// A commit of fewer bytes needs no such room, and one of more is rare enough to do without.
	littleRoom, mostRoom = 4 << 10, 2 << 20
	roomKey              = "github.com/rondo-run/rondo room"
)

// makeRoom makes room on a connection for the next statements, whose first parameters are those
// given.
func makeRoom(conn *pgx.Conn, need int, firsts ...*any) {
	if need < littleRoom || need > mostRoom {
		return
	}
	pg := conn.PgConn()
	r, _ := pg.CustomData()[roomKey].(*room)
	if r == nil {
		r = new(room)
		pg.CustomData()[roomKey] = r
	}
	if cap(r.parameters) < need {
		r.parameters, r.messages = make([]byte, 0, need+need/2), make([]byte, 0, need+need/2)
	}
	for _, first := range firsts {
		if p, ok := (*first).(packed); ok {
			*first = firstPacked{p, r}
		}
	}
	pg.Frontend().Send(moved{r.messages})
}

// firstPacked is the first parameter of a statement: the parameters behind it are put together in
// the free room.
type firstPacked struct {
	packed packed
	room   *room
}

type asFirstPacked struct{}

// Encode implements [pgtype.EncodePlan].
func (asFirstPacked) Encode(value any, b []byte) ([]byte, error) {
	first := value.(firstPacked)
	return first.packed(append(first.room.parameters[:0], b...)), nil
}

// moved is a message of no bytes: with it, the next message is put together in its room. That
// belongs to the connection, which does one thing after the other, so no other bytes are written
// into it.
type moved struct{ to []byte }

// Frontend implements [pgproto3.FrontendMessage].
func (moved) Frontend() {}

// Decode implements [pgproto3.Message]. No connection receives such a message.
func (moved) Decode([]byte) error { return errors.ErrUnsupported }

// Encode implements [pgproto3.Message].
func (m moved) Encode(before []byte) ([]byte, error) { return append(m.to[:0], before...), nil }
