package pgfault

import (
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// replies are those that the server owes, in the order in which it will send them. Messages name
// neither the request that they answer nor, for most, the statement that they are about. So only
// their order shows where a statement's answer begins and ends.
type replies struct {
	mu   sync.Mutex
	owed []reply
	// skipping is true after an error in a batch whose Sync has not been sent yet: the server
	// answers nothing before that.
	skipping bool
}

// reply is the expected answer of the server to one message.
type reply struct {
	to       request
	failure  *pgproto3.ErrorResponse // for the client, instead of the reply
	withhold bool                    // the proxy keeps this reply and all later ones back
	after    *ending                 // the fault to apply when the reply is complete
}

// request is a kind of message that the server answers.
type request string

const (
	toQuery        request = "Query"
	toFunctionCall request = "FunctionCall"
	toParse        request = "Parse"
	toBind         request = "Bind"
	toDescribe     request = "Describe"
	toExecute      request = "Execute"
	toClose        request = "Close"
	toSync         request = "Sync"
)

// readies reports whether the reply ends with ReadyForQuery, even after an error.
func (r request) readies() bool { return r == toQuery || r == toFunctionCall || r == toSync }

// expect adds a reply. It is called before the message is sent that will be answered.
func (q *replies) expect(r reply) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.skipping && r.to != toSync {
		return
	}
	q.skipping = false
	q.owed = append(q.owed, r)
}

// match finds the reply that a message is part of, and reports whether it is the last part. It
// gives no reply for a message that the server sends without a request, such as a NoticeResponse.
func (q *replies) match(msg pgproto3.BackendMessage) (r reply, complete bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.owed) == 0 {
		switch msg.(type) {
		case *pgproto3.NoticeResponse, *pgproto3.ParameterStatus, *pgproto3.NotificationResponse,
			*pgproto3.ErrorResponse:
			return reply{}, false, nil
		}
		return reply{}, false, fmt.Errorf("the server says %T, but was asked for nothing", msg)
	}
	r = q.owed[0]
	fits := true
	switch msg.(type) {
	case *pgproto3.ParseComplete:
		complete, fits = true, r.to == toParse
	case *pgproto3.BindComplete:
		complete, fits = true, r.to == toBind
	case *pgproto3.CloseComplete:
		complete, fits = true, r.to == toClose
	case *pgproto3.NoData:
		complete, fits = true, r.to == toDescribe
	case *pgproto3.RowDescription:
		complete, fits = r.to == toDescribe, r.to == toDescribe || r.to == toQuery
	case *pgproto3.CommandComplete, *pgproto3.EmptyQueryResponse:
		complete, fits = r.to == toExecute, r.to == toExecute || r.to == toQuery
	case *pgproto3.PortalSuspended:
		complete, fits = true, r.to == toExecute
	case *pgproto3.ReadyForQuery:
		complete, fits = true, r.to.readies()
	case *pgproto3.ErrorResponse:
		if !r.to.readies() {
			return q.skip(), true, nil
		}
	}
	if !fits {
		return r, false, fmt.Errorf("the server says %T, but was asked for the reply to %s", msg, r.to)
	}
	if complete {
		q.owed = q.owed[1:]
	}
	return r, complete, nil
}

// skip drops the replies that the server will not send because of an error, and gives the reply
// that the error belongs to. If a statement fails while it is parsed or bound, that is the reply to
// its execution, so that the fault injected there hits the error.
func (q *replies) skip() reply {
	r := q.owed[0]
	found := false
	for i, next := range q.owed {
		if next.to == toSync {
			q.owed = q.owed[i:]
			return r
		}
		if !found && (next.to == toExecute || next.failure != nil) {
			r, found = next, true
		}
	}
	q.owed, q.skipping = nil, true
	return r
}

// show gives the message that the client gets for a message of the reply; nil for none.
func (r reply) show(msg pgproto3.BackendMessage) pgproto3.BackendMessage {
	if r.failure == nil {
		return msg
	}
	switch msg.(type) {
	case *pgproto3.ErrorResponse, *pgproto3.CommandComplete:
		return r.failure
	case *pgproto3.ReadyForQuery, *pgproto3.ParameterStatus, *pgproto3.NotificationResponse:
		return msg
	}
	return nil
}
