package jobstest

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/racetest"
)

var (
	seeds = flag.Int("queue-seeds", 12, "how many random histories queues are compared with the model in")
	seed  = flag.Uint64("queue-seed", 0, "the only history to take; 0 for those from 1 on")
)

// historyLength is how many steps a history has.
const historyLength = 120

// properties does random things with a store and with the model, and compares everything.
func properties(t *testing.T, db *Database) {
	clock := &Clock{}
	s, _ := db.Open(t, clock.Now)
	list := make([]uint64, 0, *seeds)
	for n := range racetest.Short(*seeds, min(*seeds, 4)) {
		list = append(list, uint64(n+1))
	}
	if *seed != 0 {
		list = []uint64{*seed}
	}
	for _, n := range list {
		steps := makeSteps(n, historyLength)
		run := 0
		try := func(steps []step) error {
			run++
			return replay(t, s, clock, fmt.Sprintf("seed-%d-%d", n, run), steps)
		}
		err := try(steps)
		if err == nil {
			for _, q := range []string{"a", "b"} {
				Audit(t, db, fmt.Sprintf("seed-%d-%d-%s", n, run, q))
			}
			continue
		}
		steps, err = shorten(steps, err, try)
		t.Fatalf("seed %d (-queue-seed %d): %v, after\n%s", n, n, err, write(steps))
	}
}

// shorten leaves out steps as long as the rest still fails.
func shorten(steps []step, err error, try func([]step) error) ([]step, error) {
	for size := len(steps) / 2; size > 0; {
		shorter := false
		for from := 0; from+size <= len(steps); {
			less := slices.Delete(slices.Clone(steps), from, from+size)
			if e := try(less); e != nil {
				steps, err, shorter = less, e, true
			} else {
				from += size
			}
		}
		if !shorter {
			size /= 2
		}
	}
	return steps, err
}

// step is a transaction, and how far the clock moves before.
type step struct {
	wait       time.Duration
	queue      string
	operations []jobs.Operation
	requeue    int // which of the dead jobs it requeues, counted from 1; 0 for none
}

func write(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%v later, %s:", s.wait, s.queue)
		for _, o := range s.operations {
			text, _ := json.Marshal(o)
			fmt.Fprintf(&b, " %T%s", o, text)
		}
		if s.requeue > 0 {
			fmt.Fprintf(&b, " requeue the %d. dead one", s.requeue)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// replay takes steps with a store and a new model. The error says where they differ.
func replay(tb testing.TB, s jobs.Store, clock *Clock, prefix string, steps []step) error {
	clock.mu.Lock()
	clock.now = Began
	clock.mu.Unlock()
	m := NewModel(clock.Now)
	ctx := tb.Context()
	for n, x := range steps {
		clock.Add(x.wait)
		name := prefix + "-" + x.queue
		operations := x.operations
		if x.requeue > 0 {
			dead, err := m.Dead(ctx, name, jobs.DeadID{}, x.requeue)
			if err != nil {
				return err
			}
			if len(dead) > 0 {
				operations = append(slices.Clip(operations),
					jobs.Requeue{IDs: []jobs.DeadID{dead[len(dead)-1].DeadID()}})
			}
		}
		got, err := s.Do(ctx, name, operations...)
		want, wantErr := m.Do(ctx, name, operations...)
		if err != nil || wantErr != nil || len(got) != len(want) {
			return fmt.Errorf("step %d: %w, %v, %d and %d results", n, err, wantErr, len(got), len(want))
		}
		for i := range got {
			if g, w := resultText(got[i]), resultText(want[i]); g != w {
				return fmt.Errorf("step %d, %T: the store says\n  %s\nthe model\n  %s", n, operations[i], g, w)
			}
		}
		if n%3 > 0 && n < len(steps)-1 {
			continue
		}
		info, err := s.Look(ctx, name)
		wantInfo, wantErr := m.Look(ctx, name)
		info.Incarnation = ""
		if g, w := infoText(info, err), infoText(wantInfo, wantErr); g != w {
			return fmt.Errorf("step %d, look: the store says\n  %s\nthe model\n  %s", n, g, w)
		}
		dead, err := s.Dead(ctx, name, jobs.DeadID{}, 5)
		wantDead, wantErr := m.Dead(ctx, name, jobs.DeadID{}, 5)
		if g, w := deadText(dead, err), deadText(wantDead, wantErr); g != w {
			return fmt.Errorf("step %d, dead: the store says\n  %s\nthe model\n  %s", n, g, w)
		}
	}
	return nil
}

func lockText(l *jobs.Lock) string {
	if l == nil {
		return "no lock"
	}
	return fmt.Sprintf("lock %s (%d) of %d items, %v to %v", l.ID, l.Number, l.Items, l.CreatedAt, l.ExpiresAt)
}

func itemText(i jobs.Job) string {
	return fmt.Sprintf("[%d at %d/%d, %d attempts, pushed %v, ready %v, %q %s]", i.ID, i.Priority, i.Position,
		i.Attempts, i.PushedAt, i.ReadyAt, i.Trace, i.Data)
}

func resultText(r jobs.Result) string {
	text := fmt.Sprintf("%q, %s, count %d, expired %d, died %d, again %v", refusal(r.Refused), lockText(r.Lock),
		r.Count, r.Expired, r.Died, r.Again)
	for _, i := range r.Items {
		text += itemText(i)
	}
	return text
}

func infoText(i jobs.Info, err error) string {
	start := ""
	if i.Settings.Start != nil {
		start, i.Settings.Start = fmt.Sprintf("starts %+v", *i.Settings.Start), nil
	}
	return fmt.Sprintf("%s %v %+v %s ready %v, locked %d by %d (%s), delayed %d, dead %d, oldest %v, %+v, %s at %v",
		i.Queue, err, i.Settings.WithDefaults(), start, i.Ready, i.Locked, i.Locks,
		lockText(i.Exclusive), i.Delayed, i.Dead, i.Oldest, i.Totals, i.Incarnation, i.At)
}

func deadText(list []jobs.Dead, err error) string {
	text := fmt.Sprint(err)
	for _, d := range list {
		text += fmt.Sprint(itemText(d.Job), d.DiedAt, d.Reason)
	}
	return text
}

// ---- Random steps.

// maker makes steps from a seed.
type maker struct {
	*rand.Rand
	n     int
	locks []string
}

func makeSteps(seed uint64, n int) []step {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1)), locks: []string{"none"}}
	var steps []step
	for range n {
		s := step{queue: string("aaab"[m.IntN(4)]), wait: m.pause()}
		for range 1 + m.IntN(3) {
			s.operations = append(s.operations, m.operation())
		}
		if m.IntN(8) == 0 {
			s.requeue = 1 + m.IntN(3)
		}
		steps = append(steps, s)
	}
	return steps
}

// pause is how far the clock moves: mostly a little, sometimes far, and sometimes back.
func (m *maker) pause() time.Duration {
	switch m.IntN(12) {
	case 0:
		return -time.Duration(m.IntN(20_000)) * time.Millisecond
	case 1:
		return time.Duration(m.IntN(15*60)) * time.Second
	case 2, 3, 4:
		return time.Duration(m.IntN(30_000)) * time.Millisecond
	case 5:
		return 10 * time.Second
	}
	return time.Duration(m.IntN(1000)) * time.Millisecond
}

func (m *maker) operation() jobs.Operation {
	switch n := m.IntN(100); {
	case n < 34:
		return m.push()
	case n < 62:
		return m.pop()
	case n < 72:
		return jobs.Acknowledge{LockID: m.lock()}
	case n < 82:
		r := jobs.Return{LockID: m.lock(), Reason: fmt.Sprint("reason ", m.IntN(100))}
		if m.IntN(2) == 0 {
			r.Delay = time.Duration(m.IntN(4)) * 5 * time.Second
		}
		r.Uncounted = m.IntN(4) == 0
		return r
	case n < 87:
		return jobs.Extend{LockID: m.lock(), TTL: time.Duration(m.IntN(40)) * time.Second}
	case n < 91:
		return m.configure()
	case n < 94:
		return jobs.Requeue{Limit: m.IntN(4)}
	case n < 96:
		return jobs.Remove{Dead: m.IntN(2) == 0, Limit: m.IntN(20)}
	case n < 98:
		return jobs.Forget{}
	}
	return jobs.Settle{}
}

func (m *maker) push() jobs.Operation {
	p := jobs.Push{}
	for range 1 + m.IntN(4) {
		m.n++
		i := jobs.NewJob{Data: json.RawMessage(fmt.Sprint(m.n)), Priority: m.IntN(4) * m.IntN(3),
			Trace: []string{"", "trace"}[m.IntN(2)]}
		if m.IntN(60) == 0 {
			i.Priority = 1001
		}
		if m.IntN(4) == 0 {
			i.Delay = time.Duration(m.IntN(5)) * 5 * time.Second
		}
		p.Jobs = append(p.Jobs, i)
	}
	if m.IntN(3) == 0 {
		p.Key, p.KeyFor, p.Digest = fmt.Sprint("key-", m.IntN(6)), time.Duration(1+m.IntN(60))*time.Second,
			fmt.Sprint(m.IntN(2))
	}
	return p
}

func (m *maker) pop() jobs.Operation {
	p := jobs.Pop{Count: m.IntN(6), Mode: []jobs.Mode{"", "", jobs.Exclusive, jobs.Concurrent}[m.IntN(4)]}
	if m.IntN(8) == 0 {
		p.Count, p.Bytes = 20+m.IntN(50), 1+m.IntN(30)
	}
	if m.IntN(3) > 0 {
		p.LockID = fmt.Sprint("lock-", len(m.locks))
		m.locks = append(m.locks, p.LockID)
		p.TTL = time.Duration(m.IntN(4)) * 10 * time.Second
	}
	return p
}

// lock is the id of one of the last locks.
func (m *maker) lock() string { return m.locks[len(m.locks)-1-m.IntN(min(4, len(m.locks)))] }

func (m *maker) configure() jobs.Operation {
	s := jobs.Settings{Priorities: m.IntN(10), MaxAttempts: m.IntN(4), TTL: m.IntN(60),
		Mode: []jobs.Mode{"", jobs.Exclusive, jobs.Concurrent, jobs.Concurrent}[m.IntN(4)]}
	if m.IntN(4) == 0 {
		s.MaxJobs = 1 + m.IntN(30)
	}
	return jobs.Configure{Settings: s}
}

// ---- A short incarnation, for tests that inject faults.

// Step is a transaction, and how far the clock moves before.
type Step struct {
	Wait       time.Duration
	Operations []jobs.Operation
}

// Incarnation returns the steps of an incarnation of a queue, with every kind of change.
func Incarnation() []Step {
	push := jobs.Push{Jobs: append(newJobs(1, "a", "b"),
		jobs.NewJob{Data: quoted("later"), Delay: 5 * time.Second}), Key: "key", KeyFor: time.Minute}
	return []Step{
		{0, []jobs.Operation{push}},
		{0, []jobs.Operation{push, jobs.Push{Jobs: newJobs(0, "c", "d")}, jobs.Pop{Count: 1}}},
		{0, []jobs.Operation{jobs.Configure{Settings: jobs.Settings{MaxAttempts: 2}},
			jobs.Pop{Count: 2, LockID: "l"}}},
		{time.Second, []jobs.Operation{jobs.Extend{LockID: "l", TTL: 10 * time.Second},
			jobs.Push{Jobs: newJobs(4, "e")}}},
		{10 * time.Second, []jobs.Operation{jobs.Acknowledge{LockID: "l"}, jobs.Pop{Count: 3, LockID: "m"}}},
		{0, []jobs.Operation{jobs.Return{LockID: "m", Delay: time.Second, Reason: "no"}}},
		{0, []jobs.Operation{jobs.Requeue{Limit: 5}, jobs.Pop{Count: 1, LockID: "n", Mode: jobs.Concurrent},
			jobs.Pop{Count: 1, LockID: "o", Mode: jobs.Concurrent}}},
		{0, []jobs.Operation{jobs.Acknowledge{LockID: "n"}, jobs.Pop{Count: 1, Mode: jobs.Concurrent}}},
		{time.Minute, []jobs.Operation{push}},
		{0, []jobs.Operation{jobs.Acknowledge{LockID: "o"}, jobs.Remove{Limit: 2}}},
		{0, []jobs.Operation{jobs.Pop{Count: 100}}},
		{0, []jobs.Operation{jobs.Remove{Limit: 100}}},
		{0, []jobs.Operation{jobs.Forget{}}},
		{0, []jobs.Operation{push, jobs.Pop{Count: 1}}},
	}
}

// Same does operations with a store and a model, and checks that the results and the state are the
// same.
func Same(tb testing.TB, s jobs.Store, m *Model, name string, operations ...jobs.Operation) {
	tb.Helper()
	got, err := s.Do(tb.Context(), name, operations...)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	Agrees(tb, s, m, name, got, operations...)
}

// Agrees checks that results, and the state after them, are those of the model.
func Agrees(tb testing.TB, s jobs.Store, m *Model, name string, got []jobs.Result, operations ...jobs.Operation) {
	tb.Helper()
	want, err := m.Do(tb.Context(), name, operations...)
	if err != nil || len(got) != len(want) {
		tb.Fatalf("%s: %d results, want %d, %v", name, len(got), len(want), err)
	}
	for i := range got {
		if g, w := resultText(got[i]), resultText(want[i]); g != w {
			tb.Fatalf("%s, %T: the store says\n  %s\nthe model\n  %s", name, operations[i], g, w)
		}
	}
	info, err := s.Look(tb.Context(), name)
	wantInfo, wantErr := m.Look(tb.Context(), name)
	info.Incarnation = ""
	if g, w := infoText(info, err), infoText(wantInfo, wantErr); g != w {
		tb.Fatalf("%s: the store says\n  %s\nthe model\n  %s", name, g, w)
	}
}
