package events

import (
	"errors"
	"fmt"
	"path"
	"strings"
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

// Error is an error as history and messages hold it. It is also what orchestration code gets:
// errors.As finds it, and errors.Is compares kinds (and types, where the target has one).
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
func Errorf(kind ErrorKind, format string, args ...any) *Error {
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
		return "no error" // somebody prints an outcome
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

// AsError turns any error into one that history can hold. The kind and type of an Error inside it
// are kept, so that who waits for the outcome can tell a timeout from a refusal; everything else is
// an application error.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	e, ok := err.(*Error)
	switch {
	case ok && e == nil: // the author meant that there is none, but an interface that holds a nil pointer is not nil
		e = &Error{Kind: Application, Message: "a nil *events.Error was given as an error; give nil itself"}
	case !ok:
		e = &Error{Kind: Application, Message: textOf(err)}
		var inner *Error
		if errors.As(err, &inner) && inner != nil {
			e.Kind, e.Type, e.Final, e.Cause = inner.Kind, inner.Type, inner.Final, inner
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

// Bounded cuts what could be arbitrarily long, so that an error always fits into a message. What it
// gives comes back from JSON as the same error, so code sees the same text before and after a
// replay.
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
	b.Message, b.Stack, b.Source = cutJSON(b.Message, MaxErrorText), cutJSON(b.Stack, MaxErrorText),
		cutJSON(b.Source, MaxReason)
	b.Kind, b.Type = ErrorKind(cutJSON(string(b.Kind), MaxName)), cutJSON(b.Type, MaxName)
	b.Expected, b.Got = cutJSON(b.Expected, MaxReason), cutJSON(b.Got, MaxReason)
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
	return fitsJSON(e.Message, MaxErrorText) && fitsJSON(e.Stack, MaxErrorText) && len(e.Details) <= MaxErrorText &&
		fitsJSON(string(e.Kind), MaxName) && fitsJSON(e.Type, MaxName) && fitsJSON(e.Source, MaxReason) &&
		fitsJSON(e.Expected, MaxReason) && fitsJSON(e.Got, MaxReason)
}

// fitsJSON reports whether text takes at most n bytes in JSON and comes back as the same text.
func fitsJSON(s string, n int) bool {
	if len(s) > n || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		n -= sizeJSON(r)
	}
	return n >= 0
}

// cutJSON makes text fit.
func cutJSON(s string, n int) string {
	if fitsJSON(s, n) {
		return s
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	size, end := 0, 0
	for i, r := range s {
		if size <= n-len("…") {
			end = i
		}
		if size += sizeJSON(r); size > n {
			return s[:end] + "…"
		}
	}
	return s
}

// sizeJSON is the number of bytes that encoding/json writes for a character, at most.
func sizeJSON(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
		return 2
	case r < ' ', r == '\u2028', r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
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
