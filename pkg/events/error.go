package events

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrorKind says what sort of thing went wrong, for code that must react to it.
type ErrorKind string

// The kinds of errors.
const (
	// The author's code said no.
	Application ErrorKind = "application" // an activity, step or orchestration returned an error
	Panicked    ErrorKind = "panicked"    // it panicked instead

	// Somebody asked for it, or time ran out.
	CancelledError  ErrorKind = "cancelled"
	TerminatedError ErrorKind = "terminated"
	Timeout         ErrorKind = "timeout" // Type says which: see the Timeout constants

	// The deployment does not fit.
	Nondeterminism ErrorKind = "nondeterminism" // the code no longer does what history says it did
	Unregistered   ErrorKind = "unregistered"   // nobody knows the name or version
	LimitExceeded  ErrorKind = "limit"          // something is larger than the limits allow
	Conflict       ErrorKind = "conflict"       // the instance id is taken
	Runaway        ErrorKind = "runaway"        // the code runs on without ever waiting
	Deadlock       ErrorKind = "deadlock"       // the code waits for what can never come

	// The engine could not do its work.
	Infrastructure ErrorKind = "infrastructure"
	Poison         ErrorKind = "poison"     // tried too often
	Unreadable     ErrorKind = "unreadable" // history cannot be decoded
)

// The types of a Timeout error.
const (
	TimeoutScheduleToStart = "schedule_to_start"
	TimeoutStartToClose    = "start_to_close"
	TimeoutHeartbeat       = "heartbeat"
	TimeoutOverall         = "overall"
)

// Error is an error as history and messages hold it. It is also what orchestration code gets: errors.As finds it, and errors.Is compares kinds
// (and types, where the target has one).
type Error struct {
	Kind ErrorKind `json:"kind"`
	// Type is a word for programs: the author's own ("card_declined"), or which timeout it was.
	Type    string `json:"type,omitempty"`
	Message string `json:"message"`
	// Source says whose error it is: `activity "charge"`.
	Source string `json:"source,omitempty"`
	// Final means that trying again cannot help.
	Final bool `json:"final,omitempty"`
	// Details is a value of the author's.
	Details Payload `json:"details,omitempty"`
	// Attempts is how often it was tried before this error was given.
	Attempts int    `json:"attempts,omitempty"`
	Stack    string `json:"stack,omitempty"`
	Cause    *Error `json:"cause,omitempty"`

	// Only for Nondeterminism: at which event, what history has, what the code did.
	Event    int64  `json:"event,omitempty"`
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
}

// Errorf makes an Error of a kind.
func Errorf(kind ErrorKind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string {
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
	if e.Cause == nil {
		return nil
	}
	return e.Cause
}

// Is reports whether the target is an Error that only names a kind, or a kind and a type, and this one is of it.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Kind == e.Kind && (t.Type == "" || t.Type == e.Type)
}

// AsError turns any error into one that history can hold. The kind and type of an Error inside it are kept, so that who waits for the
// outcome can tell a timeout from a refusal; everything else is an application error.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok {
		return e
	}
	out := &Error{Kind: Application, Message: err.Error()}
	var inner *Error
	if errors.As(err, &inner) {
		out.Kind, out.Type, out.Final, out.Cause = inner.Kind, inner.Type, inner.Final, inner
	}
	return out
}

// Bounded cuts what could be arbitrarily long, so that an error always fits into a message.
func (e *Error) Bounded() *Error { return e.bounded(0) }

func (e *Error) bounded(depth int) *Error {
	if e == nil {
		return nil
	}
	if e.fits() && (e.Cause == nil || depth < MaxErrorCauses) {
		if c := e.Cause.bounded(depth + 1); c != e.Cause {
			b := *e
			b.Cause = c
			return &b
		}
		return e
	}
	b := *e
	b.Message, b.Stack, b.Type, b.Source = cut(b.Message, MaxErrorText), cut(b.Stack, MaxErrorText), cut(b.Type, MaxName), cut(b.Source, MaxReason)
	b.Expected, b.Got = cut(b.Expected, MaxReason), cut(b.Got, MaxReason)
	if len(b.Details) > MaxErrorText {
		b.Details = nil
	}
	if depth >= MaxErrorCauses {
		b.Cause = nil
	}
	b.Cause = b.Cause.bounded(depth + 1)
	return &b
}

func (e *Error) fits() bool {
	return len(e.Message) <= MaxErrorText && len(e.Stack) <= MaxErrorText && len(e.Details) <= MaxErrorText &&
		len(e.Type) <= MaxName && len(e.Source) <= MaxReason && len(e.Expected) <= MaxReason && len(e.Got) <= MaxReason
}

// cut shortens text to at most n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func (e *Error) size() int {
	if e == nil {
		return 0
	}
	return len(e.Message) + len(e.Stack) + len(e.Details) + e.Cause.size()
}

func (e *Error) check() error {
	if e == nil {
		return errors.New("no error")
	}
	return e.checkOptional()
}

func (e *Error) checkOptional() error {
	if e != nil && e.Kind == "" {
		return errors.New("error without a kind")
	}
	return nil
}
