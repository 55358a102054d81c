package pgfault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// farewell is how long a server may take to end a session after the proxy has hung up. It takes
// longer only if it still waits for a lock, in a batch that was cut in the middle.
const farewell = 5 * time.Second

// session is one connection of a client, and the one to the server that belongs to it.
//
// Two goroutines work for it: one passes on the messages of the client (fromClient), the other
// those of the server (fromServer). The server's side ends with the server's session, and closes
// both connections.
type session struct {
	p        *Proxy
	client   net.Conn
	backend  *pgproto3.Backend // the server's side of the protocol, towards the client
	frontend *pgproto3.Frontend

	mu     sync.Mutex
	server net.Conn // nil before the connection is made
	closed bool

	done  chan struct{} // closed with the connections
	left  chan struct{} // closed when the client hears nothing more
	leave sync.Once
	muted atomic.Bool // messages of the server are dropped

	replies replies

	// The rest is for the goroutine of the client's side only.
	number     int
	statements map[string]string // the SQL of prepared statements, by name
	portals    map[string]string // the SQL of bound statements, by portal
	// something has failed that the server does not know of, so nothing counts before the next Sync
	skipping bool
	after    *ending // the fault to apply after the answer to the next Sync
}

// ending is the fault to apply after a complete answer.
type ending struct {
	kind      kind // cutAfter or stall
	statement Statement
	release   <-chan struct{}
}

func newSession(p *Proxy, client net.Conn) *session {
	return &session{
		p: p, client: client, backend: pgproto3.NewBackend(client, client),
		done: make(chan struct{}), left: make(chan struct{}),
		statements: make(map[string]string), portals: make(map[string]string),
	}
}

// close closes both connections, whatever they are doing.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	_ = s.client.Close() // an unsent answer is lost, as it would be with a connection that breaks
	if s.server != nil {
		_ = s.server.Close()
	}
	close(s.done) // AFTER the client's connection: fromServer goes on to send a withheld answer
}

// hangUp signals to the server that no more messages follow. The proxy drops later messages of the
// server; when the server has ended its session, the client's connection is closed as well. The
// server may take as long as it wants if limit is 0.
func (s *session) hangUp(limit time.Duration) {
	s.muted.Store(true)
	s.leave.Do(func() { close(s.left) })
	if limit > 0 {
		// it fails if the connection is closed, and then it is not needed
		_ = s.server.SetReadDeadline(time.Now().Add(limit))
	}
	_ = s.server.(*net.TCPConn).CloseWrite()
}

// report makes the test fail if an error is more than a lost connection: that is what this package
// is about.
func (s *session) report(err error) {
	if _, network := errors.AsType[*net.OpError](err); network || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	s.p.tb.Errorf("pgfault: connection %d: %v", s.number, err)
}

func (s *session) serve() {
	for {
		msg, err := s.backend.ReceiveStartupMessage()
		if err != nil {
			return // a client only probed the port, or the connection was cut
		}
		switch m := msg.(type) {
		case *pgproto3.CancelRequest:
			s.passCancel(m)
			return
		case *pgproto3.StartupMessage:
			if !s.logIn(m) {
				return
			}
			var server sync.WaitGroup
			server.Go(s.fromServer)
			s.fromClient()
			server.Wait()
			return
		default: // a request for encryption
			if _, err := s.client.Write([]byte("N")); err != nil {
				return
			}
		}
	}
}

// dial connects to the server. If there is none, the client's connection is closed.
func (s *session) dial() bool {
	var d net.Dialer
	conn, err := d.DialContext(s.p.end, "tcp", s.p.upstream)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close() // nothing was written to it
		return false
	}
	s.server = conn
	s.frontend = pgproto3.NewFrontend(conn, conn)
	s.frontend.SetMaxBodyLen(0)
	return true
}

// passCancel passes on the request to cancel a statement of another connection. The server says
// that it has seen it by closing the connection.
func (s *session) passCancel(m *pgproto3.CancelRequest) {
	if !s.dial() {
		return
	}
	s.frontend.Send(m)
	if s.frontend.Flush() == nil {
		_, _ = io.Copy(io.Discard, s.server) // it ends in any case
	}
}

// logIn passes on the messages before the first statement. Only one side sends at a time.
func (s *session) logIn(m *pgproto3.StartupMessage) bool {
	s.number = s.p.number()
	if !s.dial() {
		return false
	}
	s.frontend.Send(m)
	for {
		if err := s.frontend.Flush(); err != nil {
			s.report(err)
			return false
		}
		msg, err := s.frontend.Receive()
		if err != nil {
			s.report(err)
			return false
		}
		s.backend.Send(msg)
		// Messages about passwords all have the same type: to decode them, the reader needs to know
		// which request they answer.
		if err := errors.Join(s.backend.SetAuthType(s.frontend.GetAuthType()), s.backend.Flush()); err != nil {
			s.report(err)
			return false
		}
		switch msg.(type) {
		case *pgproto3.ReadyForQuery:
			return true
		case *pgproto3.ErrorResponse:
			return false
		case *pgproto3.AuthenticationCleartextPassword, *pgproto3.AuthenticationMD5Password,
			*pgproto3.AuthenticationSASL,
			*pgproto3.AuthenticationSASLContinue, *pgproto3.AuthenticationGSS, *pgproto3.AuthenticationGSSContinue:
			answer, err := s.backend.Receive()
			if err != nil {
				return false // the client did not like it
			}
			s.frontend.Send(answer)
		}
	}
}

// fromClient passes on the client's messages, until the client ends or the proxy cuts.
func (s *session) fromClient() {
	for {
		msg, err := s.backend.Receive()
		if err != nil {
			s.report(err)
			s.hangUp(0)
			return
		}
		if !s.pass(msg) || !s.flushToServer(msg) {
			return
		}
	}
}

// flushToServer sends the messages passed so far, if this one does not wait for others; false if
// nothing more can be passed.
//
// The proxy keeps a batch until its Sync. So it knows the fault of each statement before the server
// can give the first answer, and the client's view does not depend on whether proxy or server is
// faster.
func (s *session) flushToServer(msg pgproto3.FrontendMessage) bool {
	switch msg.(type) {
	case *pgproto3.Parse, *pgproto3.Bind, *pgproto3.Describe, *pgproto3.Execute, *pgproto3.Close:
		return true
	}
	if err := s.frontend.Flush(); err != nil {
		// The last messages of a server that died may still be in flight to the client, so the
		// other side closes the connections.
		s.report(err)
		return false
	}
	if _, last := msg.(*pgproto3.Terminate); last {
		s.hangUp(0) // the client waits for the end, even of a connection that is stalled
		return false
	}
	return true
}

// pass sends a message of the client to the server, or its replacement; false if the connection has
// been cut.
func (s *session) pass(msg pgproto3.FrontendMessage) bool {
	switch msg.(type) {
	case *pgproto3.Sync, *pgproto3.Terminate:
		s.skipping = false
	default:
		if s.skipping {
			return true
		}
	}
	switch m := msg.(type) {
	case *pgproto3.Query:
		return s.passStatement(m, m.String)
	case *pgproto3.Execute:
		return s.passStatement(m, s.portals[m.Portal])
	case *pgproto3.Parse:
		s.statements[m.Name] = m.Query
		s.send(m, reply{to: toParse})
	case *pgproto3.Bind:
		s.portals[m.DestinationPortal] = s.statements[m.PreparedStatement]
		s.send(m, reply{to: toBind})
	case *pgproto3.Describe:
		s.send(m, reply{to: toDescribe})
	case *pgproto3.Close:
		if m.ObjectType == 'S' {
			delete(s.statements, m.Name)
		}
		s.send(m, reply{to: toClose})
	case *pgproto3.Sync:
		s.send(m, reply{to: toSync, after: s.after})
		s.after = nil
	case *pgproto3.FunctionCall:
		s.send(m, reply{to: toFunctionCall})
	default: // nothing is said to it
		s.frontend.Send(m)
	}
	return true
}

// send sends a message to which there will be a reply. The reply is noted first, because it can
// come at once.
func (s *session) send(m pgproto3.FrontendMessage, r reply) {
	s.replies.expect(r)
	s.frontend.Send(m)
}

func (s *session) passStatement(m pgproto3.FrontendMessage, sql string) bool {
	st, fault := s.p.judge(s.number, sql)
	r := reply{to: toExecute}
	_, simple := m.(*pgproto3.Query)
	if simple {
		r.to = toQuery
	}
	switch fault.kind {
	case failBefore:
		s.fail(simple, isCommit(sql), fault)
		return true
	case cutBefore:
		_ = s.frontend.Flush() // the messages before the statement; the server need not get them
		s.hangUp(farewell)
		return false
	case hold:
		if err := s.frontend.Flush(); err != nil || !s.wait(fault) {
			return false
		}
	case cutAfter, stall:
		r.withhold = true
		e := &ending{kind: fault.kind, statement: st, release: s.p.releaseChannel()}
		if simple {
			r.after = e
		} else if s.after == nil {
			s.after = e
		}
	default:
	}
	s.send(m, r)
	return true
}

// wait waits as long as a fault says; false if the connection was cut in the meantime.
func (s *session) wait(f Fault) bool {
	var over <-chan time.Time
	if f.delay > 0 {
		t := time.NewTimer(f.delay)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-f.until:
	case <-over:
	case <-s.done:
		return false
	}
	return true
}

// ours is the name of the statement and the portal that the proxy makes: those of clients must stay
// what they are.
const ours = "pgfault"

// fail makes the server fail instead of executing a statement. The server gets a text that is not
// SQL: it fails in every state of a transaction, and has no other effect than any error has. The
// text is for readers of the server's log.
//
// After a COMMIT that failed the transaction is over, so the server gets a ROLLBACK, whose success
// the proxy reports to the client as an error.
func (s *session) fail(simple, commit bool, f Fault) {
	sql := fmt.Sprintf(`"injected failure %s"`, f.code)
	if commit {
		sql = "ROLLBACK"
	}
	failure := &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: f.code,
		Message: f.message}
	if simple {
		s.send(&pgproto3.Query{String: sql}, reply{to: toQuery, failure: failure})
		return
	}
	s.skipping = true
	s.send(&pgproto3.Parse{Name: ours, Query: sql}, reply{to: toParse, failure: failure})
	if commit {
		s.send(&pgproto3.Bind{DestinationPortal: ours, PreparedStatement: ours}, reply{to: toBind, failure: failure})
		s.send(&pgproto3.Execute{Portal: ours}, reply{to: toExecute, failure: failure})
		s.send(&pgproto3.Close{ObjectType: 'S', Name: ours}, reply{to: toClose, failure: failure})
	}
}

// isCommit reports whether a statement commits a transaction.
func isCommit(sql string) bool {
	words := strings.Fields(strings.ToLower(strings.ReplaceAll(sql, ";", " ")))
	if len(words) == 0 || words[0] != "commit" && words[0] != "end" {
		return false
	}
	return len(words) == 1 || words[1] != "prepared"
}

// fromServer passes on the server's messages until the server's session ends, and then closes both
// connections.
func (s *session) fromServer() {
	defer s.close()
	withheld := false // messages to the client stay in the buffer
	for {
		msg, err := s.frontend.Receive()
		var r reply
		complete := false
		if err == nil {
			r, complete, err = s.replies.match(msg)
		}
		if err != nil {
			if !withheld {
				s.flush()
			}
			s.report(err)
			return
		}
		withheld = withheld || r.withhold
		if complete && r.after != nil && !withheld {
			s.flush() // the statement was skipped, because one before it has failed
		}
		if shown := r.show(msg); shown != nil && !s.muted.Load() {
			s.backend.Send(shown)
		}
		if complete && r.after != nil {
			s.finish(r.after)
			withheld = false
		}
		if !withheld && s.frontend.ReadBufferLen() == 0 {
			s.flush()
		}
	}
}

// finish applies the fault that follows a complete answer.
func (s *session) finish(e *ending) {
	if e.kind == cutAfter {
		s.hangUp(farewell)
		return
	}
	select {
	case s.p.stalled <- e.statement:
	default: // no test reads that many
	}
	select {
	case <-e.release:
	case <-s.left:
	case <-s.done:
	}
}

// flush sends the buffered messages to the client. If the client has closed the connection, the
// other direction notices that.
func (s *session) flush() {
	if s.muted.Load() {
		return
	}
	if err := s.backend.Flush(); err != nil {
		s.report(err)
		s.muted.Store(true)
	}
}
