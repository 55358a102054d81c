package telemetry

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// ---- Names with a limit.

const (
	maxTags       = 50
	maxActivities = 200
	maxChildren   = 200
)

// first keeps the first names, and replaces later ones by [Other].
type first struct {
	most int

	mu   sync.Mutex
	seen atomic.Pointer[map[string]bool] // never changed
}

func (f *first) of(name string) string {
	if name == "" {
		return ""
	}
	if seen := f.seen.Load(); seen != nil && ((*seen)[name] || len(*seen) >= f.most) {
		if (*seen)[name] {
			return name
		}
		return Other
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := map[string]bool{name: true}
	if seen := f.seen.Load(); seen != nil {
		if len(*seen) >= f.most && !(*seen)[name] {
			return Other
		}
		for n := range *seen {
			next[n] = true
		}
	}
	f.seen.Store(&next)
	return name
}

// registered are the orchestrations that this process can run, with their versions. Other names
// come from messages, and clients can send any number of them.
type registered struct {
	mu       sync.Mutex
	versions atomic.Pointer[map[string]map[string]bool] // never changed
}

func (r *registered) add(name string, versions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]map[string]bool)
	if before := r.versions.Load(); before != nil {
		for n, v := range *before {
			next[n] = v
		}
	}
	all := make(map[string]bool)
	for v := range next[name] {
		all[v] = true
	}
	for _, v := range versions {
		all[v] = true
	}
	next[name] = all
	r.versions.Store(&next)
}

// name is the label of a name.
func (r *registered) name(name string) string {
	if all := r.versions.Load(); all != nil && (*all)[name] != nil {
		return name
	}
	return Unregistered
}

// both are the labels of a name and a version.
func (r *registered) both(name, version string) (string, string) {
	all := r.versions.Load()
	switch {
	case all == nil || (*all)[name] == nil:
		return Unregistered, Unregistered
	case !(*all)[name][version]:
		return name, Unregistered
	}
	return name, version
}

// ---- Words with a limit, except those of users' code.

// errorKinds are the kinds that the engine knows. Activities can return errors of any other.
var errorKinds = func() map[failure.Kind]bool {
	m := make(map[failure.Kind]bool)
	for _, k := range []failure.Kind{
		failure.Application, failure.Panicked, failure.Cancelled, failure.Terminated, failure.Timeout,
		failure.Nondeterminism, failure.Unregistered, failure.LimitExceeded,
		failure.Conflict, failure.Runaway, failure.Deadlock, failure.Infrastructure, failure.Poison, failure.Unreadable,
	} {
		m[k] = true
	}
	return m
}()

func kindOf(e *failure.Error) string {
	if e != nil && errorKinds[e.Kind] {
		return string(e.Kind)
	}
	return Other
}

// verbs are those of subjects.
var verbs = func() map[events.Verb]bool {
	m := make(map[events.Verb]bool)
	for _, v := range []events.Verb{
		events.VerbStart, events.VerbEvent, events.VerbMailbox, events.VerbControl, events.VerbWake, events.VerbBegun,
		events.VerbDone, events.VerbFail, events.VerbTimer,
		events.VerbChild, events.VerbTask, events.VerbStep,
	} {
		m[v] = true
	}
	return m
}()

// verbOf finds the verb in a subject.
func verbOf(prefix, subject string) string {
	rest, _ := strings.CutPrefix(subject, prefix+".")
	word, _, _ := strings.Cut(rest, ".")
	if verb, _ := events.Origin(word); verbs[verb] {
		return string(verb)
	}
	return Other
}

// attemptLabel is the label of an attempt.
func attemptLabel(n int) string {
	switch {
	case n <= 1:
		return "1"
	case n == 2:
		return "2"
	case n == 3:
		return "3"
	}
	return "4+"
}

// timeoutLabel is the label of a timeout: its type, if the engine knows it.
func timeoutLabel(typ string) string {
	switch typ {
	case failure.TimeoutScheduleToStart, failure.TimeoutStartToClose, failure.TimeoutHeartbeat,
		failure.TimeoutScheduleToClose:
		return "timeout_" + typ
	}
	return "timeout"
}

func said(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}

// ---- Sets of labels that are created once.

// series are the labels of one series, as the different instruments want them.
type series struct {
	set     attribute.Set
	records []metric.RecordOption
	at      metric.ObserveOption
	passing bool // not kept: the next one with the same labels is another
}

func newSeries(kv ...attribute.KeyValue) *series {
	set := attribute.NewSet(kv...)
	o := metric.WithAttributeSet(set)
	return &series{set: set, records: []metric.RecordOption{o}, at: o}
}

// none is the series of a metric without labels, overflow that of the labels beyond the limit, with
// the name that the SDK gives it.
var none, overflow = newSeries(), newSeries(attribute.Bool("otel.metric.overflow", true))

// key is up to four labels' values.
type key struct{ a, b, c, d string }

// labelled creates series of labels with these names. To create one costs ten times as much as to
// find it, and most are recorded again and again.
type labelled struct {
	names [4]string

	mu   sync.Mutex
	made atomic.Pointer[map[key]*series] // never changed
}

// maxKept bounds the series that are kept. Labels with a limit stay below it; it is for other ones.
const maxKept = maxSeries

func newLabelled(names ...string) *labelled {
	l := &labelled{}
	copy(l.names[:], names)
	l.made.Store(&map[key]*series{})
	return l
}

func (l *labelled) of(k key) *series {
	if s := (*l.made.Load())[k]; s != nil {
		return s
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := *l.made.Load()
	if s := before[k]; s != nil {
		return s
	}
	var kv []attribute.KeyValue
	for i, v := range [...]string{k.a, k.b, k.c, k.d} {
		if l.names[i] != "" {
			kv = append(kv, attribute.String(l.names[i], clean(v)))
		}
	}
	s := newSeries(kv...)
	if len(before) >= maxKept {
		s.passing = true
		return s
	}
	after := make(map[key]*series, len(before)+1)
	for k, s := range before {
		after[k] = s
	}
	after[k] = s
	l.made.Store(&after)
	return s
}

// clean is text in the form that exporters take.
func clean(s string) string { return strings.ToValidUTF8(s, "?") }

// deadReason is the label of the reason for a dead letter.
func deadReason(reason string) string { return cmp.Or(reason, Other) }
