package round_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

type mailState struct {
	Seed uint64
	Got  []int
	Left int
}

var mailer = orchestration.Define[mailState, []int]("mailer")
var mq = orchestration.DefineMailbox[int]("mq")
var mq2 = orchestration.DefineMailbox[int]("mq2")

// runMailer receives messages in every way there is. Each must be looked at exactly once, in
// whatever way it was received.
func runMailer(ctx oc, s mailState) ([]int, error) {
	r := rand.New(rand.NewPCG(s.Seed, uint64(s.Left)))
	take := func(v int, err error) {
		if err == nil {
			s.Got = append(s.Got, v)
		}
	}
	for s.Left > 0 {
		s.Left--
		scope, cancel := ctx.WithTimeout(time.Duration(1+r.IntN(3)) * time.Second)
		in := scope
		if r.IntN(3) == 0 {
			in = ctx
		}
		q := mq
		if r.IntN(4) == 0 {
			q = mq2
		}
		switch r.IntN(12) {
		case 0:
			take(q.Next(scope).Get(ctx))
		case 1:
			f := q.Next(in)
			t := ctx.Timer(time.Second)
			if ctx.Race(t, f) == orchestration.Awaitable(f) && r.IntN(2) == 0 {
				take(f.Get(ctx))
			} else {
				f.Cancel(ctx)
			}
		case 2:
			a, b := mq.Next(scope), mq2.Next(scope)
			take(orchestration.Race(scope, a, b).Get(ctx))
		case 3:
			all, err := orchestration.All(scope, mq.Next(scope), q.Next(scope)).Get(ctx)
			for _, v := range all {
				if v != 0 {
					take(v, nil)
				}
			}
			_ = err
		case 4:
			both, err := orchestration.AllOrNone(scope, mq.Next(scope), q.Next(scope)).Get(ctx)
			if err == nil {
				for _, v := range both {
					take(v, nil)
				}
			}
		case 5:
			for _, f := range orchestration.AsCompleted(ctx, mq.Next(scope), mq2.Next(scope), mq.Next(scope)) {
				take(f.Get(ctx))
				if r.IntN(3) == 0 {
					break
				}
			}
		case 6:
			f := q.Next(in)
			_ = ctx.Sleep(time.Second)
			f.Cancel(ctx)
		case 7:
			v, ok, err := q.TryReceive(ctx)
			if ok {
				take(v, err)
			}
		case 8:
			b := orchestration.Go(scope, func(c oc) (int, error) { return mq.Next(c).Get(c) })
			x := q.Next(scope)
			if ctx.Race(x, b) == orchestration.Awaitable(x) {
				take(x.Get(ctx))
			}
			take(b.Get(ctx))
		case 9:
			a := mq.Next(scope)
			g := orchestration.All(scope, a, mq.Next(scope))
			if ctx.Race(a, g) == orchestration.Awaitable(a) {
				take(a.Get(ctx))
			} else {
				all, _ := g.Get(ctx)
				for _, v := range all {
					if v != 0 {
						take(v, nil)
					}
				}
			}
		case 10:
			cancel()
			return mailer.ContinueAsNew(ctx, s)
		case 11:
			a := orchestration.Race(scope, mq.Next(scope), mq2.Next(scope))
			b := orchestration.Race(scope, orchestration.All(scope, mq.Next(scope)),
				orchestration.All(scope, mq2.Next(scope)))
			if ctx.Race(b, a) == orchestration.Awaitable(a) {
				take(a.Get(ctx))
			} else if vs, err := b.Get(ctx); err == nil {
				for _, v := range vs {
					take(v, nil)
				}
			} else {
				for _, v := range vs {
					if v != 0 {
						take(v, nil)
					}
				}
			}
		}
		cancel()
	}
	for mq.Len(ctx)+mq2.Len(ctx) > 0 {
		for _, q := range []orchestration.Mailbox[int]{mq, mq2} {
			if v, ok, err := q.TryReceive(ctx); ok {
				take(v, err)
			}
		}
	}
	return s.Got, nil
}

func TestMailModel(t *testing.T) {
	t.Parallel()
	bad := 0
	for seed := uint64(0); seed < uint64(racetest.Short(racetest.Size(1500, 300), 100)) && bad < 8; seed++ {
		for mode := range 3 {
			r := rand.New(rand.NewPCG(seed, 7))
			parts := []rondotest.Part{mailer.Bind(runMailer)}
			if mode > 0 {
				parts = append(parts, rondotest.Chaos(seed))
			}
			if mode > 1 {
				parts = append(parts, rondotest.Cold())
			}
			env := rondotest.New(t, parts...)
			h, _ := mailer.Start(t.Context(), env, mailState{Seed: seed, Left: 6}, orchestration.ID("i"))
			env.Settle()
			var want []int
			for n := range 4 + r.IntN(10) {
				env.Advance(time.Duration(r.IntN(1500)) * time.Millisecond)
				switch r.IntN(8) {
				case 0:
					must(t, h.Suspend(t.Context(), ""))
				case 1:
					must(t, h.Resume(t.Context(), ""))
				}
				row, _ := env.Instance("i")
				if row.Ended() {
					break
				}
				want = append(want, n+1)
				q := mq
				if r.IntN(3) == 0 {
					q = mq2
				}
				must(t, q.Send(t.Context(), env, "i", n+1))
			}
			env.Advance(20 * time.Second)
			must(t, h.Resume(t.Context(), ""))
			env.Advance(100 * time.Second)
			got, err := h.Wait(t.Context())
			for _, d := range env.DeadLetters() {
				_ = d
				want = nil
			}
			slices.Sort(got)
			if err != nil || want != nil && !slices.Equal(got, want) {
				bad++
				t.Errorf("seed %d mode %d: got %v want %v, %v", seed, mode, got, want, err)
			}
			env.Close()
		}
	}
}

var _ = fmt.Sprint
var _ = strings.Repeat
