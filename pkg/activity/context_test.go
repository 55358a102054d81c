package activity_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// reversed is a codec that can be told from JSON.
type reversed struct{}

func (reversed) Encode(v any) (codec.Payload, error) {
	p, err := codec.JSON{}.Encode(v)
	return codec.Payload("reversed " + string(p)), err
}

func (reversed) Decode(p codec.Payload, v any) error {
	return codec.JSON{}.Decode(bytes.TrimPrefix(p, []byte("reversed ")), v)
}

func TestOutsideOfAWorkerThereIsNothing(t *testing.T) {
	ctx := t.Context()
	if i := activity.Info(ctx); i != (activity.ExecutionInfo{}) {
		t.Errorf("info %+v", i)
	}
	if token := activity.Token(ctx); token != "" {
		t.Errorf("token %q", token)
	}
	if err := activity.Heartbeat(ctx, 1); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if n, ok, err := activity.LastHeartbeat[int](ctx); n != 0 || ok || err != nil {
		t.Errorf("last heartbeat %d, %v, %v", n, ok, err)
	}
	if activity.Logger(ctx) == nil {
		t.Error("no logger")
	}
}

func TestContextGivesWhatTheWorkerGave(t *testing.T) {
	var logged bytes.Buffer
	info := activity.ExecutionInfo{Activity: "echo", Instance: "i", Attempt: 2, IdempotencyKey: "k"}
	ctx := activity.NewContext(t.Context(),
		activity.Environment{Info: info, Token: "t", Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if got := activity.Info(ctx); got != info {
		t.Errorf("info %+v", got)
	}
	if token := activity.Token(ctx); token != "t" {
		t.Errorf("token %q", token)
	}
	activity.Logger(ctx).Info("hello", "n", 1)
	if want := `msg=hello instance=i execution=0 orchestration="" activity=echo attempt=2 n=1`; !strings.Contains(
		logged.String(), want) {
		t.Errorf("logged %s, want %s", logged.String(), want)
	}
}

func TestHeartbeat(t *testing.T) {
	for name, c := range map[string]struct {
		codec    codec.Codec
		progress any
		want     string
		says     string
	}{
		"number": {nil, 7, "7", ""},
		"codec":  {reversed{}, 7, "reversed 7", ""},
		"largest": {nil, strings.Repeat("x", activity.MaxHeartbeat-2),
			`"` + strings.Repeat("x", activity.MaxHeartbeat-2) + `"`, ""},
		"too large": {nil, strings.Repeat("x", activity.MaxHeartbeat), "",
			"progress of a heartbeat (bytes): 4098 is over the limit of 4096"},
		"cannot be encoded": {nil, func() {}, "", "encode func()"},
	} {
		t.Run(name, func(t *testing.T) {
			var beat codec.Payload
			ctx := activity.NewContext(t.Context(),
				activity.Environment{Codec: c.codec, Heartbeat: func(p codec.Payload) error {
					beat = p
					return nil
				}})
			err := activity.Heartbeat(ctx, c.progress)
			if c.says != "" {
				mustSay(t, err, c.says)
			} else if err != nil {
				t.Error(err)
			}
			if string(beat) != c.want {
				t.Errorf("the worker got %s, want %s", beat, c.want)
			}
		})
	}
}

func TestHeartbeatTellsToStop(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	beats := 0
	ctx = activity.NewContext(ctx, activity.Environment{Heartbeat: func(codec.Payload) error { beats++; return nil }})
	if err := activity.Heartbeat(ctx, 1); err != nil {
		t.Error(err)
	}
	cancel(errors.New("nobody waits for it"))
	if err := activity.Heartbeat(ctx, 2); !errors.Is(err, context.Canceled) || beats != 1 {
		t.Errorf("got %v after %d heartbeats", err, beats)
	}
	broken := errors.New("no connection")
	ctx = activity.NewContext(t.Context(), activity.Environment{Heartbeat: func(codec.Payload) error {
		return broken
	}})
	if err := activity.Heartbeat(ctx, 1); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestLastHeartbeat(t *testing.T) {
	ctx := activity.NewContext(t.Context(), activity.Environment{Last: codec.Payload("7")})
	if n, ok, err := activity.LastHeartbeat[int](ctx); n != 7 || !ok || err != nil {
		t.Errorf("got %d, %v, %v", n, ok, err)
	}
	if _, ok, err := activity.LastHeartbeat[[]int](ctx); !ok || err == nil {
		t.Errorf("of another type: %v, %v", ok, err)
	}
	ctx = activity.NewContext(t.Context(), activity.Environment{Last: codec.Payload("reversed 7"), Codec: reversed{}})
	if n, ok, err := activity.LastHeartbeat[int](ctx); n != 7 || !ok || err != nil {
		t.Errorf("by another codec: %d, %v, %v", n, ok, err)
	}
}

func TestErrorf(t *testing.T) {
	err := activity.Errorf("no_stock", "only %d left", 3)
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != failure.Application || e.Type != "no_stock" || e.NonRetryable ||
		err.Error() != "only 3 left" {
		t.Errorf("got %+v", err)
	}
	if !errors.Is(fmt.Errorf("order 7: %w", err), orchestration.OfType("no_stock")) ||
		errors.Is(err, orchestration.OfType("other")) {
		t.Errorf("its type cannot be told")
	}
}

func TestFinal(t *testing.T) {
	if activity.NonRetryable(nil) != nil {
		t.Error("no error has become one")
	}
	plain, typed := errors.New("plain"), activity.Errorf("typed", "typed")
	for _, c := range []struct {
		err error
		typ string
	}{{plain, ""}, {typed, "typed"}, {fmt.Errorf("wrapped: %w", typed), "typed"}} {
		err := activity.NonRetryable(c.err)
		var e *failure.Error
		if !errors.As(err, &e) || !e.NonRetryable || e.Type != c.typ || err.Error() != c.err.Error() {
			t.Errorf("%v became %+v", c.err, err)
		}
	}
	var e *failure.Error
	if errors.As(typed, &e) && e.NonRetryable {
		t.Error("the original was changed")
	}
}

func TestDetails(t *testing.T) {
	type shortage struct{ Left int }
	base := activity.Errorf("no_stock", "none")
	with := activity.WithDetails(base, shortage{3})
	for name, err := range map[string]error{
		"plain":   with,
		"final":   activity.NonRetryable(with),
		"wrapped": fmt.Errorf("order 7: %w", with),
		"stored":  failure.From(fmt.Errorf("order 7: %w", with)),
		"joined":  errors.Join(errors.New("other"), with),
	} {
		if d, ok := activity.Details[shortage](err); !ok || d.Left != 3 {
			t.Errorf("%s: got %+v, %v", name, d, ok)
		}
		if !errors.Is(err, orchestration.OfType("no_stock")) {
			t.Errorf("%s: its type is lost", name)
		}
	}
	for name, err := range map[string]error{"without": base, "other error": errors.New("x"), "none": nil} {
		if d, ok := activity.Details[shortage](err); ok {
			t.Errorf("%s: got %+v", name, d)
		}
	}
	if d, ok := activity.Details[string](with); ok {
		t.Errorf("of another type: got %q", d)
	}
}

func TestWithDetails(t *testing.T) {
	if activity.WithDetails(nil, 1) != nil {
		t.Error("no error has become one")
	}
	plain := errors.New("plain")
	if n, ok := activity.Details[int](activity.WithDetails(plain, 7)); !ok || n != 7 {
		t.Errorf("got %d, %v", n, ok)
	}
	if n, ok := activity.Details[int](activity.WithDetails(activity.WithDetails(plain, 7), 8)); !ok || n != 8 {
		t.Errorf("the later details are %d, %v", n, ok)
	}
	err := activity.WithDetails(plain, func() {})
	if !errors.Is(err, plain) {
		t.Errorf("got %v", err)
	}
	mustSay(t, err, "plain", "encode func()")
}
