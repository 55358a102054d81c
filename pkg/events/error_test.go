package events_test

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

func TestAnyErrorBecomesOneThatHistoryCanHold(t *testing.T) {
	timeout := &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutHeartbeat, Message: "late",
		NonRetryable: true}
	kindless := &failure.Error{Type: "declined", Message: "no"}
	tests := []struct {
		name string
		err  error
		want *failure.Error
	}{
		{"nothing", nil, nil},
		{"an Error", timeout, timeout},
		{"another error", io.EOF, &failure.Error{Kind: failure.Application, Message: "EOF"}},
		{"an Error without a kind", kindless, &failure.Error{Kind: failure.Application, Type: "declined",
			Message: "no"}},
		{"an Error inside another error", fmt.Errorf("order 7: %w", timeout),
			&failure.Error{Kind: failure.Timeout, Type: failure.TimeoutHeartbeat, Message: "order 7: late",
				NonRetryable: true,
				Cause:        timeout}},
		{"an Error without a kind inside another error", fmt.Errorf("order 7: %w", kindless),
			&failure.Error{Kind: failure.Application, Type: "declined", Message: "order 7: no", Cause: kindless}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := failure.From(tt.err)
			if !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %+v, want %+v", got, tt.want)
			}
			if got != nil {
				encodeEvent(t, events.Event{ID: 1, At: at, Fact: &events.Failed{Error: got}})
			}
		})
	}
	if failure.From(timeout) != timeout {
		t.Error("an Error that is fine is not kept")
	}
	if kindless.Kind != "" {
		t.Error("the author's error has been changed")
	}
}

// huge is an error whose every text is far too long, with as many causes.
func huge(text string, causes int) *failure.Error {
	e := &failure.Error{
		Kind: failure.Kind(text), Type: text, Message: text, Source: text, Details: codec.Payload(text),
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
			e := events.Bounded(huge(text, 30))
			w := wire(t, say(&events.TaskFailed{Ref: ref, Error: e}))
			if len(w.Body) > events.MaxPayload*2/3 {
				t.Errorf("the message has %d bytes", len(w.Body))
			}
			if e.Message == "" || !utf8.ValidString(e.Message) || !strings.HasSuffix(e.Message, "…") {
				t.Errorf("the message is cut to %q", e.Message)
			}
			if again := events.Bounded(e); again != e {
				t.Error("it is cut again the second time")
			}
			decodesTo(t, encodeEvent(t, eventExample{fact: &events.Failed{Error: e}}.event()),
				eventExample{fact: &events.Failed{Error: e}}.event())
		})
	}
}

func TestBoundedErrorsKeepTheFirstCauses(t *testing.T) {
	e := failure.Errorf(failure.Application, "cause 0")
	for i := range 100 {
		outer := failure.Errorf(failure.Application, "cause %d", i+1)
		outer.Cause = e
		e = outer
	}
	got := events.Bounded(e)
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
	for _, e := range []*failure.Error{nil, shortError(), fullError(),
		{Kind: failure.Application, Message: strings.Repeat("a", events.MaxErrorText)}} {
		want := e
		if got := events.Bounded(e); got != want {
			t.Errorf("%v has been changed to %v", want, got)
		}
	}
}

func TestBoundedErrorsAreCutBetweenCharacters(t *testing.T) {
	for extra := range 4 {
		message := strings.Repeat("x", extra) + strings.Repeat("日", events.MaxErrorText)
		got := events.Bounded(&failure.Error{Kind: failure.Application, Message: message}).Message
		kept := strings.TrimSuffix(got, "…")
		if !utf8.ValidString(got) || !strings.HasPrefix(message, kept) || len(got) > events.MaxErrorText ||
			len(got) < events.MaxErrorText-3 {
			t.Errorf("cut to %d bytes that end in %q", len(got), got[len(got)-12:])
		}
	}
}

func TestBoundedErrorsDropDetailsThatAreTooLarge(t *testing.T) {
	e := &failure.Error{Kind: failure.Application, Message: "no", Details: make(codec.Payload, events.MaxErrorText+1)}
	if got := events.Bounded(e); got.Details != nil || got.Message != "no" {
		t.Errorf("got %+v", got)
	}
	e.Details = e.Details[1:]
	if got := events.Bounded(e); got != e {
		t.Error("details that fit are dropped")
	}
}

// Code that gets an error at once must see what it sees when the error is read back.
func TestBoundedErrorsComeBackFromHistoryAsTheyAre(t *testing.T) {
	for _, text := range []string{"a\xffb", "\xed\xa0\x80", "tab\tand\x00zero\u2028", "<&>", "日本", "�"} {
		e := events.Bounded(&failure.Error{Kind: "k", Type: text, Message: text, Source: text, Stack: text,
			Expected: text,
			Got:      text})
		x := eventExample{fact: &events.StepFailed{Step: 1, Name: "s", Attempt: 1, Error: e}}
		decodesTo(t, encodeEvent(t, x.event()), x.event())
	}
}
