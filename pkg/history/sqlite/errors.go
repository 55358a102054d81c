package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/rondo-run/rondo/pkg/history"
)

// The table of result codes (https://www.sqlite.org/rescode.html). An extended code stands before
// its primary one, which is its low byte. All other codes are permanent: READONLY, CANTOPEN, PERM,
// AUTH, NOLFS, and mistakes in statements.
var classes = map[int]history.Class{
	codes.SQLITE_BUSY:     history.Contended, // another process writes, or recovers after a crash
	codes.SQLITE_LOCKED:   history.Contended,
	codes.SQLITE_PROTOCOL: history.Contended, // a race for the locks of the log that was lost many times

	codes.SQLITE_FULL:      history.Retry,
	codes.SQLITE_IOERR:     history.Retry, // at the end of a transaction it is in doubt
	codes.SQLITE_NOMEM:     history.Retry, // here, too
	codes.SQLITE_INTERRUPT: history.Retry, // the context has ended
	codes.SQLITE_SCHEMA:    history.Retry,

	codes.SQLITE_CORRUPT:         history.Corrupt,
	codes.SQLITE_NOTADB:          history.Corrupt,
	codes.SQLITE_FORMAT:          history.Corrupt,
	codes.SQLITE_IOERR_CORRUPTFS: history.Corrupt,
	codes.SQLITE_IOERR_DATA:      history.Corrupt,
}

// unstorable are the codes of errors that come from the data, and not from the database: one turn
// of a batch has them, and the others do not.
var unstorable = map[int]bool{
	codes.SQLITE_CONSTRAINT: true, // a key of history that is there already
	codes.SQLITE_TOOBIG:     true,
	codes.SQLITE_MISMATCH:   true,
}

// advice is the remedies of errors that developers meet.
var advice = map[int]string{
	codes.SQLITE_BUSY:  "another process is writing to the file; close the shell or the tool that has it open",
	codes.SQLITE_FULL:  "there is no space left on the disk; make room, and it goes on",
	codes.SQLITE_IOERR: "the disk or the file system failed; look at the system's log",
	codes.SQLITE_CORRUPT: "the file is damaged; restore a copy of it, or save what can be read with the " +
		"`.recover` of the sqlite3 shell",
	codes.SQLITE_NOTADB:   "the file is no SQLite database; was the path meant?",
	codes.SQLITE_CANTOPEN: "do the file and its directory exist, and may this process read and write both?",
	codes.SQLITE_READONLY: "this process may not write the file, its directory, or the files beside it that " +
		"end in -wal and -shm",
	codes.SQLITE_READONLY_DBMOVED: "the file was moved or removed while it was open; put it back, and open it again",
	codes.SQLITE_PERM:             "this process may not open the file",
}

// code is the result code of an error, 0 if it is not one of SQLite's.
func code(err error) int {
	var e *modernc.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

func primary(code int) int { return code & 0xff }

// lookUp finds the entry of a result code in one of the tables.
func lookUp[T any](table map[int]T, code int) (T, bool) {
	v, ok := table[code]
	if !ok {
		v, ok = table[primary(code)]
	}
	return v, ok
}

// class is the class of an error.
func class(err error) history.Class {
	var classified *history.Error
	switch {
	case errors.As(err, &classified):
		return classified.Class
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		return history.Retry // the connection is replaced
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return history.Retry
	}
	if c, ok := lookUp(classes, code(err)); ok {
		return c
	}
	return history.Permanent
}

// isUnstorable reports whether the error is about the data.
func isUnstorable(err error) bool { return unstorable[primary(code(err))] }

// inDoubt reports whether a COMMIT with that error may have happened, or may be found in the log
// after a crash.
func inDoubt(err error) bool {
	c := primary(code(err))
	return c == codes.SQLITE_IOERR || c == codes.SQLITE_NOMEM // which can come when all is done, from copying the log
}

// breaks reports whether a connection should not be used after an error: its cached view of the
// file may be wrong.
func breaks(err error) bool {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return true
	}
	switch primary(code(err)) {
	case codes.SQLITE_IOERR, codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB, codes.SQLITE_NOMEM, codes.SQLITE_MISUSE,
		codes.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// fail wraps an error with its class, and leaves those alone that were meant for the caller.
func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	for _, meant := range []error{history.ErrNoInstance, history.ErrNoExecution, history.ErrRunning,
		history.ErrHasParent, history.ErrHasChildren} {
		if errors.Is(err, meant) {
			return err
		}
	}
	var classified *history.Error
	if errors.As(err, &classified) {
		return err
	}
	c := class(err)
	if a, ok := lookUp(advice, code(err)); ok {
		err = fmt.Errorf("%w; %s", err, a)
	}
	return &history.Error{Class: c, Op: op, Err: err}
}
