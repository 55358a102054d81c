package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// TestActions runs code without inputs and results through each form that takes such code.
func TestActions(t *testing.T) {
	var (
		tidy   = orchestration.DefineAction[codec.None]("tidy")
		room   = orchestration.DefineAction[string]("room")
		sweep  = activity.DefineAction[string]("sweep", activity.Retry(2, activity.Fixed(time.Second)))
		weekly = orchestration.DefineAction[int]("weekly")
	)
	for name, mode := range map[string][]rondotest.Part{"hydrated": nil, "cold": {rondotest.Cold()}} {
		t.Run(name, func(t *testing.T) {
			var done []string
			failures := 1
			env := rondotest.New(t, append(mode,
				tidy.Bind(func(ctx *oc, _ codec.None) error {
					if err := orchestration.Do(ctx, "lock", func(context.Context) error {
						done = append(done, "lock")
						return nil
					}); err != nil {
						return err
					}
					branch := orchestration.Branch(ctx, func(ctx *oc) error {
						return errors.Join(ctx.Sleep(time.Minute), room.Call(ctx, "hall", orchestration.ID("hall")))
					})
					started := room.StartChild(ctx, "attic")
					_, errAttic := started.Get(ctx)
					_, errBranch := branch.Get(ctx)
					return errors.Join(errAttic, errBranch, room.CallAll(ctx, []string{"cellar", "garden"}))
				}),
				room.Bind(func(ctx *oc, name string) error {
					later := sweep.Start(ctx, name+"'s stairs")
					if err := sweep.Call(ctx, name); err != nil {
						return err
					}
					_, err := later.Get(ctx)
					return errors.Join(err, sweep.CallAll(ctx, []string{name + "'s door"}))
				}),
				sweep.Bind(func(_ context.Context, name string) error {
					switch {
					case name == "hall" && failures > 0:
						failures--
						return errors.New("no broom")
					case name == "garden":
						return activity.NonRetryable(activity.Errorf("outside", "the wind does it"))
					}
					done = append(done, name)
					return nil
				}),
				weekly.Bind(func(ctx *oc, n int) error {
					if n > 2 {
						_, err := room.Detach(ctx, "shed", orchestration.ID("shed"))
						return err
					}
					return weekly.ContinueAsNew(ctx, n+1)
				}))...)
			err := tidy.Run(t.Context(), env, codec.None{}, orchestration.ID("tidy-1"))
			if !errors.Is(err, orchestration.OfType("outside")) {
				t.Errorf("the error is %v", err)
			}
			slices.Sort(done)
			if want := []string{"attic", "attic's door", "attic's stairs", "cellar", "cellar's door", "cellar's stairs",
				"garden's stairs", "hall", "hall's door", "hall's stairs", "lock"}; !slices.Equal(done, want) {
				t.Errorf("done is %q, want %q", done, want)
			}
			h, err := weekly.Start(t.Context(), env, 1, orchestration.ID("w"))
			must(t, err)
			if _, err := h.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := room.Handle(env, "shed").Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if got := fmt.Sprint(tidy.Name(), room.Name(), sweep.Name()); got != "tidyroomsweep" {
				t.Errorf("the names are %s", got)
			}
		})
	}
}

func TestActionsWithoutCode(t *testing.T) {
	_, err := orchestration.NewRegistry(orchestration.DefineAction[int]("a").Bind(nil))
	_, errActivity := activity.NewRegistry(activity.DefineAction[int]("a").Bind(nil))
	if err == nil || errActivity == nil {
		t.Errorf("registered: %v, %v", err, errActivity)
	}
}
