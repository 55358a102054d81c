package round_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestScenarios plays the files in testdata. Each file is a behaviour: rounds go in, printed turns
// come out. Every scenario is played three times at once: on an instance that stays hydrated, on
// one that is loaded from history before every round, and on one that is loaded every other round.
// All three must give the same turns.
//
// The commands:
//
//	round [at=+5s] [code=v2] [config=…]   one round; each line of its input is a message; with lose=commit its
//	                                      commit fails
//	                                      remember=2: executions know so many messages of former ones; prune=1: the
//	                                      history of that execution is removed; what a turn asks about former
//	                                      executions is answered before the next round
//	cold                                  forget the hydrated instance, too
//	corrupt event=N                       make the history unreadable
//	history                               print the history
//
// Run with -rewrite to write the output into the files.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		p := newPlay(t)
		datadriven.RunTest(t, path, p.command)
		for _, s := range p.stages {
			s.in.Evict()
		}
	})
}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// play is one scenario.
type play struct {
	t          *testing.T
	now        time.Time
	config     round.Config
	stages     []*stage
	sent       int
	losing     bool      // the commit of this round
	watermark  time.Time // of the next round; zero: none
	startWaits bool      // in the next round, or for a later one
}

// stage is one way of running the instance, with a store of its own.
type stage struct {
	name    string
	coldAt  func(round int) bool
	rounds  int
	in      *round.Instance
	known   round.Known
	steps   map[int64]round.Step
	corrupt error
	former  map[int64][]events.Event // histories of former executions
	recalls *round.Former            // what of them was asked for
}

func newPlay(t *testing.T) *play {
	p := &play{t: t, now: began, config: round.Config{Code: cast(t, "v1"), Coroutines: coroutines(t)}}
	for name, coldAt := range map[string]func(int) bool{
		"hydrated": func(int) bool { return false },
		"cold":     func(int) bool { return true },
		"mixed":    func(n int) bool { return n%2 == 0 },
	} {
		s := &stage{name: name, coldAt: coldAt, known: round.Known{Instance: "i"}, steps: make(map[int64]round.Step),
			former: make(map[int64][]events.Event)}
		s.in = round.New(&p.config, s.known)
		p.stages = append(p.stages, s)
	}
	return p
}

func (p *play) command(t *testing.T, d *datadriven.TestData) string {
	p.t = t
	switch d.Cmd {
	case "round":
		return p.round(d)
	case "cold":
		for _, s := range p.stages {
			s.reload(&p.config)
		}
		return ""
	case "corrupt":
		for _, s := range p.stages {
			s.corrupt = errors.New("event " + d.CmdArgs[0].Vals[0] + ": column data: unexpected end of JSON input")
			s.reload(&p.config)
		}
		return ""
	case "history":
		return p.history()
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func (p *play) round(d *datadriven.TestData) string {
	p.losing, p.watermark, p.startWaits = false, time.Time{}, false
	for _, a := range d.CmdArgs {
		p.set(a.Key, a.Vals[0])
	}
	var prints []string
	for _, s := range p.stages {
		prints = append(prints, p.decide(s, d.Input))
	}
	for i, s := range p.stages {
		if prints[i] != prints[0] {
			p.t.Errorf("%s and %s decide differently:\n--- %s\n%s\n--- %s\n%s", p.stages[0].name, s.name,
				p.stages[0].name, prints[0], s.name, prints[i])
		}
	}
	if !p.losing { // lost messages are redelivered, with the same ids
		p.sent += len(strings.Split(strings.TrimSpace(d.Input), "\n"))
	}
	return prints[0]
}

func (p *play) set(key, value string) {
	switch key {
	case "lose":
		p.losing = true
	case "watermark":
		p.watermark = p.moment(value)
	case "start":
		p.startWaits = value == "waits"
	case "at":
		after, err := time.ParseDuration(value)
		if err != nil {
			p.t.Fatal(err)
		}
		p.now = p.now.Add(after)
	case "code":
		p.config.Code = cast(p.t, value)
		for _, s := range p.stages {
			s.reload(&p.config)
		}
	case "fail-nondeterminism":
		p.config.FailNondeterminism = value == "true"
	case "fail-unregistered":
		p.config.FailUnregistered, _ = time.ParseDuration(value)
	case "tracing":
		p.config.NewTrace = func([16]byte, string) bool { return value == "all" }
	case "remember":
		p.config.Remembered, _ = strconv.Atoi(value)
	case "prune":
		n, _ := strconv.ParseInt(value, 10, 64)
		for _, s := range p.stages {
			delete(s.former, n)
		}
	case "engine":
		for _, s := range p.stages {
			s.known.Row.Engine, _ = strconv.Atoi(value)
			s.reload(&p.config)
		}
	default:
		p.t.Fatalf("unknown setting %q", key)
	}
}

// reload forgets the instance and makes it anew from the store.
func (s *stage) reload(c *round.Config) {
	s.in.Evict()
	known := s.known
	if s.corrupt != nil {
		known.History, known.Unreadable = nil, s.corrupt
	}
	s.in = round.New(c, known)
}

func (p *play) decide(s *stage, input string) string {
	s.rounds++
	if s.coldAt(s.rounds) {
		s.reload(&p.config)
	}
	inbox := p.inbox(s, input)
	s.in.Remember(s.recalls)
	s.in.SetWatermark(p.watermark)
	s.in.SetStarts(round.Starts{Known: p.watermark, Waiting: p.startWaits})
	turn := s.in.Decide(inbox, p.now)
	s.recall(turn.Question)
	if !p.losing {
		s.commit(p.t, turn)
	}
	if turn.Evict || p.losing {
		s.reload(&p.config)
	}
	return scrub(turn.String())
}

// recall answers the question of a turn, for the rounds that follow.
func (s *stage) recall(q *round.Question) {
	if q == nil {
		return
	}
	s.recalls = round.NewFormer(q.Execution)
	for x := s.recalls.Next(q.Sent); x > 0; x = s.recalls.Next(q.Sent) {
		s.recalls.Read(s.former[x])
	}
}

// commit stores a turn as bytes, so that loading it again goes through the wire format.
func (s *stage) commit(t *testing.T, turn round.Turn) {
	t.Helper()
	s.checkExpected(t, turn)
	for _, x := range turn.Executions {
		if x.ID != s.known.Row.Execution && len(x.Events) > 0 && x.Events[0].ID == 1 {
			s.former[s.known.Row.Execution], s.known.History = s.known.History, nil
		}
		s.known.Row.Execution = x.ID
		for _, e := range x.Events {
			s.known.History = append(s.known.History, throughWire(t, e))
		}
	}
	if len(turn.Executions) > 0 {
		s.known.Row = turn.Row
		s.corrupt = nil
	}
	for _, step := range turn.Steps {
		s.steps[step.StepRef.Number] = step
	}
}

// checkExpected checks that a turn says what it was decided on, and tells of every execution that
// it leaves behind.
func (s *stage) checkExpected(t *testing.T, turn round.Turn) {
	t.Helper()
	if len(turn.Executions) == 0 {
		return
	}
	if want := s.known.Row.RowVersion(); turn.Expected != want {
		t.Fatalf("the turn was decided on %+v, the store has %+v", turn.Expected, want)
	}
	first := turn.Executions[0].ID
	if s.known.Row.Execution > 0 {
		first = s.known.Row.Execution
	}
	if int64(len(turn.Former)) != turn.Row.Execution-first {
		t.Fatalf("from execution %d to %d, the turn tells of %d former ones", first, turn.Row.Execution,
			len(turn.Former))
	}
	for i, f := range turn.Former {
		if f.Execution != first+int64(i) || !f.Status.Ended() || f.EndedAt.IsZero() || f.LastEvent == 0 {
			t.Fatalf("former execution %d: %+v", first+int64(i), f)
		}
	}
}

func throughWire(t *testing.T, e events.Event) events.Event {
	t.Helper()
	data, err := events.EncodeEvent(e)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	back, err := events.DecodeEvent(data)
	if err != nil {
		t.Fatalf("decode: %v\n%s", err, data)
	}
	return back
}

var (
	stackPattern       = regexp.MustCompile(`"stack":"(?:[^"\\]|\\.)*"`)
	incarnationPattern = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
)

// scrub hides what differs from machine to machine, or says nothing.
func scrub(s string) string {
	s = stackPattern.ReplaceAllString(s, `"stack":"…"`)
	return incarnationPattern.ReplaceAllString(s, "LIFE")
}

func (p *play) history() string {
	var prints []string
	for _, s := range p.stages {
		var b strings.Builder
		for _, e := range s.known.History {
			data, err := json.Marshal(e.Fact)
			if err != nil {
				p.t.Fatal(err)
			}
			fmt.Fprintf(&b, "%d %s %s\n", e.ID, e.Fact.Kind(), data)
		}
		prints = append(prints, scrub(b.String()))
		if prints[0] != prints[len(prints)-1] {
			p.t.Errorf("%s and %s have different histories", p.stages[0].name, s.name)
		}
	}
	return prints[0]
}

// inbox reads messages, one a line:
//
//	start NAME [INPUT]       event NAME [DATA]       mailbox NAME [DATA]
//	cancel|terminate|suspend|resume [REASON]         wake
//	done EVENT [RESULT]      fail EVENT MESSAGE      begun|pending EVENT
//	timer EVENT              child-done EVENT [OUT]  child-fail EVENT MESSAGE
//	step NUMBER [RESULT]     step-fail NUMBER MESSAGE
//
// followed by settings like id=m7 version=1.0.0 execution=1 incarnation=x attempts=11 age=2m
// sent=-5s moment=60s with=mailbox:data,mailbox:data. A moment counts from the beginning. A control
// with deletes=this, or deletes=other, is for an incarnation that is to be deleted.
func (p *play) inbox(s *stage, input string) []round.Delivery {
	var inbox []round.Delivery
	for i, line := range strings.Split(strings.TrimSpace(input), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		l := parseLine(line)
		d := round.Delivery{Attempts: l.number("attempts", 1), NumDelivered: l.number("deliveries", 1)}
		d.Age, _ = time.ParseDuration(l.settings["age"])
		if ago, err := time.ParseDuration(l.settings["sent"]); err == nil {
			d.Sent = p.now.Add(ago)
		}
		if at := l.settings["moment"]; at != "" {
			d.Moment = p.moment(at)
		}
		d.Message = events.Message{ID: l.setting("id", "m"+strconv.Itoa(p.sent+i+1)), Instance: "i",
			Trace: l.settings["trace"]}
		d.Message.Content = p.content(s, l)
		inbox = append(inbox, d)
	}
	return inbox
}

// moment is a time, so long after the beginning.
func (p *play) moment(after string) time.Time {
	d, err := time.ParseDuration(after)
	if err != nil {
		p.t.Fatal(err)
	}
	return began.Add(d)
}

func (p *play) content(s *stage, l line) events.Content {
	ref := events.Ref{Incarnation: l.setting("incarnation", s.known.Row.Incarnation),
		Execution: int64(l.number("execution", int(max(1, s.known.Row.Execution))))}
	number := func() int64 {
		n, err := strconv.ParseInt(l.name, 10, 64)
		if err != nil {
			p.t.Fatalf("%s %s: want a number", l.verb, l.name)
		}
		return n
	}
	failed := func() *failure.Error {
		e := &failure.Error{Kind: failure.Kind(l.setting("kind", string(failure.Application))),
			Type: l.settings["type"], Message: string(l.data)}
		e.NonRetryable = l.settings["non_retryable"] == "true"
		return e
	}
	switch l.verb {
	case "start":
		with := strings.FieldsFunc(l.settings["with"], func(r rune) bool { return r == ',' })
		c := &events.Start{Orchestration: l.name, Input: l.data, Version: l.settings["version"],
			Conflict: events.StartConflict(l.settings["conflict"])}
		if parent := l.settings["parent"]; parent != "" {
			c.Parent = &events.Parent{Instance: parent, Incarnation: "p1", Execution: 1,
				Event: int64(l.number("parent-event", 2))}
		}
		for _, w := range with {
			mailbox, data, _ := strings.Cut(w, ":")
			c.Messages = append(c.Messages, events.StartMessage{Mailbox: mailbox, Data: codec.Payload(data)})
		}
		return c
	case "event":
		return &events.EventRaised{Name: l.name, Data: l.data}
	case "mailbox":
		return &events.MailboxMessage{Mailbox: l.name, Data: l.data}
	case "cancel", "terminate", "suspend", "resume":
		c := &events.Control{How: events.How(l.verb), Reason: strings.TrimSpace(l.name + " " + string(l.data))}
		if l.settings["deletes"] != "" { // this incarnation, or another one
			c.Incarnation = strings.Replace(l.settings["deletes"], "this", s.known.Row.Incarnation, 1)
		}
		return c
	case "wake":
		return &events.Wake{Reason: "test"}
	case "step", "step-fail":
		return p.stepDone(s, l, number(), failed())
	}
	ref.Event = number()
	switch l.verb {
	case "done":
		return &events.TaskDone{Ref: ref, Result: l.data, Worker: "w1"}
	case "fail":
		return &events.TaskFailed{Ref: ref, Error: failed(),
			Heartbeat: codec.Payload(l.settings["heartbeat"]), Worker: "w1"}
	case "begun", "pending":
		return &events.TaskBegun{Ref: ref, Worker: "w1", Pending: l.verb == "pending"}
	case "timer":
		c := &events.TimerDue{Ref: ref}
		if at := l.settings["moment"]; at != "" {
			c.Due = p.moment(at)
		}
		return c
	case "child-done":
		return &events.ChildDone{Ref: ref, Output: l.data}
	case "child-fail":
		return &events.ChildError{Ref: ref, Error: failed()}
	}
	p.t.Fatalf("unknown message %q", l.verb)
	return nil
}

func (p *play) stepDone(s *stage, l line, n int64, failed *failure.Error) events.Content {
	step, ok := s.steps[n]
	if !ok {
		p.t.Fatalf("%s: step %d was not handed out", s.name, n)
	}
	var err *failure.Error
	if l.verb == "step-fail" {
		err = failed
	}
	done := step.Done("i", l.data, err).Content.(*events.StepDone)
	done.Attempt = l.number("attempt", done.Attempt)
	return done
}

// line is one parsed line of an inbox.
type line struct {
	verb, name string
	data       codec.Payload
	settings   map[string]string
}

var settingPattern = regexp.MustCompile(`^([a-z_-]+)=(\S+)$`)

func parseLine(s string) line {
	l := line{settings: make(map[string]string)}
	words := strings.Fields(s)
	for len(words) > 1 {
		m := settingPattern.FindStringSubmatch(words[len(words)-1])
		if m == nil {
			break
		}
		l.settings[m[1]] = m[2]
		words = words[:len(words)-1]
	}
	l.verb = words[0]
	if len(words) > 1 {
		l.name = words[1]
	}
	if len(words) > 2 {
		l.data = codec.Payload(strings.Join(words[2:], " "))
	}
	return l
}

func (l line) setting(key, otherwise string) string {
	if v, ok := l.settings[key]; ok {
		return v
	}
	return otherwise
}

func (l line) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(l.settings[key]); err == nil {
		return n
	}
	return otherwise
}

// cast is the orchestrations that a deployment knows.
func cast(t *testing.T, deployment string) round.Code {
	t.Helper()
	bindings, ok := deployments()[deployment]
	if !ok {
		t.Fatalf("unknown deployment %q", deployment)
	}
	r, err := orchestration.NewRegistry(bindings...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
