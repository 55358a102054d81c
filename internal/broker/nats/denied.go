package natsbroker

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go"
)

// denied cancels requests that the servers deny: otherwise their callers would wait for a response
// in vain.
type denied struct {
	mu      sync.Mutex
	next    int
	waiting map[int]requester

	isAnswer func(subject string) bool // whether a subject is one of an answer to another process
	isAPI    func(subject string) bool // whether a subject is one of the API, without those of pull requests
}

// requester waits for the response to a request on a subject; "" stands for several subjects of the
// API of JetStream.
type requester struct {
	subject string
	cancel  context.CancelCauseFunc
}

var deniedPublish = regexp.MustCompile(`(?i)publish to "([^"]+)"`)

// note cancels the requests that a denial is about. It returns the subject on which this user may
// not publish, if the servers name it.
func (d *denied) note(err error) (subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := deniedPublish.FindStringSubmatch(err.Error()); m != nil {
		if subject = m[1]; d.isAnswer(subject) {
			return subject // no request here depends on it, and another process may have chosen it
		}
	}
	for _, w := range d.waiting {
		if w.subject == subject || w.subject == "" && d.isAPI(subject) || subject == "" {
			w.cancel(err)
		}
	}
	return subject
}

// during calls do, which ends early when the servers deny a request to the API of JetStream.
func (d *denied) during(ctx context.Context, do func(context.Context) error) error {
	return d.requesting(ctx, "", do)
}

// requesting calls do, which ends early when the servers deny publishing on its subject.
func (d *denied) requesting(ctx context.Context, subject string, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.mu.Lock()
	if d.waiting == nil {
		d.waiting = make(map[int]requester)
	}
	d.next++
	me := d.next
	d.waiting[me] = requester{subject, cancel}
	d.mu.Unlock()
	err := do(ctx)
	d.mu.Lock()
	delete(d.waiting, me)
	d.mu.Unlock()
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, nats.ErrPermissionViolation) {
		return cause
	}
	return err
}
