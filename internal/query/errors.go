package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// The codes of errors, besides the names of classes: see [broker.ResponseError]. Several are joined
// by a plus sign.
const (
	codeBadQuestion = "bad_question"
	codeReadOnly    = "read_only"
	codeGone        = "gone" // the parts of an answer
)

// unreadable begins the code of an error about unreadable data; then come the execution, the event,
// the column and the instance.
const unreadable = "unreadable/"

// readUnreadable reads such a code.
func readUnreadable(code, message string) (*history.UnreadableError, bool) {
	rest, ok := strings.CutPrefix(code, unreadable)
	where := strings.SplitN(rest, "/", 4)
	if !ok || len(where) != 4 {
		return nil, false
	}
	u := &history.UnreadableError{Err: errors.New(message)}
	var errs [4]error
	u.Execution, errs[0] = strconv.ParseInt(where[0], 10, 64)
	u.Event, errs[1] = strconv.ParseInt(where[1], 10, 64)
	u.Column, errs[2] = events.DecodeToken(where[2])
	u.Instance, errs[3] = events.DecodeToken(where[3])
	return u, errors.Join(errs[:]...) == nil
}

// ErrReadOnly means that the orchestrators were started read-only, so requests cannot remove
// anything.
var ErrReadOnly = errors.New("nothing can be removed this way: the orchestrators were started read-only")

// known are the errors that programs can tell apart.
var known = []struct {
	code string
	err  error
}{
	{"no_instance", history.ErrNoInstance},
	{"no_execution", history.ErrNoExecution},
	{"running", history.ErrRunning},
	{"has_parent", history.ErrHasParent},
	{"has_children", history.ErrHasChildren},
	{"bad_cursor", history.ErrBadCursor},
	{codeReadOnly, ErrReadOnly},
	{"started", ErrStarted},
	{"pending_child", ErrPendingChild},
	{"no_schedule", ErrNoSchedule},
	{"schedule_changed", ErrScheduleChanged},
}

// classes are the codes of the classes, for errors that have no better one.
var classes = map[string]history.Class{
	"permanent": history.Permanent, "retry": history.Retry, "contended": history.Contended,
	"ambiguous": history.Ambiguous, "corrupt": history.Corrupt,
}

// answerError converts an error to the form in which the broker sends it.
func answerError(err error) error {
	if err == nil {
		return nil
	}
	var a *broker.ResponseError
	if errors.As(err, &a) {
		return a
	}
	var codes []string
	for _, k := range known {
		if errors.Is(err, k.err) {
			codes = append(codes, k.code)
		}
	}
	if len(codes) > 0 {
		return &broker.ResponseError{Code: strings.Join(codes, "+"), Message: err.Error()}
	}
	var u *history.UnreadableError
	if errors.As(err, &u) {
		return &broker.ResponseError{Code: fmt.Sprintf("%s%d/%d/%s/%s", unreadable, u.Execution, u.Event,
			events.EncodeToken(u.Column), events.EncodeToken(u.Instance)), Message: err.Error()}
	}
	return &broker.ResponseError{Code: history.ClassOf(err).String(), Message: err.Error()}
}

// badQuestion returns the error for an invalid request.
func badQuestion(format string, args ...any) error {
	return &broker.ResponseError{Code: codeBadQuestion, Message: fmt.Sprintf(format, args...)}
}

// responderError is an error of the orchestrator that answered, as the client gets it.
type responderError struct {
	message string
	class   history.Class
	is      []error
}

func (f *responderError) Error() string { return f.message }

// Unwrap returns the known errors that the failure matches.
func (f *responderError) Unwrap() []error { return f.is }

// As converts the failure to an error of a store, with its class.
func (f *responderError) As(target any) bool {
	e, ok := target.(**history.Error)
	if ok {
		*e = &history.Error{Class: f.class, Op: "ask", Err: errors.New(f.message)}
	}
	return ok
}

// readError restores an error that the broker has sent, and gives an error of the broker itself a
// class. After most of the latter, a caller that removes does not know whether the removal has
// happened.
func readError(removes bool, err error) error {
	if err == nil {
		return nil
	}
	var a *broker.ResponseError
	if errors.As(err, &a) {
		f := &responderError{message: a.Message, class: history.Permanent}
		if c, ok := classes[a.Code]; ok {
			f.class = c
		}
		for _, k := range known {
			if slices.Contains(strings.Split(a.Code, "+"), k.code) {
				f.is = append(f.is, k.err)
			}
		}
		if u, ok := readUnreadable(a.Code, a.Message); ok {
			f.class, f.is = history.Corrupt, append(f.is, u)
		}
		return f
	}
	class := history.Retry
	switch {
	case errors.Is(err, broker.ErrPermission):
		class = history.Permanent
	case removes && !errors.Is(err, broker.ErrNoResponders):
		class = history.Ambiguous
	}
	const op = "ask the orchestrators" // the error of a broker names the method
	if class == history.Retry && errors.Is(err, context.DeadlineExceeded) {
		return &history.Error{Class: class, Op: op, Err: fmt.Errorf("no orchestrator has answered in time: %w", err)}
	}
	return &history.Error{Class: class, Op: op, Err: err}
}
