package jobserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// problem is an error as RFC 9457 defines it, with the members that the document of the queues
// names.
type problem struct {
	Type      string   `json:"type"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail"`
	Instance  string   `json:"instance,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
	Success   *bool    `json:"success,omitempty"`
	Message   string   `json:"message"`
	ErrorCode string   `json:"error_code,omitempty"`
	ExpiresAt *float64 `json:"lock_expires_at,omitempty"`

	header map[string]string
}

func (p *problem) Error() string { return p.Detail }

// typePrefix begins the types of problems, which docs/job-queues.md explains.
const typePrefix = "urn:rondo:problem:"

// The codes of problems. Those of the document are kept; the others are for programs, too.
const (
	codeExpired     = "LOCK_EXPIRED"
	codeLocked      = "QUEUE_LOCKED"
	codeNoLock      = "LOCK_NOT_FOUND"
	codeWrongLock   = "INVALID_LOCK_ID"
	codeInvalid     = "INVALID_REQUEST"
	codeNoQueue     = "QUEUE_NOT_FOUND"
	codeNotEmpty    = "QUEUE_NOT_EMPTY"
	codeFull        = "QUEUE_FULL"
	codeKeyReused   = "IDEMPOTENCY_KEY_REUSED"
	codeTooLarge    = "TOO_LARGE"
	codeTooSlow     = "TOO_SLOW"
	codeNoRoute     = "NOT_FOUND"
	codeNoMethod    = "METHOD_NOT_ALLOWED"
	codeWho         = "UNAUTHENTICATED"
	codeMayNot      = "FORBIDDEN"
	codeTooMany     = "TOO_MANY_REQUESTS"
	codeUnavailable = "UNAVAILABLE"
	codeUnknown     = "OUTCOME_UNKNOWN"
	codeBroken      = "INTERNAL"
)

// newProblem makes one. The type is made of the code.
func newProblem(status int, code, detail string) *problem {
	no := false
	return &problem{
		Type: typePrefix + slug(code), Title: http.StatusText(status), Status: status, Detail: detail, Message: detail,
		ErrorCode: code, Success: &no, header: make(map[string]string),
	}
}

// slug is a code as it stands in a type: LOCK_EXPIRED, lock-expired.
func slug(code string) string {
	out := []byte(code)
	for n, c := range out {
		switch {
		case c == '_':
			out[n] = '-'
		case 'A' <= c && c <= 'Z':
			out[n] = c + 'a' - 'A'
		}
	}
	return string(out)
}

func invalid(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, codeInvalid, fmt.Sprintf(format, args...))
}

// say replaces the message by the one that the document has.
func (p *problem) say(message string) *problem {
	p.Message = message
	return p
}

// retry sets when the client may retry.
func (p *problem) retry(after time.Duration) *problem {
	p.header["Retry-After"] = strconv.Itoa(max(1, int(math.Ceil(after.Seconds()))))
	return p
}

// last ends the connection, so that the answer does not wait for the rest of the body.
func (p *problem) last() *problem {
	p.header["Connection"] = "close"
	return p
}

// unixSeconds is a time as the document writes it.
func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// problemOf converts an error to a problem. The clock is only for the time of a retry.
func problemOf(err error, now time.Time) *problem {
	var (
		p      *problem
		locked *jobs.LockedError
		full   *jobs.FullError
		bad    *jobs.InvalidError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &locked):
		p = newProblem(http.StatusLocked, codeLocked,
			"somebody has popped items and not acknowledged them yet: come again when the lock has ended, or have "+
				"all consumers pop with mode=concurrent").
			say("Queue is locked pending acknowledgement").retry(locked.Until.Sub(now))
		until := unixSeconds(locked.Until)
		p.ExpiresAt, p.Success = &until, nil
		return p
	case errors.As(err, &full):
		return newProblem(http.StatusInsufficientStorage, codeFull, err.Error())
	case errors.As(err, &bad):
		return invalid("%s", bad.Problem)
	case errors.Is(err, jobs.ErrNoLock):
		return newProblem(http.StatusNotFound, codeNoLock,
			"the queue has no lock: it was acknowledged or returned already, or it has expired, "+
				"and its items are back").say("No active lock found")
	case errors.Is(err, jobs.ErrWrongLock):
		return newProblem(http.StatusBadRequest, codeWrongLock,
			"the queue is locked, but not with this lock_id: give the one that the pop has answered").say(
			"Invalid lock_id")
	case errors.Is(err, jobs.ErrLockExpired):
		return newProblem(http.StatusGone, codeExpired,
			"the items are back in the queue and will be popped again: ask for a longer ttl_seconds, or extend the "+
				"lock in time").say("Lock has expired")
	case errors.Is(err, jobs.ErrNoQueue):
		return newProblem(http.StatusNotFound, codeNoQueue, err.Error())
	case errors.Is(err, jobs.ErrNotEmpty):
		return newProblem(http.StatusConflict, codeNotEmpty, err.Error())
	case errors.Is(err, jobs.ErrKeyReused):
		return newProblem(http.StatusUnprocessableEntity, codeKeyReused, err.Error())
	case history.ClassOf(err) == history.Ambiguous:
		return newProblem(http.StatusServiceUnavailable, codeUnknown,
			"the connection to the database was lost, and it may or may not have been done: push again with the "+
				"same Idempotency-Key, and let locks expire").retry(time.Second)
	case history.ClassOf(err) == history.Retry, history.ClassOf(err) == history.Contended,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return newProblem(http.StatusServiceUnavailable, codeUnavailable,
			"the database did not answer in time, and nothing was done: try again").retry(time.Second)
	}
	return newProblem(http.StatusInternalServerError, codeBroken,
		"something is wrong here, and the log says what: tell the operators the request_id")
}
