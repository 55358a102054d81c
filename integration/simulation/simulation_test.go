package simulation

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
)

var (
	firstSeed = flag.Uint64("seed", 0, "the first seed; 0 takes the fixed ones")
	seedCount = flag.Int("seeds", 0, "how many seeds; 0 takes some")
	runFor    = flag.Duration("for", 0, "then take fresh seeds for this long")
	stopAt    = flag.Int("stop-at", 10, "stop after so many seeds that fail")
	within    = flag.Duration("within", 0, "begin no seed after this long, 0 for no end; what has begun ends")
	noteSeeds = flag.Bool("ledger", false, "append seeds that fail to "+ledger)
	showLog   = flag.Bool("log", false, "print what happens, step by step")
)

// TestSeedsRepeat runs seeds again and compares everything that happened, each event with its
// moment. Nine in ten seeds must repeat. One processor runs all goroutines, and a seed gets more
// runs than two, because on a busy machine the runtime preempts goroutines at other places each
// time. With the race detector, half of the seeds must repeat: its scheduler picks the next
// goroutine at random, which a world with a crowd of instances does not survive.
//
// Only `make deep` runs it: which goroutine of a moment runs first is the scheduler's choice, and
// on a busy machine too many seeds differ each time.
func TestSeedsRepeat(t *testing.T) {
	if testing.Short() {
		t.Skip("the scheduler of a busy machine makes too many seeds differ; `make deep` runs it")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const runs = 4
	n := racetest.Short(racetest.Size(40, 10), 4)
	allowed := max(1, n/10)
	if racetest.On {
		allowed = n / 2
	}
	var again, differ []uint64
	for seed := uint64(1); seed <= uint64(n); seed++ {
		seen := make(map[uint64]bool)
		for len(seen) < runs {
			noted := runWorld(t, seed, false).noted
			if seen[noted] {
				break
			}
			seen[noted] = true
		}
		switch {
		case len(seen) == runs:
			differ = append(differ, seed)
		case len(seen) > 1:
			again = append(again, seed)
		}
	}
	t.Logf("of %d seeds, these needed more than two runs: %v; these differ each time: %v", n, again, differ)
	if len(differ) > allowed {
		t.Errorf("%d of %d seeds differ each time, of which %d may", len(differ), n, allowed)
	}
}

// enough is how many worlds there must be for everything to happen in some of them.
const enough = 200

// TestSeeds lets a number of worlds happen.
func TestSeeds(t *testing.T) {
	first := max(1, *firstSeed)
	n := *seedCount
	if n == 0 {
		n = racetest.Size(200, 20)
	}
	begun := time.Now()
	seeds := make(chan uint64)
	var bad atomic.Int64
	go func() {
		defer close(seeds)
		inTime := func() bool { return *within == 0 || time.Since(begun) < *within }
		for i := 0; i < n && bad.Load() < int64(*stopAt) && inTime(); i++ {
			seeds <- first + uint64(i)
		}
		for s := uint64(begun.UnixNano()); time.Since(begun) < *runFor && bad.Load() < int64(*stopAt); s++ {
			seeds <- s
		}
	}()
	var mu sync.Mutex
	sums, worlds := make(map[string]int), 0
	var virtual time.Duration
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed := range seeds {
				o := runWorld(t, seed, *showLog)
				mu.Lock()
				worlds++
				virtual += o.took
				for k, n := range o.counts {
					sums[k] += n
				}
				if *showLog {
					fmt.Println(o.log)
				}
				if len(o.faults) > 0 {
					bad.Add(1)
					t.Errorf("seed %d (%s):\n  %s\nagain: make sim SEED=%d N=1", o.seed, o.sky, o.faults, o.seed)
					if *noteSeeds {
						if err := enter(ledger, o.seed, o.faults[0]); err != nil {
							t.Error(err)
						}
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	t.Logf("%d seeds in %v, %.0f a minute; %v of their own time", worlds, took.Round(time.Second),
		float64(worlds)/took.Minutes(), virtual.Round(time.Minute))
	if never := unreached(sums); worlds >= enough && len(never) > 0 {
		t.Errorf("in %d worlds this has never happened: %q", worlds, never)
	}
	for _, k := range slices.Sorted(maps.Keys(sums)) {
		t.Logf("%12d %s, %.1f a seed", sums[k], k, float64(sums[k])/float64(worlds))
	}
}
