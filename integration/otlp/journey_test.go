package otlp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// This file is a program that does one of everything, and exports spans and metrics of its own.

var (
	journey = orchestration.Define[int, string]("journey")
	leg     = orchestration.Define[string, string]("leg")
	visit   = activity.Define[string, string]("visit", activity.Retry(3, activity.Fixed(20*time.Millisecond)))
	board   = orchestration.DefineEvent[string]("board")
	mail    = orchestration.DefineMailbox[string]("mail")
	where   = orchestration.DefineStatus[string]()
)

// scope is that of the program's own spans and metrics.
const scope = "journey"

// parts are the program: see programVariable.
func parts() (all []app.Part) {
	all = []app.Part{journey.Bind(travel), leg.Bind(func(ctx *orchestration.Context, to string) (string, error) {
		return visit.Call(ctx, to)
	}), visit.Bind(look)}
	for _, b := range work.Orchestrations {
		all = append(all, b)
	}
	for _, b := range work.Activities(func(activity.ExecutionInfo) {}) {
		all = append(all, b)
	}
	return all
}

// travel is of two executions; the second one only visits a last place.
func travel(ctx *orchestration.Context, n int) (string, error) {
	if n == 2 {
		return visit.Call(ctx, "home")
	}
	if _, err := orchestration.Step(ctx, "pack", func(ctx context.Context) (string, error) {
		_, span := otel.Tracer(scope).Start(ctx, "fold")
		span.End()
		return "a bag", nil
	}); err != nil {
		return "", err
	}
	ctx.SetSpanAttributes(slog.String("guide", "ann"))
	tour := ctx.Span("tour", slog.Int("places", 2))
	if _, err := visit.Call(ctx, "far"); err != nil {
		return "", err
	}
	if _, err := leg.Call(ctx, "near", orchestration.ID(ctx.Instance()+"-leg")); err != nil {
		return "", err
	}
	tour.End()
	if err := ctx.Sleep(20 * time.Millisecond); err != nil {
		return "", err
	}
	where.Set(ctx, "at the pier")
	if _, err := board.Wait(ctx); err != nil {
		return "", err
	}
	if _, err := mail.Receive(ctx); err != nil {
		return "", err
	}
	return journey.ContinueAsNew(ctx, 2)
}

// look exports a span and a metric of its own, and returns the place. The first attempt at "far"
// fails.
func look(ctx context.Context, place string) (string, error) {
	_, span := otel.Tracer(scope).Start(ctx, "look around")
	span.SetAttributes(attribute.String("customer", baggage.FromContext(ctx).Member("customer").Value()))
	defer span.End()
	visits, err := otel.Meter(scope).Int64Counter("visits")
	if err != nil {
		return "", err
	}
	visits.Add(ctx, 1)
	if place == "far" && activity.Info(ctx).Attempt == 1 {
		return "", errors.New("fog")
	}
	return place, nil
}

// journeyProgram is this test binary.
func journeyProgram(t *testing.T) program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program{path: self, name: "journeys",
		env: []string{programVariable + "=1", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=here"}}
}

func withBaggage(t *testing.T, key, value string) context.Context {
	t.Helper()
	member, err := baggage.NewMember(key, value)
	if err != nil {
		t.Fatal(err)
	}
	all, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	return baggage.ContextWithBaggage(t.Context(), all)
}

// TestEverythingIsTraced makes a journey, which has each kind of span once.
func TestEverythingIsTraced(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	s := newSystem(t, journeyProgram(t), c, append(fast, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.endpoint("http/protobuf"))...)
	orchestrator, worker := s.run()
	begun := s.web.request(withBaggage(t, "customer", "7"), "POST /journeys", func(ctx context.Context) {
		s.say(ctx, "rondo.start.journey.j", 1)
	})
	s.waitStatus("j", "at the pier")
	s.web.request(t.Context(), "POST /board", func(ctx context.Context) {
		s.say(ctx, "rondo.event.board.j", "the boat")
	})
	s.web.request(t.Context(), "POST /mail", func(ctx context.Context) {
		s.say(ctx, "rondo.mailbox.mail.j",
			"a letter")
	})
	s.completed("j")
	worker.end()
	orchestrator.end()
	s.web.end(t)
	spans := c.received()
	for _, p := range problems(spans) {
		t.Error(p)
	}
	first := treeOf(spans, begun.TraceID().String())
	if got := first.outline(false); got != journeyOutline {
		t.Errorf("the journey was:\n%s\nwant:\n%s", got, journeyOutline)
	}
	if of := first.within[0]; of.Attributes["guide"] != "ann" {
		t.Errorf("the execution has the attributes %v, without that of its code", of.Attributes)
	}
	looked, second := 0, node{}
	for _, x := range spans {
		if x.Name == "look around" {
			if looked++; x.Attributes["customer"] != "7" {
				t.Errorf("an activity of execution %s has not seen the baggage: %v", x.Trace, x.Attributes)
			}
		}
		if x.Parent == "" && x.sort() == "orchestration" {
			second = treeOf(spans, x.Trace)
		}
		if x.Service != webService && x.Resource["deployment.environment.name"] != "here" {
			t.Errorf("%v does not have the attribute of OTEL_RESOURCE_ATTRIBUTES: %v", x, x.Resource)
		}
	}
	if looked != 4 {
		t.Errorf("%d visits have told of themselves, want 4", looked)
	}
	if got := second.outline(false); got != homeOutline {
		t.Errorf("the second execution was:\n%s\nwant:\n%s", got, homeOutline)
	}
	if want := first.within[0].place(); !slices.Equal(second.Links, []link{want}) {
		t.Errorf("the second execution follows %v, want %v", second.Links, want)
	}
	if names, _, _ := c.metricsOf(webService); names != nil {
		t.Errorf("the client has metrics: %q", names)
	}
	names, of, _ := c.metricsOf(s.program.name + "-worker")
	if !slices.Contains(names, "visits") {
		t.Errorf("the worker has sent metrics %q; its activity counts visits", names)
	}
	for _, key := range []string{"service.version", "service.instance.id", "host.name", "process.pid",
		"telemetry.sdk.name", "deployment.environment.name"} {
		if of[key] == nil {
			t.Errorf("the metrics of the worker are of %v, without %s", of, key)
		}
	}
}

const journeyOutline = `POST /journeys
  orchestration journey
    step pack
      fold
    span tour
    activity visit: fog
      execute visit: fog
        look around
    activity visit, attempt 2
      execute visit, attempt 2
        look around
    child leg
      orchestration leg
        activity visit
          execute visit
            look around
    timer
    event board
    mailbox mail
`

const homeOutline = `orchestration journey
  activity visit
    execute visit
      look around
`

// TestAllSortsAreTraced does all sorts of work at once: fan-out, races, children, retries,
// mailboxes.
func TestAllSortsAreTraced(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	s := newSystem(t, journeyProgram(t), c,
		append(fast, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.endpoint("grpc"), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")...)
	orchestrator, worker := s.run()
	const each = 3
	var ids []string
	for n := range each * work.Sorts {
		j := work.NewJob(fmt.Sprintf("job-%d", n), n%work.Sorts, n)
		if j.Later != nil {
			continue // the journey has an event
		}
		ids = append(ids, j.ID)
		s.web.request(t.Context(), "POST /jobs", func(ctx context.Context) {
			for _, m := range append(j.Said, j.Start()) {
				if err := s.client.Publish(ctx, m); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	s.completed(ids...)
	worker.end()
	orchestrator.end()
	s.web.end(t)
	spans := c.received()
	for _, p := range problems(spans) {
		t.Error(p)
	}
	began, ended := 0, make(map[string]int)
	for _, x := range spans {
		switch {
		case x.Service == webService:
			began++
		case x.sort() == "orchestration":
			ended[strings.TrimPrefix(x.Name, "orchestration ")]++
		}
	}
	if began != len(ids) {
		t.Errorf("%d requests have arrived, want %d", began, len(ids))
	}
	// A family has two children, and rolling does so three times.
	want := map[string]int{"chain": 2 * each, "nap": 2 * each, "fan": each, "family": each, "mail": each,
		"retried": each, "roll": 4 * each, "racing": each, "steps": each}
	if fmt.Sprint(ended) != fmt.Sprint(want) {
		t.Errorf("executions: %v, want %v", ended, want)
	}
}
