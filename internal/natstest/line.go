package natstest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Line is a connection between clients and a server that tests can break.
type Line struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	deaf  bool
	held  chan struct{} // closed when the messages of clients go on; nil: they do not wait
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// NewLine makes a line to a server.
func NewLine(t testing.TB, to interface{ URL() string }) *Line {
	t.Helper()
	u, err := url.Parse(to.URL())
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{to: u.Host, conns: make(map[net.Conn]bool)}
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	l.all.Go(l.serve)
	t.Cleanup(func() {
		_ = l.listener.Close() // it fails only if it is closed
		l.Break()
		l.all.Wait()
	})
	return l
}

// URL is the URL for clients.
func (l *Line) URL() string { return "nats://" + l.listener.Addr().String() }

// Lose drops messages of the server from now on; messages of clients still arrive.
func (l *Line) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

// Hold keeps back the messages of clients until resume is called; those of the server still arrive.
func (l *Line) Hold() (resume func()) {
	held := make(chan struct{})
	l.mu.Lock()
	l.held = held
	l.mu.Unlock()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		l.held = nil
		l.mu.Unlock()
		close(held)
	})
}

// Break ends all connections. Later ones drop nothing.
func (l *Line) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = false
	for c := range l.conns {
		_ = c.Close() // it may have ended by itself
	}
	clear(l.conns)
}

func (l *Line) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = client.Close() // it tries again
			continue
		}
		l.mu.Lock()
		l.conns[client], l.conns[server] = true, true
		l.mu.Unlock()
		l.all.Go(func() { l.forward(server, client, l.passes) })
		l.all.Go(func() { l.forward(client, server, l.hears) })
	}
}

func (l *Line) hears() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.deaf
}

// passes waits as long as the messages of clients are kept back.
func (l *Line) passes() bool {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
	return true
}

// forward copies the bytes of one side to the other, as long as hears reports true.
func (l *Line) forward(to io.WriteCloser, from io.ReadCloser, hears func() bool) {
	defer func() { _, _ = to.Close(), from.Close() }() // one of the two ends has failed already
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !hears() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
