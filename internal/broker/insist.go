package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/x/backoff"
)

// insistPauses are the delays between the attempts of Insist.
var insistPauses = backoff.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}

// Insist calls do, and again while do fails only because the broker did not respond within the time
// limit of the request. It is for the start of a service: the broker was there a moment ago, and is
// slow or restarting. Insist returns any other error, and the last error when the context ends.
func Insist(ctx context.Context, log *slog.Logger, do func() error) error {
	for attempt := 0; ; attempt++ {
		err := do()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		log.Warn("the broker does not respond within the time limit; trying again", "error", err)
		select {
		case <-time.After(insistPauses.After(attempt)):
		case <-ctx.Done():
			return err
		}
	}
}
