package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has acknowledgements that histories keep or violate.

func start(message string) check.Acknowledged {
	return check.Acknowledged{What: check.AcknowledgedStart, Instance: "i", Name: "order", Message: message, At: began}
}

func message(message string) check.Acknowledged {
	return check.Acknowledged{What: check.AcknowledgedMailbox, Instance: "i", Mailbox: "mail", Message: message,
		At: began.Add(time.Second)}
}

func end(execution int64, status round.Status, output string) check.Acknowledged {
	return check.Acknowledged{What: check.AcknowledgedEnd, Instance: "i", Execution: execution, Status: status,
		Output: codec.Canonical([]byte(output)), At: began.Add(time.Minute)}
}

func later(p check.Acknowledged, d time.Duration) check.Acknowledged {
	p.At = p.At.Add(d)
	return p
}

// due is an acknowledgement of a message that is delayed until an hour after the check.
func due(p check.Acknowledged) check.Acknowledged {
	p.Due = now.Add(time.Hour)
	return p
}

type with = []func(*check.Options)

var (
	running = lookedAt(of(story(started(), call)))
	mailed  = lookedAt(of(story(started(), read(0), received("a"), received("b"), read(4), call)))
	over    = of(story(started(), completed))
)

// ackCase has instances, acknowledgements about them, and the findings to expect.
type ackCase struct {
	name         string
	in           []check.Instance
	with         with
	deadLettered []string
	want         []check.Rule
	report       func(check.Report) bool
}

func (c ackCase) test(t *testing.T) {
	s := storeOf(c.in...)
	s.deadLettered = c.deadLettered
	r := look(t, s, c.with...)
	wants(t, r, c.want...)
	if c.report != nil && !c.report(r) {
		t.Errorf("the report is %+v", r)
	}
}

var acknowledgements = []ackCase{
	{name: "a start", in: []check.Instance{running}, with: with{acked(start("start"))},
		report: func(r check.Report) bool {
			return r.Acknowledgements == 1 && r.Refused == 0
		}},
	{name: "a start that was not needed", in: []check.Instance{running},
		with: with{acked(start("start"), start("another"))}, report: func(r check.Report) bool {
			return r.Refused == 1
		}},
	{name: "a start that was lost", with: with{acked(start("start")), asking(&fakeBroker{})},
		want: []check.Rule{check.StartLost}},
	{name: "a start that waits", with: with{acked(start("start")),
		asking(&fakeBroker{has: []string{"rondo.start.order.i start"}})}, report: func(r check.Report) bool {
		return r.InFlight == 1
	}},
	{name: "a start that waits, and nothing may", with: with{acked(start("start")),
		asking(&fakeBroker{has: []string{"rondo.start.order.i start"}}), quiescent},
		want: []check.Rule{check.Outstanding}},
	{name: "a start that is a dead letter", with: with{acked(start("start")),
		asking(&fakeBroker{dead: []string{"x", "start"}})}, report: func(r check.Report) bool {
		return r.DeadLetters == 1
	}},
	{name: "a start that was lost, and a dead letter of another instance has its id",
		with: with{acked(start("start")), asking(&fakeBroker{letters: []broker.DeadLetter{
			{ID: "start", Subject: "rondo.start.order.j"}, {ID: "start", Subject: "rondo.start.order.a%2Ei"}}})},
		want: []check.Rule{check.StartLost}},
	{name: "a start that was lost, and another one waits", with: with{acked(start("start")),
		asking(&fakeBroker{has: []string{"rondo.start.order.i another"}})}, want: []check.Rule{check.StartLost}},
	{name: "a start without an id that may wait", with: with{acked(start("")),
		asking(&fakeBroker{has: []string{"rondo.start.order.i another"}})}, report: func(r check.Report) bool {
		return r.InFlight == 1
	}},
	{name: "a start that may wait behind very many others", with: with{acked(start("start")),
		asking(&fakeBroker{has: slices.Repeat([]string{"rondo.start.order.i another"}, 10_001)})},
		report: func(r check.Report) bool {
			return r.NotJudged[check.TooMany] == 1
		}},
	{name: "a delayed start that waits, and nothing may that is due", with: with{acked(start("start")),
		asking(&fakeBroker{delayed: []string{"rondo.start.order.i start"}}), quiescent},
		report: func(r check.Report) bool {
			return r.InFlight == 1
		}},
	{name: "a delayed start that another one has replaced", with: with{acked(start("start"), start("second")),
		asking(&fakeBroker{delayed: []string{"rondo.start.order.i second"}}), quiescent},
		report: func(r check.Report) bool {
			return r.InFlight == 1 && r.NotJudged[check.Replaced] == 1
		}},
	{name: "a delayed start that is not due, and NATS is not asked", with: with{acked(due(start("start")))},
		report: func(r check.Report) bool {
			return r.InFlight == 1
		}},
	{name: "a delayed start that was lost", with: with{acked(due(start("start"))), asking(&fakeBroker{})},
		want: []check.Rule{check.StartLost}},
	{name: "a start, and no client is asked", with: with{acked(start("start"))}, report: func(r check.Report) bool {
		return r.NotJudged[check.NotAsked] == 1
	}},
	{name: "a start of a moment ago", with: with{acked(later(start("start"), 59*time.Minute))},
		report: func(r check.Report) bool {
			return r.InFlight == 1
		}},
	{name: "a start, and nothing may be in flight", with: with{acked(start("start")), quiescent},
		want: []check.Rule{check.StartLost}},
	{name: "a start that was deleted", with: with{acked(start("start")), quiescent}, deadLettered: []string{"i"},
		report: func(r check.Report) bool {
			return r.NotJudged[check.NotKept] == 1
		}},
	{name: "a start of long ago", with: with{acked(later(start("start"), -25*time.Hour)), quiescent},
		report: func(r check.Report) bool {
			return r.NotJudged[check.NotKept] == 1
		}},
	{name: "a start of long ago, and nothing was removed", with: with{acked(later(start("start"), -25*time.Hour)),
		quiescent, nothingRemoved}, want: []check.Rule{check.StartLost}},

	{name: "messages", in: []check.Instance{mailed}, with: with{acked(start("start"), message("a"), message("b")),
		asking(&fakeBroker{has: []string{"rondo.task._.charge.1-6-incarnation.i"}})}},
	{name: "one that was sent again", in: []check.Instance{mailed},
		with: with{acked(message("a"), message("b"), message("a"))}},
	{name: "messages of two clients", in: []check.Instance{mailed},
		with: with{acked(message("b")), acked(message("a"))}},
	{name: "messages in another order", in: []check.Instance{mailed}, with: with{acked(message("b"), message("a"))},
		want: []check.Rule{check.MailboxReorder}},
	{name: "in another mailbox", in: []check.Instance{mailed},
		with: with{acked(check.Acknowledged{What: check.AcknowledgedMailbox, Instance: "i", Mailbox: "other",
			Message: "a",
			At:      began})}, want: []check.Rule{check.MailboxLost}},
	{name: "a message that was lost", in: []check.Instance{mailed}, with: with{acked(message("c")),
		asking(&fakeBroker{has: []string{"rondo.task._.charge.1-6-incarnation.i"}})},
		want: []check.Rule{check.MailboxLost}},
	{name: "a message that waits", in: []check.Instance{mailed}, with: with{acked(message("c")),
		asking(&fakeBroker{has: []string{"rondo.task._.charge.1-6-incarnation.i", "rondo.mailbox.mail.i c"}})},
		report: func(r check.Report) bool {
			return r.InFlight == 1
		}},
	{name: "a message that was lost, and another one waits", in: []check.Instance{mailed}, with: with{
		acked(message("c")), asking(&fakeBroker{has: []string{"rondo.task._.charge.1-6-incarnation.i",
			"rondo.mailbox.mail.i d"}})}, want: []check.Rule{check.MailboxLost}},
	{name: "a message that was lost, and a dead letter of another instance has its id",
		in: []check.Instance{over}, with: with{acked(message("c")), asking(&fakeBroker{letters: []broker.DeadLetter{
			{ID: "c", Subject: "rondo.mailbox.mail.j"}}})}, want: []check.Rule{check.MailboxLost}},
	{name: "a delayed message that waits", in: []check.Instance{over}, with: with{acked(message("c")),
		asking(&fakeBroker{delayed: []string{"rondo.mailbox.mail.i c"}})}, report: func(r check.Report) bool {
		return r.InFlight == 1
	}},
	{name: "a delayed message that others have overtaken", in: []check.Instance{mailed},
		with: with{acked(due(message("b")), message("a"))}},
	{name: "a message that is a dead letter", in: []check.Instance{over},
		with: with{acked(message("c")), asking(&fakeBroker{dead: []string{"c"}})},
		report: func(r check.Report) bool {
			return r.DeadLetters == 1
		}},
	{name: "a message to one that has ended, and no client is asked", in: []check.Instance{over},
		with: with{acked(message("c")), quiescent}, report: func(r check.Report) bool {
			return r.NotJudged[check.NotAsked] == 1
		}},
	{name: "a message to one that has ended", in: []check.Instance{over},
		with: with{acked(message("c")), asking(&fakeBroker{})}, want: []check.Rule{check.MailboxLost}},
	{name: "a message to one that runs, and nothing may be in flight",
		in: []check.Instance{lookedAt(of(story(started(), read(0))))}, with: with{acked(message("c")), quiescent},
		want: []check.Rule{check.MailboxLost}},
	{name: "a message without an id", in: []check.Instance{over},
		with: with{acked(message("")), asking(&fakeBroker{})},
		report: func(r check.Report) bool {
			return r.NotJudged[check.NoMessage] == 1
		}},
	{name: "a message that an execution has taken that was pruned",
		in: []check.Instance{changed(of(story(started(), continued), story(started(func(s *events.Started) {
			s.Previous, s.Seen = 1, []uint64{events.SeenHash("c")}
		}), completed)), func(in *check.Instance) {
			delete(in.History, 1)
		})}, with: with{acked(message("c")), asking(&fakeBroker{})}, report: func(r check.Report) bool {
			return len(r.NotJudged) == 0
		}},
	{name: "a message that an execution may have taken that was pruned",
		in: []check.Instance{changed(of(story(started(), continued), story(next(0), completed)),
			func(in *check.Instance) {
				delete(in.History, 1)
			})}, with: with{acked(message("c")), asking(&fakeBroker{})}, report: func(r check.Report) bool {
			return r.NotJudged[check.NotKept] == 1
		}},
	{name: "a message for an instance that was deleted and began again", in: []check.Instance{over},
		with: with{acked(later(message("c"), -time.Minute)), asking(&fakeBroker{})},
		report: func(r check.Report) bool {
			return r.NotJudged[check.NotKept] == 1
		}},

	{name: "an event", in: []check.Instance{over}, with: with{acked(check.Acknowledged{What: check.AcknowledgedEvent,
		Instance: "i", Event: "go", Message: "x"}), asking(&fakeBroker{})}},

	{name: "an end", in: []check.Instance{over},
		with: with{acked(end(1, round.Completed, " 1 "), end(0, round.Completed, "1"))}},
	{name: "the end of a former execution",
		in: []check.Instance{of(story(started(), completed), story(started(func(s *events.Started) {
			s.Incarnation = "other"
		}), completed))}, with: with{acked(end(1, round.Completed, "1"))}},
	{name: "another output", in: []check.Instance{over}, with: with{acked(end(1, round.Completed, "2"))},
		want: []check.Rule{check.EndDiffers}},
	{name: "an end whose output is not known", in: []check.Instance{over},
		with: with{acked(end(1, round.Completed, ""), end(0, round.Completed, ""))}},
	{name: "no output", in: []check.Instance{over}, with: with{acked(end(1, round.Completed, "null"))},
		want: []check.Rule{check.EndDiffers}},
	{name: "another status without an output", in: []check.Instance{over},
		with: with{acked(end(1, round.Cancelled, ""))}, want: []check.Rule{check.EndDiffers}},
	{name: "another status", in: []check.Instance{over}, with: with{acked(end(0, round.Failed, ""))},
		want: []check.Rule{check.EndDiffers}},
	{name: "two ends", in: []check.Instance{over}, with: with{acked(end(1, round.Completed, "1")),
		acked(end(1, round.Failed, ""))}, want: []check.Rule{check.EndDiffers}},
	{name: "an end of what goes on", in: []check.Instance{running}, with: with{acked(end(1, round.Completed, "1"))},
		want: []check.Rule{check.EndEarly}},
	{name: "an end of an execution to come", in: []check.Instance{over},
		with: with{acked(end(7, round.Completed, "1"))}, want: []check.Rule{check.EndDiffers}},
	{name: "an end of nobody", with: with{acked(end(1, round.Completed, "1"))},
		want: []check.Rule{check.EndDiffers}},
	{name: "an end of what was deleted", with: with{acked(end(1, round.Completed, "1"))},
		deadLettered: []string{"i"},
		report: func(r check.Report) bool {
			return r.NotJudged[check.NotKept] == 1
		}},
	{name: "an end of an incarnation that was deleted", in: []check.Instance{over},
		with: with{acked(later(end(1, round.Failed, ""), -time.Hour))}, report: func(r check.Report) bool {
			return r.NotJudged[check.NotKept] == 1
		}},
}

func TestAcknowledgements(t *testing.T) {
	for _, c := range acknowledgements {
		c.with = append(with{func(o *check.Options) { o.Filter.IDPrefix = "i" }}, c.with...)
		t.Run(c.name, c.test)
	}
}

// sender has launched an instance, and sent it a message.
func sender(facts ...events.Fact) check.Instance {
	return lookedAt(named("sender", of(story(append([]events.Fact{started()}, facts...)...))))
}

var (
	launched = &events.Launched{Name: "order", Instance: "i"}
	delayed  = &events.Launched{Name: "order", Instance: "i", NotBefore: now.Add(time.Hour)}
	overdue  = &events.Launched{Name: "order", Instance: "i", NotBefore: now.Add(-time.Minute)}
	sent     = &events.Sent{Instance: "i", To: events.ToMailbox, Name: "mail"}
	launchID = events.MessageID(events.VerbStart, "sender",
		events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2})
	sentID = events.MessageID(events.VerbMailbox, "sender",
		events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2})
)

var saidToOthers = []ackCase{
	{name: "a launch", in: []check.Instance{sender(launched), running}, report: func(r check.Report) bool {
		return r.Said == 1 && r.Acknowledgements == 0
	}},
	{name: "a launch that is lost", in: []check.Instance{sender(launched)}, with: with{asking(&fakeBroker{})},
		want: []check.Rule{check.LaunchLost}},
	{name: "a launch that waits", in: []check.Instance{sender(launched)},
		with: with{asking(&fakeBroker{has: []string{"rondo.internal_start.order.i " + launchID}})}},
	{name: "a launch of a moment ago", in: []check.Instance{sender(launched)},
		with: with{asking(&fakeBroker{}), func(o *check.Options) {
			o.Overdue = 2 * time.Hour
		}}},
	{name: "a launch of an instance that was deleted", in: []check.Instance{sender(launched)},
		with: with{asking(&fakeBroker{})}, deadLettered: []string{"i"}, report: func(r check.Report) bool {
			return r.NotJudged[check.NotKept] == 1
		}},
	{name: "a launch, and no client is asked", in: []check.Instance{sender(launched)},
		report: func(r check.Report) bool {
			return r.NotJudged[check.NotAsked] == 1
		}},
	{name: "a launch, and nothing may be in flight", in: []check.Instance{sender(launched)}, with: with{quiescent},
		want: []check.Rule{check.LaunchLost}},
	{name: "a launch that is not due", in: []check.Instance{sender(delayed)},
		with: with{quiescent, asking(&fakeBroker{has: []string{"rondo.internal_start.order.i " + launchID}})}},
	{name: "a launch that is not due, and no client is asked", in: []check.Instance{sender(delayed)},
		with: with{quiescent}, report: func(r check.Report) bool { return r.NotJudged[check.NotAsked] == 1 }},
	{name: "a launch that is not due and lost", in: []check.Instance{sender(delayed)},
		with: with{quiescent, asking(&fakeBroker{})}, want: []check.Rule{check.LaunchLost}},
	{name: "a launch that is due and waits", in: []check.Instance{sender(overdue)},
		with: with{quiescent, asking(&fakeBroker{has: []string{"rondo.internal_start.order.i " + launchID}})},
		want: []check.Rule{check.Outstanding}},
	{name: "a message", in: []check.Instance{sender(sent), unread(lookedAt(of(story(started(), received(sentID)))), 1)},
		with: with{asking(&fakeBroker{})}},
	{name: "a message that is lost", in: []check.Instance{sender(sent), lookedAt(of(story(started())))},
		with: with{asking(&fakeBroker{})}, want: []check.Rule{check.SendLost}},
	{name: "a message that is a dead letter", in: []check.Instance{sender(sent), over},
		with: with{asking(&fakeBroker{dead: []string{sentID}})}, report: func(r check.Report) bool {
			return r.DeadLetters == 1
		}},
	{name: "a message that may have been a dead letter", in: []check.Instance{sender(sent), over},
		with: with{asking(&fakeBroker{}), func(o *check.Options) {
			o.DeadLetterTTL = time.Minute
		}}, report: func(r check.Report) bool { return r.NotJudged[check.NotKept] == 1 }},
	{name: "an event that nobody waited for", in: []check.Instance{sender(&events.Sent{Instance: "i",
		To: events.ToEvent, Name: "go"}), over}, with: with{asking(&fakeBroker{})}, report: func(r check.Report) bool {
		return r.Said == 0
	}},
}

func TestWhatInstancesSayToOthers(t *testing.T) {
	for _, c := range saidToOthers {
		t.Run(c.name, c.test)
	}
}

// TestManyAcknowledgementsAreSorted gives more acknowledgements than fit into the sorter's memory,
// of many instances in a mixed order; histories violate a few of them.
func TestManyAcknowledgementsAreSorted(t *testing.T) {
	const each = 20
	instances := racetest.Size(3000, 1600) // more acknowledgements than the sorter keeps in memory
	var all []check.Instance
	for i := range instances {
		facts := []events.Fact{started()}
		for k := range each {
			facts = append(facts, received(fmt.Sprint(i, "-", k)))
		}
		all = append(all, unread(named(fmt.Sprint("i", i), of(story(facts...))), each))
	}
	log := func(yield func(check.Acknowledged, error) bool) {
		for k := range each {
			for n := range instances {
				i := n * 7 % instances
				p := message(fmt.Sprint(i, "-", k))
				if p.Instance = fmt.Sprint("i", i); i%1000 == 500 && k > 17 {
					p.Message = fmt.Sprint(i, "-", 37-k) // the last two change places
				}
				if !yield(p, nil) {
					return
				}
			}
		}
	}
	r := look(t, storeOf(all...), func(o *check.Options) {
		o.Acknowledgements = []check.Acknowledgements{{Name: "all",
			Each: log}}
	})
	if wants(t, r, check.MailboxReorder); r.Found[check.MailboxReorder] != int64(instances+500)/1000 ||
		r.Acknowledgements != int64(instances*each) {
		t.Errorf("%d acknowledgements, %v", r.Acknowledgements, r.Found)
	}
}

// ---- The log.

// A program that was told that an instance completed without an output says so, which is not the
// same as to leave the output out.
func TestLogOfAnEndWithoutAnOutput(t *testing.T) {
	var file bytes.Buffer
	if err := check.NewLog(&file).Add(end(1, round.Completed, "")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(file.String(), `"output":null`) {
		t.Errorf("the log is\n%s", file.String())
	}
	for p, err := range check.ReadLog(&file) {
		if err != nil || string(p.Output) != "null" {
			t.Errorf("read %+v, %v", p, err)
		}
	}
}

func TestLogIsReadAsItWasWritten(t *testing.T) {
	var file bytes.Buffer
	log := check.NewLog(&file)
	want := []check.Acknowledged{
		start("m-1"), message("m-2"), end(1, round.Completed, `{"a":"<b>"}`), end(2, round.Failed, ""),
		{What: check.AcknowledgedEvent, Instance: "ü/ x", Event: "go", Message: "m-3"},
		{What: check.AcknowledgedEnd, Instance: "i", Status: round.Completed, Output: codec.Payload{0xff, 0}},
	}
	for _, p := range want {
		if err := log.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(file.String(),
		`{"acknowledged":"start","instance":"i","name":"order","message":"m-1","at":"2027-01-01T12:00:00Z"}`+"\n") ||
		!strings.Contains(file.String(), `"output":{"a":"<b>"}`) {
		t.Errorf("the log is\n%s", file.String())
	}
	var got []check.Acknowledged
	for p, err := range check.ReadLog(strings.NewReader(file.String() + `{"acknowledged":"start","inst`)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read as\n%+v\nwritten were\n%+v", got, want)
	}
	if err := log.Add(check.Acknowledged{What: check.AcknowledgedStart}); err == nil {
		t.Error("an acknowledgement without an instance was written")
	}
}

func TestBadLogsAreToldApart(t *testing.T) {
	for line, want := range map[string]string{
		`{"acknowledged":"start","instance":"i","colour":"red"}`:                     `line 2: not an acknowledgement: json: unknown field "colour"`,
		`{"acknowledged":"stop","instance":"i"}`:                                     `line 2: "acknowledged" is "stop"; there are start, mailbox, event and end`,
		`{"acknowledged":"start"}`:                                                   `line 2: "instance" is missing`,
		`{"acknowledged":"mailbox","instance":"i"}`:                                  `line 2: "mailbox" is missing`,
		`{"acknowledged":"event","instance":"i"}`:                                    `line 2: "event" is missing`,
		`{"acknowledged":"end","instance":"i","status":"over"}`:                      `line 2: "status" "over" is none that an instance ends with`,
		`{"acknowledged":"start","instance":"i"} {"acknowledged":"start"}`:           `line 2: there is more than one object in it`,
		"order-1 was started":                                                        `line 2: not an acknowledgement: invalid character 'o' looking for beginning of value`,
		`{"acknowledged":"end","instance":"i","status":"completed","execution":"1"}`: `line 2: not an acknowledgement: json: cannot unmarshal string`,
	} {
		var got error
		for _, err := range check.ReadLog(strings.NewReader(`{"acknowledged":"start","instance":"i"}` + "\n" +
			line + "\n")) {
			got = err
		}
		if got == nil || !strings.HasPrefix(got.Error(), want) {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
	broken := errors.New("the disk is gone")
	for _, err := range check.ReadLog(io.MultiReader(strings.NewReader(`{"prom`), failingReader{broken})) {
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
