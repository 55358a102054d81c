package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/client"
)

// scheduleCommands has the commands about schedules, which start orchestrations regularly.
type scheduleCommands struct{ *cli }

// schedules is the command with all of them.
func (c scheduleCommands) schedules() *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedules", Short: "Start orchestrations again and again: list, show, put, pause, resume, drop",
		Args: cobra.ArbitraryArgs,
		Long: "Schedules start orchestrations again and again. NATS does it, so nothing has to run for it; what was " +
			"missed while no orchestrator ran is started when one runs again.",
		Example: `  rondo schedules put nightly report '{"region":"eu"}' --cron '0 3 * * *' --zone Europe/Berlin
  rondo schedules
  rondo schedules pause nightly`,
	}
	list := &cobra.Command{Use: "list", Short: "List schedules", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.listSchedules(cmd)
		}}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return misuse("there is no command %q%s", args[0], suggestion(cmd, args[0]))
		}
		return c.listSchedules(cmd)
	}
	cmd.AddCommand(list, c.showSchedule(), c.putSchedule(),
		c.changeSchedule("pause", "Pause a schedule until it is resumed", "paused",
			client.Schedules.Pause),
		c.changeSchedule("resume", "Resume a paused schedule", "resumed", client.Schedules.Resume),
		c.changeSchedule("drop", "Delete a schedule; instances that it started continue", "dropped",
			client.Schedules.Delete))
	return cmd
}

func (c scheduleCommands) listSchedules(cmd *cobra.Command) error {
	return c.seeing(cmd, patience, func(ctx context.Context) error {
		all, err := client.Collect(c.client.Schedules().All(ctx))
		if err != nil {
			return err
		}
		if c.asJSON() {
			if all == nil {
				all = []client.Schedule{}
			}
			return c.json(struct {
				Schedules []client.Schedule `json:"schedules"`
			}{all})
		}
		if len(all) == 0 {
			return c.print("there are no schedules")
		}
		var rows [][]string
		for _, s := range all {
			next := "-"
			switch {
			case s.Paused:
				next = "paused"
			case len(s.Next) > 0:
				next = "in " + span(s.Next[0].Sub(c.now()))
			case isEvery(s):
				next = "every" + strings.TrimPrefix(s.Cron, "@every")
			}
			rows = append(rows, []string{s.ID, s.Orchestration + " " + s.Version, s.Cron, orElse(s.Zone, "UTC"),
				string(s.Overlap), next})
		}
		return c.table([]string{"SCHEDULE", "ORCHESTRATION", "WHEN", "ZONE", "OVERLAP", "NEXT"}, rows)
	})
}

// isEvery reports whether a schedule counts from its last start, so that its next times are not
// known.
func isEvery(s client.Schedule) bool { return strings.HasPrefix(s.Cron, "@every ") }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (c scheduleCommands) showSchedule() *cobra.Command {
	return &cobra.Command{
		Use: "show SCHEDULE", Short: "Show a schedule and its next start times", Args: exactly("SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.seeing(cmd, patience, func(ctx context.Context) error {
				s, err := c.client.Schedules().Get(ctx, args[0])
				if err != nil {
					return err
				}
				if c.asJSON() {
					return c.json(s)
				}
				line := func(name, format string, args ...any) { c.row(14, name, format, args...) }
				line("schedule", "%s", s.ID)
				line("orchestration", "%s %s", s.Orchestration, s.Version)
				line("when", "%s (%s)", s.Cron, orElse(s.Zone, "UTC"))
				line("overlap", "%s", s.Overlap)
				if len(s.Input) > 0 {
					line("input", "%s", s.Input)
				}
				if s.Paused {
					line("paused", "rondo schedules resume %s", positional(s.ID))
					return nil
				}
				if isEvery(s) {
					line("next", "every%s; the broker counts from when it last started",
						strings.TrimPrefix(s.Cron, "@every"))
				}
				zone, err := time.LoadLocation(s.Zone)
				if err != nil {
					zone = time.UTC
				}
				for _, at := range s.Next {
					line("next", "%s (in %s)", at.In(zone).Format(time.RFC3339), span(at.Sub(c.now())))
				}
				return nil
			})
		},
	}
}

func (c scheduleCommands) putSchedule() *cobra.Command {
	var s client.Schedule
	var overlap string
	var unchecked bool
	cmd := &cobra.Command{
		Use: "put SCHEDULE ORCHESTRATION [INPUT]", Short: "Create or update a schedule",
		Long: `Create or update a schedule. --cron has five fields (minute, hour, day of the month, month, day of the week), or six with seconds before them, or is one of
@hourly, @daily, @weekly, @monthly, @yearly, and "@every 10m".

Orchestrators that are running check the name of the orchestration and the input. With --unchecked, the schedule is stored before its code is deployed.

While an instance that was started before runs, "skip" starts nothing, "replace" terminates it and starts afresh, and "each" starts another one, each with an id of its own.`,
		Example: `  rondo schedules put nightly report '{"region":"eu"}' --cron '0 3 * * *' --zone Europe/Berlin`,
		Args:    between(2, "SCHEDULE", "ORCHESTRATION", "INPUT"),
	}
	cmd.Flags().StringVar(&s.Cron, "cron", "", "the `pattern` of the times, like '30 2 * * *' or @hourly")
	cmd.Flags().StringVar(&s.Zone, "zone", "", "the time `zone` for it, like Europe/Berlin; the default is UTC")
	cmd.Flags().StringVar(&overlap, "overlap", "skip",
		"the `policy` for a run whose predecessor has not ended: skip, replace or each")
	cmd.Flags().StringVar(&s.Version, "orchestration-version", "", "the `version` of the orchestration")
	cmd.Flags().Var(attributeFlag{&s.Attributes}, "attribute", "what instances can be found by, as `key=value`")
	cmd.Flags().BoolVar(&unchecked, "unchecked", false,
		"store it also if no orchestrator that is running has the orchestration, or takes the input")
	cmd.Flags().BoolVar(&s.Paused, "paused", false, "it starts nothing until it is resumed")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if s.Cron == "" {
			return misuse("--cron is missing; for example --cron '0 3 * * *' or --cron '@every 10m'")
		}
		if s.Input, err = c.payload("input", args, 2); err != nil {
			return err
		}
		s.ID, s.Orchestration, s.Overlap = args[0], args[1], client.Overlap(overlap)
		if err := s.Check(); err != nil {
			return usageError{err}
		}
		return c.seeing(cmd, patience, func(ctx context.Context) error {
			if !unchecked {
				if err := c.checkStart(ctx, s); err != nil {
					return err
				}
			}
			if err := c.client.Schedules().Put(ctx, s); err != nil {
				return err
			}
			return c.done(scheduled{s.ID, "put"}, "%s is scheduled", s.ID)
		})
	}
	return cmd
}

// checkStart checks the orchestration and the input of a schedule, as far as orchestrators answer.
func (c scheduleCommands) checkStart(ctx context.Context, s client.Schedule) error {
	const remedy = "--unchecked stores the schedule all the same"
	known, err := c.registered(ctx)
	if err != nil {
		fmt.Fprintln(c.problems, "no orchestrator answers, so name and input are not checked")
		//lint:ignore nilerr the schedule can be stored without one
		return nil
	}
	versions, has := known[s.Orchestration]
	switch {
	case !has:
		names := slices.Sorted(maps.Keys(known))
		return fmt.Errorf("no orchestrator that is running knows %q%s; known are %s; %s", s.Orchestration,
			settings.DidYouMean(s.Orchestration, names), strings.Join(names, ", "), remedy)
	case s.Version != "" && !slices.Contains(versions, s.Version):
		return fmt.Errorf("no orchestrator that is running knows %s %s; its versions are %s; %s", s.Orchestration,
			s.Version, strings.Join(versions, ", "), remedy)
	}
	a, err := query.NewReader(c.bus).CheckStart(ctx, query.Start{Orchestration: s.Orchestration, Version: s.Version,
		Input: s.Input})
	switch {
	case err != nil || !a.Known: // it is of another release
		fmt.Fprintln(c.problems, "the orchestrator that answered does not have the code, so the input is not checked")
		//lint:ignore nilerr the schedule can be stored without an answer
		return nil
	case a.Problem != "":
		return fmt.Errorf("each start of %s would fail: %s; %s", s.Orchestration, a.Problem, remedy)
	}
	return nil
}

// scheduled is the result of a command on a schedule, as JSON.
type scheduled struct {
	Schedule string `json:"schedule"`
	Done     string `json:"done"`
}

func (c scheduleCommands) changeSchedule(name, short, said string,
	do func(client.Schedules, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " SCHEDULE", Short: short, Args: exactly("SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.seeing(cmd, patience, func(ctx context.Context) error {
				if err := do(c.client.Schedules(), ctx, args[0]); err != nil {
					return err
				}
				return c.done(scheduled{args[0], name}, "%s: %s", args[0], said)
			})
		},
	}
}
