package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Trace is a position in a trace, as W3C Trace Context has it: the trace, a span of it, and whether
// it is sampled. The zero value is no position.
type Trace struct {
	ID      [16]byte
	Span    [8]byte
	Sampled bool
}

// The form of a traceparent of version 00. Later versions may have more behind it.
const (
	traceLength = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	traceNow    = "00"
	traceNever  = "ff"
)

// ParseTrace reads a traceparent. It reports false for an invalid one, and for one without a trace
// or span id.
func ParseTrace(s string) (t Trace, ok bool) {
	if len(s) < traceLength || len(s) > traceLength && (s[:2] == traceNow || s[traceLength] != '-') {
		return Trace{}, false
	}
	var version, flags [1]byte
	if s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == traceNever ||
		strings.ToLower(s[:traceLength]) != s[:traceLength] {
		return Trace{}, false
	}
	for _, part := range []struct {
		to   []byte
		from string
	}{{version[:], s[:2]}, {t.ID[:], s[3:35]}, {t.Span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if _, err := hex.Decode(part.to, []byte(part.from)); err != nil {
			return Trace{}, false
		}
	}
	if t.ID == ([16]byte{}) || t.Span == ([8]byte{}) {
		return Trace{}, false
	}
	t.Sampled = flags[0]&1 != 0
	return t, true
}

// String writes a traceparent; "" if it is no place.
func (t Trace) String() string {
	if t.IsZero() {
		return ""
	}
	b := make([]byte, 0, traceLength)
	b = append(b, traceNow...)
	b = hex.AppendEncode(append(b, '-'), t.ID[:])
	b = hex.AppendEncode(append(b, '-'), t.Span[:])
	if t.Sampled {
		return string(append(b, "-01"...))
	}
	return string(append(b, "-00"...))
}

// IsZero reports whether it is no place.
func (t Trace) IsZero() bool { return t.ID == [16]byte{} }

// At is another span of the same trace.
func (t Trace) At(span [8]byte) Trace {
	t.Span = span
	return t
}

// TraceOf makes the id of a trace from its beginning: always the same, and unique.
func TraceOf(instance, message string) (id [16]byte) {
	sum := digest("trace", instance, message, Ref{})
	copy(id[:], sum[:])
	return id
}

// SpanOf makes the id of a span of what it is about: a kind of thing, and the event of an
// instance's that opens it.
func SpanOf(kind, instance string, ref Ref) (id [8]byte) {
	sum := digest(kind, instance, ref.Incarnation, ref)
	copy(id[:], sum[:])
	return id
}

// digest is the same for the same words and numbers, and for no others.
func digest(kind, instance, incarnation string, ref Ref) [sha256.Size]byte {
	b := make([]byte, 0, 128)
	for _, s := range []string{kind, instance, incarnation} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	b = binary.AppendVarint(b, ref.Execution)
	b = binary.AppendVarint(b, ref.Event)
	return sha256.Sum256(b)
}
