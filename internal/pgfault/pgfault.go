// Package pgfault is a bad network and a bad day of PostgreSQL, for tests: a proxy between a client
// and a real server that refuses, delays, fails and cuts where the test says so.
//
//	p := pgfault.Start(t, cluster.Addr())
//	conn, err := pgx.Connect(ctx, p.DSN(cluster.DSN()))
//	…
//	p.Inject(pgfault.Once(pgfault.Is("commit"), pgfault.CutAfter))
//	err = tx.Commit(ctx) // fails, but the server has committed
//
// The proxy passes everything on, message by message, and counts the statements: each Query message
// is one, whatever number of commands is in its text, and each Execute message is one, so a batch
// has as many as were queued. For each, the hook given to [Proxy.Inject] returns the fault.
// Parsing, binding and describing do not count as statements.
//
// A statement that fails ([FailBefore]) never reaches the server, but the server does fail: it gets
// text that it cannot parse, and the proxy replaces code and message in its answer. So the server
// itself does all that follows from an error: it aborts the transaction, if there is one, undoes
// earlier statements of the same batch, skips the rest up to the next Sync, and can return to a
// savepoint. A COMMIT is different, because the transaction is over when a COMMIT fails: the server
// gets a ROLLBACK, and the client the error.
//
// When the proxy cuts a connection, it hangs up on the server first and waits until the server has
// ended its session. So when the client learns that the connection is lost, the server has rolled
// back an open transaction, and released its locks.
//
// A statement that fails before it is executed, while it is parsed or bound, counts and is hit all
// the same, if the client has sent both together. The server gets a batch when its Sync has come;
// by then the fault of each statement is known.
//
// The proxy speaks the protocol without encryption, and cannot serve clients that wait for answers
// after Flush instead of Sync while [CutAfter] or [Stall] is at work. pgx does not.
package pgfault

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Statement is one that a client sent.
type Statement struct {
	N    int    // its number among all statements that went through the proxy, from 1
	Conn int    // the number of its connection, from 1
	SQL  string // its text; empty if it was prepared before this proxy could see it
}

// Fault is the fault to inject at a statement. The zero value is [Pass].
type Fault struct {
	kind          kind
	code, message string
	delay         time.Duration
	until         <-chan struct{}
}

type kind int

const (
	pass kind = iota
	failBefore
	cutBefore
	cutAfter
	stall
	hold
)

// The faults that need nothing more to be said.
var (
	// Pass lets the statement through.
	Pass = Fault{}
	// CutBefore ends the connection. The server never sees the statement.
	CutBefore = Fault{kind: cutBefore}
	// CutAfter lets the server execute the statement, and all that comes before the next Sync, and
	// ends the connection when the server has given its complete answer. The client gets nothing of
	// it, from this statement on: it cannot know whether a COMMIT, or a statement outside a
	// transaction, has happened. It has.
	CutAfter = Fault{kind: cutAfter}
	// Stall lets the server execute the statement, and all that comes before the next Sync, and
	// keeps the answer until [Proxy.Release], or until the client closes the connection.
	// [Proxy.Stalled] says when the server has given it.
	Stall = Fault{kind: stall}
)

// FailBefore makes the statement fail with an SQLSTATE, such as 40001 or 57014, instead of reaching
// the server. The connection stays usable.
func FailBefore(code, message string) Fault {
	return Fault{kind: failBefore, code: code, message: message}
}

// Delay lets the statement through after a time. Prefer [Hold]: time makes tests slow, or lets them
// fail on slow machines.
func Delay(d time.Duration) Fault { return Fault{kind: hold, delay: d} }

// Hold lets the statement through when the channel is closed, as a network does that delivers late:
// even if the client has closed the connection in the meantime.
func Hold(until <-chan struct{}) Fault { return Fault{kind: hold, until: until} }

// Hook returns the fault for a statement. It is called for statements of different connections at
// the same time, and may call the methods of the proxy. It may wait, which holds up that
// connection, but not beyond the end of the test: [Hold] ends by itself then.
type Hook func(Statement) Fault

// Once is a hook that applies a fault to the first statement that matches.
func Once(match func(Statement) bool, f Fault) Hook {
	var done atomic.Bool
	return func(s Statement) Fault {
		if match(s) && done.CompareAndSwap(false, true) {
			return f
		}
		return Pass
	}
}

// Is matches statements whose text begins with the given words, in whatever case and with whatever
// space between them.
func Is(words string) func(Statement) bool {
	want := strings.Fields(strings.ToLower(words))
	return func(s Statement) bool {
		got := strings.Fields(strings.ToLower(strings.TrimRight(s.SQL, "; \n\t")))
		return len(got) >= len(want) && slices.Equal(got[:len(want)], want)
	}
}

// Proxy is a server that passes everything on to a PostgreSQL server. Its methods may be called at
// the same time.
type Proxy struct {
	tb       testing.TB
	upstream string
	listener net.Listener
	stalled  chan Statement
	wait     sync.WaitGroup // for all goroutines

	// end ends when the proxy is closed.
	end    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	hook     Hook
	refuse   bool
	release  chan struct{} // closed to let go of those that are stalled now
	sessions map[*session]bool
	conns    int
	count    int
}

// Start starts a proxy on a free port of this machine, before the server at the given host and
// port. It is closed when the test ends, with all of its connections.
func Start(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		tb: tb, upstream: upstream, listener: l, stalled: make(chan Statement, 1024),
		release: make(chan struct{}), sessions: make(map[*session]bool),
	}
	p.end, p.cancel = context.WithCancel(context.Background())
	p.wait.Go(p.accept)
	tb.Cleanup(func() {
		p.cancel()
		_ = l.Close() // it only accepts
		p.CutAll()
		p.wait.Wait()
	})
	return p
}

// Addr is the proxy's host and port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// DSN changes the address of a server, in its form as a URL or as keywords and values, so that it
// leads through the proxy.
func (p *Proxy) DSN(dsn string) string {
	host, port, err := net.SplitHostPort(p.Addr())
	if err != nil {
		panic(err) // it is what the listener gave
	}
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return fmt.Sprintf("%s host=%s port=%s sslmode=disable", dsn, host, port) // the last one of a keyword counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		p.tb.Fatalf("pgfault: %v", err)
	}
	u.Host = p.Addr()
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

// Inject sets the hook for all later statements; nil lets all of them through.
func (p *Proxy) Inject(h Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = h
}

// Count is the number of statements so far.
func (p *Proxy) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Refuse makes the proxy close new connections at once, or stop doing so. Connections that are open
// stay open.
func (p *Proxy) Refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = yes
}

// CutAll closes all connections at once, whatever they are doing. The server may still execute
// running statements for a while.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	sessions := p.sessions
	p.sessions = make(map[*session]bool)
	p.mu.Unlock()
	for s := range sessions {
		s.close()
	}
}

// Stalled gives each statement that was stalled, when the server has given its complete answer.
func (p *Proxy) Stalled() <-chan Statement { return p.stalled }

// Release lets go of all connections that are stalled now: their clients get the answers. It does
// nothing to those that will be.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.release)
	p.release = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if p.end.Err() != nil {
			if err == nil {
				_ = conn.Close() // the test has ended
			}
			return
		}
		if err != nil {
			p.tb.Errorf("pgfault: accepting connections: %v", err)
			return
		}
		s := newSession(p, conn)
		if !p.add(s) {
			s.close()
			continue
		}
		p.wait.Go(func() {
			defer p.remove(s)
			s.serve()
		})
	}
}

// add makes a session known to [Proxy.CutAll], unless there must be none.
func (p *Proxy) add(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.end.Err() != nil {
		return false
	}
	p.sessions[s] = true
	return true
}

func (p *Proxy) remove(s *session) {
	s.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
}

// number gives a number to a connection on which statements will come.
func (p *Proxy) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns++
	return p.conns
}

// judge counts a statement and asks the hook for its fault.
func (p *Proxy) judge(conn int, sql string) (Statement, Fault) {
	p.mu.Lock()
	p.count++
	s, hook := Statement{N: p.count, Conn: conn, SQL: sql}, p.hook
	p.mu.Unlock()
	if hook == nil {
		return s, Pass
	}
	return s, hook(s)
}

func (p *Proxy) releaseChannel() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.release
}
