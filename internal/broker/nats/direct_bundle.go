package natsbroker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file encodes and decodes bundles.

// appendResult adds a result to a bundle.
func appendResult(to []byte, w events.Wire) []byte {
	to = appendText(to, w.Subject)
	n := 0
	for _, values := range w.Header {
		n += len(values)
	}
	to = binary.AppendUvarint(to, uint64(n))
	for name, values := range w.Header {
		for _, v := range values {
			to = appendText(appendText(to, name), v)
		}
	}
	return append(binary.AppendUvarint(to, uint64(len(w.Body))), w.Body...)
}

func appendText(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

var (
	errBundle      = errors.New("the bundle is cut off, or is none")
	errManyHeaders = fmt.Errorf("a message of the bundle has more than %d values of headers", maxHeaders)
)

// fitsBundle reports whether a message is small enough for a bundle. Bundles end with the message
// that exceeds maxBundleBytes, so that all of their messages together are within maxReceived.
func fitsBundle(w events.Wire) bool {
	n, size := 0, len(w.Subject)
	for name, values := range w.Header {
		for _, v := range values {
			n, size = n+1, size+len(name)+len(v)
		}
	}
	return len(w.Body) <= largeResult && n < maxHeaders && size <= maxBundleBytes // one is added on the way
}

// readBundle parses a bundle. Its messages share no memory with the body, so that a small one does
// not keep the whole body alive. They keep the headers that [broker.KnownHeader] names.
func readBundle(count string, body []byte) ([]events.Wire, error) {
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxBundle {
		return nil, fmt.Errorf("header %s: %q is no number from 1 to %d", headerResults, count, maxBundle)
	}
	if len(body) > maxReceived {
		return nil, fmt.Errorf("the bundle has %d bytes; maximum: %d", len(body), maxReceived)
	}
	results := make([]events.Wire, n)
	for i := range results {
		if results[i], body, err = readResult(body); err != nil {
			return nil, err
		}
	}
	if len(body) > 0 {
		return nil, errBundle
	}
	return results, nil
}

// readResult parses the first result of a bundle.
func readResult(body []byte) (w events.Wire, rest []byte, err error) {
	subject, rest, ok1 := cutText(body)
	n, rest, ok2 := cutNumber(rest)
	if !ok1 || !ok2 || n > uint64(len(rest))/2 {
		return w, nil, errBundle
	}
	if n > maxHeaders {
		return w, nil, errManyHeaders
	}
	w.Subject, w.Header = string(subject), make(events.Header, min(n, usualHeaders))
	values := make([]string, n)
	for i := range values {
		name, r, ok1 := cutText(rest)
		value, r, ok2 := cutText(r)
		if !ok1 || !ok2 {
			return w, nil, errBundle
		}
		rest = r
		known, is := broker.KnownHeader(string(name))
		if !is {
			continue
		}
		values[i] = string(value)
		if before := w.Header[known]; before != nil {
			w.Header[known] = append(before, values[i])
		} else {
			w.Header[known] = values[i : i+1 : i+1]
		}
	}
	text, rest, ok := cutText(rest)
	if !ok {
		return w, nil, errBundle
	}
	w.Body = slices.Clone(text)
	return w, rest, nil
}

// usualHeaders is at least the number of headers of nearly all messages in bundles.
const usualHeaders = 16

func cutText(from []byte) (text, rest []byte, ok bool) {
	n, rest, ok := cutNumber(from)
	if !ok || n > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[:n], rest[n:], true
}

func cutNumber(from []byte) (n uint64, rest []byte, ok bool) {
	n, width := binary.Uvarint(from)
	if width <= 0 {
		return 0, nil, false
	}
	return n, from[width:], true
}
