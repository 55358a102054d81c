package pgfault

import (
	"net"
	"testing"
)

// watchedConn tells whether something was already done when it is closed.
type watchedConn struct {
	net.Conn
	onClose func()
}

func (c watchedConn) Close() error {
	c.onClose()
	return nil
}

// A session that is released by done sends the client what it has withheld. It may not be released
// BEFORE its connection to the client is closed.
func TestASessionIsReleasedAfterItsConnectionIsClosed(t *testing.T) {
	closed := 0
	var s *session
	s = newSession(nil, watchedConn{onClose: func() {
		closed++
		select {
		case <-s.done:
			t.Error("the session was released while its client could still hear it")
		default:
		}
	}})
	s.close()
	s.close()
	<-s.done
	if closed != 1 {
		t.Errorf("the connection was closed %d times, want once", closed)
	}
}
