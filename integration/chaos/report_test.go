//go:build unix

package chaos_test

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file is the table that is printed at the end.

// report prints the measurements.
func (c *chaos) report(v *verdict) {
	fmt.Printf("\nfaults, with seed %d and %s leases:\n", *seed, c.fleet.settings.name)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\ttimes\trecovered p50\tmax\tcaught up p50\tmax\tstood still, max\t")
	for _, class := range c.classes() {
		var recovered, caughtUp, still []time.Duration
		for _, r := range c.results {
			if r.class == class {
				recovered = append(recovered, r.recovered.Sub(r.from))
				caughtUp = append(caughtUp, r.caughtUp.Sub(r.from))
				still = append(still, longestGap(v.ends, r.injected, r.recovered))
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", class, len(recovered), median(recovered), most(recovered),
			median(caughtUp), most(caughtUp), most(still))
	}
	_ = w.Flush() // to the standard output
	fmt.Println("recovered: until new work on every partition had completed, from the healing on, or from the kill " +
		"on where others take over;")
	fmt.Println("caught up: until everything had ended that was started before; stood still: the longest time in " +
		"which no job was seen to end.")
	c.reportWork(v)
}

func (c *chaos) reportWork(v *verdict) {
	k, r := c.clients, v.checked
	lost := 0
	for _, m := range k.lost {
		if _, ok := m.Content.(*events.Start); ok {
			lost++
		}
	}
	ended := len(k.jobs) - len(k.unfinished(time.Now().Add(work.Long), true))
	fmt.Printf("\nwork:\n")
	fmt.Printf("  acknowledged            %d starts, %d queue messages, %d events\n",
		k.acks.count[check.AcknowledgedStart], k.acks.count[check.AcknowledgedMailbox],
		k.acks.count[check.AcknowledgedEvent])
	fmt.Printf("  ended                   %d of %d jobs; %d waiters were told; %d starts were held back, because %d "+
		"were in flight\n", ended, len(k.jobs), k.told, k.held, atOnce)
	fmt.Printf("  checked                 %d instances, %d executions, %d events, %d acknowledgements\n", r.Instances,
		r.Executions, r.Events, r.Acknowledgements)
	fmt.Printf("  lost with all files     %d starts and %d other messages, of %d that no history had when the files "+
		"were deleted; sent again at the end\n", lost, len(k.lost)-lost, len(k.doubt))
	fmt.Printf("  duplicates suppressed   %d of %d deliveries to orchestrators were of messages delivered before "+
		"(%d messages were sent twice on purpose)\n", v.deliveredAgain, v.delivered, k.twice)
	fmt.Printf("  executed again          %d of %d executions of activities; each result is in history once\n",
		v.executedAgain, v.executed)
	fmt.Printf("  strangers               a hostile client published %d messages, of which NATS refused %d; %d "+
		"messages were for no instance\n",
		c.strangers.published, c.strangers.refused.Load(), c.strangers.flooded)
	fmt.Printf("  ended by themselves     %d processes, which were started again\n", len(v.deaths))
	for _, d := range v.deaths[:min(5, len(v.deaths))] {
		fmt.Printf("    %s\n", d)
	}
	fmt.Printf("  the machine             stood still for %.1f s of %.0f s\n", c.machine.Since(c.begun).Seconds(),
		time.Since(c.begun).Seconds())
	fmt.Println("  not tried               clocks that jump (the services have no clock that could be set), a disk " +
		"that is really full (the error is injected)")
	if n := len(v.problems); n > 0 || c.t.Failed() {
		fmt.Printf("verdict: FAILED, %d things are wrong in the histories\n", n)
		return
	}
	fmt.Println("verdict: nothing was lost, done wrongly, or taken twice")
}

// classes are those of the faults that were injected, in the order of the table of faults.
func (c *chaos) classes() (names []string) {
	for _, f := range faults {
		names = append(names, f.name)
	}
	names = append(names, classOf(make([]fault, 2)))
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(c.results, func(r result) bool { return r.class == name })
	})
}

// longestGap is the longest time between two moments in which nothing ended.
func longestGap(ends []time.Time, from, to time.Time) (longest time.Duration) {
	last := from
	for _, e := range ends {
		if e.Before(from) || e.After(to) {
			continue
		}
		longest, last = max(longest, e.Sub(last)), e
	}
	return max(longest, to.Sub(last))
}

func median(of []time.Duration) string {
	sorted := slices.Sorted(slices.Values(of))
	return seconds(sorted[(len(sorted)-1)/2])
}

func most(of []time.Duration) string { return seconds(slices.Max(of)) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
