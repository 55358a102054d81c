package round_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/seedtest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// A random orchestration is a plan: a tree of things to do, made from a seed and carried out by one
// orchestration that can do them all. The same plan is carried out hydrated and cold, under the
// same chaos; both must leave the same histories.

var (
	randomFor  = flag.Duration("random", 0, "how long TestRandomOrchestrations makes new ones up")
	randomSeed = flag.Uint64("seed", 0, "play this seed alone")
)

// op is one thing to do.
type op struct {
	Do   string `json:"do"`
	N    int    `json:"n,omitempty"`
	Subs []op   `json:"subs,omitempty"`
}

// plan is the input of the orchestration that carries it out.
type plan struct {
	Ops   []op `json:"ops"`
	Depth int  `json:"depth"`
}

var (
	random  = orchestration.Define[plan, string]("random")
	quick   = activity.Define[int, int]("quick")
	lasting = activity.Define[int, int]("lasting")
	shaky   = activity.Define[int, int]("shaky")
	nobody  = activity.Define[int, int]("nobody") // no worker has it
	passed  = activity.Define[int, int]("passed") // another program completes it
	bell    = orchestration.DefineEvent[int]("bell")
	gong    = orchestration.DefineEvent[int]("gong")  // an instance keeps some
	chime   = orchestration.DefineEvent[int]("chime") // an instance keeps the latest
	mail    = orchestration.DefineMailbox[int]("mail")
	stage_  = orchestration.DefineStatus[string]()
)

// leaves are the things to do that have no parts; nodes have.
var (
	leaves = []string{"quick", "lasting", "shaky", "step", "shakystep", "sleep", "bell", "mail", "trymail", "status",
		"value", "clear", "prune", "send", "id", "drop", "late", "detach", "held", "patch", "giveup", "giveup",
		"mailrace", "mailall", "limitget", "shared", "outer", "passed", "gong", "heldgong", "gongrace"}
	nodes = []string{"seq", "all", "race", "ornone", "select", "any", "completed", "go", "limit", "cancelscope",
		"shield", "child", "abandoned"}
)

func randomOps(r *rand.Rand, depth, most int) []op {
	ops := make([]op, 1+r.IntN(most))
	for i := range ops {
		if depth > 0 && r.IntN(3) == 0 {
			ops[i] = op{Do: nodes[r.IntN(len(nodes))], N: r.IntN(10), Subs: randomOps(r, depth-1, 3)}
		} else {
			ops[i] = op{Do: leaves[r.IntN(len(leaves))], N: r.IntN(10)}
		}
	}
	return ops
}

// carryOut is the orchestration. What it returns tells of everything it saw.
func carryOut(ctx oc, p plan) (string, error) {
	var trace strings.Builder
	for i, o := range p.Ops {
		if o.Do == "again" {
			stage_.Set(ctx, "next")
			return random.ContinueAsNew(ctx, plan{Ops: p.Ops[i+1:], Depth: p.Depth})
		}
		out, err := do(ctx, o, p.Depth)
		fmt.Fprintf(&trace, "%s=%s ", o.Do, out)
		if o.Do == "giveup" && o.N < 8 {
			return "", err
		}
		if err != nil {
			fmt.Fprintf(&trace, "(%v) ", err)
			if errors.Is(err, orchestration.ErrCancelled) && ctx.Err() != nil {
				return "", errors.Join(err, afterwards(ctx, o.N))
			}
		}
	}
	return trace.String(), nil
}

// afterwards runs after the instance was cancelled.
func afterwards(ctx oc, n int) error {
	shielded, done := ctx.Shield(10 * time.Second)
	defer done()
	_, err := lasting.Call(shielded, n)
	return err
}

func do(ctx oc, o op, depth int) (string, error) {
	if len(o.Subs) > 0 {
		return doNode(ctx, o, depth)
	}
	return doLeaf(ctx, o)
}

func text[T any](v T, err error) (string, error) { return fmt.Sprint(v), err }

// carriedOut binds the orchestration.
func carriedOut() orchestration.Binding {
	return random.Bind(carryOut, orchestration.Buffered(2, gong), orchestration.BufferedLatest(1, chime))
}

// kept is one of the events that instances keep.
func kept(n int) orchestration.Event[int] {
	if n%2 == 0 {
		return gong
	}
	return chime
}

func doLeaf(ctx oc, o op) (string, error) {
	key := orchestration.DefineValue[int](fmt.Sprint("k", o.N%4))
	switch o.Do {
	case "quick":
		return text(quick.Call(ctx, o.N))
	case "lasting":
		return text(lasting.Call(ctx, o.N, activity.StartToClose(time.Duration(o.N)*time.Second),
			activity.ScheduleToStart(time.Minute)))
	case "shaky":
		return text(shaky.Call(ctx, o.N, activity.Retry(1+o.N%4), activity.ScheduleToClose(20*time.Second)))
	case "late":
		return text(nobody.Call(ctx, o.N, activity.ScheduleToStart(time.Second), activity.Retry(1+o.N%2)))
	case "passed":
		return text(passed.Call(ctx, o.N, activity.ScheduleToClose(time.Duration(1+o.N)*time.Second),
			activity.ScheduleToStart(time.Duration(o.N%3)*time.Second)))
	case "step":
		return text(orchestration.Step(ctx, "step", func(context.Context) (int, error) { return o.N, nil }))
	case "shakystep":
		return text(orchestration.Step(ctx, "shaky", func(ctx context.Context) (int, error) {
			return fail(o.N, activity.Info(ctx).Attempt)
		}, activity.Retry(3)))
	case "sleep":
		return "", ctx.Sleep(time.Duration(o.N) * time.Second)
	case "bell":
		ring, limit := bell.Next(ctx), ctx.Timer(5*time.Second)
		if ctx.Race(ring, limit) == orchestration.Awaitable(ring) {
			return text(ring.Get(ctx))
		}
		return "silence", nil
	case "gong":
		beat, limit := kept(o.N).Next(ctx), ctx.Timer(5*time.Second)
		if ctx.Race(limit, beat) == orchestration.Awaitable(beat) {
			return text(beat.Get(ctx))
		}
		return "silence", nil
	case "heldgong":
		held := kept(o.N).Next(ctx)
		err := ctx.Sleep(time.Second)
		if o.N%3 == 0 {
			held.Cancel(ctx)
		}
		return fmt.Sprint(held.Done()), err
	case "gongrace":
		either, limit := orchestration.Race(ctx, kept(o.N).Next(ctx), kept(o.N).Next(ctx)), ctx.Timer(3*time.Second)
		if ctx.Race(either, limit) == either {
			return text(either.Get(ctx))
		}
		return "silence", ctx.Err()
	case "mail":
		letter, limit := mail.Next(ctx), ctx.Timer(5*time.Second)
		if ctx.Race(limit, letter) == orchestration.Awaitable(letter) {
			return text(letter.Get(ctx))
		}
		return "none", nil
	case "trymail":
		v, ok, err := mail.TryReceive(ctx)
		return fmt.Sprint(v, ok, mail.Len(ctx)), err
	case "held":
		held := mail.Next(ctx)
		err := ctx.Sleep(time.Second)
		if o.N%2 == 0 {
			held.Cancel(ctx)
		}
		return fmt.Sprint(held.Done()), err
	case "status":
		stage_.Set(ctx, fmt.Sprint("at ", o.N))
		return "", nil
	case "value":
		v, _, err := key.Get(ctx)
		key.Set(ctx, v+o.N)
		return fmt.Sprint(v), err
	case "clear":
		key.Set(ctx, o.N)
		key.Clear(ctx)
		refused := orchestration.DefineValue[int](strings.Repeat("k", events.MaxValueKey+1)).Set(ctx, o.N)
		return fmt.Sprint(ctx.Values().Keys(), refused), nil
	case "prune":
		return fmt.Sprint(ctx.Values().Prune(ctx.Now().Add(-time.Duration(o.N) * time.Second))), nil
	case "send":
		return "", errors.Join(mail.SendFrom(ctx, fmt.Sprint("r", o.N%3), o.N), bell.RaiseFrom(ctx, fmt.Sprint("r",
			o.N%2), o.N))
	case "id":
		n, _ := ctx.HistorySize()
		return fmt.Sprint(ctx.NewID(), ctx.Rand().IntN(100), n, ctx.Now().Unix()), nil
	case "drop":
		f := quick.Start(ctx, o.N)
		if o.N%2 == 0 {
			f.Cancel(ctx)
		}
		return "", nil
	case "detach":
		return text(random.Detach(ctx, plan{Ops: []op{{Do: "quick", N: o.N}, {Do: "mail"}, {Do: "sleep", N: 1}}},
			detachOptions(o.N)...))
	case "mailrace":
		either, limit := orchestration.Race(ctx, mail.Next(ctx), mail.Next(ctx)), ctx.Timer(3*time.Second)
		if ctx.Race(either, limit) == either {
			return text(either.Get(ctx))
		}
		return "none", ctx.Err()
	case "mailall":
		both, limit := orchestration.All(ctx, mail.Next(ctx), mail.Next(ctx)), ctx.Timer(2*time.Second)
		if ctx.Select(both, limit) == both && o.N%2 == 0 {
			return text(both.Get(ctx))
		}
		both.Cancel(ctx)
		return fmt.Sprint(mail.Len(ctx)), ctx.Err()
	case "limitget":
		work := lasting.Start(ctx, o.N)
		limited, cancel := ctx.WithTimeout(time.Duration(o.N) * time.Second)
		v, err := work.Get(limited)
		cancel()
		if o.N%3 == 0 {
			work.Cancel(ctx)
			return fmt.Sprint(v, err != nil), nil
		}
		w, again := work.Get(ctx)
		return fmt.Sprint(v, err != nil, w), again
	case "shared":
		a, b := quick.Start(ctx, o.N), lasting.Start(ctx, o.N)
		twice := orchestration.All(ctx, a, a, b)
		first := orchestration.Race(ctx, b, a)
		mapped := orchestration.Map(first, func(n int) (string, error) { return fmt.Sprint("m", n), nil })
		x, err := mapped.Get(ctx)
		all, failed := twice.Get(ctx)
		return fmt.Sprint(x, all, failed), err
	case "outer":
		outer := ctx
		return orchestration.Go(ctx, func(inner oc) (string, error) { // the branch uses both contexts
			scoped, cancel := outer.WithCancel()
			defer cancel()
			f := lasting.Start(scoped, o.N)
			g := quick.Start(inner, o.N)
			v, err := g.Get(outer)
			if o.N%2 == 0 {
				cancel()
			}
			w, ferr := f.Get(inner)
			return fmt.Sprint(v, w, ferr != nil), err
		}).Get(ctx)
	case "giveup":
		return "", orchestration.Errorf("gave_up", "gave up at %d", o.N)
	case "patch":
		return fmt.Sprint(ctx.Patched(fmt.Sprint("p", o.N%3))), nil
	}
	return "", errors.New("unknown leaf " + o.Do)
}

// detachOptions are options of a detached start: some have the id of another one.
func detachOptions(n int) (opts []orchestration.DetachOption) {
	switch n % 5 {
	case 1:
		opts = append(opts, orchestration.Delay(time.Duration(n)*time.Second), orchestration.UseExisting())
	case 2:
		opts = append(opts, orchestration.ID("detached"), orchestration.RestartFinished(),
			orchestration.WithMessage(mail, n))
	case 3:
		opts = append(opts, orchestration.ID("detached"), orchestration.ReplaceRunning(),
			orchestration.Delay(time.Duration(n-3)*time.Second))
	case 4:
		opts = append(opts, orchestration.Attributes(map[string]string{"n": fmt.Sprint(n)}),
			orchestration.WithMessage(mail, n))
	}
	return opts
}

func doNode(ctx oc, o op, depth int) (string, error) {
	start := func(sub op) *orchestration.Future[string] {
		return orchestration.Go(ctx, func(ctx oc) (string, error) { return do(ctx, sub, depth) })
	}
	var futures []*orchestration.Future[string]
	var awaitables []orchestration.Awaitable
	starting := func() {
		for _, sub := range o.Subs {
			f := start(sub)
			futures, awaitables = append(futures, f), append(awaitables, f)
		}
	}
	sub := func() orchestration.Definition[plan, string] { return random }
	switch o.Do {
	case "seq":
		out := ""
		for _, s := range o.Subs {
			v, err := do(ctx, s, depth)
			if out += v + ";"; err != nil {
				return out, err
			}
		}
		return out, nil
	case "all":
		starting()
		return text(orchestration.All(ctx, futures...).Get(ctx))
	case "race":
		starting()
		return text(orchestration.Race(ctx, futures...).Get(ctx))
	case "ornone":
		starting()
		return text(orchestration.AllOrNone(ctx, futures...).Get(ctx))
	case "select":
		starting()
		timer := ctx.Timer(time.Duration(o.N) * time.Second)
		winner := ctx.Race(append(awaitables, timer)...)
		for i, a := range awaitables {
			if a == winner {
				v, err := futures[i].Get(ctx)
				return fmt.Sprint(i, v), err
			}
		}
		return "time", nil
	case "any":
		starting()
		ctx.Select(awaitables...)
		ctx.WaitAll(awaitables...)
		return fmt.Sprint(len(futures)), ctx.Err()
	case "completed":
		starting()
		out := ""
		for i, f := range orchestration.AsCompleted(ctx, futures...) {
			v, _ := f.Get(ctx)
			if out += fmt.Sprint(i, v, ","); o.N == 0 {
				break
			}
		}
		return out, nil
	case "go":
		starting() // and left behind
		return "", nil
	case "limit":
		limited, cancel := ctx.WithTimeout(time.Duration(o.N) * time.Second)
		defer cancel()
		return do(limited, op{Do: "seq", Subs: o.Subs}, depth)
	case "cancelscope":
		scoped, cancel := ctx.WithCancel()
		f := orchestration.Go(scoped, func(ctx oc) (string, error) {
			return do(ctx, op{Do: "seq", Subs: o.Subs}, depth)
		})
		err := ctx.Sleep(time.Duration(o.N) * time.Second)
		cancel()
		v, ferr := f.Get(ctx)
		return fmt.Sprint(v, ferr != nil), err
	case "shield":
		shielded, done := ctx.Shield(time.Duration(1+o.N) * time.Second)
		defer done()
		return do(shielded, op{Do: "seq", Subs: o.Subs}, depth)
	case "child":
		return sub().Call(ctx, plan{Ops: o.Subs, Depth: depth - 1},
			orchestration.Attributes(map[string]string{"n": fmt.Sprint(o.N)}))
	case "abandoned":
		child := sub().StartChild(ctx, plan{Ops: o.Subs, Depth: depth - 1}, orchestration.Abandon())
		if o.N%2 == 0 {
			child.Cancel(ctx)
		}
		return text(child.Done(), nil)
	}
	return "", errors.New("unknown node " + o.Do)
}

// fail decides by the input and the attempt.
func fail(n, attempt int) (int, error) {
	h := fnv.New32a()
	fmt.Fprint(h, n, attempt)
	switch h.Sum32() % 4 {
	case 0:
		return 0, errors.New("shaken")
	case 1:
		return 0, activity.NonRetryable(errors.New("broken"))
	}
	return n * 10, nil
}

// world is a random system: a few instances, and the requests of clients.
type world struct {
	plans []plan
	acts  []act
}

// act is something done from outside at some time.
type act struct {
	after  time.Duration
	what   string
	target string
	n      int
}

func randomWorld(seed uint64) world {
	r := rand.New(rand.NewPCG(seed, 1))
	var w world
	for range 1 + r.IntN(3) {
		ops := randomOps(r, 3, 5)
		if r.IntN(3) == 0 {
			at := r.IntN(len(ops) + 1)
			ops = append(ops[:at:at], append([]op{{Do: "again"}}, ops[at:]...)...)
		}
		w.plans = append(w.plans, plan{Ops: ops, Depth: 3})
	}
	whats := []string{"bell", "bell", "mail", "mail", "mail", "mail", "cancel", "suspend", "resume", "start", "replace",
		"terminate", "wrong bell", "wrong mail", "wrong mail", "gong", "gong", "gong", "wrong gong"}
	for range r.IntN(14) {
		w.acts = append(w.acts, act{time.Duration(r.IntN(4000)) * time.Millisecond, whats[r.IntN(len(whats))],
			fmt.Sprint("r", r.IntN(len(w.plans))), r.IntN(100)})
	}
	return w
}

// play runs a world and gives all its histories.
func (w world) play(t testing.TB, seed uint64, parts ...rondotest.Part) (*rondotest.Env, string) {
	instant := func(_ context.Context, n int) (int, error) { return n + 1, nil }
	var tokens []string
	env := rondotest.New(t, append([]rondotest.Part{
		passed.Bind(func(ctx context.Context, n int) (int, error) {
			tokens = append(tokens, activity.Token(ctx))
			return 0, activity.ErrResultPending
		}),
		carriedOut(), quick.Bind(instant), rondotest.Takes(lasting.Bind(instant), 3*time.Second),
		shaky.Bind(func(ctx context.Context, n int) (int, error) { return fail(n, activity.Info(ctx).Attempt) }),
	}, parts...)...)
	for i, p := range w.plans {
		if _, err := random.Start(t.Context(), env, p, orchestration.ID(fmt.Sprint("r", i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range w.acts {
		env.Advance(a.after)
		for _, token := range tokens {
			h := fnv.New32a()
			fmt.Fprint(h, token) // a repeated question gets the same answer
			if n := h.Sum32(); n%3 == 0 {
				// it may be over, or have been delivered twice
				_ = env.Fail(t.Context(), token, errors.New("the person says no"))
			} else {
				_ = env.Complete(t.Context(), token, n%100)
			}
		}
		tokens = nil
		if err := a.do(t.Context(), env, w); err != nil {
			t.Fatal(err)
		}
	}
	env.Advance(10 * time.Second) // a suspend may have come again, late
	for i := range w.plans {      // suspended instances go on
		_ = random.Handle(env, fmt.Sprint("r", i)).Resume(t.Context(), "")
	}
	env.Advance(time.Hour)
	var all strings.Builder
	for _, id := range env.Instances() {
		for _, h := range env.ExportAll(id) {
			all.Write(h)
		}
	}
	return env, all.String()
}

func (a act) do(ctx context.Context, env *rondotest.Env, w world) error {
	h := random.Handle(env, a.target)
	switch a.what {
	case "bell":
		return bell.Raise(ctx, env, a.target, a.n)
	case "mail":
		return mail.Send(ctx, env, a.target, a.n)
	case "gong":
		return errors.Join(kept(a.n).Raise(ctx, env, a.target, a.n), kept(a.n).Raise(ctx, env, a.target, a.n+2))
	case "wrong gong":
		return orchestration.DefineEvent[string](kept(a.n).Name()).Raise(ctx, env, a.target, "loud")
	case "wrong bell": // of a type that no wait has
		return orchestration.DefineEvent[string](bell.Name()).Raise(ctx, env, a.target, "loud")
	case "wrong mail":
		return orchestration.DefineMailbox[string](mail.Name()).Send(ctx, env, a.target, "torn")
	case "cancel":
		return h.Cancel(ctx, "random")
	case "suspend":
		return h.Suspend(ctx, "random")
	case "resume":
		return h.Resume(ctx, "random")
	case "terminate":
		return h.Terminate(ctx, "random")
	case "start":
		_, err := random.Start(ctx, env, w.plans[0], orchestration.ID(a.target), orchestration.RestartFinished())
		return err
	}
	_, err := random.Start(ctx, env, w.plans[0], orchestration.ID(a.target), orchestration.ReplaceRunning())
	return err
}

// check plays one seed in all ways.
func check(t testing.TB, seed uint64) {
	t.Helper()
	w := randomWorld(seed)
	for _, chaos := range []bool{false, true} {
		var parts []rondotest.Part
		if chaos {
			parts = append(parts, rondotest.Chaos(seed))
		}
		hydrated, a := w.play(t, seed, parts...)
		cold, b := w.play(t, seed, append(parts, rondotest.Cold())...)
		if a != b {
			t.Errorf("seed %d, chaos %v: hydrated and cold differ: %s", seed, chaos, firstDifference(a, b))
		}
		for _, env := range []*rondotest.Env{hydrated, cold} {
			if f := env.Faults(); len(f) > 0 {
				t.Errorf("seed %d, chaos %v: %v", seed, chaos, f[0])
			}
			for _, w := range env.Warnings() {
				if !strings.Contains(w, "unread") && !strings.Contains(w, "kept events") &&
					!strings.Contains(w, "was skipped") &&
					!strings.Contains(w, "a call was refused") {
					t.Errorf("seed %d, chaos %v: %s", seed, chaos, w)
				}
			}
			checkAllEnd(t, seed, env)
		}
	}
}

// checkAllEnd finds instances that hang: within an hour all plans come to an end.
func checkAllEnd(t testing.TB, seed uint64, env *rondotest.Env) {
	for _, id := range env.Instances() {
		row, _ := env.Instance(id)
		if !row.Ended() {
			t.Errorf("seed %d: instance %q is still %s; its history is\n%s", seed, id, row.Status, env.Export(id))
		}
		if row.Error != nil && (row.Error.Kind == failure.Deadlock || row.Error.Kind == failure.Poison ||
			row.Error.Kind == failure.Panicked) {
			t.Errorf("seed %d: instance %q: %v\n%s", seed, id, row.Error, row.Error.Stack)
		}
		for _, h := range env.ExportAll(id) {
			if err := rondotest.TryReplay(h, carriedOut()); err != nil {
				t.Errorf("seed %d: instance %q does not replay: %v", seed, id, err)
			}
		}
	}
}

func firstDifference(a, b string) string {
	linesA, linesB := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(linesA), len(linesB)) {
		if linesA[i] != linesB[i] {
			from := max(0, i-25)
			return fmt.Sprintf("at line %d:\n--- hydrated\n%s\n--- cold\n%s", i,
				strings.Join(linesA[from:min(len(linesA), i+15)], "\n"),
				strings.Join(linesB[from:min(len(linesB), i+15)], "\n"))
		}
	}
	return fmt.Sprintf("%d and %d lines", len(linesA), len(linesB))
}

// TestRandomOrchestrations makes orchestrations and deliveries up: first with seeds that are always
// the same and those that failed before, then with fresh ones for as long as -random says.
func TestRandomOrchestrations(t *testing.T) {
	play := func(seed uint64) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			seedtest.Keep(t, "TestRandomOrchestrations", seed)
			check(t, seed)
			if t.Failed() {
				t.Logf("again: make random SEED=%d", seed)
			}
		})
	}
	if *randomSeed != 0 {
		play(*randomSeed)
		return
	}
	fixed := racetest.Short(racetest.Size(150, 60), 25)
	for seed := range uint64(fixed) {
		play(seed)
	}
	for _, seed := range seedtest.Kept(t, "TestRandomOrchestrations") {
		play(seed)
	}
	fresh, played := rand.Uint64(), 0
	for until := time.Now().Add(*randomFor); time.Now().Before(until) && !t.Failed(); played++ {
		play(fresh + uint64(played))
	}
	t.Logf("played %d fixed seeds and %d fresh ones, from %d on; -seed=N plays one again", fixed, played, fresh)
}

// FuzzRandomOrchestrations lets the fuzzer look for seeds.
func FuzzRandomOrchestrations(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { check(t, seed) })
}

// TestRandomOrchestrationsDoEverything checks that the fixed seeds are worth their time: together
// they leave every kind of event.
func TestRandomOrchestrationsDoEverything(t *testing.T) {
	const takesKept, keptEvent, dropsKept events.Kind = "wait that takes a kept event", "kept event",
		"kept event that replaces another"
	seen := make(map[events.Kind]int)
	for seed := range uint64(racetest.Short(150, 60)) {
		env, _ := randomWorld(seed).play(t, seed, rondotest.Chaos(seed))
		for _, id := range env.Instances() {
			for _, raw := range env.ExportAll(id) {
				var x events.Export
				if err := x.UnmarshalJSON(raw); err != nil {
					t.Fatal(err)
				}
				for _, e := range x.Events {
					seen[e.Fact.Kind()]++
					switch f := e.Fact.(type) {
					case *events.EventAwaited:
						if f.Kept != 0 {
							seen[takesKept]++
						}
					case *events.EventReceived:
						if f.Wait == 0 {
							seen[keptEvent]++
						}
						if f.Instead != 0 {
							seen[dropsKept]++
						}
					default:
					}
				}
			}
		}
		env.Close()
	}
	for _, k := range append(events.Kinds(), takesKept, keptEvent, dropsKept) {
		if seen[k] == 0 {
			t.Errorf("no random orchestration has left a %s", k)
		}
	}
	t.Log(seen)
}
