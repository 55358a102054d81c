package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pinged is a database: a function that answers each ping.
type pinged func(ctx context.Context) error

func (p pinged) Ping(ctx context.Context) error { return p(ctx) }

// TestAwaitDatabase: an orchestrator begins while the database hangs. It logs that it waits, tries
// again, and begins when the database answers, or ends when it is told to.
func TestAwaitDatabase(t *testing.T) {
	hangs := func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	await := func(ctx context.Context, p pinged) (warned int, err error) {
		var logged strings.Builder
		err = awaitDatabase(ctx, p, 10*time.Second, slog.New(slog.NewTextHandler(&logged, nil)))
		return strings.Count(logged.String(), "the database does not answer within the time limit"), err
	}
	t.Run("it answers later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			warned, err := await(t.Context(), func(ctx context.Context) error {
				if n++; n < 3 {
					return hangs(ctx)
				}
				return nil
			})
			if err != nil || n != 3 || warned != 2 {
				t.Errorf("%v after %d pings and %d warnings", err, n, warned)
			}
		})
	})
	t.Run("the process is told to end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, cancel)
			if warned, err := await(ctx, hangs); !errors.Is(err, context.Canceled) || warned == 0 {
				t.Errorf("%v after %d warnings", err, warned)
			}
		})
	})
	t.Run("it refuses", func(t *testing.T) {
		refused := errors.New("refused")
		warned, err := await(t.Context(), func(context.Context) error { return refused })
		if !errors.Is(err, refused) || warned > 0 {
			t.Errorf("%v after %d warnings", err, warned)
		}
	})
}
