package cockroach

import (
	"context"
	"errors"
	"testing"

	"github.com/rondo-run/rondo/pkg/history"
)

// TestTheCauseOutlivesTheDeadline ends the context during the second attempt: the error is that of
// the first one.
func TestTheCauseOutlivesTheDeadline(t *testing.T) {
	refused := &history.Error{Class: history.Retry, Op: "load", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name  string
		class history.Class
		want  string
	}{
		{"an attempt that changed nothing", history.Retry, "history: load: connection refused"},
		{"a commit that may have happened", history.Ambiguous, "history: load: context canceled"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		attempts := 0
		err := retry(ctx, func() error {
			if attempts++; attempts == 1 {
				return refused
			}
			cancel()
			return &history.Error{Class: c.class, Op: "load", Err: ctx.Err()}
		})
		if err == nil || err.Error() != c.want || history.ClassOf(err) != c.class {
			t.Errorf("%s: %v (%s); want %q", c.name, err, history.ClassOf(err), c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := retry(ctx, func() error { return &history.Error{Class: history.Retry, Op: "load", Err: ctx.Err()} })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the only attempt: %v", err)
	}
}
