//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

var (
	lasts = flag.Duration("chaos.time", time.Minute, "for how long faults are injected")
	seed  = flag.Uint64("chaos.seed", 0, "what chooses the faults; 0 chooses one")
	rate  = flag.Int("chaos.rate", 10, "how many jobs are started in a second")
	lease = flag.String("chaos.leases", "short",
		"the times after which the services take others for dead: short, or those that are the default")
	only = flag.String("chaos.only", "",
		"a regular expression: only faults with such names are injected, and never two at once")
)

// patience bounds each wait, at far more than is needed: the report has the durations, and only a
// condition that never holds is a failure.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if r := os.Getenv(roleVariable); r != "" {
		if err := play(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// chaos is a run.
type chaos struct {
	t       testing.TB
	ctx     context.Context // ends with the test, and on Ctrl-C
	stopped bool            // by Ctrl-C
	chance  *rand.Rand
	fleet   *fleet
	clients *clients
	// strangers are clients with business of their own.
	strangers *strangers
	machine   *slowtest.Watch
	begun     time.Time
	deck      []fault
	probes    int
	results   []result
}

// result has the course of a fault, or of two at once.
type result struct {
	class string
	// injected is when, from is from when on recovery counts, recovered when work on all partitions
	// went on, and caughtUp when everything had ended that was started before.
	injected, from, recovered, caughtUp time.Time
}

// TestChaos breaks parts of a whole system again and again while work goes on. At the end
// everything must have been done, once, and rightly.
func TestChaos(t *testing.T) {
	if racetest.On {
		t.Skip("three servers and four services are too much for the race detector; `make chaos` runs this")
	}
	pgtest.Need(t)
	if testing.Short() { // the same each time
		*lasts, *seed = 10*time.Second, 1
	}
	s, ok := leases[*lease]
	if !ok {
		t.Fatalf("-chaos.leases is %q; want short or default", *lease)
	}
	c := &chaos{t: t, machine: slowtest.Begin(t), begun: time.Now()}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.ctx = ctx
	for *seed == 0 {
		*seed = rand.Uint64() >> 32
	}
	c.chance = rand.New(rand.NewPCG(*seed, 1))
	c.say("seed %d: %v of faults, %d jobs a second, %s leases", *seed, *lasts, *rate, s.name)

	dir := c.directory()
	c.fleet = newFleet(t, dir, s)
	t.Cleanup(func() { c.keepDatabase(dir) }) // before the database is removed
	c.clients = newClients(t, c.fleet, filepath.Join(dir, "promised.jsonl"))
	c.strangers = newStrangers(t, c.fleet, c.clients, *seed)
	c.checkPartitions()
	c.fleet.employ()
	if err := c.probe(); err != nil {
		t.Fatalf("the system does not work before anything was done to it: %v", err)
	}
	c.run()
	if c.stopped = ctx.Err() != nil; c.stopped {
		t.Fatal("it was interrupted")
	}
	v := c.judge()
	c.report(v)
}

// directory makes the directory of the run. It is removed at the end, unless something has failed.
func (c *chaos) directory() string {
	c.t.Helper()
	dir, err := os.MkdirTemp("", "rondo-chaos-")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() && !c.stopped {
			c.say("FAILED with seed %d. What the processes said, and what the servers have, is in %s", *seed, dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			c.t.Error(err)
		}
	})
	return dir
}

// keepDatabase copies the data of PostgreSQL, if something has failed.
func (c *chaos) keepDatabase(dir string) {
	if !c.t.Failed() || c.stopped {
		return
	}
	c.fleet.postgres.Stop(c.t)
	if err := os.CopyFS(filepath.Join(dir, "postgres"), os.DirFS(c.fleet.postgres.Data())); err != nil {
		c.t.Errorf("keeping the data of PostgreSQL: %v", err)
	}
}

// say prints progress.
func (c *chaos) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(c.begun).Seconds(), fmt.Sprintf(format, args...))
}

// checkPartitions checks that [partitionOf] agrees with the broker.
func (c *chaos) checkPartitions() {
	c.t.Helper()
	c.publishProbes(c.ctx, c.nextProbes())
	for p := range partitions {
		c.fleet.within(time.Minute, "each partition has the one message that was sent there", func() error {
			b, err := c.clients.bus.Backlog(c.ctx, p)
			if err == nil && b.Waiting != 1 {
				err = fmt.Errorf("partition %d has %+v", p, b)
			}
			return err
		})
	}
}

// ---- Work and faults.

// run starts jobs, injects faults, and waits until all that was started has ended, as far as
// nothing was lost of it.
func (c *chaos) run() {
	working, stop := context.WithCancel(c.ctx)
	var all sync.WaitGroup
	defer all.Wait()
	following, end := context.WithCancel(c.ctx)
	c.clients.stop = end
	all.Go(func() { c.clients.follow(following) })
	all.Go(func() { c.clients.start(working, *seed, *rate) })
	all.Go(func() { c.strangers.harass(working) })
	c.pause(2 * time.Second)
	c.conduct(time.Now().Add(*lasts))
	stop()
	c.say("no more faults, no more starts; what was started goes on")
	c.settle()
	c.finishFollowing(&all)
}

// conduct injects faults until a moment.
func (c *chaos) conduct(end time.Time) {
	for time.Now().Before(end) && c.ctx.Err() == nil && !c.t.Failed() {
		picked := c.pick(end)
		if err := c.inflict(picked); err != nil && c.ctx.Err() == nil {
			c.t.Errorf("%s: %v", classOf(picked), err)
		}
		c.pause(c.milliseconds(500, 1500))
	}
}

// pick takes the next fault from the deck, and sometimes a second one of another part. Each fault
// occurs once before any occurs again, unless the rest of the run is too short for it.
func (c *chaos) pick(end time.Time) []fault {
	first := c.draw(func(f fault) bool { return f.holds <= time.Until(end) || *only != "" })
	if first.alone || *only != "" || c.chance.IntN(6) > 0 {
		return []fault{first}
	}
	second := c.draw(func(f fault) bool { return !f.alone && f.part != first.part && f.holds == 0 })
	return []fault{first, second}
}

func (c *chaos) draw(fits func(fault) bool) fault {
	for {
		for i, f := range c.deck {
			if fits(f) {
				c.deck = append(c.deck[:i:i], c.deck[i+1:]...)
				return f
			}
		}
		c.shuffle()
	}
}

// shuffle puts all faults under the rest of the deck.
func (c *chaos) shuffle() {
	want := regexp.MustCompile(*only)
	for _, i := range c.chance.Perm(len(faults)) {
		if want.MatchString(faults[i].name) {
			c.deck = append(c.deck, faults[i])
		}
	}
	if len(c.deck) == 0 {
		c.t.Fatalf("no fault has a name like %q", *only)
	}
}

func classOf(picked []fault) string {
	if len(picked) > 1 {
		return "two at once"
	}
	return picked[0].name
}

// inflict injects faults, holds them for a time, heals them, and measures how long it takes until
// everything goes on.
func (c *chaos) inflict(picked []fault) (err error) {
	r := result{class: classOf(picked), injected: time.Now()}
	hold := c.milliseconds(2000, 5000)
	survived, servers := len(picked) == 1 && picked[0].survived, false
	var heals []func()
	for _, f := range picked {
		heal, what := f.inject(c)
		heals = append(heals, heal)
		if f.outlasts {
			hold = max(hold, c.fleet.settings.lease+c.milliseconds(1000, 3000))
		}
		hold = max(hold, f.holds)
		servers = servers || f.part == ofNATS
		if what != "" {
			what = " (" + what + ")"
		}
		c.say("%s%s", f.name, what)
	}
	healed := r.injected.Add(hold)
	if survived {
		r.from = time.Now()
		err = c.probe()
		r.recovered = time.Now()
	}
	c.pause(time.Until(healed))
	for _, heal := range heals {
		heal()
	}
	if !survived {
		r.from = time.Now()
		err = c.probe()
		r.recovered = time.Now()
	}
	if err != nil {
		return fmt.Errorf("work does not go on: %w", err)
	}
	if err := c.catchUp(&r); err != nil {
		return err
	}
	if servers {
		if err := eventually(c.ctx, patience, func() error { return c.fleet.caughtUp(c.ctx) }); err != nil {
			return fmt.Errorf("the servers do not come together: %w", err)
		}
	}
	c.say("  held %.1f s, recovered within %.1f s; what was started before had ended after %.1f s", hold.Seconds(),
		r.recovered.Sub(r.from).Seconds(), r.caughtUp.Sub(r.from).Seconds())
	c.results = append(c.results, r)
	return nil
}

// catchUp waits until the jobs that were started before recovery began have ended.
func (c *chaos) catchUp(r *result) error {
	err := eventually(c.ctx, patience, func() error {
		if open := c.clients.unfinished(r.from, false); len(open) > 0 {
			return fmt.Errorf("%d jobs have not ended, %s (%s) among them", len(open), open[0].ID, open[0].Name)
		}
		return nil
	})
	r.caughtUp = time.Now()
	if r.caughtUp.Before(r.recovered) {
		r.caughtUp = r.recovered
	}
	return err
}

func (c *chaos) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// ---- Probes.

// nextProbes makes names of instances that were never used, one on each partition.
func (c *chaos) nextProbes() []string {
	c.probes++
	found := make([]string, partitions)
	for missing, i := partitions, 0; missing > 0; i++ {
		id := fmt.Sprintf("probe-%03d-%d", c.probes, i)
		if p := partitionOf(id); found[p] == "" {
			found[p] = id
			missing--
		}
	}
	return found
}

func (c *chaos) publishProbes(ctx context.Context, probes []string) {
	var wires []events.Wire
	for _, id := range probes {
		w, err := events.Encode(c.clients.bus.Prefix(), events.Message{ID: "start-" + id, Instance: id,
			Content: &events.Start{Orchestration: "probing", Input: work.Payload(1)}})
		if err != nil {
			c.t.Fatal(err)
		}
		wires = append(wires, w)
	}
	if err := c.clients.bus.Publish(ctx, wires...); err != nil && ctx.Err() == nil {
		c.t.Errorf("probes cannot be published: %v", err)
	}
}

// probe starts an instance on each partition and waits until all have completed.
func (c *chaos) probe() error {
	probes := c.nextProbes()
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	go c.publishProbes(ctx, probes)
	return eventually(ctx, patience, func() error {
		infos, err := list(ctx, c.clients.store, probes)
		if err != nil {
			return err
		}
		ended := make(map[string]bool)
		for _, info := range infos {
			ended[info.Instance] = info.Status == round.Completed
		}
		for p, id := range probes {
			if !ended[id] {
				err = errors.Join(err, fmt.Errorf("%s on partition %d has not completed", id, p))
			}
		}
		return err
	})
}
