package natsbroker

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/events"
)

// directSender is the sender's side of direct delivery: it decides which messages go that way,
// builds them, and builds the message to publish for one that was not settled. It sends nothing
// itself.
type directSender struct {
	names   *names
	replyTo func() string // where results of tasks published now may be delivered; "" if nowhere
	routes  directRoutes
	loads   loads
	tasks   sync.Map // the subjects of direct delivery to task queues, by "<tag>.<activity>"
	limits  *directLimits
}

// way is how a message goes.
type way uint8

const (
	stored  way = iota // through its stream
	alone              // by direct delivery, in a message of its own
	bundled            // by direct delivery, in a bundle
)

// wayOf decides how a message goes, and gives it its receiver if it goes by direct delivery.
func (s *directSender) wayOf(w events.Wire) (events.Wire, way) {
	if w, ok := s.goesDirectTo(w); ok {
		return w, bundled
	}
	switch {
	case !s.goesDirect(w):
		return w, stored
	case takesMany(w.DirectTo) && fitsBundle(w):
		return w, bundled
	}
	return w, alone
}

// goesDirectTo gives a task its receiver, if it may be delivered directly just now.
func (s *directSender) goesDirectTo(w events.Wire) (events.Wire, bool) {
	if !w.Direct || !w.NotBefore.IsZero() || !fitsBundle(w) {
		return w, false
	}
	to := s.subjectOf(w.Subject)
	if to == "" || !s.routes.may(to) {
		return w, false
	}
	w.DirectTo, w.Header = to, events.Header(s.withReply(nats.Header(w.Header)))
	return w, true
}

// goesDirect reports whether a message is a result that may be delivered directly. The subject
// comes from a header of the task, which any user may have written that may publish tasks.
func (s *directSender) goesDirect(w events.Wire) bool {
	if w.DirectTo == "" || !w.NotBefore.IsZero() {
		return false
	}
	name, ok := strings.CutPrefix(w.DirectTo, s.names.resultsSubject(""))
	odd := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	return ok && name != "" && len(name) <= maxResultsName && !strings.ContainsFunc(name, odd) &&
		s.routes.may(w.DirectTo)
}

// takesMany reports whether the receiver at a subject of direct delivery accepts bundles.
func takesMany(back string) bool { return strings.HasSuffix(back, takesBundles) }

// subjectOf is where tasks of a subject are delivered directly; "" if it is no subject of tasks.
func (s *directSender) subjectOf(subject string) string {
	words, ok := s.names.queueWords(subject)
	if !ok {
		return ""
	}
	if to, known := s.tasks.Load(words); known {
		return to.(string)
	}
	tag, activity, _ := strings.Cut(words, ".")
	q, err := queueOf(tag, activity)
	if err != nil {
		return ""
	}
	to := s.names.tasksSubject(q)
	s.tasks.Store(words, to)
	return to
}

// withReply sets the header of a task that says where to deliver its results directly. It
// overwrites any other value.
func (s *directSender) withReply(h nats.Header) nats.Header {
	to := s.replyTo()
	if to == "" && h[events.HeaderDirectReply] == nil {
		return h
	}
	out := make(nats.Header, len(h)+1)
	maps.Copy(out, h)
	if delete(out, events.HeaderDirectReply); to != "" {
		out[events.HeaderDirectReply] = []string{to}
	}
	return out
}

// directMessage builds the message of a direct delivery.
func directMessage(w events.Wire) *nats.Msg {
	h := make(nats.Header, len(w.Header)+1)
	maps.Copy(h, nats.Header(w.Header))
	h[headerSubject] = []string{w.Subject}
	return &nats.Msg{Subject: w.DirectTo, Header: h, Data: w.Body}
}

// bundleMessage builds the message of a bundle of n messages, which are all results or all tasks.
func bundleMessage(to, reply string, n int, tasks bool, body []byte, now time.Time) *nats.Msg {
	m := &nats.Msg{Subject: to, Reply: reply, Header: nats.Header{headerResults: {strconv.Itoa(n)}}, Data: body}
	if tasks {
		m.Header[headerDirectAt] = []string{now.UTC().Format(time.RFC3339Nano)}
	}
	return m
}

// fallback builds the message to publish for one that direct delivery has not settled. Unless the
// receiver refused it at once, or gave the task back, it may have processed the message, which then
// counts as redelivered. A task that a worker still executes names that worker instead.
func fallback(w events.Wire, why error) events.Wire {
	isTask := w.Direct
	w.DirectTo, w.Direct = "", false
	var l lasts
	switch {
	case isTask && errors.As(why, &l) && 0 < len(l.by) && len(l.by) <= events.MaxName:
		return withHeader(w, events.HeaderHeld, l.by)
	case errors.Is(why, jetstream.ErrNoStreamResponse), errors.Is(why, errNotHere), errors.Is(why, errBusy),
		isTask && errors.Is(why, errReturned):
		return w
	}
	return withHeader(w, headerAgain, "true")
}

// directRoutes are the subjects of direct delivery that are avoided for a while.
type directRoutes struct {
	mu    sync.Mutex
	avoid map[string]time.Time // subjects without an answer, and until when they are avoided
	// how many results and tasks were delivered directly, and how many were stored after all
	taken, passed atomic.Uint64
}

// may reports whether direct delivery to a subject may be tried.
func (w *directRoutes) may(subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, is := w.avoid[subject]
	return !is || time.Now().After(until)
}

// refused records that a result, or a task, was not accepted.
func (w *directRoutes) refused(what events.Wire, why error) {
	w.passed.Add(1)
	var most time.Duration
	var l lasts
	switch {
	case errors.Is(why, errNotHere), errors.Is(why, errReturned), errors.Is(why, nats.ErrDisconnected),
		errors.As(why, &l):
		return // another one may be taken
	case what.Direct && errors.Is(why, jetstream.ErrNoStreamResponse):
		most = avoidUnserved
	case errors.Is(why, errBusy), errors.Is(why, jetstream.ErrNoStreamResponse):
		most = avoidBriefly
	case errors.Is(why, nats.ErrPermissionViolation):
		most = avoidDenied
	default:
		most = avoidFor
	}
	until, subject := time.Now().Add(most), what.DirectTo
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.avoid == nil || len(w.avoid) >= maxAvoided {
		w.avoid = make(map[string]time.Time)
	}
	if until.After(w.avoid[subject]) {
		w.avoid[subject] = until
	}
}
