package events_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

func TestMessagesThatBreakTheProtocolAreRefusedWithTheReason(t *testing.T) {
	incarnation := header(events.HeaderIncarnation, "l")
	work := func(pairs ...string) events.Header {
		return header(append([]string{events.HeaderIncarnation, "l", events.HeaderAttempt, "1"}, pairs...)...)
	}
	start := func(pairs ...string) events.Header { return header(append(pairs, events.HeaderMsgID, "m")...) }
	long := strings.Repeat("a", 300)
	const theStart, theWork, theTimer = "rondo.start.fulfil.order-7", "rondo.task._.charge.1-4.order-7",
		"rondo.timer-due.1-4.order-7"
	const theChild = "rondo.internal_start.fulfil.order-7"
	tests := []struct {
		name, subject string
		header        events.Header
		body          string
		words         []string
	}{
		{"another prefix", "other.start.fulfil.order-7", nil, "",
			[]string{`"other.start.fulfil.order-7"`, `begin with "rondo."`}},
		{"a longer prefix", "rondos.start.fulfil.order-7", nil, "", []string{`begin with "rondo."`}},
		{"no words", "rondo", nil, "", []string{`begin with "rondo."`}},
		{"too few words", "rondo.start.fulfil", nil, "", []string{"2 words", "<verb>.<name>.<instance>"}},
		{"too many words", "rondo.start.fulfil.order.7", nil, "", []string{"4 words", "%2E"}},
		{"too few words for work", "rondo.task.charge.order-7", nil, "", []string{"3 words"}},
		{"too many words for work", theWork + ".x", work(), "", []string{"6 words"}},
		{"an unknown verb", "rondo.explode.now.order-7", nil, "",
			[]string{`unknown verb "explode"`, "start, event, mailbox and control"}},
		{"a verb that does not travel", "rondo.step.1-4.order-7", incarnation, "", []string{`unknown verb "step"`}},
		{"an empty instance", "rondo.start.fulfil.", nil, "", []string{"empty word"}},
		{"an empty name", "rondo.start..order-7", nil, "", []string{"empty word"}},
		{"an empty reason to wake", "rondo.wake..order-7", nil, "", []string{"empty word"}},
		{"an instance with a broken encoding", "rondo.start.fulfil.order%2", nil, "",
			[]string{`"%2" is not two hex digits`}},
		{"a name with a broken encoding", "rondo.start.ful%fil.order-7", nil, "", []string{"two hex digits"}},
		{"an instance that is not UTF-8", "rondo.start.fulfil.a%FF", nil, "", []string{"instance id", "UTF-8"}},
		{"an instance that does not print", "rondo.start.fulfil.a%00", nil, "", []string{"instance id", "U+0000"}},
		{"an instance that is too long", "rondo.start.fulfil." + long, nil, "",
			[]string{"instance id", "limit of 256"}},
		{"an instance that only a child may have", "rondo.start.fulfil.order-7~1%2E5", nil, "",
			[]string{"reserved for the ids of children"}},
		{"a reserved orchestration", "rondo.start.rondo%2Esweep.order-7", nil, "",
			[]string{`orchestration name "rondo.sweep"`, "reserved"}},
		{"a reserved event", "rondo.event.rondo%2Ex.order-7", nil, "", []string{`event name "rondo.x"`}},
		{"a reserved mailbox", "rondo.mailbox.rondo%2Ex.order-7", nil, "", []string{`mailbox name "rondo.x"`}},
		{"an event name that is too long", "rondo.event." + long + ".order-7", nil, "",
			[]string{"event name", "limit of 128"}},
		{"an unknown control", "rondo.control.explode.order-7", nil, "",
			[]string{`unknown control "explode"`, "cancel, terminate, suspend and resume"}},
		{"a body that is too large", theStart, nil, strings.Repeat("a", events.MaxPayload+1),
			[]string{"body (bytes): 983041 is over the limit of 983040"}},

		{"another spelling of an instance", "rondo.start.fulfil.a%2Fb", nil, "", []string{`"a%2Fb"`, `"a/b"`}},
		{"a lower-case spelling", "rondo.start.fulfil.a%2eb", nil, "", []string{`"a%2eb"`, `"a%2Eb"`}},
		{"an instance that is not encoded", "rondo.start.fulfil.Käse", nil, "", []string{`"Käse"`, `"K%C3%A4se"`}},
		{"another spelling of a name", "rondo.event.%67o.order-7", nil, "", []string{`"%67o"`, `"go"`}},
		{"another spelling of a control", "rondo.control.%63ancel.order-7", nil, "", []string{`"cancel"`}},
		{"another spelling of a place", "rondo.task-done.%31-4.order-7", incarnation, "", []string{`"1-4"`}},
		{"another spelling of a tag", "rondo.task.rondo%2esystem.charge.1-4-l.order-7", incarnation, "",
			[]string{`"rondo%2esystem"`, `"rondo%2Esystem"`}},
		{"another spelling of the default tag", "rondo.task.%5f.charge.1-4-l.order-7", incarnation, "",
			[]string{`"%5f"`}},
		{"another spelling of an activity", "rondo.task._.%63harge.1-4-l.order-7", incarnation, "",
			[]string{`"%63harge"`, `"charge"`}},

		{"unknown unknown fields", theStart, start(events.HeaderUnknownFields, "some"), "",
			[]string{events.HeaderUnknownFields, `"some"`, `"refuse" nor "ignore"`}},
		{"an acknowledgement", "rondo.control.terminate.order-7", nil, `{"stream":"RONDO", "seq":7}`,
			[]string{"acknowledgement", events.HeaderMsgID}},
		{"a refusal", theStart, nil, `{"error":{"code":400},"stream":"RONDO","seq":0}`,
			[]string{"acknowledgement", events.HeaderMsgID}},
		{"a message between instances without an id", theChild, nil, "", []string{"no header " + events.HeaderMsgID}},

		{"an unknown conflict", theStart, start(events.HeaderConflict, "explode"), "",
			[]string{events.HeaderConflict, `"explode"`, `"restart" and "replace"`}},
		{"a version that is too long", theStart, start(events.HeaderVersion, long), "",
			[]string{events.HeaderVersion, "not a version"}},
		{"a version that is not UTF-8", theStart, start(events.HeaderVersion, "\xff"), "",
			[]string{events.HeaderVersion, "not a version"}},
		{"a parent without an incarnation", theChild, start(events.HeaderParent, "1-4.order-7"), "",
			[]string{events.HeaderParent, "<execution>-<event>.<incarnation>.<instance>"}},
		{"a parent with an empty incarnation", theChild, start(events.HeaderParent, "1-4..order-7"), "",
			[]string{events.HeaderParent, "incarnation: it is empty"}},
		{"a parent with an endless incarnation", theChild, start(events.HeaderParent, "1-4."+long+".order-7"), "",
			[]string{events.HeaderParent, "incarnation", "limit of 128"}},
		{"a parent without an instance", theChild, start(events.HeaderParent, "1-4.l."), "",
			[]string{events.HeaderParent, "instance id: it is empty"}},
		{"a parent that is not UTF-8", theChild, start(events.HeaderParent, "1-4.l.a%FF"), "",
			[]string{events.HeaderParent, "UTF-8"}},
		{"a parent with a broken encoding", theChild, start(events.HeaderParent, "1-4.l.a%F"), "",
			[]string{"two hex digits"}},
		{"a parent at no place", theChild, start(events.HeaderParent, "1.l.order-7"), "",
			[]string{`"1" is not <execution>-<event>`}},
		{"attributes that are not JSON", theStart, start(events.HeaderAttributes, "region=eu"), "",
			[]string{events.HeaderAttributes, "JSON object of strings"}},
		{"attributes that are a list", theStart, start(events.HeaderAttributes, `["eu"]`), "",
			[]string{events.HeaderAttributes, "JSON object of strings"}},
		{"an attribute that is a number", theStart, start(events.HeaderAttributes, `{"n":1}`), "",
			[]string{events.HeaderAttributes, "JSON object of strings"}},
		{"an attribute without a name", theStart, start(events.HeaderAttributes, `{"":"eu"}`), "",
			[]string{"attribute name", "empty"}},
		{"an attribute whose name does not print", theStart, start(events.HeaderAttributes, `{"a\u0000":"eu"}`), "",
			[]string{"attribute name", "U+0000"}},
		{"an attribute that is too long", theStart, start(events.HeaderAttributes, `{"region":"`+long+`"}`), "",
			[]string{`attribute "region"`, "at most 256 bytes"}},
		{"the attribute of a schedule", theStart, start(events.HeaderAttributes, `{"rondo.schedule":"nightly"}`), "",
			[]string{`attribute "rondo.schedule"`, "reserved"}},
		{"an id of a schedule", theStart, header(events.HeaderMsgID, "schedule/nightly/1/2027-01-04T03:00:00Z"), "",
			[]string{`message id "schedule/nightly/1`, "reserved", "choose another"}},
		{"an id of a schedule, as that of NATS", theStart, header(events.HeaderNATSMsgID, "schedule/x"), "",
			[]string{"reserved"}},
		{"an id of a schedule that is too long", theStart, header(events.HeaderMsgID, "schedule/"+long+long+long+long),
			"", []string{"reserved"}},
		{"an id of a schedule on a result", "rondo.task-done.1-4.order-7",
			header(events.HeaderIncarnation, "l", events.HeaderMsgID, "schedule/x"), "", []string{"reserved"}},
		{"an id of a deletion", "rondo.control.resume.order-7", header(events.HeaderMsgID, "delete/l/order-7"), "",
			[]string{"reserved"}},
		{"an id of a message between instances", "rondo.event.e.order-7",
			header(events.HeaderMsgID, "mailbox/1-4/l/order-8"), "", []string{"reserved"}},
		{"too many attributes", theStart, start(events.HeaderAttributes, attributes(33)), "",
			[]string{"attributes: 33 is over the limit of 32", "searched by"}},

		{"no place", "rondo.task-done.x.order-7", incarnation, "", []string{`"x" is not <execution>-<event>`}},
		{"half a place", "rondo.task-done.1-.order-7", incarnation, "", []string{`"1-" is not`}},
		{"a place with signs", "rondo.task-done.+1-+4.order-7", incarnation, "", []string{`"+1-+4" is not`}},
		{"a place at 0", "rondo.task-done.1-0.order-7", incarnation, "", []string{`"1-0" is not`}},
		{"a place beyond all numbers", "rondo.task-done.1-9223372036854775808.order-7", incarnation, "",
			[]string{"is not <execution>-<event>"}},
		{"a place without end", "rondo.task-done." + long + ".order-7", incarnation, "",
			[]string{"…", "is not <execution>-<event>"}},
		{"a completion without an incarnation", "rondo.task-done.1-4.order-7", nil, "",
			[]string{"no header " + events.HeaderIncarnation, "copy it from the work item"}},
		{"a child without an outcome", "rondo.child-ended.1-4.order-7", incarnation, "",
			[]string{events.HeaderOutcome, `"" is neither done nor failed`}},
		{"a child with another outcome", "rondo.child-ended.1-4.order-7",
			header(events.HeaderIncarnation, "l", events.HeaderOutcome, "lost"), "", []string{`"lost"`}},
		{"a failure with a broken heartbeat", "rondo.task-failed.1-4.order-7",
			header(events.HeaderIncarnation, "l", events.HeaderHeartbeat, "{"), "", []string{events.HeaderHeartbeat}},
		{"a timer with a broken time", theTimer,
			header(events.HeaderIncarnation, "l", events.HeaderDue, "tomorrow"), "",
			[]string{events.HeaderDue, `"tomorrow"`, "2006-01-02"}},
		{"a timer before all times", theTimer, header(events.HeaderIncarnation, "l", events.HeaderDue,
			"0000-01-01T00:00:00+01:00"), "", []string{events.HeaderDue, "not a usable time"}},
		{"a timer after all times", theTimer, header(events.HeaderIncarnation, "l", events.HeaderDue,
			"9999-12-31T23:59:59-01:00"), "", []string{events.HeaderDue, "not a usable time"}},

		{"work without an attempt", theWork, incarnation, "",
			[]string{events.HeaderAttempt, `"" is not a count from 1`}},
		{"work with attempt 0", theWork, work(events.HeaderAttempt, "0"), "", []string{events.HeaderAttempt, `"0"`}},
		{"work with a broken time to start", theWork, work(events.HeaderStartBy, "soon"), "",
			[]string{events.HeaderStartBy, `"soon"`}},
		{"work with a broken deadline", theWork, work(events.HeaderDeadline, "soon"), "",
			[]string{events.HeaderDeadline, `"soon"`}},
		{"work with a broken time limit", theWork, work(events.HeaderStartToClose, "5"), "",
			[]string{events.HeaderStartToClose, "missing unit"}},
		{"work with a broken time between heartbeats", theWork, work(events.HeaderHeartbeatTimeout, "x"), "",
			[]string{events.HeaderHeartbeatTimeout}},
		{"work with a broken heartbeat", theWork, work(events.HeaderHeartbeat, `{"$bytes":5}`), "",
			[]string{events.HeaderHeartbeat, "payload"}},
		{"work with a broken session", theWork, work(events.HeaderSession, "%"), "", []string{"two hex digits"}},
		{"work with a broken orchestration", theWork, work(events.HeaderOrchestration, "%"), "",
			[]string{"two hex digits"}},
		{"work with a broken tag", "rondo.task.%F.charge.1-4.order-7", work(), "", []string{"two hex digits"}},
		{"work at no place", "rondo.task._.charge.4.order-7", work(), "", []string{`"4" is not`}},
		{"work with everything broken", "rondo.task._.%F.4.order-7", nil, "",
			[]string{"two hex digits", `"4" is not`, events.HeaderAttempt}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode(tt.subject, tt.header, tt.body)
			wantError(t, err, append(tt.words, "message on \""+tt.subject[:min(len(tt.subject), 20)])...)
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// attributes is a header with so many of them.
func attributes(n int) string {
	var pairs []string
	for i := range n {
		pairs = append(pairs, fmt.Sprintf(`"a%d":"x"`, i))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func TestAsManyAttributesAsTheLimitAreFine(t *testing.T) {
	m := mustDecode(t, "rondo.start.fulfil.order-7",
		header(events.HeaderAttributes, attributes(events.MaxAttributes)), "")
	if got := len(m.Content.(*events.Start).Attributes); got != events.MaxAttributes {
		t.Errorf("got %d", got)
	}
}

func TestMessagesThatDoNotTravelAreNotWritten(t *testing.T) {
	tests := []struct {
		name    string
		message events.Message
		words   []string
	}{
		{"a step's result", say(&events.StepDone{Incarnation: "l", Execution: 1, Step: 1, Name: "s", Attempt: 1}),
			[]string{"*events.StepDone", "does not travel"}},
		{"nothing to say", say(nil), []string{"does not travel"}},
		{"nobody to say it to", events.Message{Content: &events.Wake{Reason: "sweep"}}, []string{"nobody"}},
		{"an empty name", say(&events.EventRaised{}), []string{`"order-7"`, "empty word"}},
		{"an empty reason to wake", say(&events.Wake{}), []string{`"order-7"`, "empty word"}},
		{"a failure without an error", say(&events.TaskFailed{Ref: ref}), []string{`"order-7"`, "no error"}},
		{"a child's failure without an error", say(&events.ChildError{Ref: ref}), []string{"no error"}},
		{"a failure without a kind", say(&events.TaskFailed{Ref: ref, Error: &failure.Error{Message: "no"}}),
			[]string{"without a kind"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := events.Encode(events.DefaultPrefix, tt.message)
			wantError(t, err, tt.words...)
		})
	}
}

func TestAnyPrefixWorksBothWays(t *testing.T) {
	for _, prefix := range []string{"rondo", "tenant.a", "_"} {
		w, err := events.Encode(prefix, say(&events.EventRaised{Name: "approve"}))
		if err != nil || w.Subject != prefix+".event.approve.order-7" {
			t.Fatalf("got %q, %v", w.Subject, err)
		}
		m, err := events.Decode(prefix, w.Subject, w.Header, w.Body, "")
		if err != nil || m.Instance != "order-7" {
			t.Errorf("with the prefix %q: %+v, %v", prefix, m, err)
		}
	}
}
