package orchestration

import (
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
)

// Error is what went wrong with an activity, a step, a child or an instance. errors.As finds it;
// its Kind and Type are for programs, its message is for people.
type Error = events.Error

// What errors.Is can ask of any error that came from an activity, a step, a child or a wait.
var (
	// ErrCancelled: it was cancelled, or this code was.
	ErrCancelled error = &events.Error{Kind: events.CancelledError}
	// ErrTimeout: a time limit was reached; the Type of the Error says which.
	ErrTimeout error = &events.Error{Kind: events.Timeout}
	// ErrTerminated: the child was ended from outside.
	ErrTerminated error = &events.Error{Kind: events.TerminatedError}
	// ErrConflict: the id for the child is in use.
	ErrConflict error = &events.Error{Kind: events.Conflict}
)

// Errorf makes an error of a type of the author's, for whoever started the orchestration to tell
// apart. The format is that of [fmt.Errorf]; of a wrapped error, what history can hold is kept as
// the cause.
func Errorf(typ, format string, args ...any) error { return events.Wrapf(typ, format, args...) }

// OfType is a target for errors.Is: an application error of this type.
func OfType(typ string) error { return &events.Error{Kind: events.Application, Type: typ} }

// ErrExists is what errors.Is can ask of the error of a start that was to find no instance of its
// id: see [RejectExisting].
var ErrExists = errors.New("an instance of this id exists already")

// ExistsError says which instance was in the way of a start. It is [ErrExists].
type ExistsError struct {
	Instance string
	// Status is how it stood, if that is known.
	Status string
}

func (e *ExistsError) Error() string {
	status := ""
	if e.Status != "" {
		status = " (" + e.Status + ")"
	}
	return fmt.Sprintf("instance %q is already there%s; choose another id, or RestartFinished or ReplaceRunning",
		e.Instance, status)
}

// Is makes it ErrExists.
func (e *ExistsError) Is(target error) bool { return target == ErrExists }
