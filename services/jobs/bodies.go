package jobserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
)

// bodies reads the bodies of requests. All that are in memory at the same time have a common limit;
// release frees the part of a request.
type bodies struct {
	max    int64               // of one body, in bytes
	memory *semaphore.Weighted // in bytes
}

func newBodies(most int) *bodies {
	return &bodies{max: int64(most), memory: semaphore.NewWeighted(max(maxBodies, int64(most)))}
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
	held := c.ContentLength
	if held < 0 {
		held = b.max
	}
	if !b.memory.TryAcquire(held) {
		return nil, newProblem(http.StatusServiceUnavailable, codeUnavailable,
			"many large requests are in flight, and nothing was done: try again").retry(time.Second).last()
	}
	c.held = held
	data, err := io.ReadAll(http.MaxBytesReader(nil, c.Body, b.max))
	var large *http.MaxBytesError
	switch {
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

// release frees the memory that the body of a request has.
func (b *bodies) release(c *call) { b.memory.Release(c.held) }
