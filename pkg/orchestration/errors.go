package orchestration

import (
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/failure"
)

// What errors.Is can ask of any error that came from an activity, a step, a child or a wait.
var (
	// ErrCancelled: it was cancelled, or this code was.
	ErrCancelled error = &failure.Error{Kind: failure.Cancelled}
	// ErrTimeout: a time limit was reached; the Type of the Error says which.
	ErrTimeout error = &failure.Error{Kind: failure.Timeout}
	// ErrTerminated: the child was ended from outside.
	ErrTerminated error = &failure.Error{Kind: failure.Terminated}
	// ErrConflict: the id for the child is in use.
	ErrConflict error = &failure.Error{Kind: failure.Conflict}
)

// Errorf makes an error of a type that the caller of the orchestration can tell apart. The format
// is that of [fmt.Errorf]. The cause keeps the part of a wrapped error that history can hold.
func Errorf(typ, format string, args ...any) error { return failure.Wrapf(typ, format, args...) }

// OfType is a target for errors.Is: an application error of this type.
func OfType(typ string) error { return &failure.Error{Kind: failure.Application, Type: typ} }

// ErrNoValue is what errors.Is can ask of the error of [Value.WaitFor] when the instance has ended
// without setting the value.
var ErrNoValue = errors.New("it has ended without this value")

// ErrExists is what errors.Is can ask of the error of a start that was to find no instance of its
// id: see [RejectExisting].
var ErrExists = errors.New("an instance of this id exists already")

// ErrOtherOrchestration is what errors.Is can ask of the error of a wait for the result of an
// instance that is of another orchestration than the handle.
var ErrOtherOrchestration = errors.New("the id belongs to another orchestration")

// ExistsError says which instance was in the way of a start. It is [ErrExists].
type ExistsError struct {
	Instance string
	// Status is how it stood, if that is known.
	Status string
}

// Error names the instance and the options that start it all the same.
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
