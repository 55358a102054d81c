//go:build unix

package chaos_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/slowtest"
)

// This file is the way between a service and a server, which can be broken.

// weather is the faults of a link. The zero value has none.
type weather struct {
	// Cut ends all connections, and refuses new ones.
	Cut bool
	// LoseUp loses the service's bytes, LoseDown the server's. Neither side notices: connections
	// look open.
	LoseUp, LoseDown bool
	// Delay is how much later everything arrives.
	Delay time.Duration
}

// link passes connections on to a server.
type link struct {
	listener net.Listener
	to       string
	after    func(time.Duration) <-chan time.Time // waits for a delay

	mu    sync.Mutex
	now   weather
	pairs map[*pair]bool
	all   sync.WaitGroup
}

// pair is a connection of a service with the one to the server that belongs to it.
type pair struct {
	service, server net.Conn
	lost            bool // something was lost, so that nothing sensible can follow
}

func newLink(t testing.TB, to string) *link {
	t.Helper()
	return newLinkWith(t, to, time.After)
}

func newLinkWith(t testing.TB, to string, after func(time.Duration) <-chan time.Time) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, after: after, pairs: make(map[*pair]bool)}
	l.all.Go(l.serve)
	t.Cleanup(func() {
		_ = listener.Close() // it only accepts
		l.set(weather{Cut: true})
		l.all.Wait()
	})
	return l
}

// address is where services connect to.
func (l *link) address() string { return l.listener.Addr().String() }

// set changes the weather. Connections that have lost bytes end when nothing more is lost: their
// two ends no longer agree on the bytes that were sent.
func (l *link) set(w weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = w
	for p := range l.pairs {
		if w.Cut || p.lost && !w.LoseUp && !w.LoseDown {
			l.end(p)
		}
	}
}

// end closes a pair. The lock is held.
func (l *link) end(p *pair) {
	delete(l.pairs, p)
	_ = p.service.Close() // unsent bytes are dropped
	_ = p.server.Close()
}

func (l *link) serve() {
	for {
		service, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.all.Go(func() { l.connect(service) })
	}
}

func (l *link) connect(service net.Conn) {
	server, err := net.DialTimeout("tcp", l.to, 5*time.Second)
	if err != nil {
		_ = service.Close() // it tries again
		return
	}
	p := &pair{service: service, server: server}
	l.mu.Lock()
	l.pairs[p] = true
	if l.now.Cut {
		l.end(p)
	}
	l.mu.Unlock()
	l.all.Go(func() { l.pass(p, server, service, true) })
	l.all.Go(func() { l.pass(p, service, server, false) })
}

// piece is a part of a stream in flight.
type piece struct {
	data []byte
	due  time.Time
}

// pass forwards the bytes of one side. The bytes in flight are bounded, so a side that sends too
// much has to wait.
func (l *link) pass(p *pair, to io.Writer, from io.Reader, up bool) {
	way := make(chan piece, 256)
	gone := make(chan struct{})
	l.all.Go(func() {
		defer close(gone)
		for x := range way {
			if wait := time.Until(x.due); wait > 0 {
				<-l.after(wait)
			}
			if _, err := to.Write(x.data); err != nil {
				break
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(p)
	})
	defer close(way)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.lose(p, up) {
			select {
			case way <- piece{bytes.Clone(buf[:n]), time.Now().Add(l.delay())}:
			case <-gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) lose(p *pair, up bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := up && l.now.LoseUp || !up && l.now.LoseDown
	p.lost = p.lost || lost
	return lost
}

// hasLost reports whether an open connection has lost something.
func (l *link) hasLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		if p.lost {
			return true
		}
	}
	return false
}

func (l *link) delay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now.Delay
}

// TestLink checks that a link has the weather that was set.
func TestLink(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	delays, over := make(chan time.Duration, 10), make(chan time.Time)
	close(over)
	l := newLinkWith(t, server.Addr().String(), func(d time.Duration) <-chan time.Time {
		delays <- d
		return over
	})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	echo := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	c := dial()
	if err := echo(c); err != nil {
		t.Fatal(err)
	}
	l.set(weather{Delay: time.Hour})
	if err := echo(c); err != nil || len(delays) != 2 {
		t.Fatalf("%d delays (%v), want one each way", len(delays), err)
	}
	for range 2 { // a slow machine has spent a part of it
		if d := <-delays; d <= time.Hour/2 || d > time.Hour {
			t.Errorf("a delay of %v, want an hour", d)
		}
	}
	for _, w := range []weather{{LoseUp: true}, {LoseDown: true}} {
		l.set(w)
		c := dial()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if !slowtest.Until(time.Minute, l.hasLost) {
			t.Fatalf("%+v: nothing is lost", w)
		}
		if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%+v: reading gives %v", w, err)
		}
		l.set(weather{})
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%+v: a connection that has lost something goes on", w)
		}
	}
	c = dial()
	if err := echo(c); err != nil {
		t.Error(err)
	}
	l.set(weather{Cut: true})
	if err := echo(c); err == nil {
		t.Error("it is cut, and goes on")
	}
	if err := echo(dial()); err == nil {
		t.Error("it is cut, and takes connections")
	}
}
