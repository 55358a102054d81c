package jobserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// sender is a client whose body the test sends in parts.
type sender struct {
	*testing.T
	call *call
	out  *io.PipeWriter
	read chan error // the outcome of reading the body
}

// sends begins to read a body of a caller. A length of -1 is a body in chunks.
func (b *bodies) sends(t *testing.T, caller string, length int64) *sender {
	from, to := io.Pipe()
	c := &call{Request: &http.Request{Body: from, ContentLength: length}, caller: &Caller{Name: caller}}
	s := &sender{t, c, to, make(chan error, 1)}
	go func() {
		_, err := b.whole(c)
		from.CloseWithError(io.ErrClosedPipe) // sends end, as those on a connection do
		s.read <- err
	}()
	return s
}

// part sends n bytes, and reports whether the server has read them.
func (s *sender) part(n int) bool {
	_, err := io.WriteString(s.out, strings.Repeat(" ", n))
	return err == nil
}

// whole sends a body of JSON that has n bytes, and wants it to be read.
func (s *sender) whole(n int) {
	s.Helper()
	if s.part(n - 1) {
		_, _ = io.WriteString(s.out, "1") // an error is in the outcome, too
	}
	s.out.Close()
	if err := <-s.read; err != nil {
		s.Errorf("a body of %d bytes of %s is not read: %v", n, s.call.caller.Name, err)
	}
}

func newTestBodies() *bodies { return newBodies(context.Background(), DefaultMaxBody, endWithin/4) }

const acknowledgement = 30 // bytes

// TestUnsentBodiesTakeNoMemory: a length that a client names holds nothing, so connections
// that send a byte refuse no request of other callers.
func TestUnsentBodiesTakeNoMemory(t *testing.T) {
	for name, length := range map[string]int64{"with a length": DefaultMaxBody, "in chunks": -1} {
		t.Run(name, func(t *testing.T) {
			b := newTestBodies()
			for range 200 {
				if !b.sends(t, "mallory", length).part(1) {
					t.Fatal("a byte is refused")
				}
			}
			b.sends(t, "ann", acknowledgement).whole(acknowledgement)
			b.sends(t, "ann", -1).whole(acknowledgement)
			b.sends(t, "ann", DefaultMaxBody).whole(DefaultMaxBody)
		})
	}
}

// TestACallerLeavesMemoryToOthers: callers that send as much as they can leave room for the next
// one, and all memory is free when their requests have ended.
func TestACallerLeavesMemoryToOthers(t *testing.T) {
	b := newTestBodies()
	var all []*sender
	greedy := func(caller string, part int) (n int) {
		for ; n < 100_000; n++ {
			s := b.sends(t, caller, -1)
			all = append(all, s)
			if !s.part(part) {
				break
			}
		}
		return n
	}
	large := greedy("mallory", DefaultMaxBody-1)
	if large < 4 || large > 8 {
		t.Errorf("one caller alone has %d bodies of 4 MiB in memory, which may be half of all", large)
	}
	small := greedy("mallory", smallBody)
	if small < 50 || small > 200 {
		t.Errorf("one caller alone has %d bodies of 64 KiB in memory, which may be half of all", small)
	}
	for n := range 20 {
		b.sends(t, "ann", acknowledgement).whole(acknowledgement)
		greedy(fmt.Sprint("mallory-", n), smallBody)
	}
	b.sends(t, "ann", acknowledgement).whole(acknowledgement)

	for _, s := range all {
		s.out.Close()
		<-s.read
		s.call.body.release()
	}
	b.sends(t, "ann", DefaultMaxBody).whole(DefaultMaxBody)
	if n := len(b.memory.small.of); n != 1 {
		t.Errorf("%d callers hold memory; want ann, whose requests have not ended", n)
	}
}

// TestWithoutAccessControlBodiesMayHoldAll: then there is one caller, and no other one to leave
// memory to.
func TestWithoutAccessControlBodiesMayHoldAll(t *testing.T) {
	m := newMemory(DefaultMaxBody)
	if !m.grow(nil, 0, largeBodies+smallBody) || m.grow(nil, largeBodies+smallBody, largeBodies+smallBody+1) {
		t.Errorf("the large part has %d bytes left", m.large.free)
	}
	m.release(nil, largeBodies+smallBody)
	if m.large.free != largeBodies || m.small.free != smallBodies || len(m.small.of)+len(m.large.of) > 0 {
		t.Errorf("after the release: %+v", m)
	}
}
