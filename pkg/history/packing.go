package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// ---- Where things are.

// Shards is the number of shards that rows are spread over, so that neither ids that count up nor
// times make one range of CockroachDB the one that takes all writes. It is part of the primary keys
// and can never change.
const Shards = 16

// ShardOf is the shard of an instance.
func ShardOf(instance string) int16 {
	h := fnv.New32a()
	h.Write([]byte(instance))
	return int16(h.Sum32() % Shards)
}

// outboxBits is the number of low bits of the id of an outbox entry that tell entries of the same
// microsecond apart.
const outboxBits = 12

// outboxEpoch is where the time of an id begins: counted from 1970, microseconds would leave no
// room for the salt from 2041 on. It can never change.
var outboxEpoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// OutboxID makes an id that sorts by time. The salt tells the outbox entries of one microsecond
// apart.
func OutboxID(at time.Time, salt uint64) int64 {
	return (at.UnixMicro()-outboxEpoch)<<outboxBits | int64(salt&(1<<outboxBits-1))
}

// MaxOutboxEntry is the size at which the messages of a batch are split into a further row.
const MaxOutboxEntry = 512 << 10

// ---- How messages are packed.
//
// A packed message is its length and then:
//
//	version   one byte, 1
//	flags     one byte: 1 = purge, 2 = there is a time
//	time      nanoseconds since 1970 as a varint, if the flag says so
//	subject   length and bytes
//	headers   their number, and for each its name, the number of its values, and these
//	body      length and bytes
//
// Packed messages stand one after the other, so packs can be put together without being read.

const (
	packVersion = 1

	packPurge = 1
	packTime  = 2
)

// AppendPacked packs a message.
func AppendPacked(to []byte, w events.Wire) []byte {
	start := len(to)
	b := append(to, make([]byte, binary.MaxVarintLen32)...) // room for its length
	var flags byte
	if w.Purge {
		flags |= packPurge
	}
	if !w.NotBefore.IsZero() {
		flags |= packTime
	}
	b = append(b, packVersion, flags)
	if !w.NotBefore.IsZero() {
		b = binary.AppendVarint(b, w.NotBefore.Unix())
		b = binary.AppendUvarint(b, uint64(w.NotBefore.Nanosecond()))
	}
	b = appendBytes(b, w.Subject)
	b = binary.AppendUvarint(b, uint64(len(w.Header)))
	var few [12]string
	names := few[:0]
	for name := range w.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b = appendBytes(b, name)
		b = binary.AppendUvarint(b, uint64(len(w.Header[name])))
		for _, v := range w.Header[name] {
			b = appendBytes(b, v)
		}
	}
	b = appendBytes(b, w.Body)
	content := b[start+binary.MaxVarintLen32:]
	return append(binary.AppendUvarint(b[:start], uint64(len(content))), content...) // moves it to the left
}

// PackedRoom is about how much a packed message takes.
func PackedRoom(w events.Wire) int { return 64 + len(w.Subject) + 96*len(w.Header) + len(w.Body) }

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Unpack reads packed messages.
func Unpack(data []byte) ([]events.Wire, error) {
	var out []events.Wire
	r := unpacker{data}
	for len(r.rest) > 0 {
		n := len(out) + 1
		b, err := r.bytes()
		if err != nil {
			return nil, fmt.Errorf("packed message %d: %w", n, err)
		}
		w, err := unpackOne(b)
		if err != nil {
			return nil, fmt.Errorf("packed message %d: %w", n, err)
		}
		out = append(out, w)
	}
	return out, nil
}

func unpackOne(data []byte) (w events.Wire, err error) {
	if len(data) < 2 {
		return w, errShort
	}
	if data[0] != packVersion {
		return w, fmt.Errorf("version %d is not known here (written by a newer version?)", data[0])
	}
	flags := data[1]
	r := unpacker{data[2:]}
	w.Purge = flags&packPurge != 0
	if flags&packTime != 0 {
		seconds, nanos := r.varint(&err), r.number(&err)
		w.NotBefore = time.Unix(seconds, int64(nanos%1e9)).UTC()
	}
	w.Subject = r.text(&err)
	if n := r.number(&err); n > 0 && err == nil {
		w.Header = make(events.Header, min(n, 64))
		for ; n > 0 && err == nil; n-- {
			name := r.text(&err)
			for m := r.number(&err); m > 0 && err == nil; m-- {
				w.Header[name] = append(w.Header[name], r.text(&err))
			}
		}
	}
	if body := r.text(&err); body != "" {
		w.Body = []byte(body)
	}
	if err == nil && len(r.rest) > 0 {
		err = errors.New("unexpected data behind it")
	}
	return w, err
}

var errShort = errors.New("it is cut short")

// unpacker reads from the front. Its methods do nothing after the first error.
type unpacker struct{ rest []byte }

func (r *unpacker) bytes() ([]byte, error) {
	n, k := binary.Uvarint(r.rest)
	if k <= 0 || n > uint64(len(r.rest)-k) {
		return nil, errShort
	}
	b := r.rest[k : k+int(n)]
	r.rest = r.rest[k+int(n):]
	return b, nil
}

func (r *unpacker) text(err *error) string {
	if *err != nil {
		return ""
	}
	b, e := r.bytes()
	*err = e
	return string(b)
}

func (r *unpacker) number(err *error) uint64 {
	n, k := binary.Uvarint(r.rest)
	if *err == nil && k <= 0 {
		*err = errShort
	}
	if *err != nil {
		return 0
	}
	r.rest = r.rest[k:]
	return n
}

func (r *unpacker) varint(err *error) int64 {
	n, k := binary.Varint(r.rest)
	if *err == nil && k <= 0 {
		*err = errShort
	}
	if *err != nil {
		return 0
	}
	r.rest = r.rest[k:]
	return n
}
