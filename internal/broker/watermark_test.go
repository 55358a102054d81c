package broker_test

import (
	"context"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
)

func TestOfAllTellsOnce(t *testing.T) {
	t.Parallel()
	for _, lanes := range [][]bool{{true}, {true, true}, {false, true}, {true, false}, {false, false}} {
		want, calls := true, 0
		told := broker.OfAll(len(lanes), func(_ context.Context, ok bool) {
			if calls++; ok != want {
				t.Errorf("%v: %t", lanes, ok)
			}
		})
		for _, ok := range lanes {
			want = want && ok
		}
		for i, ok := range lanes {
			if calls > 0 {
				t.Errorf("%v: told before lane %d", lanes, i)
			}
			told(t.Context(), ok)
		}
		if calls != 1 {
			t.Errorf("%v: told %d times", lanes, calls)
		}
	}
}
