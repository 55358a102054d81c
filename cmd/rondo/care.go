package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/pkg/query"
)

// system is a command about what an orchestrator tells of the whole system.
func (c *cli) system(use, short, long string, asJSON func(query.System) any, text func(query.System) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long, Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		return c.connected(cmd, patience, func(ctx context.Context) error {
			s, err := c.client.System(ctx)
			if err != nil {
				return err
			}
			if c.asJSON() {
				return c.json(asJSON(s))
			}
			return text(s)
		})
	}}
}

func (c *cli) orchestrators() *cobra.Command {
	type answer struct {
		Orchestrators []query.Orchestrator `json:"orchestrators"`
		Unknown       []query.Unknown      `json:"unknown,omitempty"`
	}
	return c.system("orchestrators", "List the orchestrators that are alive, their code and their partitions",
		"List the orchestrators that are alive, which versions of which orchestrations they know, and which partitions are theirs. Below that: instances whose messages wait for an orchestrator that knows their code.",
		func(s query.System) any { return answer{s.Orchestrators, s.Unknown} },
		func(s query.System) error {
			var rows [][]string
			for _, o := range s.Orchestrators {
				state := "alive"
				if o.Leaving {
					state = "leaving"
				}
				rows = append(rows, []string{o.ID, cmp.Or(o.Host, "-"), state, ranges(o.Partitions), code(o.Code)})
			}
			if err := c.table([]string{"ORCHESTRATOR", "HOST", "STATE", "PARTITIONS", "CODE"}, rows); err != nil {
				return err
			}
			for _, u := range s.Unknown {
				if err := c.print("waits for code: %s, since %s: %s", u.Instance, span(c.now().Sub(u.Since)), cmp.Or(u.Detail, u.Reason)); err != nil {
					return err
				}
			}
			return nil
		})
}

// ranges writes numbers shortly: 0-3,7.
func ranges(n []int) string {
	var out []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if j > i {
			out = append(out, fmt.Sprintf("%d-%d", n[i], n[j]))
		} else {
			out = append(out, strconv.Itoa(n[i]))
		}
		i = j + 1
	}
	return cmp.Or(strings.Join(out, ","), "none")
}

func code(c map[string][]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		out = append(out, name+" "+strings.Join(c[name], ","))
	}
	return strings.Join(out, "; ")
}

func (c *cli) partitions() *cobra.Command {
	type answer struct {
		Partitions []query.Partition `json:"partitions"`
	}
	return c.system("partitions", "List the partitions: whose they are, and what waits in them",
		"List the partitions of what is sent to instances: which orchestrator takes each, how many messages wait there, and how many it holds and has not settled.",
		func(s query.System) any { return answer{s.Partitions} },
		func(s query.System) error {
			var rows [][]string
			for _, p := range s.Partitions {
				owner := cmp.Or(p.Owner, "nobody")
				if p.Draining {
					owner += " (draining)"
				}
				if p.Receivers == 0 {
					owner += " (does not ask just now)"
				}
				rows = append(rows, []string{strconv.Itoa(p.Partition), strconv.FormatInt(p.Waiting, 10), strconv.FormatInt(p.Held, 10), owner})
			}
			return c.table([]string{"PARTITION", "WAITING", "HELD", "ORCHESTRATOR"}, rows)
		})
}

func (c *cli) queues() *cobra.Command {
	type answer struct {
		Queues []query.WorkQueue `json:"queues"`
		More   int               `json:"more,omitempty"`
	}
	return c.system("queues", "List the queues of work: what waits for workers, and whether any ask for it",
		"List the queues of work, one for each activity and tag: how much waits, how much workers hold, and how many requests of workers for more are open. Work that waits where nobody asks needs a worker with that activity and tag.",
		func(s query.System) any { return answer{s.Queues, s.MoreQueues} },
		func(s query.System) error {
			if len(s.Queues) == 0 {
				return c.print("there are no queues yet; the first piece of work, or the first worker, makes one")
			}
			var rows [][]string
			for _, q := range s.Queues {
				note := ""
				if q.Waiting > 0 && q.Receivers == 0 && q.Held == 0 {
					note = "no worker takes it"
				}
				rows = append(rows, []string{q.Activity, cmp.Or(q.Tag, "-"), strconv.FormatInt(q.Waiting, 10), strconv.FormatInt(q.Held, 10), strconv.Itoa(q.Receivers), note})
			}
			if err := c.table([]string{"ACTIVITY", "TAG", "WAITING", "HELD", "ASKING", ""}, rows); err != nil {
				return err
			}
			if s.MoreQueues > 0 {
				return c.print("and %d others", s.MoreQueues)
			}
			return nil
		})
}
