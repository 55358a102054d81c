package history

import (
	"context"
	"errors"
	"fmt"
)

// Class says what to do about an error of a store.
type Class uint8

// The classes.
const (
	// Permanent: retrying cannot help. The operator or the caller must change the request, the
	// database or the privileges.
	Permanent Class = iota + 1
	// Retry: nothing was changed, and it may work the next time.
	Retry
	// Contended: like Retry, but a conflict with another transaction. The store has retried as
	// often as the context allowed.
	Contended
	// Ambiguous: it may or may not have happened.
	Ambiguous
	// Corrupt: the stored data cannot be read.
	Corrupt
)

func (c Class) String() string {
	names := [...]string{"", "permanent", "retry", "contended", "ambiguous", "corrupt"}
	if int(c) < len(names) && c > 0 {
		return names[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Error is an error of a store with its class.
type Error struct {
	Class Class
	// Op is the failed operation.
	Op  string
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("history: %s: %v", e.Op, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// ClassOf finds the class of an error.
func ClassOf(err error) Class {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Class
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Retry
	}
	return Permanent
}

// What the methods of a store return, wrapped with the instance it is about.
var (
	ErrNoInstance  = errors.New("there is no such instance")
	ErrNoExecution = errors.New("there is no such execution; it may have been pruned")
	ErrRunning     = errors.New("it has not ended; cancel or terminate it first, or force the deletion")
	ErrHasParent   = errors.New("it is the child of another instance; delete that one, and its children go with it")
	ErrHasChildren = errors.New("it has children that were not to be deleted with it")
	ErrBadCursor   = errors.New("this is no cursor of such a list; start again without one")
)

// UnreadableError says which part of an instance cannot be read.
type UnreadableError struct {
	Instance  string
	Execution int64
	Event     int64 // 0: not of one event
	Column    string
	Err       error
}

func (e *UnreadableError) Error() string {
	where := fmt.Sprintf("instance %q", e.Instance)
	if e.Execution > 0 {
		where += fmt.Sprintf(", execution %d", e.Execution)
	}
	if e.Event > 0 {
		where += fmt.Sprintf(", event %d", e.Event)
	}
	return fmt.Sprintf("%s: column %s cannot be read: %v", where, e.Column, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// DeniedError says that the role may not do with the tables what it needs to.
type DeniedError struct{ Err error }

func (e *DeniedError) Error() string { return e.Err.Error() }

func (e *DeniedError) Unwrap() error { return e.Err }

// SchemaError says that the tables are not those that this binary works with.
type SchemaError struct {
	// Found is the version of the tables, 0 if there are none. Wanted is the one that this binary
	// works with.
	Found, Wanted int
}

func (e *SchemaError) Error() string {
	switch {
	case e.Found == 0:
		return "the database has no tables of Rondo's; run `rondo migrate` with a role that may create tables"
	case e.Found < e.Wanted:
		return fmt.Sprintf("the tables are of version %d, this binary needs %d; run `rondo migrate` with a role "+
			"that may change tables", e.Found, e.Wanted)
	}
	return fmt.Sprintf("the tables are of version %d, this binary knows %d at most: another build has migrated them; "+
		"run that build, or a later release. Tables of builds before the first release cannot be migrated: if this "+
		"is the later build, restore a backup or begin with an empty database (dev: delete its directory)", e.Found,
		e.Wanted)
}
