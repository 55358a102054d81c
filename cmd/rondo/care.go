package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/pkg/client"
)

// systemCommands has the commands that print how the processes and their queues stand, and that act
// on all processes.
type systemCommands struct{ *cli }

// system is a command that prints an orchestrator's view of the whole system.
func (c systemCommands) system(use, short, long string, asJSON func(client.SystemStatus) any,
	text func(client.SystemStatus) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.connected(cmd, patience, func(ctx context.Context) error {
				s, err := c.client.System().Status(ctx)
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

// orchestratorShown is an orchestrator as JSON: its entry as the other orchestrators see it, and
// its own answer.
type orchestratorShown struct {
	client.Orchestrator
	Began   time.Time          `json:"began,omitzero"`
	Problem string             `json:"problem,omitempty"`
	Unknown []client.Unknown   `json:"unknown,omitempty"`
	Rounds  []client.LongRound `json:"rounds,omitempty"`

	Quarantined     []client.Quarantined `json:"quarantined,omitempty"`
	MoreQuarantined int                  `json:"more_quarantined,omitempty"`
}

func (c systemCommands) orchestrators() *cobra.Command {
	cmd := &cobra.Command{
		Use: "orchestrators", Short: "List the orchestrators that are alive, their code and their partitions",
		Args: exactly(),
		Long: `List the orchestrators that are alive, which versions of which orchestrations they know, and which partitions are theirs. Below that: why one does not work,
instances whose round does not end, instances with quarantined messages, and instances whose messages wait for an orchestrator that knows their code.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.connected(cmd, patience, func(ctx context.Context) error {
			s, err := c.client.System().Status(ctx)
			if err != nil {
				return err
			}
			all, err := c.client.System().Processes(ctx)
			if err != nil {
				return err
			}
			return c.orchestratorsShown(s, all)
		})
	}
	return cmd
}

func (c systemCommands) orchestratorsShown(s client.SystemStatus, all []client.Process) error {
	shown := []orchestratorShown{}
	var rows [][]string
	for _, o := range s.Orchestrators {
		x := orchestratorShown{Orchestrator: o}
		state := "alive"
		if i := slices.IndexFunc(all, func(p client.Process) bool {
			return p.Kind == client.KindOrchestrator && p.ID == o.ID
		}); i >= 0 {
			x.Began, x.Problem, x.Unknown, x.Rounds = all[i].Began, all[i].Problem, all[i].Unknown, all[i].Rounds
			x.Quarantined, x.MoreQuarantined = all[i].Quarantined, all[i].MoreQuarantined
		} else {
			state = "does not answer"
		}
		switch {
		case o.Leaving:
			state = "leaving"
		case x.Problem != "":
			state = "not ready"
		}
		shown = append(shown, x)
		rows = append(rows, []string{o.ID, cmp.Or(o.Host, "-"), state, c.ago(x.Began), ranges(o.Partitions),
			code(o.Code)})
	}
	if c.asJSON() {
		return c.json(struct {
			Orchestrators []orchestratorShown `json:"orchestrators"`
		}{shown})
	}
	if err := c.table([]string{"ORCHESTRATOR", "HOST", "STATE", "BEGUN", "PARTITIONS", "CODE"}, rows); err != nil {
		return err
	}
	for _, x := range shown {
		if x.Problem != "" {
			fmt.Fprintf(c.out, "%s is not ready: %s\n", printable.Line(x.ID), oneLine(x.Problem))
		}
		for _, r := range x.Rounds {
			fmt.Fprintf(c.out, "long round: %s, for %s\n", printable.Line(r.Instance), roundText(x.ID, r, c.now()))
		}
		for _, q := range x.Quarantined {
			fmt.Fprintf(c.out, "quarantined: %s: %s\n", printable.Line(q.Instance), quarantineText(x.ID, q, c.now()))
		}
		if x.MoreQuarantined > 0 {
			fmt.Fprintf(c.out, "quarantined: %s\n", plural.Count(x.MoreQuarantined, "more instance"))
		}
		for _, u := range x.Unknown {
			fmt.Fprintf(c.out, "waits for code: %s, for %s: %s\n", printable.Line(u.Instance),
				span(c.now().Sub(u.Since)), oneLine(cmp.Or(u.Detail, u.Reason)))
		}
	}
	return nil
}

func oneLine(s string) string { return printable.Line(strings.ReplaceAll(s, "\n", "; ")) }

// errNoWorker says that a worker does not answer, or is not there.
var errNoWorker = errors.New("no worker of this id answers")

func (c systemCommands) workers() *cobra.Command {
	return &cobra.Command{
		Use: "workers [WORKER]", Short: "List the workers that are alive, what they take and what they have taken",
		Args: between(0, "WORKER"),
		Long: `List the workers that are alive: how many of their slots are taken, with which tags and for which activities they take work, and their sessions. With the id of
one: what it has taken just now, the oldest first. Each worker answers for itself, so one that hangs is missing, and so is one in another language that does not answer.`,
		Example: "  rondo workers\n  rondo workers laptop-4711-50fa89b3",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.connected(cmd, patience, func(ctx context.Context) error {
				all, err := c.client.System().Processes(ctx)
				if err != nil {
					return err
				}
				all = slices.DeleteFunc(all, func(p client.Process) bool {
					return p.Kind != client.KindWorker || p.Works == nil
				})
				if len(args) == 0 {
					return c.workersShown(all)
				}
				i := slices.IndexFunc(all, func(p client.Process) bool { return p.ID == args[0] })
				if i < 0 {
					return fmt.Errorf("%w: %s", errNoWorker, args[0])
				}
				return c.workerShown(all[i])
			})
		},
	}
}

func (c systemCommands) workersShown(all []client.Process) error {
	if c.asJSON() {
		return c.json(struct {
			Workers []client.Process `json:"workers"`
		}{append([]client.Process{}, all...)})
	}
	if len(all) == 0 {
		return c.print("no worker answers; start one: your program with `worker`, or `rondo dev`")
	}
	var rows [][]string
	for _, p := range all {
		state := "alive"
		if p.Works.Draining {
			state = "draining"
		}
		slots := fmt.Sprintf("%d of %d", p.Works.Used, p.Works.Slots)
		rows = append(rows, []string{p.ID, cmp.Or(p.Host, "-"), state, c.ago(p.Began), slots, cmp.Or(p.Works.Tags, "-"),
			cmp.Or(strings.Join(p.Works.Activities, ", "), "-")})
	}
	if err := c.table([]string{"WORKER", "HOST", "STATE", "BEGUN", "SLOTS", "TAGS", "ACTIVITIES"}, rows); err != nil {
		return err
	}
	for _, p := range all {
		if p.Problem != "" {
			fmt.Fprintf(c.out, "%s: %s\n", printable.Line(p.ID), oneLine(p.Problem))
		}
	}
	return nil
}

func (c systemCommands) workerShown(p client.Process) error {
	if c.asJSON() {
		return c.json(p)
	}
	w := p.Works
	line := func(name, format string, args ...any) { c.row(11, name, format, args...) }
	line("worker", "%s", p.ID)
	line("host", "%s", cmp.Or(p.Host, "-"))
	line("build", "%s", cmp.Or(p.Build, "-"))
	line("begun", "%s (%s)", c.ago(p.Began), stamp(p.Began))
	line("slots", "%d of %d are taken", w.Used, w.Slots)
	line("tags", "%s", cmp.Or(w.Tags, "-"))
	line("activities", "%s", cmp.Or(strings.Join(w.Activities, ", "), "-"))
	if len(w.Sessions) > 0 {
		line("sessions", "%s", strings.Join(w.Sessions, ", "))
	}
	if w.Draining {
		line("", "it drains: it takes nothing new")
	}
	if p.Problem != "" {
		line("problem", "%s", oneLine(p.Problem))
	}
	var rows [][]string
	for _, h := range w.Holds {
		note := h.Stopping
		if h.GivenUp {
			note = "was given up and still runs: " + note
		}
		rows = append(rows, []string{span(c.now().Sub(h.Since)), h.Activity, cmp.Or(h.Tag, "-"),
			strconv.Itoa(h.Attempt), h.Instance, note})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	if err := c.table([]string{"SINCE", "ACTIVITY", "TAG", "ATTEMPT", "INSTANCE", ""}, rows); err != nil {
		return err
	}
	if w.More > 0 {
		return c.print("and %s", plural.Count(w.More, "other"))
	}
	return nil
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

func (c systemCommands) partitions() *cobra.Command {
	type answer struct {
		Partitions []client.Partition `json:"partitions"`
	}
	return c.system("partitions", "List the partitions: whose they are, and what waits in them",
		"List the partitions of what is sent to instances: which orchestrator takes each, how many messages wait "+
			"there, and how many it holds and has not settled.",
		func(s client.SystemStatus) any { return answer{s.Partitions} },
		func(s client.SystemStatus) error {
			var rows [][]string
			for _, p := range s.Partitions {
				owner := cmp.Or(p.Owner, "nobody")
				if p.Draining {
					owner += " (draining)"
				}
				if p.Receivers == 0 {
					owner += " (does not ask just now)"
				}
				rows = append(rows, []string{strconv.Itoa(p.Partition), strconv.FormatInt(p.Waiting, 10),
					strconv.FormatInt(p.Held, 10), owner})
			}
			return c.table([]string{"PARTITION", "WAITING", "HELD", "ORCHESTRATOR"}, rows)
		})
}

func (c systemCommands) taskQueues() *cobra.Command {
	type answer struct {
		TaskQueues []client.TaskQueue `json:"task_queues"`
		More       int                `json:"more,omitempty"`
	}
	return c.system("task-queues", "List the task queues: waiting tasks, and workers that ask for them",
		"List the task queues, one for each activity and tag: the tasks that wait, the tasks that workers hold, "+
			"and the open requests of workers for more. Tasks that wait where no worker asks need a worker with "+
			"that activity and tag.",
		func(s client.SystemStatus) any { return answer{s.TaskQueues, s.MoreTaskQueues} },
		func(s client.SystemStatus) error {
			if len(s.TaskQueues) == 0 {
				return c.print("no task queues yet; the first activity task, or the first worker, creates one")
			}
			var rows [][]string
			for _, q := range s.TaskQueues {
				note := ""
				if q.Waiting > 0 && q.Receivers == 0 && q.Held == 0 {
					note = "no worker takes it"
				}
				rows = append(rows, []string{q.Activity, cmp.Or(q.Tag, "-"), strconv.FormatInt(q.Waiting, 10),
					strconv.FormatInt(q.Held, 10), strconv.Itoa(q.Receivers), note})
			}
			if err := c.table([]string{"ACTIVITY", "TAG", "WAITING", "HELD", "ASKING", ""}, rows); err != nil {
				return err
			}
			if s.MoreTaskQueues > 0 {
				return c.print("and %s", plural.Count(s.MoreTaskQueues, "other"))
			}
			return nil
		})
}

func (c systemCommands) recover() *cobra.Command {
	return &cobra.Command{
		Use: "recover", Short: "Publish the messages that NATS has lost again",
		Args: exactly(),
		Long: `Ask the orchestrators to compare NATS with the histories of running instances, and to publish the tasks, timers and messages between instances that are missing
again. Messages that exist stay unchanged.

Orchestrators recover by themselves when NATS has lost everything, and single instances when they are overdue. Use this command when a part may be lost, such
as after a restore of a backup.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.connected(cmd, patience, func(ctx context.Context) error {
				r, err := c.client.System().Recover(ctx)
				if err != nil {
					return err
				}
				return c.done(r, "the orchestrators look at all running instances; they begin within %s", r.Within)
			})
		},
	}
}
