package jobserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// bodies reads the bodies of requests. All that are in memory at the same time have a common limit.
type bodies struct {
	max    int64 // of one body, in bytes
	memory *memory
	// ending ends when the server shuts down. Incomplete bodies then have grace left, which is less
	// than what Run gives to all requests.
	ending context.Context
	grace  time.Duration
}

func newBodies(ending context.Context, most int, grace time.Duration) *bodies {
	return &bodies{max: int64(most), memory: newMemory(int64(most)), ending: ending, grace: grace}
}

// read reads a body of JSON. It refuses unknown members, so that a misspelt name is noticed.
func (b *bodies) read(c *call, into any) error {
	data, err := b.whole(c)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("the body has something behind its JSON; send one value")
	}
	return nil
}

// whole reads a whole body. It refuses one for which there is no memory now.
func (b *bodies) whole(c *call) ([]byte, error) {
	tooLarge := newProblem(http.StatusRequestEntityTooLarge, codeTooLarge,
		fmt.Sprintf("the request is larger than %d bytes: send fewer items at once", b.max)).last()
	if c.ContentLength > b.max {
		return nil, tooLarge
	}
	stop := context.AfterFunc(b.ending, func() {
		_ = c.control.SetReadDeadline(time.Now().Add(b.grace)) // an error means that the connection has ended
	})
	defer stop()
	data, err := b.readAll(c)
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, errNoMemory):
		return nil, newProblem(http.StatusServiceUnavailable, codeUnavailable,
			"many large requests are in flight, and nothing was done: try again").retry(time.Second).last()
	case errors.As(err, &large):
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newProblem(http.StatusRequestTimeout, codeTooSlow,
			"the body did not come in time: send it at once").last()
	case err != nil:
		return nil, invalid("the body did not come to its end: %v", err)
	case !utf8.Valid(data):
		return nil, invalid("the body is not UTF-8, as JSON must be")
	case len(bytes.TrimSpace(data)) == 0:
		return nil, invalid("the body is empty; send JSON")
	}
	return data, nil
}

// errNoMemory means that other bodies have the memory that this one needs.
var errNoMemory = errors.New("no memory for the body")

// readAll is [io.ReadAll] for a body whose buffer grows only if there is memory for it.
func (b *bodies) readAll(c *call) ([]byte, error) {
	most := b.max + 1
	if c.ContentLength >= 0 {
		most = c.ContentLength + 1 // the end needs a byte of room
	}
	from, data := http.MaxBytesReader(nil, c.Body, b.max), []byte(nil)
	c.body.memory, c.body.caller = b.memory, c.caller
	for {
		if len(data) == cap(data) {
			size := min(max(firstRead, 2*int64(cap(data))), most)
			if !b.memory.grow(c.caller, c.body.bytes, size) {
				return nil, errNoMemory
			}
			c.body.bytes = size
			data = append(make([]byte, 0, size), data...)
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return data, err
		}
	}
}

// heldBody is the memory that the body of a request has. The request holds it, and each of its
// operations until it is over, which may be after the request: see [gatherer.do].
type heldBody struct {
	memory     *memory // nil: no body was read
	caller     *Caller
	bytes      int64
	operations atomic.Int32
}

// keep holds the memory for an operation, too. Both methods accept nil.
func (h *heldBody) keep() {
	if h != nil {
		h.operations.Add(1)
	}
}

// release ends a hold, and frees the memory if it was the last one.
func (h *heldBody) release() {
	if h != nil && h.operations.Add(-1) < 0 && h.memory != nil {
		h.memory.release(h.caller, h.bytes)
	}
}
