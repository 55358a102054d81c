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

// The codes of errors, besides the names of classes: see [broker.AnswerError]. Several are joined
// by a plus sign.
const (
	codeBadQuestion = "bad_question"
	codeReadOnly    = "read_only"
	codeGone        = "gone" // the parts of an answer
)

// unreadable begins the code of an error about what cannot be read; then come the execution, the
// event, the column and the instance.
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

// ErrReadOnly says that nothing can be removed by asking those who answer.
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
}

// classes are the codes of the classes, for errors that have no better one.
var classes = map[string]history.Class{
	"permanent": history.Permanent, "retry": history.Retry, "contended": history.Contended,
	"ambiguous": history.Ambiguous, "corrupt": history.Corrupt,
}

// answerError makes an error as it travels.
func answerError(err error) error {
	if err == nil {
		return nil
	}
	var a *broker.AnswerError
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
		return &broker.AnswerError{Code: strings.Join(codes, "+"), Message: err.Error()}
	}
	var u *history.UnreadableError
	if errors.As(err, &u) {
		return &broker.AnswerError{Code: fmt.Sprintf("%s%d/%d/%s/%s", unreadable, u.Execution, u.Event,
			events.EncodeToken(u.Column), events.EncodeToken(u.Instance)), Message: err.Error()}
	}
	return &broker.AnswerError{Code: history.ClassOf(err).String(), Message: err.Error()}
}

// badQuestion is the error about a question that makes no sense.
func badQuestion(format string, args ...any) error {
	return &broker.AnswerError{Code: codeBadQuestion, Message: fmt.Sprintf(format, args...)}
}

// failure is an error of the one who answered, as it is here.
type failure struct {
	message string
	class   history.Class
	is      []error
}

func (f *failure) Error() string { return f.message }

// Unwrap gives what the error is.
func (f *failure) Unwrap() []error { return f.is }

// As makes it an error of a store, with its class.
func (f *failure) As(target any) bool {
	e, ok := target.(**history.Error)
	if ok {
		*e = &history.Error{Class: f.class, Op: "ask", Err: errors.New(f.message)}
	}
	return ok
}

// readError makes of an error that has travelled what it was, and of one of the broker's one with a
// class. Whoever removes does not know after most of these whether it has happened.
func readError(method string, removes bool, err error) error {
	if err == nil {
		return nil
	}
	var a *broker.AnswerError
	if errors.As(err, &a) {
		f := &failure{message: a.Message, class: history.Permanent}
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
	case removes && !errors.Is(err, broker.ErrNobody):
		class = history.Ambiguous
	}
	if class == history.Retry && errors.Is(err, context.DeadlineExceeded) {
		return &history.Error{Class: class, Op: "ask for " + method,
			Err: fmt.Errorf("nobody has answered in time: %w", err)}
	}
	return &history.Error{Class: class, Op: "ask for " + method, Err: err}
}
