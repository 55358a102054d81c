package otlp_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// This file has the rules for every trace.

// span is one that was received.
type span struct {
	Trace, ID, Parent string // Parent is "" for one that begins its trace
	Name              string
	Kind              ptrace.SpanKind
	Start, End        time.Time
	Failed            string // why; "" if it has not
	Attributes        map[string]any
	Links             []link
	Scope             string
	Service           string
	Resource          map[string]any
}

// link is one from a span to another.
type link struct{ Trace, ID string }

func newSpan(of pcommon.Resource, scope pcommon.InstrumentationScope, s ptrace.Span) span {
	out := span{
		Trace: s.TraceID().String(), ID: s.SpanID().String(), Parent: s.ParentSpanID().String(), Name: s.Name(),
		Kind:  s.Kind(),
		Start: s.StartTimestamp().AsTime(), End: s.EndTimestamp().AsTime(), Attributes: s.Attributes().AsRaw(),
		Scope: scope.Name(), Resource: of.Attributes().AsRaw(),
	}
	if s.Status().Code() == ptrace.StatusCodeError {
		out.Failed = cmp.Or(s.Status().Message(), "it does not say why")
	}
	for _, l := range s.Links().All() {
		out.Links = append(out.Links, link{l.TraceID().String(), l.SpanID().String()})
	}
	out.Service, _ = out.Resource["service.name"].(string)
	return out
}

func (s span) String() string { return fmt.Sprintf("%q (%s, of %s)", s.Name, s.ID, s.Service) }

// sort is the first word of a span's name.
func (s span) sort() string {
	word, _, _ := strings.Cut(s.Name, " ")
	return word
}

// told reports whether it is one of Rondo's own, and not of the code that it runs, or of a client.
func (s span) told() bool { return s.Scope == "github.com/rondo-run/rondo" }

// sort has the expectations for spans whose names begin with the same word.
type sort struct {
	kind       ptrace.SpanKind
	by         string   // the service, without the name of the program
	within     []string // the sorts in which it lies
	attributes []string // besides those that all have
	named      string   // the attribute that the name has, too
}

const (
	byOrchestrator = "-orchestrator"
	byWorker       = "-worker"
)

var messaging = []string{"messaging.system", "messaging.operation.name", "messaging.operation.type"}

// sorts are all that there are.
var sorts = map[string]sort{
	"orchestration": {kind: ptrace.SpanKindConsumer, by: byOrchestrator, within: []string{"child"},
		named:      "rondo.orchestration",
		attributes: []string{"rondo.instance", "rondo.execution", "rondo.version", "rondo.status"}},
	"round": {kind: ptrace.SpanKindConsumer, by: byOrchestrator, within: []string{"orchestration"},
		named: "rondo.orchestration",
		attributes: slices.Concat(messaging, []string{"rondo.instance", "rondo.execution",
			"messaging.batch.message_count", "rondo.events", "rondo.history", "rondo.hydrated", "rondo.partition",
			"rondo.batch", "rondo.wait", "rondo.decide", "rondo.commit"})},
	"activity": {kind: ptrace.SpanKindProducer, by: byOrchestrator, within: []string{"orchestration"},
		named:      "rondo.activity",
		attributes: slices.Concat(messaging, []string{"rondo.instance", "rondo.event", "rondo.attempt"})},
	"execute": {kind: ptrace.SpanKindConsumer, by: byWorker, within: []string{"activity"}, named: "rondo.activity",
		attributes: slices.Concat(messaging,
			[]string{"rondo.instance", "rondo.attempt", "rondo.worker", "rondo.deliveries"})},
	"step": {kind: ptrace.SpanKindInternal, by: byOrchestrator, within: []string{"orchestration"},
		attributes: []string{"rondo.instance", "rondo.attempt"}},
	"span": {kind: ptrace.SpanKindInternal, by: byOrchestrator, within: []string{"orchestration"},
		attributes: []string{"rondo.instance"}},
	"child": {kind: ptrace.SpanKindProducer, by: byOrchestrator, within: []string{"orchestration"},
		named:      "rondo.orchestration",
		attributes: slices.Concat(messaging, []string{"rondo.instance", "rondo.event", "rondo.child"})},
	"timer": {kind: ptrace.SpanKindInternal, by: byOrchestrator, within: []string{"orchestration"},
		attributes: []string{"rondo.instance", "rondo.event", "rondo.due"}},
	"event": {kind: ptrace.SpanKindInternal, by: byOrchestrator, within: []string{"orchestration"},
		attributes: []string{"rondo.instance", "rondo.event", "rondo.name"}},
	"mailbox": {kind: ptrace.SpanKindInternal, by: byOrchestrator, within: []string{"orchestration"},
		attributes: []string{"rondo.instance", "rondo.event", "rondo.name"}},
}

// problems lists the faults of traces that have arrived completely.
func problems(spans []span) []string {
	return slices.Concat(problemsBut(spans, nil), roundless(spans))
}

// problemsBut does the same, except for faults that follow from the loss of these spans.
func problemsBut(spans []span, lost map[link]bool) []string {
	return slices.Concat(duplicates(spans), disconnected(spans, lost), misshapen(spans), mistimed(spans),
		dangling(spans, lost))
}

// place is where a span is.
func (s span) place() link { return link{s.Trace, s.ID} }

func (s span) above() link { return link{s.Trace, s.Parent} }

func byPlace(spans []span) map[link]span {
	out := make(map[link]span, len(spans))
	for _, s := range spans {
		out[s.place()] = s
	}
	return out
}

// duplicates are spans of the same id.
func duplicates(spans []span) (bad []string) {
	seen := make(map[string]span)
	for _, s := range spans {
		if before, twice := seen[s.ID]; twice {
			bad = append(bad, fmt.Sprintf("%v has the id of %v", s, before))
		}
		seen[s.ID] = s
	}
	return bad
}

// disconnected are spans whose parent is not there, and traces with more than one beginning.
func disconnected(spans []span, lost map[link]bool) (bad []string) {
	there := byPlace(spans)
	roots := make(map[string][]span)
	for _, s := range spans {
		if s.Parent == "" {
			roots[s.Trace] = append(roots[s.Trace], s)
		} else if _, ok := there[s.above()]; !ok && !lost[s.above()] {
			bad = append(bad, fmt.Sprintf("the parent of %v is not there: %s", s, s.Parent))
		}
	}
	for _, s := range spans {
		if n := len(roots[s.Trace]); n != 1 {
			bad = append(bad, fmt.Sprintf("trace %s has %d beginnings: %v", s.Trace, n, roots[s.Trace]))
			roots[s.Trace] = make([]span, 1) // once is enough
		}
	}
	return bad
}

// misshapen lists spans that do not meet the expectations for their names.
func misshapen(spans []span) (bad []string) {
	there := byPlace(spans)
	for _, s := range spans {
		say := func(format string, args ...any) {
			bad = append(bad, fmt.Sprintf("%v ", s)+fmt.Sprintf(format, args...))
		}
		for _, key := range []string{"service.name", "service.version", "service.instance.id"} {
			if v, _ := s.Resource[key].(string); v == "" {
				say("has no %s", key)
			}
		}
		if !s.told() {
			continue
		}
		want, ok := sorts[s.sort()]
		if !ok {
			say("is of no known sort")
			continue
		}
		if s.Kind != want.kind {
			say("is of kind %v, want %v", s.Kind, want.kind)
		}
		if !strings.HasSuffix(s.Service, want.by) {
			say("is told by %s, not by one called …%s", s.Service, want.by)
		}
		for _, key := range want.attributes {
			if _, ok := s.Attributes[key]; !ok {
				say("has no %s", key)
			}
		}
		if system, ok := s.Attributes["messaging.system"]; ok && system != "nats" {
			say("is about %v, not about NATS", system)
		}
		if want.named != "" && s.Name != s.sort()+" "+fmt.Sprint(s.Attributes[want.named]) {
			say("does not have the name of its %s, %v", want.named, s.Attributes[want.named])
		}
		if above, ok := there[s.above()]; ok && above.told() && !slices.Contains(want.within, above.sort()) {
			say("lies within %v", above)
		}
	}
	return bad
}

// mistimed are spans that are not within those that they belong to. All clocks are those of one
// machine.
func mistimed(spans []span) (bad []string) {
	there := byPlace(spans)
	for _, s := range spans {
		say := func(format string, args ...any) {
			bad = append(bad, fmt.Sprintf("%v ", s)+fmt.Sprintf(format, args...))
		}
		if s.End.Before(s.Start) {
			say("ends %v before it begins", s.Start.Sub(s.End))
		}
		above, ok := there[s.above()]
		switch {
		case !ok:
		case s.Start.Before(above.Start.Truncate(time.Microsecond)):
			say("begins %v before %v", above.Start.Sub(s.Start), above)
		case s.sort() == "orchestration" && !above.told(), above.Attributes["rondo.given_up"] == true:
			// the span above does not wait for it
		case s.End.After(above.End):
			say("ends %v after %v", s.End.Sub(above.End), above)
		}
	}
	return bad
}

// roundless are executions that no round has begun, or ended.
func roundless(spans []span) (bad []string) {
	rounds := make(map[link][]span)
	for _, s := range spans {
		if s.sort() == "round" {
			rounds[s.above()] = append(rounds[s.above()], s)
		}
	}
	for _, s := range spans {
		if !s.told() || s.sort() != "orchestration" {
			continue
		}
		for _, at := range []time.Time{s.Start, s.End} {
			if !slices.ContainsFunc(rounds[s.place()], func(r span) bool {
				return !at.Before(r.Start.Truncate(time.Microsecond)) && !at.After(r.End)
			}) {
				bad = append(bad, fmt.Sprintf("%v begins or ends in no round", s))
			}
		}
	}
	return bad
}

// dangling lists links to missing spans, and rounds with more causes than messages. A message may
// come without a trace.
func dangling(spans []span, lost map[link]bool) (bad []string) {
	there := byPlace(spans)
	for _, s := range spans {
		for _, l := range s.Links {
			if _, ok := there[l]; !ok && !lost[l] {
				bad = append(bad, fmt.Sprintf("%v has a link to %v, which is not there", s, l))
			}
		}
		if n, _ := s.Attributes["messaging.batch.message_count"].(int64); s.sort() == "round" && len(s.Links) > int(n) {
			bad = append(bad, fmt.Sprintf("%v has taken %d messages, and has %d links", s, n, len(s.Links)))
		}
	}
	return bad
}

// ---- Views of one trace.

// traceOf are the spans of a trace, in order: by when they begin, and those that begin together by
// the event that has opened them.
func traceOf(spans []span, id string) []span {
	var out []span
	for _, s := range spans {
		if s.Trace == id {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b span) int {
		event := func(s span) int64 { n, _ := s.Attributes["rondo.event"].(int64); return n }
		return cmp.Or(a.Start.Truncate(time.Microsecond).Compare(b.Start.Truncate(time.Microsecond)),
			cmp.Compare(event(a), event(b)), a.Start.Compare(b.Start))
	})
	return out
}

// traces are the ids of the traces in which spans lie.
func traces(spans []span) []string {
	var out []string
	for _, s := range spans {
		out = append(out, s.Trace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// node is a span with those within it.
type node struct {
	span
	depth  int
	within []node
}

// treeOf is a trace from its beginning; spans without a path to that are not in it.
func treeOf(spans []span, id string) node {
	all := traceOf(spans, id)
	var grow func(parent string, depth int) []node
	grow = func(parent string, depth int) (out []node) {
		for _, s := range all {
			if s.Parent == parent {
				out = append(out, node{s, depth, grow(s.ID, depth+1)})
			}
		}
		return out
	}
	if roots := grow("", 0); len(roots) > 0 {
		return roots[0]
	}
	return node{}
}

// each visits it and all within it, in order.
func (n node) each(visit func(node)) {
	visit(n)
	for _, w := range n.within {
		w.each(visit)
	}
}

// [span.what] is the name of a span, and its difference from others of that name.
func (s span) what() string {
	out := s.Name
	if s.sort() == "event" || s.sort() == "mailbox" {
		out += " " + fmt.Sprint(s.Attributes["rondo.name"])
	}
	if n, _ := s.Attributes["rondo.attempt"].(int64); n > 1 {
		out += fmt.Sprintf(", attempt %d", n)
	}
	if s.Attributes["rondo.given_up"] == true {
		out += ", given up"
	}
	if s.Failed != "" {
		out += ": " + s.Failed
	}
	return out
}

// outline prints the spans as a tree. The number of rounds depends on which messages come together,
// so rounds are left out unless the caller asks for them.
func (n node) outline(rounds bool) string {
	var b strings.Builder
	n.each(func(n node) {
		if !rounds && n.told() && n.sort() == "round" {
			return
		}
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", n.depth), n.what())
	})
	return b.String()
}
