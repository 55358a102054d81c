package natsbroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// TestBadMessagesAreLoggedRarely: however many bad messages another process sends, the log has the
// first one of each kind, and one a minute with the number of the others.
func TestBadMessagesAreLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		c := newConn(Config{Prefix: "rondo", Logger: slog.New(slog.NewTextHandler(&text, nil))})
		defer c.stop()
		k := &directResults{conn: c}
		reply := c.directAnswers(aboutResults) + "x.1"
		flood := func() {
			for range 100 {
				k.hear(&nats.Msg{Subject: "s", Reply: "$JS.API"})
				k.hear(&nats.Msg{Subject: "s", Reply: reply, Header: nats.Header{headerResults: {"x"}}})
				k.hear(&nats.Msg{Subject: "s", Reply: reply, Header: nats.Header{headerSubject: {"rondo.start.o.i"}}})
				c.mayAnswer(&nats.Msg{Subject: "s", Reply: "rondo.x"})
			}
		}
		flood()
		if n := strings.Count(text.String(), "\n"); n != 4 {
			t.Errorf("four kinds of bad messages have %d lines:\n%s", n, text.String())
		}
		text.Reset()
		<-time.After(warnEvery)
		flood()
		if n := strings.Count(text.String(), "dropped=99"); n != 4 {
			t.Errorf("after a minute, %d lines have the number of the others; want 4:\n%s", n, text.String())
		}
	})
}

// TestDeniedAnswersHideNoDenial: the log has what this process may not do, although other processes
// make it answer where it may not.
func TestDeniedAnswersHideNoDenial(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	c := newConn(Config{Prefix: "rondo", Logger: slog.New(slog.NewTextHandler(&text, nil))})
	defer c.stop()
	c.hooks.denied = func(string) {}
	options := nats.GetDefaultOptions()
	for _, o := range c.handlers() {
		if err := o(&options); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{`Publish to "chosen.by.another"`,
		`Publish to "` + c.directAnswers(aboutResults) + `x.1"`, `Publish to "rondo.task-done.1-2.i"`,
		`Publish to "chosen.by.another"`, `Subscription to "rondo.x"`} {
		err := fmt.Errorf("%w: Permissions Violation for %s", nats.ErrPermissionViolation, what)
		options.AsyncErrorCB(nil, nil, err)
	}
	for part, want := range map[string]int{"chosen.by.another": 1, "task-done": 1, "\n": 2} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("the log has %q %d times, want %d:\n%s", part, n, want, text.String())
		}
	}
}

// TestDeniedAnswersEndNoRequests: a program may name any reply subject for its request, also one on
// which the process that answers may not publish. The denial ends no request of that process.
func TestDeniedAnswersEndNoRequests(t *testing.T) {
	t.Parallel()
	c := newConn(Config{Prefix: "rondo", Logger: slog.New(slog.DiscardHandler)})
	defer c.stop()
	c.api = "JS.hub.API."
	deny := func(subject string) {
		c.denied.note(fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, subject))
	}
	err := c.denied.during(t.Context(), func(ctx context.Context) error {
		deny("chosen.by.another")
		return context.Cause(ctx)
	})
	if err != nil {
		t.Errorf("an answer that was denied ends a request: %v", err)
	}
	err = c.denied.during(t.Context(), func(ctx context.Context) error {
		deny("rondo.task-done.1-2.i")
		return context.Cause(ctx)
	})
	if err != nil {
		t.Errorf("a message that was denied ends a request to the API: %v", err)
	}
	for _, subject := range []string{"$JS.API.STREAM.INFO.RONDO", "JS.hub.API.STREAM.INFO.RONDO"} {
		err := c.denied.during(t.Context(), func(ctx context.Context) error {
			deny(subject)
			return context.Cause(ctx)
		})
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("a request on %s was denied: %v", subject, err)
		}
		if c.mayAnswer(&nats.Msg{Subject: "rondo.api.list", Reply: subject}) {
			t.Errorf("a response may be published on %s", subject)
		}
	}
}
