package telemetry

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/rondo-run/rondo/pkg/events"
)

// ---- Names of which there must be an end.

const (
	maxTags       = 50
	maxActivities = 200
	maxChildren   = 200
)

// first lets the first names be, and calls those that come after them [Other].
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

// registered are the orchestrations that somebody can run here, with their versions. Other names
// come from messages, and anybody can make up any number of them.
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

// ---- Words of which there is an end, unless somebody makes some up.

// errorKinds are those that the engine knows. Activities can return errors of any other.
var errorKinds = func() map[events.ErrorKind]bool {
	m := make(map[events.ErrorKind]bool)
	for _, k := range []events.ErrorKind{
		events.Application, events.Panicked, events.CancelledError, events.TerminatedError, events.Timeout,
		events.Nondeterminism, events.Unregistered, events.LimitExceeded,
		events.Conflict, events.Runaway, events.Deadlock, events.Infrastructure, events.Poison, events.Unreadable,
	} {
		m[k] = true
	}
	return m
}()

func kindOf(e *events.Error) string {
	if e != nil && errorKinds[e.Kind] {
		return string(e.Kind)
	}
	return Other
}

// verbs are those of subjects.
var verbs = func() map[events.Verb]bool {
	m := make(map[events.Verb]bool)
	for _, v := range []events.Verb{
		events.VerbStart, events.VerbEvent, events.VerbQueue, events.VerbControl, events.VerbWake, events.VerbBegun,
		events.VerbDone, events.VerbFail, events.VerbTimer,
		events.VerbChild, events.VerbWork, events.VerbStep,
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
	case events.TimeoutScheduleToStart, events.TimeoutStartToClose, events.TimeoutHeartbeat, events.TimeoutOverall:
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

// ---- Sets of labels that are made once.

// series are the labels of one series, as the different instruments want them.
type series struct {
	set     attribute.Set
	records []metric.RecordOption
	at      metric.ObserveOption
	passing bool // it is not kept: the next time there is another one for the same labels
}

func newSeries(kv ...attribute.KeyValue) *series {
	set := attribute.NewSet(kv...)
	o := metric.WithAttributeSet(set)
	return &series{set: set, records: []metric.RecordOption{o}, at: o}
}

// none is the series of a metric without labels, overflow that of what has too many of them, as the
// SDK names it.
var none, overflow = newSeries(), newSeries(attribute.Bool("otel.metric.overflow", true))

// key is up to four labels' values.
type key struct{ a, b, c, d string }

// labelled makes the series of labels with these names. Making one costs ten times as much as
// finding it, and most are recorded again and again.
type labelled struct {
	names [4]string

	mu   sync.Mutex
	made atomic.Pointer[map[key]*series] // never changed
}

// maxKept bounds the series that are kept. There are never that many of labels that have an end; it
// is for those who give other ones.
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

// clean is text as exporters take it.
func clean(s string) string { return strings.ToValidUTF8(s, "?") }

// deadReason is the label of why a message was dead-lettered.
func deadReason(reason string) string { return cmp.Or(reason, Other) }
