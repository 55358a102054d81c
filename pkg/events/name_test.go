package events_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

func TestNamesThatCannotBeUsedAreRefusedWithTheReason(t *testing.T) {
	activity := func(s string) error { return events.CheckName("activity", s) }
	long := strings.Repeat("a", 1000)
	tests := []struct {
		name  string
		check func(string) error
		text  string
		words []string // none: it is fine
	}{
		{"a name", activity, "charge", nil},
		{"a name with spaces, dots and letters of any script", activity, "Käse & Brot.日本", nil},
		{"a name of the greatest length", activity, long[:events.MaxName], nil},
		{"a reserved name", activity, "rondo.sweep",
			[]string{`activity name "rondo.sweep"`, `"rondo."`, "reserved", "choose another"}},
		{"a name that only resembles a reserved one", activity, "rondo", nil},
		{"no name", activity, "", []string{"activity name", "empty"}},
		{"a name that is too long", activity, long[:events.MaxName+1],
			[]string{"activity name", "129 bytes", "limit of 128"}},
		{"a name with a line break", activity, "a\nb", []string{`"a\nb"`, "U+000A", "does not print"}},
		{"a name with a zero byte", activity, "a\x00b", []string{"U+0000"}},
		{"a name with a space that does not show", activity, "a\u200bb", []string{"U+200B"}},
		{"a name that is not UTF-8", activity, "a\xffb", []string{"not valid UTF-8"}},

		{"an id", events.CheckInstance, "order-7", nil},
		{"an id with what subjects cannot hold", events.CheckInstance, "a.b *>%", nil},
		{"an id that looks reserved for names", events.CheckInstance, "rondo.x", nil},
		{"an id of a child", events.CheckInstance, "order-7~1.5", nil},
		{"an id of the greatest length", events.CheckInstance, long[:events.MaxInstanceID], nil},
		{"an id that is too long", events.CheckInstance, long[:events.MaxInstanceID+1],
			[]string{"instance id", "257 bytes", "limit of 256"}},
		{"no id", events.CheckInstance, "", []string{"instance id", "empty"}},
		{"an id with a tab", events.CheckInstance, "a\tb", []string{"U+0009"}},

		{"a chosen id", events.CheckChosenInstance, "order-7", nil},
		{"a chosen id with a tilde", events.CheckChosenInstance, "~user~1", nil},
		{"a chosen id with a tilde and words", events.CheckChosenInstance, "a~1.b", nil},
		{"a chosen id with half a place", events.CheckChosenInstance, "a~1.", nil},
		{"a chosen id of a child", events.CheckChosenInstance, "order-7~1.5",
			[]string{`"order-7~1.5"`, `"~1.5"`, "reserved", "choose another"}},
		{"a chosen id of a child's child", events.CheckChosenInstance, "order-7~1.5~1.2", []string{`"~1.2"`}},
		{"no chosen id", events.CheckChosenInstance, "", []string{"empty"}},

		{"a tag", events.CheckTag, "gpu", nil},
		{"no tag", events.CheckTag, "", []string{"tag", "empty"}},
		{"a tag that is too long", events.CheckTag, long[:events.MaxTag+1], []string{"tag", "129 bytes"}},
		{"a session", events.CheckSession, "user 9", nil},
		{"a session of the engine", events.CheckSession, "rondo.recovery", nil},
		{"a session of the engine in a task", events.CheckSessionOfTask, "rondo.recovery",
			[]string{`"rondo.recovery"`, `"rondo."`, "reserved", "choose another"}},
		{"a session of a task", events.CheckSessionOfTask, "user 9", nil},
		{"a session that is too long", events.CheckSession, long[:events.MaxTag+1],
			[]string{"session id", "129 bytes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantError(t, tt.check(tt.text), tt.words...) })
	}
}

func TestARefusalDoesNotRepeatAnEndlessName(t *testing.T) {
	err := events.CheckName("activity", strings.Repeat("ä", 1<<20))
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("the refusal has %d bytes", len(err.Error()))
	}
}

func TestAChildIsNamedAfterItsPlaceInTheParent(t *testing.T) {
	id := events.ChildID("order-7", 2, 15)
	if id != "order-7~2.15" {
		t.Errorf("got %q", id)
	}
	wantError(t, events.CheckInstance(id))
	wantError(t, events.CheckChosenInstance(id), "reserved")
}

func TestAChildOfAnyParentHasAUsableId(t *testing.T) {
	for _, parent := range []string{strings.Repeat("a", events.MaxInstanceID),
		strings.Repeat("日", events.MaxInstanceID/3)} {
		seen := map[string]bool{}
		for depth := range 200 {
			parent = events.ChildID(parent, 1<<40, int64(depth)+1)
			if err := events.CheckInstance(parent); err != nil {
				t.Fatal(err)
			}
			wantError(t, events.CheckChosenInstance(parent), "reserved")
			if seen[parent] {
				t.Fatalf("%q is the id of two children", parent)
			}
			seen[parent] = true
		}
	}
	long := strings.Repeat("a", events.MaxInstanceID-1)
	if events.ChildID(long+"b", 1, 5) == events.ChildID(long+"c", 1, 5) {
		t.Error("children of two parents have the same id")
	}
}

// These stand in histories, subjects and databases: what they give must never change.
func TestIdsStayAsTheyAre(t *testing.T) {
	long := strings.Repeat("a", events.MaxInstanceID)
	tests := []struct{ name, got, want string }{
		{"incarnation", events.IncarnationOf("order-7", "start-1", 1741944413589793), "bee7aef2206ea748"},
		{"incarnation of another instance", events.IncarnationOf("order-8", "start-1", 1741944413589793),
			"6642f80410b82ffb"},
		{"incarnation of another start", events.IncarnationOf("order-7", "start-2", 1741944413589793),
			"5c0a5f61c637a583"},
		{"incarnation at another time", events.IncarnationOf("order-7", "start-1", 1741944413589794),
			"bee7b5f2206eb32d"},
		{"idempotency key", events.IdempotencyKey("order 7", "9f1c5a0b7e3d2648", 2, 15),
			"order%207/9f1c5a0b7e3d2648/2/15"},
		{"message", events.MessageID(events.VerbDone, "order 7", ref), "task-done/1-4/9f1c5a0b7e3d2648/order%207"},
		{"message with another verb", events.MessageID(events.VerbFail, "order 7", ref),
			"task-failed/1-4/9f1c5a0b7e3d2648/order%207"},
		{"place", ref.Place(), "1-4"},
		{"child", events.ChildID("order-7", 1, 4), "order-7~1.4"},
		{"child of a long parent", strings.TrimLeft(events.ChildID(long, 1, 4), "a"), "…fd2916200943d825~1.4"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, tt.got, tt.want)
		}
	}
	if got := events.SeenHash("start-1"); got != 14284916516080712485 {
		t.Errorf("hash of a message id: got %d", got)
	}
	if events.Engine != 1 {
		t.Errorf("engine %d: does a history of the engine before still mean the same?", events.Engine)
	}
}

func TestTokensAreEncodedForSubjects(t *testing.T) {
	tests := []struct{ text, token string }{
		{"", ""},
		{"order-7_a~b:c@d+e=f,g/h", "order-7_a~b:c@d+e=f,g/h"},
		{"a.b", "a%2Eb"},
		{"*>%", "%2A%3E%25"},
		{" \t\r\n\x00\x7f", "%20%09%0D%0A%00%7F"},
		{"ä", "%C3%A4"},
		{"\xff", "%FF"},
	}
	for _, tt := range tests {
		if got := events.EncodeToken(tt.text); got != tt.token {
			t.Errorf("%q is encoded as %q, want %q", tt.text, got, tt.token)
		}
		if got, err := events.DecodeToken(tt.token); got != tt.text || err != nil {
			t.Errorf("%q is decoded to %q, %v", tt.token, got, err)
		}
	}
}

func TestTokensAreDecodedAsOtherClientsWriteThem(t *testing.T) {
	tests := []struct {
		token, text string
		words       []string
	}{
		{"%61%2e%2E", "a..", nil},
		{"Käse", "Käse", nil},
		{"a b", "a b", nil},
		{"a%", "", []string{`"a%"`, "two hex digits"}},
		{"a%4", "", []string{`"%4"`, "two hex digits"}},
		{"a%zz", "", []string{`"%zz"`, "two hex digits"}},
		{"%%41", "", []string{`"%%4"`}},
		{"%+1x", "", []string{`"%+1"`}},
	}
	for _, tt := range tests {
		got, err := events.DecodeToken(tt.token)
		wantError(t, err, tt.words...)
		if got != tt.text {
			t.Errorf("%q is decoded to %q, want %q", tt.token, got, tt.text)
		}
	}
}

func TestLimitsNameTheLimitAndTheCure(t *testing.T) {
	var err error = events.Limit("values of an instance", 257, events.MaxValues, "use several instances")
	wantError(t, err, "values of an instance: 257 is over the limit of 256; use several instances")
	if !errors.Is(err, &failure.Error{Kind: failure.LimitExceeded}) {
		t.Errorf("%v is not of the kind %s", err, failure.LimitExceeded)
	}
}

func TestPayloadsMayBeAsLargeAsTheLimit(t *testing.T) {
	p := make(codec.Payload, events.MaxPayload+1)
	if err := events.CheckPayload("input", p[:events.MaxPayload]); err != nil {
		t.Error(err)
	}
	if err := events.CheckPayload("input", nil); err != nil {
		t.Error(err)
	}
	err := events.CheckPayload("input", p)
	if err == nil {
		t.Fatal("a payload over the limit is fine")
	}
	wantError(t, err, "input (bytes): 983041 is over the limit of 983040", "pass a reference")
	if err.Kind != failure.LimitExceeded || !err.NonRetryable {
		t.Errorf("got kind %s, final %v", err.Kind, err.NonRetryable)
	}
}

func TestATokenIsReadAsItWasWritten(t *testing.T) {
	for _, instance := range []string{"order-7", "a/b", "/", "Käse & Brot.7", "x/9f1c5a0b7e3d2648/1-4"} {
		token := events.Token(instance, ref)
		gotInstance, gotRef, err := events.ParseToken(token)
		if err != nil || gotInstance != instance || gotRef != ref {
			t.Errorf("%q is read as %q, %+v, %v", token, gotInstance, gotRef, err)
		}
	}
	if got, want := events.Token("order-7", ref), "order-7/9f1c5a0b7e3d2648/1-4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatIsNoTokenIsRefused(t *testing.T) {
	for _, token := range []string{
		"", "/", "//", "order-7", "incarnation/1-4", "/incarnation/1-4", "order-7//1-4", "order-7/incarnation/",
		"order-7/incarnation/1",
		"order-7/incarnation/0-4", "order-7/incarnation/1-x",
		"order-7/li\xffe/1-4", "a\x00b/incarnation/1-4",
		strings.Repeat("x", events.MaxInstanceID+1) + "/incarnation/1-4",
		"order-7/" + strings.Repeat("x", events.MaxName+1) + "/1-4",
	} {
		_, _, err := events.ParseToken(token)
		wantError(t, err, "token ")
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
}
