package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// TestInsist repeats what the broker did not answer in time, until the broker does, or the context
// ends. It repeats nothing else.
func TestInsist(t *testing.T) {
	late, other := fmt.Errorf("nats: join: %w", context.DeadlineExceeded), errors.New("no permission")
	for name, c := range map[string]struct {
		errs  []error // of the calls; the last one repeats
		want  error
		calls int
	}{
		"it works":             {[]error{nil}, nil, 1},
		"it is late twice":     {[]error{late, late, nil}, nil, 3},
		"it is refused":        {[]error{other}, other, 1},
		"it is late, refused":  {[]error{late, other}, other, 2},
		"it is late for a day": {[]error{late}, late, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				calls := 0
				err := broker.Insist(ctx, slog.New(slog.DiscardHandler), func() error {
					calls++
					return c.errs[min(calls, len(c.errs))-1]
				})
				if !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("the error is %v, want %v", err, c.want)
				}
				if c.calls > 0 && calls != c.calls {
					t.Errorf("it was called %d times, want %d", calls, c.calls)
				}
				if c.calls == 0 && ctx.Err() == nil {
					t.Errorf("it was given up after %d calls, before the context ended", calls)
				}
			})
		})
	}
}
