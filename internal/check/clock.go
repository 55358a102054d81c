package check

import (
	"context"
	"fmt"
	"time"
)

// clock is the clock of the database: a wrong clock of this machine must not make messages look
// overdue, or overdue messages new.
type clock struct {
	here  func() time.Time // of this machine
	ahead time.Duration    // by which that one is ahead
}

// now returns the time on the clock of the database.
func (c *clock) now() time.Time { return c.here().Add(-c.ahead) }

// compare reads the clock of the database. It returns by how much the clock of this machine is
// ahead; 0 if that is not more than [MaxClockDifference], or the store has no clock.
func (c *clock) compare(ctx context.Context, store Store) (time.Duration, error) {
	began := c.here()
	at, err := store.Clock(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the clock of the database: %w", err)
	}
	if at.IsZero() {
		return 0, nil
	}
	took := c.here().Sub(began)
	if c.ahead = began.Add(took / 2).Sub(at); c.ahead.Abs() <= MaxClockDifference+took {
		return 0, nil
	}
	return c.ahead.Round(time.Millisecond), nil
}
