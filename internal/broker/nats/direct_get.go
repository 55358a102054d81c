package natsbroker

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// located is a stored message in an answer of NATS to a direct request. NATS appends its own
// headers to those of the publisher, which may look like them, like a status, or like the end of
// all headers.
type located struct {
	subject string
	place   uint64
	at      time.Time
}

const (
	// maxFields bounds the header lines of an answer that is believed. A publisher can hide the
	// headers of NATS, some 90 bytes, behind an empty line. The size of the answer tells, unless
	// each line of the publisher is a byte shorter than usual, and there are that many.
	maxFields = 64
	// maxStatusFields bounds those of a status: NATS sends five at most.
	maxStatusFields = 8
)

// storedIn reads a stored message. ok is false if it is none, or if the publisher may have forged
// the answer: then only the leader of the stream can tell.
func storedIn(m *nats.Msg) (s located, ok bool) {
	size, fields := sizeOf(m.Header)
	if size != headerSizeOf(m) || fields > maxFields {
		return s, false
	}
	for _, name := range []string{nats.JSStream, nats.JSSequence, nats.JSSubject, nats.JSTimeStamp} {
		if len(m.Header[name]) != 1 {
			return s, false
		}
	}
	place, err1 := strconv.ParseUint(m.Header[nats.JSSequence][0], 10, 64)
	at, err2 := time.Parse(time.RFC3339Nano, m.Header[nats.JSTimeStamp][0])
	// The subject is part of a string with all headers, of which the publisher has chosen some.
	subject := strings.Clone(m.Header[nats.JSSubject][0])
	return located{subject, place, at}, err1 == nil && err2 == nil
}

// statusOf returns the status that an answer is, "" if it is none.
func statusOf(m *nats.Msg) string {
	status, description := m.Header["Status"], m.Header["Description"]
	if len(status) != 1 || len(description) > 1 || len(m.Data) > 0 || m.Header[nats.JSStream] != nil {
		return ""
	}
	size, fields := sizeOf(m.Header)
	inLine := size - len("Status: \r\n") + len(" ") // NATS writes a status into the first line
	if len(description) > 0 {
		inLine -= len("Description: \r\n") - len(" ")
	}
	if is := headerSizeOf(m); is != size && is != inLine || fields > maxStatusFields {
		return ""
	}
	return status[0]
}

// headerSizeOf returns the size of the headers of a received message.
func headerSizeOf(m *nats.Msg) int { return m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data) }

// sizeOf returns the usual size of headers, and the number of their lines.
func sizeOf(h nats.Header) (size, fields int) {
	size = len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		fields += len(values)
		for _, v := range values {
			size += len(name) + len(": ") + len(v) + len("\r\n")
		}
	}
	return size, fields
}
