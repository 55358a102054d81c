package guide

import (
	"context"
	"errors"
	"testing"

	"github.com/rondo-run/rondo/pkg/rondotest"
)

// TestRemoval replays the instance in each round: metrics are recorded once all the same.
func TestRemoval(t *testing.T) {
	attempts := 0
	env := virtual(t, rondotest.Cold(), Remove.Bind(removal),
		Wrap.Bind(func(_ context.Context, thing string) (string, error) { return "wrapped " + thing, nil }),
		Carry.Bind(func(_ context.Context, parcels []string) (string, error) {
			if attempts++; attempts == 1 {
				return "", errors.New("the lift is stuck")
			}
			return "carried", nil
		}))
	n, err := Remove.Run(t.Context(), env, Removal{Customer: "acme", Things: []string{"chair", "table"}})
	if n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	want(t, "parcels", env.Counted("shop.parcels"), 2.0)
	wantList(t, "seconds", env.Measured("shop.carrying"), 1.0)
}
