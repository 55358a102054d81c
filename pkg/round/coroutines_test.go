package round_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestCoroutinesAreUsedAgain runs code that ends in all ways, on a few goroutines, with coroutines
// that were used before. What one leaves behind must not show in the next.
func TestCoroutinesAreUsedAgain(t *testing.T) {
	kept := coroutines(t)
	code, err := orchestration.NewRegistry(
		define("returns", func(ctx oc, s string) (string, error) { return s, nil }),
		define("panics", func(oc, string) (string, error) { panic("x") }),
		define("exits", func(oc, string) (string, error) { runtime.Goexit(); return "", nil }),
		define("branches", func(ctx oc, s string) (string, error) {
			a := orchestration.Go(ctx, func(oc) (string, error) { return s + "a", nil })
			b := orchestration.Go(ctx, func(oc) (string, error) { return s + "b", nil })
			all, err := orchestration.All(ctx, a, b).Get(ctx)
			return fmt.Sprint(all), err
		}),
		define("parks", func(ctx oc, s string) (string, error) { return approve.Wait(ctx) }),
	)
	if err != nil {
		t.Fatal(err)
	}
	config := &round.Config{Code: code, Coroutines: kept}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 500 {
				name := []string{"returns", "branches", "panics", "parks", "returns", "exits"}[(g+i)%6]
				in := round.New(config, round.Known{Instance: "i"})
				turn := in.Decide(startOf(name, `"s"`), began)
				want, output := round.Completed, `"s"`
				switch name {
				case "branches":
					output = `"[sa sb]"`
				case "panics", "exits":
					want, output = round.Failed, ""
				case "parks":
					want, output = round.Running, ""
				}
				if turn.Row.Status != want || string(turn.Row.Output) != output {
					t.Errorf("%s is %v with %s, want %v with %s", name, turn.Row.Status, turn.Row.Output, want, output)
				}
				in.Evict()
			}
		})
	}
	all.Wait()
}

// TestCoroutinesEnd wants those that are idle to be gone, and no new ones to be kept.
func TestCoroutinesEnd(t *testing.T) {
	config := measured(t)
	begun := runtime.NumGoroutine()
	for i := range 3 {
		in := round.New(config, round.Known{Instance: "i"})
		in.Decide(doneOf(lastWork(t, in.Decide(startOf("single", `"s"`), began))), began)
		config.Coroutines.End()
		if left := runtime.NumGoroutine() - begun; left > 0 {
			t.Errorf("after %d times, %d goroutines are left", i+1, left)
		}
	}
}
