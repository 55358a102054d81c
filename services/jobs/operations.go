package jobserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/history"
)

// operations does operations on queues, and counts the changes of jobs.
type operations struct {
	line    *gatherer
	lists   chan struct{} // those that are read at once
	metrics *telemetry.JobMetrics
	now     func() time.Time
	timeout time.Duration // bounds the work for a request
}

// gathered does an operation, together with others of the same queue that arrive at the same time.
// The error is the store's; the reason for a refusal is in the result. The answer holds the jobs of
// a pop, and the operation the body, unless they are nil.
func (o *operations) gathered(ctx context.Context, queue string, op jobs.Operation, a *heldAnswer,
	b *heldBody) (jobs.Result, error) {
	r, err := o.line.do(ctx, queue, op, a, b)
	if err == nil {
		countJobs(o.metrics, op, r)
	}
	return r, err
}

// do does an operation for a request. The error is that of the store, or the reason for the
// refusal.
func (o *operations) do(c *call, op jobs.Operation) (jobs.Result, error) {
	r, err := o.gathered(c.Context(), c.queue, op, c.answer, &c.body)
	if err == nil {
		err = r.Refused
	}
	if err != nil && history.ClassOf(err) == history.Retry && errors.Is(err, c.Context().Err()) {
		err = newProblem(http.StatusServiceUnavailable, codeUnknown,
			"the request was given up while it was in flight, and may have been done").retry(time.Second)
	}
	return r, err
}

// listsAtOnce bounds the lists that are read at once, and thereby the bytes that no answer holds
// yet.
const listsAtOnce = 2

// list reads a list in its turn: up to so many bytes, for which there is room. read returns how
// many they are.
func (o *operations) list(c *call, read func(most int) (n int, err error)) error {
	select {
	case o.lists <- struct{}{}:
		defer func() { <-o.lists }()
	case <-c.Context().Done():
		return context.Cause(c.Context())
	}
	most, err := c.answer.room()
	if err != nil {
		return err
	}
	n, err := read(most)
	if err == nil {
		c.answer.has(n)
	}
	return err
}

// removeAtOnce bounds the jobs that one transaction removes.
const removeAtOnce = 1000

// removeJobs removes all jobs. Of a very large queue it removes a part until a moment, and the
// client repeats the request to remove the rest.
func (o *operations) removeJobs(c *call, dead bool, until time.Time) (n int, err error) {
	for {
		r, err := o.do(c, jobs.Remove{Dead: dead, Limit: removeAtOnce})
		if err != nil {
			return n, err
		}
		if n += r.Count; !r.More {
			return n, nil
		}
		if o.now().After(until) {
			return n, unfinished("%d items are removed, and there are more", n)
		}
	}
}

// removeQueue removes a queue without jobs, with its locks and keys, as removeJobs does its jobs. A
// queue whose removal has stopped takes pushes, and is there as before but for keys.
func (o *operations) removeQueue(c *call, removed int, until time.Time) error {
	for {
		r, err := o.do(c, jobs.Forget{})
		if err != nil || !r.More {
			return err
		}
		if o.now().After(until) {
			return unfinished("%d items are removed, and there are idempotency keys and locks to remove", removed)
		}
	}
}

// unfinished is the answer to a removal that is too much for one request.
func unfinished(format string, n int) error {
	return newProblem(http.StatusServiceUnavailable, codeUnavailable,
		fmt.Sprintf(format+": send the request again to go on", n)).retry(time.Second)
}
