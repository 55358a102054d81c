package pgfault

import (
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// replies are those that the server owes, in the order in which it will give them. As messages say
// neither what they answer nor, for most, which statement they are about, their order is all there
// is to find out where a statement's answer begins and ends.
type replies struct {
	mu   sync.Mutex
	owed []reply
	// skipping is true after an error in a batch whose Sync has not been sent yet: the server
	// answers nothing before that.
	skipping bool
}

// reply is what the server will say to one message.
type reply struct {
	to       request
	failure  *pgproto3.ErrorResponse // what is shown to the client, instead of the reply
	withhold bool                    // this and what follows is kept back
	after    *ending                 // what happens when the reply is complete
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

// readies tells whether the reply ends with ReadyForQuery, even after an error.
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

// match finds the reply that a message is part of, and tells whether it is the last part. What has
// nothing to do with a reply belongs to none.
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

// skip forgets what the server will not answer because of an error. It gives the reply that the
// error is: if a statement fails while it is parsed or bound, what was to happen to its execution
// happens to that.
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

// show gives what the client sees of a message that is part of the reply; nil for nothing.
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
