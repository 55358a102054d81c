package otlp_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// good is a trace as it should be, of an execution of two rounds with an activity.
func good() []span {
	at := func(ms float64) time.Time {
		return time.Unix(100, 0).Add(time.Duration(ms * float64(time.Millisecond)))
	}
	make := func(id, parent, name, by string, kind ptrace.SpanKind, from, to float64) span {
		s := span{Trace: "t", ID: id, Parent: parent, Name: name, Kind: kind, Start: at(from), End: at(to),
			Service: "orders" + by, Scope: "github.com/rondo-run/rondo"}
		s.Resource = map[string]any{"service.name": s.Service, "service.version": "1", "service.instance.id": "x"}
		s.Attributes = map[string]any{}
		for _, key := range sorts[s.sort()].attributes {
			s.Attributes[key] = int64(1)
		}
		if _, ok := s.Attributes["messaging.system"]; ok {
			s.Attributes["messaging.system"] = "nats"
		}
		if named := sorts[s.sort()].named; named != "" {
			_, s.Attributes[named], _ = strings.Cut(name, " ")
		}
		return s
	}
	const consumer, producer = ptrace.SpanKindConsumer, ptrace.SpanKindProducer
	all := []span{
		make("1", "", "POST /orders", "-web", ptrace.SpanKindServer, 0, 1),
		make("2", "1", "orchestration fulfil", byOrchestrator, consumer, 2, 22),
		make("3", "2", "round fulfil", byOrchestrator, consumer, 2, 4),
		make("4", "2", "activity reserve", byOrchestrator, producer, 2, 3),
		make("5", "2", "activity ship", byOrchestrator, producer, 2, 20),
		make("6", "5", "execute ship", byWorker, consumer, 5, 18),
		make("7", "2", "round fulfil", byOrchestrator, consumer, 19, 22),
	}
	all[0].Scope = "web"
	all[2].Links, all[6].Links = []link{{"t", "1"}}, []link{{"t", "6"}}
	return all
}

// TestChecksNotice makes sure that the checks find each planted fault, and nothing else.
func TestChecksNotice(t *testing.T) {
	if p := problems(good()); len(p) > 0 {
		t.Fatalf("there is nothing to be found: %q", p)
	}
	for _, c := range []struct {
		name, want string
		change     func(all []span) []span
	}{
		{"twice", "has the id of", func(all []span) []span { return append(all, all[5]) }},
		{"a lost parent", "is not there: 5", func(all []span) []span { return slices.Delete(all, 4, 5) }},
		{"a lost beginning", "has 0 beginnings", func(all []span) []span { return all[1:] }},
		{"two beginnings", "has 2 beginnings", func(all []span) []span { all[6].Parent = ""; return all }},
		{"another parent", "lies within", func(all []span) []span { all[5].Parent = "2"; return all }},
		{"another service", "is told by", func(all []span) []span {
			all[5].Service = "orders-orchestrator"
			return all
		}},
		{"another kind", "want Producer", func(all []span) []span {
			all[4].Kind = ptrace.SpanKindInternal
			return all
		}},
		{"an unknown name", "of no known sort", func(all []span) []span { all[4].Name = "working ship"; return all }},
		{"another name", "does not have the name", func(all []span) []span {
			all[4].Name = "activity charge"
			return all
		}},
		{"a missing attribute", "has no messaging.system", func(all []span) []span {
			delete(all[3].Attributes, "messaging.system")
			return all
		}},
		{"another broker", "not about NATS", func(all []span) []span {
			all[3].Attributes["messaging.system"] = "kafka"
			return all
		}},
		{"nobody", "has no service.instance.id", func(all []span) []span {
			delete(all[1].Resource, "service.instance.id")
			return all
		}},
		{"backwards", "before it begins", func(all []span) []span { all[5].End = all[5].Start.Add(-1); return all }},
		{"too early", "begins 1s before", func(all []span) []span {
			all[5].Start = all[4].Start.Add(-time.Second)
			return all
		}},
		{"too late", "ends 1s after", func(all []span) []span { all[5].End = all[4].End.Add(time.Second); return all }},
		{"a round elsewhere", "ends 1h0m0s after", func(all []span) []span {
			all[6].Start, all[6].End = all[6].Start.Add(time.Hour), all[6].End.Add(time.Hour)
			return all
		}},
		{"no last round", "begins or ends in no round", func(all []span) []span { return all[:6] }},
		{"a link to nowhere", "which is not there", func(all []span) []span { all[6].Links[0].ID = "9"; return all }},
		{"too many links", "has taken 1 messages, and has 2 links", func(all []span) []span {
			all[6].Links = append(all[6].Links, all[6].Links[0])
			return all
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(problems(c.change(good())), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
	without := slices.Delete(good(), 4, 5)
	if p := problemsBut(without, map[link]bool{{"t", "5"}: true}); len(p) > 0 {
		t.Errorf("what is known to be lost is found: %q", p)
	}
}

// TestPicturesAreRead draws the trace, and reads it again.
func TestPicturesAreRead(t *testing.T) {
	trace := treeOf(good(), "t")
	got, err := readPicture(draw(trace, "<a title & more>", nil))
	if err != nil || !slices.Equal(got, trace.rows()) || len(got) != len(good()) {
		t.Errorf("it reads %v, %v; want %v", got, err, trace.rows())
	}
}
