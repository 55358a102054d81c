package failure_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/rondo-run/rondo/pkg/failure"
)

func TestErrorsReadWell(t *testing.T) {
	tests := []struct {
		err  *failure.Error
		want string
	}{
		{failure.Errorf(failure.Application, "no %s", "stock"), "no stock"},
		{&failure.Error{Kind: failure.Timeout}, "timeout"},
		{&failure.Error{Kind: failure.Application, Message: "no", Source: `activity "charge"`}, `activity "charge": no`},
		{&failure.Error{Kind: failure.Application, Message: "no", Attempts: 1}, "no"},
		{&failure.Error{Kind: failure.Application, Message: "no", Source: "step", Attempts: 3},
			"step: no (after 3 attempts)"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestErrorsAreOfTheirKindAndType(t *testing.T) {
	timeout := &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutHeartbeat, Message: "no heartbeat"}
	outer := &failure.Error{Kind: failure.Application, Type: "declined", Message: "failed", Cause: timeout}
	wrapped := fmt.Errorf("order 7: %w", outer)
	tests := []struct {
		name   string
		err    error
		target error
		want   bool
	}{
		{"its kind", outer, &failure.Error{Kind: failure.Application}, true},
		{"its kind and type", outer, &failure.Error{Kind: failure.Application, Type: "declined"}, true},
		{"its kind with another type", outer, &failure.Error{Kind: failure.Application, Type: "expired"}, false},
		{"another kind", outer, &failure.Error{Kind: failure.Poison}, false},
		{"the kind of its cause", outer, &failure.Error{Kind: failure.Timeout}, true},
		{"the kind and type of its cause", outer,
			&failure.Error{Kind: failure.Timeout, Type: failure.TimeoutHeartbeat}, true},
		{"wrapped by other errors", wrapped, &failure.Error{Kind: failure.Timeout}, true},
		{"a target with a message is one error, not a kind", outer,
			&failure.Error{Kind: failure.Application, Message: "failed"}, false},
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
	cause := failure.Errorf(failure.Timeout, "late")
	err := fmt.Errorf("order 7: %w", &failure.Error{Kind: failure.Application, Message: "failed", Cause: cause})
	var found *failure.Error
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
