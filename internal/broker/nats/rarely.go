package natsbroker

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// warnEvery bounds the warnings about what repeats itself thousands of times in a second: a process
// that sends bad messages, and an error of the servers for each message.
const warnEvery = time.Minute

// oddMessages are the warnings about what other processes send, each kind for itself.
type oddMessages struct {
	request, delivery   rarely // with a reply subject that is not their sender's
	results, result     rarely // directly delivered
	tasks, taskOfOthers rarely
	permission, login   rarely // errors that end when an operator corrects a setting
	answer              rarely // denied on a subject that another process may have chosen
	headers, slow       rarely // a message without valid headers; more messages than the process takes
}

// repeated returns the limit of the warnings about an error that comes again with each message, or
// with each attempt to log in; nil for other errors. Denied answers have a limit of their own:
// otherwise processes that send requests could keep other denials out of the log.
func (o *oddMessages) repeated(err error, isAnswer bool) *rarely {
	switch {
	case isAnswer:
		return &o.answer
	case errors.Is(err, nats.ErrPermissionViolation):
		return &o.permission
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return &o.login
	case errors.Is(err, nats.ErrBadHeaderMsg):
		return &o.headers
	case errors.Is(err, nats.ErrSlowConsumer):
		return &o.slow
	}
	return nil
}

// rarely logs the first event of a kind at once, and then one each [warnEvery]. The zero value is
// ready to use.
type rarely struct {
	mu   sync.Mutex
	next time.Time
	left int // events that were not logged since
}

// do calls log with the number of events that were not logged since the last call, or counts one
// more.
func (r *rarely) do(log func(dropped int)) {
	r.mu.Lock()
	now := time.Now()
	if now.Before(r.next) {
		r.left++
		r.mu.Unlock()
		return
	}
	dropped := r.left
	r.next, r.left = now.Add(warnEvery), 0
	r.mu.Unlock()
	log(dropped)
}
