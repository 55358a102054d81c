package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// A script is a random orchestration: its steps, and its result so far. The final result is known
// beforehand (see want), because each step mixes a known number into the sum: a step that is done
// twice, left out, or done in another order shows in the result.
type script struct {
	Sum     int64
	Letters int64 // the sum of the mailbox messages it has read
	Ops     []op
	Due     time.Time `json:",omitzero"` // it must not start before
}

// An op is one step of a script.
type op struct {
	Do  string
	N   int           `json:",omitempty"`
	For time.Duration `json:",omitempty"`
	Sub [][]op        `json:",omitempty"` // of children
	Any bool          `json:",omitempty"` // posted messages may come in any order
}

// result is the output of a script.
type result struct{ Sum, Letters int64 }

var (
	scripted = orchestration.Define[script, result]("script")
	letters  = orchestration.DefineMailbox[int64]("letters")
	own      = orchestration.DefineMailbox[int64]("own")
	chime    = orchestration.DefineEvent[int64]("chime") // instances keep early ones
	total    = orchestration.DefineValue[int64]("total")
	stage    = orchestration.DefineStatus[string]()

	double = activity.Define[int64, int64]("double", activity.Retry(1))
	flaky  = activity.Define[int64, int64]("flaky", activity.Retry(4, activity.Fixed(300*time.Millisecond)))
	broken = activity.Define[int64, int64]("broken", activity.Retry(2, activity.Fixed(time.Second)))
	slow   = activity.Define[int64, int64]("slow", activity.Retry(1))
	long   = activity.Define[int64, int64]("long", activity.Retry(1))
)

// works is the code of the activities of one process.
func works(r *road) []activity.Binding {
	executes := func(f func(context.Context, int64) (int64, error)) func(context.Context, int64) (int64, error) {
		return func(ctx context.Context, n int64) (int64, error) {
			info := activity.Info(ctx)
			what := fmt.Sprint("activity ", info.Activity, " attempt ", info.Attempt, " ", info.IdempotencyKey)
			r.Stand(ctx, what)
			r.w.executed(r, info)
			x, err := f(ctx, n)
			r.Stand(ctx, what)
			return x, err
		}
	}
	takes := func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
	return []activity.Binding{
		double.Bind(executes(func(_ context.Context, n int64) (int64, error) { return 2 * n, nil })),
		flaky.Bind(executes(func(ctx context.Context, n int64) (int64, error) {
			if a := activity.Info(ctx).Attempt; a < 3 {
				return 0, fmt.Errorf("attempt %d fails", a)
			}
			return 3 * n, nil
		})),
		broken.Bind(executes(func(context.Context, int64) (int64, error) {
			return 0, activity.Errorf("broken", "it always fails")
		})),
		slow.Bind(executes(func(ctx context.Context, n int64) (int64, error) { return n, takes(ctx, verySlow) })),
		long.Bind(executes(func(ctx context.Context, n int64) (int64, error) {
			return n, takes(ctx, time.Duration(n))
		})),
	}
}

// verySlow is longer than anything is held up, and short enough that an execution without a waiter
// ends.
const verySlow = 10 * time.Minute

func mix(sum, x int64) int64 { return (sum*31 + x) % 1_000_003 }

// small keeps inputs of activities and children small.
func small(sum int64) int64 { return sum % 1000 }

func approval(n int) orchestration.Event[int64] {
	return orchestration.DefineEvent[int64](fmt.Sprint("approval-", n))
}

// player is the code of the orchestration, in one process.
func player(r *road) orchestration.Binding {
	return scripted.Bind(func(ctx *orchestration.Context, s script) (result, error) { return play(ctx, s, r) },
		orchestration.Buffered(4, chime))
}

func play(ctx *orchestration.Context, s script, r *road) (result, error) {
	if early := s.Due.Sub(ctx.Now()); early > apart {
		return result{}, fmt.Errorf("it has started %v before its time", early)
	}
	for i, o := range s.Ops {
		r.code(ctx.Instance())
		if o.Do == "roll" {
			return scripted.ContinueAsNew(ctx, script{Sum: s.Sum, Letters: s.Letters, Ops: s.Ops[i+1:]})
		}
		if err := perform(ctx, o, &s, r); err != nil {
			return result{}, err
		}
	}
	return result{s.Sum, s.Letters}, nil
}

func perform(ctx *orchestration.Context, o op, s *script, r *road) error {
	var x int64
	var err error
	switch o.Do {
	case "call":
		x, err = double.Call(ctx, small(s.Sum))
	case "flaky":
		x, err = flaky.Call(ctx, small(s.Sum))
	case "broken":
		x = 13
		if _, failed := broken.Call(ctx, 1); !errors.Is(failed, orchestration.OfType("broken")) {
			err = fmt.Errorf("the broken activity gave %w", failed)
		}
	case "fan":
		var inputs, all []int64
		for i := range o.N {
			inputs = append(inputs, small(s.Sum)+int64(i))
		}
		all, err = double.CallAll(ctx, inputs)
		for i, y := range all {
			x += y * int64(i+1)
		}
	case "sleep":
		x, err = 5, ctx.Sleep(o.For)
	case "race":
		late := ctx.Timer(o.For)
		if x = 7; ctx.Race(slow.Start(ctx, 1), late) != late && ctx.Err() == nil {
			x = 8
		}
		err = ctx.Err()
	case "children":
		var inputs []script
		var all []result
		for _, sub := range o.Sub {
			inputs = append(inputs, script{Sum: small(s.Sum), Ops: sub})
		}
		all, err = scripted.CallAll(ctx, inputs)
		for i, r := range all {
			x += r.Sum * int64(i+1)
		}
	case "detach":
		x = 11
		err = detach(ctx, script{Sum: small(s.Sum), Ops: o.Sub[0]})
	case "read":
		for range o.N {
			var y int64
			if y, err = letters.Receive(ctx); err != nil {
				break
			}
			s.Letters += y
		}
		x = 17
	case "wait":
		x, err = approval(o.N).Wait(ctx)
	case "post":
		for i := range o.N {
			if err = own.SendFrom(ctx, ctx.Instance(), int64(i)); err != nil {
				break
			}
		}
		for i := 0; i < o.N && err == nil; i++ {
			var y int64
			if y, err = own.Receive(ctx); err == nil && y != int64(i) && !o.Any {
				err = fmt.Errorf("letter %d to itself is %d", i, y)
			}
		}
		if o.N%2 == 0 && err == nil {
			err = chimes(ctx, o)
		}
		x = 29
	case "hurry":
		ctx.Race(double.Start(ctx, small(s.Sum)), ctx.Timer(o.For)) // whichever comes first: the other one comes late
		x, err = 31, ctx.Err()
	case "far": // the timer is withdrawn before it is due, mostly before it is published
		late := ctx.Timer(o.For)
		ctx.Race(double.Start(ctx, small(s.Sum)), late)
		x, err = 37, ctx.Err()
	case "long":
		x = 41
		_, err = long.Call(ctx, int64(o.For))
	case "step":
		before := small(s.Sum)
		x, err = orchestration.Step(ctx, "increment", func(ctx context.Context) (int64, error) {
			r.Pause("step " + activity.Info(ctx).IdempotencyKey)
			return before + 1, nil
		})
	case "set":
		x = 19
		total.Set(ctx, s.Sum)
		stage.Set(ctx, fmt.Sprint("at ", s.Sum))
	case "time":
		before := ctx.Now()
		if err = ctx.Sleep(o.For); err == nil && ctx.Now().Before(before.Add(o.For)) {
			err = fmt.Errorf("a sleep of %v took %v", o.For, ctx.Now().Sub(before))
		}
		x = 23
	default:
		err = fmt.Errorf("nobody knows how to %s", o.Do)
	}
	if err != nil {
		return err
	}
	s.Sum = mix(s.Sum, x)
	return nil
}

// chimes raises events for its own instance, for which it waits only later.
func chimes(ctx *orchestration.Context, o op) error {
	for i := range o.N {
		if err := chime.RaiseFrom(ctx, ctx.Instance(), int64(i)); err != nil {
			return err
		}
	}
	if err := ctx.Sleep(time.Second); err != nil {
		return err
	}
	for i := range o.N {
		if y, err := chime.Wait(ctx); err != nil {
			return err
		} else if y != int64(i) && !o.Any {
			return fmt.Errorf("chime %d is %d", i, y)
		}
	}
	return nil
}

// apart is more than the clocks of the broker and the orchestrators differ by.
const apart = 5 * time.Second

// detach starts a script that no instance waits for, with options that its sum tells.
func detach(ctx *orchestration.Context, s script) error {
	var opts []orchestration.DetachOption
	if n := s.Sum; n%2 == 0 {
		s.Due = ctx.Now().Add(time.Duration(n) * 20 * time.Millisecond)
		opts = append(opts, orchestration.At(s.Due))
	}
	if s.Sum%3 == 0 { // a message, which the script reads first
		s.Ops = append([]op{{Do: "read", N: 1}}, s.Ops...)
		opts = append(opts, orchestration.WithMessage(letters, 1), orchestration.RestartFinished())
	}
	_, err := scripted.Detach(ctx, s, opts...)
	return err
}

// want returns the right output of a script.
func want(s script) result {
	letter := int64(0)
	for _, o := range s.Ops {
		var x int64
		switch o.Do {
		case "call":
			x = 2 * small(s.Sum)
		case "flaky":
			x = 3 * small(s.Sum)
		case "broken":
			x = 13
		case "fan":
			for i := range int64(o.N) {
				x += 2 * (small(s.Sum) + i) * (i + 1)
			}
		case "sleep":
			x = 5
		case "race":
			x = 7
		case "children":
			for i, sub := range o.Sub {
				x += want(script{Sum: small(s.Sum), Ops: sub}).Sum * int64(i+1)
			}
		case "detach":
			x = 11
		case "read":
			for range o.N {
				letter++
				s.Letters += letter
			}
			x = 17
		case "wait":
			x = int64(100 + o.N)
		case "post":
			x = 29
		case "hurry":
			x = 31
		case "far":
			x = 37
		case "long":
			x = 41
		case "step":
			x = small(s.Sum) + 1
		case "set":
			x = 19
		case "time":
			x = 23
		case "roll":
			continue
		}
		s.Sum = mix(s.Sum, x)
	}
	return result{s.Sum, s.Letters}
}

// write makes up a script. Only those at the top talk to clients. What they post is lost if the
// broker loses it, so that is for worlds with a better broker.
func write(r *rand.Rand, depth int, posts bool) (ops []op) {
	names := strings.Fields("call call flaky broken fan sleep race hurry far long step step set time roll")
	if depth == 0 {
		names = append(names, strings.Fields("read read wait roll")...)
	}
	if posts {
		names = append(names, "post", "post")
	}
	if depth < 2 {
		names = append(names, "children", "children", "detach")
	}
	waits := 0
	for range 1 + r.IntN(6-2*depth) {
		o := op{Do: names[r.IntN(len(names))]}
		switch o.Do {
		case "fan":
			o.N = 2 + r.IntN(6)
		case "sleep", "time":
			o.For = duration(r, 10*time.Millisecond, 50*time.Second)
		case "far":
			o.For = duration(r, 31*time.Second, 2*time.Minute)
		case "long":
			o.For = duration(r, 200*time.Millisecond, 5*time.Second)
		case "race":
			o.For = duration(r, 10*time.Millisecond, 5*time.Second)
		case "hurry":
			o.For = duration(r, time.Millisecond, 20*time.Millisecond)
		case "children":
			for range 1 + r.IntN(2) {
				o.Sub = append(o.Sub, write(r, depth+1, posts))
			}
		case "detach":
			o.Sub = [][]op{write(r, depth+1, posts)}
		case "read", "post":
			o.N = 1 + r.IntN(4)
		case "wait":
			waits++
			o.N = waits
		}
		ops = append(ops, o)
	}
	return ops
}

// brief makes up a short script that talks to no client and has no children.
func brief(r *rand.Rand, kinds string, most int) (ops []op) {
	names := strings.Fields(kinds)
	for range 1 + r.IntN(most) {
		o := op{Do: names[r.IntN(len(names))], N: 2 + r.IntN(4)}
		switch o.Do {
		case "hurry":
			o.For = duration(r, time.Millisecond, 20*time.Millisecond)
		case "far":
			o.For = duration(r, 31*time.Second, 2*time.Minute)
		case "sleep", "long":
			o.For = duration(r, 100*time.Millisecond, 6*time.Second)
		}
		ops = append(ops, o)
	}
	return ops
}

// inAnyOrder allows posted messages to come in any order, as they may while the number of
// partitions changes.
func inAnyOrder(ops []op) {
	for i := range ops {
		ops[i].Any = ops[i].Do == "post"
		for _, sub := range ops[i].Sub {
			inAnyOrder(sub)
		}
	}
}

// duration draws a time, short ones as often as long ones.
func duration(r *rand.Rand, least, most time.Duration) time.Duration {
	f := r.Float64()
	return time.Duration(float64(least) + f*f*f*float64(most-least))
}

// letterCount is how many mailbox messages a script reads.
func letterCount(ops []op) (n int) {
	for _, o := range ops {
		if o.Do == "read" {
			n += o.N
		}
	}
	return n
}
