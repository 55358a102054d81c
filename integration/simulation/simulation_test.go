package simulation

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/seedtest"
)

var (
	firstSeed = flag.Uint64("seed", 0, "the first seed; 0 takes the fixed ones")
	seedCount = flag.Int("seeds", 0, "how many seeds; 0 takes some")
	runFor    = flag.Duration("for", 0, "then take fresh seeds for this long")
	stopAt    = flag.Int("stop-at", 10, "stop after so many seeds that fail")
	within    = flag.Duration("within", 0, "begin no seed after this long, 0 for no end; what has begun ends")
	repeat    = flag.Int("repeat", 0, "how often TestSeedsRepeat runs each seed, whose hash it prints; 0 is twice")
	showLog   = flag.Bool("log", false, "print what happens, step by step")
)

// TestSeedsRepeat runs seeds again, and compares everything that happens, each event with its
// moment. With -repeat, it runs each seed so often. With more than one processor, goroutines that
// are woken at one moment run in parallel, so that their order differs each time.
func TestSeedsRepeat(t *testing.T) {
	first, n := max(1, *firstSeed), *seedCount
	if n == 0 {
		n = racetest.Size(40, 10)
	}
	runs := max(2, *repeat)
	if *repeat == 0 && runtime.GOMAXPROCS(0) < 4 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	}
	var seeds, differ []uint64
	if *seedCount == 0 {
		seeds = seedtest.Kept(t, "TestSeedsRepeat")
	}
	for seed := first; seed < first+uint64(n); seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		once := runWorld(t, seed, true)
		same := true
		for i := 1; i < runs && same; i++ {
			again := runWorld(t, seed, true)
			if same = again.noted == once.noted; !same {
				differ = append(differ, seed)
				t.Log(firstDifference(once, again))
			}
		}
		if *repeat > 0 {
			fmt.Printf("seed %d: %016x %v\n", seed, once.noted, same)
		}
	}
	t.Logf("%d seeds, %d runs of each, %d processors", len(seeds), runs, runtime.GOMAXPROCS(0))
	if len(differ) > 0 {
		t.Errorf("these seeds do something else the second time: %v", differ)
	}
}

// firstDifference finds what one run of a seed has done, and another one has not.
func firstDifference(a, b outcome) string {
	first, second := strings.Split(a.log, "\n"), strings.Split(b.log, "\n")
	slices.Sort(first) // by time: the order within a moment means nothing
	slices.Sort(second)
	n := 0
	for n < min(len(first), len(second)) && first[n] == second[n] {
		n++
	}
	few := func(lines []string) string { return strings.Join(lines[max(0, n-3):min(n+3, len(lines))], "\n\t") }
	return fmt.Sprintf("seed %d differs after %d events:\n\t%s\nagainst\n\t%s", a.seed, n, few(first), few(second))
}

// TestFormerSeeds plays the seeds with which TestSeeds has failed before.
func TestFormerSeeds(t *testing.T) {
	for _, seed := range seedtest.Kept(t, "TestSeeds") {
		if o := runWorld(t, seed, false); len(o.faults) > 0 {
			t.Errorf("seed %d (%s):\n  %s", o.seed, o.sky, o.faults)
		}
	}
}

// enough is how many worlds there must be for everything to happen in some of them.
const enough = 200

// TestSeeds lets a number of worlds happen, with -short on one processor: TestSeedsRepeat shows
// that the number of processors has no influence.
func TestSeeds(t *testing.T) {
	first := max(1, *firstSeed)
	n := *seedCount
	if n == 0 {
		n = racetest.Short(racetest.Size(200, 20), 100)
	}
	if testing.Short() { // on two, the goroutines of a world contend for the locks of their bubble
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
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
					seedtest.Note(t, "TestSeeds", o.seed)
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
