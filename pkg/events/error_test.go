package events_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rondo-run/rondo/pkg/events"
)

func TestErrorsReadWell(t *testing.T) {
	tests := []struct {
		err  *events.Error
		want string
	}{
		{events.Errorf(events.Application, "no %s", "stock"), "no stock"},
		{&events.Error{Kind: events.Timeout}, "timeout"},
		{&events.Error{Kind: events.Application, Message: "no", Source: `activity "charge"`}, `activity "charge": no`},
		{&events.Error{Kind: events.Application, Message: "no", Attempts: 1}, "no"},
		{&events.Error{Kind: events.Application, Message: "no", Source: "step", Attempts: 3},
			"step: no (after 3 attempts)"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestErrorsAreOfTheirKindAndType(t *testing.T) {
	timeout := &events.Error{Kind: events.Timeout, Type: events.TimeoutHeartbeat, Message: "no heartbeat"}
	outer := &events.Error{Kind: events.Application, Type: "declined", Message: "failed", Cause: timeout}
	wrapped := fmt.Errorf("order 7: %w", outer)
	tests := []struct {
		name   string
		err    error
		target error
		want   bool
	}{
		{"its kind", outer, &events.Error{Kind: events.Application}, true},
		{"its kind and type", outer, &events.Error{Kind: events.Application, Type: "declined"}, true},
		{"its kind with another type", outer, &events.Error{Kind: events.Application, Type: "expired"}, false},
		{"another kind", outer, &events.Error{Kind: events.Poison}, false},
		{"the kind of its cause", outer, &events.Error{Kind: events.Timeout}, true},
		{"the kind and type of its cause", outer,
			&events.Error{Kind: events.Timeout, Type: events.TimeoutHeartbeat}, true},
		{"wrapped by other errors", wrapped, &events.Error{Kind: events.Timeout}, true},
		{"a target with a message is one error, not a kind", outer,
			&events.Error{Kind: events.Application, Message: "failed"}, false},
		{"itself", outer, outer, true},
		{"an error of another sort", outer, io.EOF, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := errors.Is(tt.err, tt.target); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestErrorsCanBeFoundInOthers(t *testing.T) {
	cause := events.Errorf(events.Timeout, "late")
	err := fmt.Errorf("order 7: %w", &events.Error{Kind: events.Application, Message: "failed", Cause: cause})
	var found *events.Error
	if !errors.As(err, &found) || found.Message != "failed" {
		t.Fatalf("found %v", found)
	}
	if got := errors.Unwrap(found); got != error(cause) {
		t.Errorf("behind it is %v", got)
	}
	if got := errors.Unwrap(cause); got != nil {
		t.Errorf("behind the last one is %#v, want a plain nil", got)
	}
}

func TestAnyErrorBecomesOneThatHistoryCanHold(t *testing.T) {
	timeout := &events.Error{Kind: events.Timeout, Type: events.TimeoutHeartbeat, Message: "late", Final: true}
	kindless := &events.Error{Type: "declined", Message: "no"}
	tests := []struct {
		name string
		err  error
		want *events.Error
	}{
		{"nothing", nil, nil},
		{"an Error", timeout, timeout},
		{"another error", io.EOF, &events.Error{Kind: events.Application, Message: "EOF"}},
		{"an Error without a kind", kindless, &events.Error{Kind: events.Application, Type: "declined", Message: "no"}},
		{"an Error inside another error", fmt.Errorf("order 7: %w", timeout),
			&events.Error{Kind: events.Timeout, Type: events.TimeoutHeartbeat, Message: "order 7: late", Final: true,
				Cause: timeout}},
		{"an Error without a kind inside another error", fmt.Errorf("order 7: %w", kindless),
			&events.Error{Kind: events.Application, Type: "declined", Message: "order 7: no", Cause: kindless}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := events.AsError(tt.err)
			if !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %+v, want %+v", got, tt.want)
			}
			if got != nil {
				encodeEvent(t, events.Event{ID: 1, At: at, Fact: &events.Failed{Error: got}})
			}
		})
	}
	if events.AsError(timeout) != timeout {
		t.Error("an Error that is fine is not kept")
	}
	if kindless.Kind != "" {
		t.Error("the author's error has been changed")
	}
}

// huge is an error whose every text is far too long, with as many causes.
func huge(text string, causes int) *events.Error {
	e := &events.Error{
		Kind: events.ErrorKind(text), Type: text, Message: text, Source: text, Details: events.Payload(text),
		Stack: text, Expected: text, Got: text,
	}
	for range causes {
		outer := *e
		outer.Cause = e
		e = &outer
	}
	return e
}

func TestBoundedErrorsAlwaysFitIntoAMessage(t *testing.T) {
	const size = 100 << 10
	for name, text := range map[string]string{
		"letters":       strings.Repeat("a", size),
		"wide letters":  strings.Repeat("日", size/3),
		"control bytes": strings.Repeat("\x01", size),
		"line breaks":   strings.Repeat("\n", size),
		"separators":    strings.Repeat("\u2028", size/3),
		"quotes":        strings.Repeat(`"`, size),
		"not UTF-8":     strings.Repeat("a\xff", size/2),
		"almost fits":   strings.Repeat("\x01", events.MaxErrorText),
	} {
		t.Run(name, func(t *testing.T) {
			e := huge(text, 30).Bounded()
			w := wire(t, say(&events.WorkFailed{Ref: ref, Error: e}))
			if len(w.Body) > events.MaxPayload*2/3 {
				t.Errorf("the message has %d bytes", len(w.Body))
			}
			if e.Message == "" || !utf8.ValidString(e.Message) || !strings.HasSuffix(e.Message, "…") {
				t.Errorf("the message is cut to %q", e.Message)
			}
			if again := e.Bounded(); again != e {
				t.Error("it is cut again the second time")
			}
			decodesTo(t, encodeEvent(t, eventExample{fact: &events.Failed{Error: e}}.event()),
				eventExample{fact: &events.Failed{Error: e}}.event())
		})
	}
}

func TestBoundedErrorsKeepTheFirstCauses(t *testing.T) {
	e := events.Errorf(events.Application, "cause 0")
	for i := range 100 {
		outer := events.Errorf(events.Application, "cause %d", i+1)
		outer.Cause = e
		e = outer
	}
	got := e.Bounded()
	for i := range events.MaxErrorCauses + 1 {
		if want := fmt.Sprintf("cause %d", 100-i); got == nil || got.Message != want {
			t.Fatalf("at depth %d: got %v, want %s", i, got, want)
		}
		got = got.Cause
	}
	if got != nil {
		t.Errorf("there is a cause more: %v", got)
	}
	if e.Cause.Cause.Cause.Cause.Cause.Cause.Cause.Cause.Cause == nil {
		t.Error("the error itself has been cut")
	}
}

func TestBoundedErrorsThatFitAreLeftAlone(t *testing.T) {
	for _, e := range []*events.Error{nil, shortError(), fullError(),
		{Kind: events.Application, Message: strings.Repeat("a", events.MaxErrorText)}} {
		want := e
		if got := e.Bounded(); got != want {
			t.Errorf("%v has been changed to %v", want, got)
		}
	}
}

func TestBoundedErrorsAreCutBetweenCharacters(t *testing.T) {
	for extra := range 4 {
		message := strings.Repeat("x", extra) + strings.Repeat("日", events.MaxErrorText)
		got := (&events.Error{Kind: events.Application, Message: message}).Bounded().Message
		kept := strings.TrimSuffix(got, "…")
		if !utf8.ValidString(got) || !strings.HasPrefix(message, kept) || len(got) > events.MaxErrorText ||
			len(got) < events.MaxErrorText-3 {
			t.Errorf("cut to %d bytes that end in %q", len(got), got[len(got)-12:])
		}
	}
}

func TestBoundedErrorsDropDetailsThatAreTooLarge(t *testing.T) {
	e := &events.Error{Kind: events.Application, Message: "no", Details: make(events.Payload, events.MaxErrorText+1)}
	if got := e.Bounded(); got.Details != nil || got.Message != "no" {
		t.Errorf("got %+v", got)
	}
	e.Details = e.Details[1:]
	if got := e.Bounded(); got != e {
		t.Error("details that fit are dropped")
	}
}

// Code that gets an error at once must see what it sees when the error is read back.
func TestBoundedErrorsComeBackFromHistoryAsTheyAre(t *testing.T) {
	for _, text := range []string{"a\xffb", "\xed\xa0\x80", "tab\tand\x00zero\u2028", "<&>", "日本", "�"} {
		e := (&events.Error{Kind: "k", Type: text, Message: text, Source: text, Stack: text, Expected: text,
			Got: text}).Bounded()
		x := eventExample{fact: &events.StepFailed{Step: 1, Name: "s", Attempt: 1, Error: e}}
		decodesTo(t, encodeEvent(t, x.event()), x.event())
	}
}
