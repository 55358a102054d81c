// Package failure has the errors that history and messages hold.
//
// Each error has a [Kind], for code that must react to it, and may have a type, a word of the
// author's. errors.As finds an [Error] in what a future, a client or a test returns, and errors.Is
// compares kinds:
//
//	if errors.Is(err, &failure.Error{Kind: failure.Timeout}) {
//		// a time limit ended the activity
//	}
package failure

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/rondo-run/rondo/pkg/codec"
)

// Kind says what sort of thing went wrong, for code that must react to it.
type Kind string

// The kinds of errors.
const (
	// The author's code said no.
	Application Kind = "application" // an activity, step or orchestration returned an error
	Panicked    Kind = "panicked"    // it panicked instead

	// A request or a time limit ended it.
	Cancelled  Kind = "cancelled"
	Terminated Kind = "terminated"
	Timeout    Kind = "timeout" // Type says which: see the Timeout constants

	// The deployment does not fit.
	Nondeterminism Kind = "nondeterminism" // the code no longer does what history says it did
	Unregistered   Kind = "unregistered"   // no code has the name or version
	LimitExceeded  Kind = "limit"          // something is larger than the limits allow
	Conflict       Kind = "conflict"       // the instance id is taken
	Runaway        Kind = "runaway"        // the code runs on without ever waiting
	Deadlock       Kind = "deadlock"       // the code waits for a result that cannot arrive

	// The engine could not do its work.
	Infrastructure Kind = "infrastructure"
	Poison         Kind = "poison"     // tried too often
	Unreadable     Kind = "unreadable" // history cannot be decoded
)

// The types of a Timeout error.
const (
	TimeoutScheduleToStart = "schedule_to_start"
	TimeoutStartToClose    = "start_to_close"
	TimeoutHeartbeat       = "heartbeat"
	TimeoutScheduleToClose = "schedule_to_close"
)

// ChangedData is the type of a Nondeterminism error of code that does what history says, but with
// other data than the same code gave before.
const ChangedData = "changed_data"

// Error is an error as history and messages hold it. It is also what orchestration code gets:
// errors.As finds it, and errors.Is compares kinds (and types, where the target has one).
type Error struct {
	Kind Kind `json:"kind"`
	// Type is a word for programs: the author's own ("card_declined"), which timeout it was, or
	// [ChangedData].
	Type    string `json:"type,omitempty"`
	Message string `json:"message"`
	// Source says whose error it is: `activity "charge"`.
	Source string `json:"source,omitempty"`
	// NonRetryable means that no retry policy retries it.
	NonRetryable bool `json:"non_retryable,omitempty"`
	// Details is a value of the author's.
	Details codec.Payload `json:"details,omitempty"`
	// Attempts is how often it was tried before this error was given.
	Attempts int    `json:"attempts,omitempty"`
	Stack    string `json:"stack,omitempty"`
	Cause    *Error `json:"cause,omitempty"`

	// Only for Nondeterminism: at which event, what history has, what the code did.
	Event    int64  `json:"event,omitempty"`
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
}

// Place is where the code panicked, as "shop/main.go:67", if that is known; of a cause if the error
// itself knows nothing.
func (e *Error) Place() string {
	for ; e != nil; e = e.Cause {
		if at := placeOf(e.Stack); at != "" {
			return at
		}
	}
	return ""
}

// placeOf finds in a stack what called panic: the first frame below it that is not the runtime's.
func placeOf(stack string) string {
	_, below, found := strings.Cut(stack, "\npanic(")
	if !found {
		return ""
	}
	lines := strings.Split(below, "\n")
	for i := 2; i+1 < len(lines); i += 2 { // a line with the function, one with the place
		if strings.HasPrefix(lines[i], "runtime.") {
			continue
		}
		at, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
		dir, file := path.Split(strings.ReplaceAll(at, "\\", "/")) // it may be from another machine
		return path.Join(path.Base(dir), file)
	}
	return ""
}

// Errorf makes an Error of a kind.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Wrapf makes an application error of a type. The format is that of [fmt.Errorf]; an Error that it
// wraps becomes the cause.
func Wrapf(typ, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Kind: Application, Type: typ, Message: err.Error()}
	errors.As(err, &e.Cause)
	return e
}

// Error implements error.
func (e *Error) Error() string {
	if e == nil {
		return "no error" // for printing an outcome
	}
	s := e.Message
	if s == "" {
		s = string(e.Kind)
	}
	if e.Source != "" {
		s = e.Source + ": " + s
	}
	if e.Attempts > 1 {
		s += fmt.Sprintf(" (after %d attempts)", e.Attempts)
	}
	return s
}

// Unwrap gives the error behind this one.
func (e *Error) Unwrap() error {
	if e == nil || e.Cause == nil {
		return nil
	}
	return e.Cause
}

// Is reports whether the target is an Error that only names a kind, or a kind and a type, and this
// one is of it.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t != nil && e != nil && t.Message == "" && t.Kind == e.Kind && (t.Type == "" || t.Type == e.Type)
}

// From turns any error into one that history can hold. The kind and type of an Error inside it
// are kept, so that the caller can tell a timeout from a refusal; everything else is an application
// error.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	e, ok := err.(*Error)
	switch {
	case ok && e == nil: // the author meant that there is none, but an interface that holds a nil pointer is not nil
		e = &Error{Kind: Application, Message: "a nil *failure.Error was given as an error; give nil itself"}
	case !ok:
		e = &Error{Kind: Application, Message: textOf(err)}
		var inner *Error
		if errors.As(err, &inner) && inner != nil {
			e.Kind, e.Type, e.NonRetryable, e.Cause = inner.Kind, inner.Type, inner.NonRetryable, inner
		}
	}
	if e != nil && e.Kind == "" {
		named := *e
		named.Kind = Application
		return &named
	}
	return e
}

// textOf is err.Error(), which may panic: a nil pointer of the author's given as an error is the
// usual case.
func textOf(err error) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("an error of type %T whose Error method panics: %v", err, r)
		}
	}()
	return err.Error()
}
