package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-run/rondo/pkg/client"
)

// scheduleCommands has the commands about schedules, which start orchestrations regularly.
type scheduleCommands struct{ *cli }

// schedules is the command with all of them.
func (c scheduleCommands) schedules() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "Start orchestrations again and again: list, show, put, pause, resume, trigger, backfill, drop",
		Args:  cobra.ArbitraryArgs,
		Long: "Schedules start orchestrations again and again. They are stored in the database, and each run is " +
			"started once. What came due while no orchestrator ran is started when one runs again, for up to a day.",
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
	cmd.AddCommand(list, c.showSchedule(), c.putSchedule(), c.pauseSchedule(), c.triggerSchedule(),
		c.backfillSchedule(),
		c.changeSchedule("resume", "Resume a paused schedule", "resumed", client.Schedules.Resume),
		c.changeSchedule("drop", "Delete a schedule; instances that it started continue", "dropped",
			client.Schedules.Delete))
	return cmd
}

func (c scheduleCommands) listSchedules(cmd *cobra.Command) error {
	return c.connected(cmd, patience, func(ctx context.Context) error {
		all, err := client.Collect(c.client.Schedules().All(ctx))
		if err != nil {
			return err
		}
		if c.asJSON() {
			out := []scheduleJSON{}
			for _, s := range all {
				out = append(out, jsonOf(s))
			}
			return c.json(struct {
				Schedules []scheduleJSON `json:"schedules"`
			}{out})
		}
		if len(all) == 0 {
			return c.print("there are no schedules")
		}
		var rows [][]string
		for _, s := range all {
			rows = append(rows, []string{s.ID, s.Orchestration + " " + s.Version, timesOf(s), orElse(s.Zone, "UTC"),
				string(s.Overlap), c.nextOf(s)})
		}
		return c.table([]string{"SCHEDULE", "ORCHESTRATION", "WHEN", "ZONE", "OVERLAP", "NEXT"}, rows)
	})
}

// scheduleJSON is a schedule as JSON, with durations as text.
type scheduleJSON struct {
	client.Schedule
	Jitter  string `json:"jitter,omitempty"`
	CatchUp string `json:"catch_up,omitempty"`
}

func jsonOf(s client.Schedule) scheduleJSON {
	out := scheduleJSON{Schedule: s}
	if s.Jitter > 0 {
		out.Jitter = s.Jitter.String()
	}
	if s.CatchUp > 0 {
		out.CatchUp = s.CatchUp.String()
	}
	return out
}

// nextOf says when a schedule starts its next run.
func (c scheduleCommands) nextOf(s client.Schedule) string {
	switch {
	case s.Problem != "":
		return "cannot be read"
	case s.Paused:
		return "paused"
	case s.Finished:
		return "finished"
	case len(s.Next) > 0:
		return "in " + span(s.Next[0].Sub(c.now()))
	}
	return "-"
}

// timesOf says at which times a schedule starts runs.
func timesOf(s client.Schedule) string {
	if s.Cron != "" {
		return s.Cron
	}
	var all []string
	for _, c := range s.Calendars {
		all = append(all, calendarText(c))
	}
	return strings.Join(all, " and ")
}

// calendarText writes a calendar as the flag takes it.
func calendarText(c client.Calendar) string {
	var fields []string
	for _, f := range calendarFields(&c) {
		if *f.value != "" {
			fields = append(fields, f.name+"="+*f.value)
		}
	}
	return strings.Join(fields, " ")
}

type calendarField struct {
	name  string
	value *string
}

func calendarFields(c *client.Calendar) []calendarField {
	return []calendarField{{"year", &c.Year}, {"month", &c.Month}, {"day", &c.Day}, {"weekday", &c.Weekday},
		{"hour", &c.Hour}, {"minute", &c.Minute}, {"second", &c.Second}}
}

// calendarFlag is the value of --calendar: field=value, several with spaces; several flags are
// several calendars.
type calendarFlag struct{ to *[]client.Calendar }

var _ pflag.Value = calendarFlag{}

func (f calendarFlag) Set(value string) error {
	var c client.Calendar
	fields := calendarFields(&c)
	for _, pair := range strings.Fields(value) {
		name, v, ok := strings.Cut(pair, "=")
		i := slices.IndexFunc(fields, func(f calendarField) bool { return f.name == name })
		switch {
		case !ok || v == "" || i < 0:
			return errors.New("want fields like \"weekday=MON-FRI hour=6\": " +
				"year, month, day, weekday, hour, minute, second")
		case *fields[i].value != "":
			return fmt.Errorf("%s was given before; write a list, like %s=1,15", name, name)
		}
		*fields[i].value = v
	}
	*f.to = append(*f.to, c)
	return nil
}

func (calendarFlag) Type() string { return "calendar" }

func (f calendarFlag) String() string {
	if f.to == nil {
		return ""
	}
	return fmt.Sprint(*f.to)
}

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
			return c.connected(cmd, patience, func(ctx context.Context) error {
				s, err := c.client.Schedules().Get(ctx, args[0])
				if err != nil {
					return err
				}
				if c.asJSON() {
					return c.json(jsonOf(s))
				}
				line := func(name, format string, args ...any) { c.row(14, name, format, args...) }
				line("schedule", "%s", s.ID)
				line("orchestration", "%s %s", s.Orchestration, s.Version)
				line("when", "%s (%s)", timesOf(s), orElse(s.Zone, "UTC"))
				line("overlap", "%s", s.Overlap)
				if len(s.Input) > 0 {
					line("input", "%s", s.Input)
				}
				c.showTimes(s, line)
				return nil
			})
		},
	}
}

// showTimes shows what a schedule has started, and will start.
func (c scheduleCommands) showTimes(s client.Schedule, line func(name, format string, args ...any)) {
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		zone = time.UTC
	}
	at := func(t time.Time) string { return t.In(zone).Format(time.RFC3339) }
	if !s.Start.IsZero() {
		line("from", "%s", at(s.Start))
	}
	if !s.End.IsZero() {
		line("until", "%s", at(s.End))
	}
	if s.Limit > 0 {
		line("limit", "%d runs", s.Limit)
	}
	if s.Jitter > 0 {
		line("jitter", "%v", s.Jitter)
	}
	if s.CatchUp > 0 {
		line("catch-up", "%v", s.CatchUp)
	}
	line("started", "%d, missed %d, skipped %d", s.Started, s.Missed, s.Skipped)
	line("revision", "%d, of %s", s.Revision, s.Changed.UTC().Format(time.RFC3339))
	switch {
	case s.Problem != "":
		line("problem", "it cannot be read, and starts nothing: %s", s.Problem)
	case s.Paused && s.Note != "":
		line("paused", "%s; rondo schedules resume %s", s.Note, positional(s.ID))
	case s.Paused:
		line("paused", "rondo schedules resume %s", positional(s.ID))
	case s.Finished:
		line("finished", "it starts nothing any more")
	}
	for _, t := range s.Buffered {
		line("waits", "%s, for the end of the run before", at(t))
	}
	for _, t := range s.Next {
		line("next", "%s (in %s)", at(t), span(t.Sub(c.now())))
	}
	for _, r := range s.Runs {
		why := ""
		if r.Reason != "schedule" {
			why = " (" + r.Reason + ")"
		}
		line("run", "%s %s%s", r.Instance, r.Status, why)
	}
}

func (c scheduleCommands) putSchedule() *cobra.Command {
	var s client.Schedule
	var overlap, from, until string
	var unchecked, fresh bool
	cmd := &cobra.Command{
		Use: "put SCHEDULE ORCHESTRATION [INPUT]", Short: "Create or update a schedule",
		Long: `Create or update a schedule. --cron has five fields (minute, hour, day of the month, month, day of the week), or six with seconds before them, or is one of
@hourly, @daily, @weekly, @monthly, @yearly, and "@every 10m". --calendar names the fields, like "weekday=MON-FRI hour=6 minute=30".

The orchestrators check the name of the orchestration and the input. With --unchecked, the schedule is stored before its code is deployed.

A schedule that is stored already is left as it is, with what is due. A paused one stays paused.

While an instance that was started before runs, "skip" starts nothing, "buffer_one" starts one run after it and "buffer_all" all, "allow" starts another one beside it, and "cancel_other" and "terminate_other" end it first. Each run is an instance of its own, whose id is that of the schedule, "@" and the time.`,
		Example: `  rondo schedules put nightly report '{"region":"eu"}' --cron '0 3 * * *' --zone Europe/Berlin`,
		Args:    between(2, "SCHEDULE", "ORCHESTRATION", "INPUT"),
	}
	cmd.Flags().StringVar(&s.Cron, "cron", "", "the `pattern` of the times, like '30 2 * * *' or @hourly")
	cmd.Flags().StringVar(&s.Zone, "zone", "", "the time `zone` for it, like Europe/Berlin; the default is UTC")
	cmd.Flags().StringVar(&overlap, "overlap", "skip",
		"the `policy` for a run whose predecessor has not ended: skip, buffer_one, buffer_all, allow, cancel_other or "+
			"terminate_other")
	cmd.Flags().Var(calendarFlag{&s.Calendars}, "calendar",
		"the times, as `fields` like 'weekday=MON-FRI hour=6'; several flags for several calendars")
	cmd.Flags().StringVar(&from, "from", "", "the `time` before which no run begins, like 2027-01-31T06:00:00Z")
	cmd.Flags().StringVar(&until, "until", "", "the `time` from which on no run begins")
	cmd.Flags().IntVar(&s.Limit, "limit", 0, "the `number` of runs after which it ends")
	durationVar(cmd.Flags(), &s.Jitter, "jitter", 0, "delay each run by up to this `duration`")
	durationVar(cmd.Flags(), &s.CatchUp, "catch-up", 0,
		"start a run late by up to this `duration` after an absence of all orchestrators; 0 is 24h")
	cmd.Flags().Int64Var(&s.Revision, "if-revision", 0,
		"replace this `revision` only, as shown by rondo schedules show")
	cmd.Flags().BoolVar(&fresh, "new", false, "fail if there is a schedule of that id")
	cmd.Flags().StringVar(&s.Note, "note", "", "the `reason` why it is paused")
	cmd.Flags().StringVar(&s.Version, "orchestration-version", "", "the `version` of the orchestration")
	cmd.Flags().Var(attributeFlag{&s.Attributes}, "attribute", "what instances can be found by, as `key=value`")
	cmd.Flags().BoolVar(&unchecked, "unchecked", false,
		"store it also if no orchestrator that is running has the orchestration, or takes the input")
	cmd.Flags().BoolVar(&s.Paused, "paused", false, "it starts nothing until it is resumed")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if s.Cron == "" && len(s.Calendars) == 0 {
			return misuse("--cron is missing; for example --cron '0 3 * * *' or --cron '@every 10m'")
		}
		if s.Input, err = c.payload("input", args, 2); err != nil {
			return err
		}
		if s.Start, err = timeOf("from", from); err != nil {
			return err
		}
		if s.End, err = timeOf("until", until); err != nil {
			return err
		}
		s.ID, s.Orchestration, s.Overlap = args[0], args[1], client.Overlap(overlap)
		if err := s.Check(); err != nil {
			return usageError{err}
		}
		var options []client.PutOption
		if unchecked {
			options = append(options, client.Unchecked())
		}
		if fresh {
			options = append(options, client.OnlyNew())
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			if _, err := c.client.Schedules().Put(ctx, s, options...); err != nil {
				return err
			}
			return c.done(scheduled{s.ID, "put"}, "%s is scheduled", s.ID)
		})
	}
	return cmd
}

// timeOf reads the value of a flag that is a time.
func timeOf(flag, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, misuse("--%s %q: want a time like 2027-01-31T06:00:00Z", flag, value)
	}
	return t, nil
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
			return c.connected(cmd, patience, func(ctx context.Context) error {
				if err := do(c.client.Schedules(), ctx, args[0]); err != nil {
					return err
				}
				return c.done(scheduled{args[0], name}, "%s: %s", args[0], said)
			})
		},
	}
}

func (c scheduleCommands) pauseSchedule() *cobra.Command {
	var note string
	cmd := c.changeSchedule("pause", "Pause a schedule until it is resumed", "paused",
		func(s client.Schedules, ctx context.Context, id string) error { return s.Pause(ctx, id, note) })
	cmd.Flags().StringVar(&note, "note", "", "the `reason`, for rondo schedules show")
	return cmd
}

func (c scheduleCommands) triggerSchedule() *cobra.Command {
	var overlap string
	cmd := c.changeSchedule("trigger", "Start a run of a schedule now, also of a paused one", "a run starts",
		func(s client.Schedules, ctx context.Context, id string) error {
			return s.Trigger(ctx, id, client.Overlap(overlap))
		})
	cmd.Flags().StringVar(&overlap, "overlap", "", "the `policy` for it, if not that of the schedule")
	return cmd
}

func (c scheduleCommands) backfillSchedule() *cobra.Command {
	var overlap string
	cmd := &cobra.Command{
		Use: "backfill SCHEDULE FROM TO", Short: "Start the runs of a time that has passed",
		Long: "Start the runs of a time that has passed, from FROM and before TO. A run whose instance exists is not " +
			"started again.",
		Example: "  rondo schedules backfill nightly 2027-01-01T00:00:00Z 2027-01-08T00:00:00Z",
		Args:    exactly("SCHEDULE", "FROM", "TO"),
	}
	cmd.Flags().StringVar(&overlap, "overlap", "", "the `policy` for its runs, if not that of the schedule")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var times [2]time.Time
		for i, name := range []string{"FROM", "TO"} {
			var err error
			if times[i], err = time.Parse(time.RFC3339, args[1+i]); err != nil {
				return misuse("%s %q: want a time like 2027-01-31T06:00:00Z", name, args[1+i])
			}
		}
		return c.connected(cmd, patience, func(ctx context.Context) error {
			err := c.client.Schedules().Backfill(ctx, args[0], times[0], times[1], client.Overlap(overlap))
			if err != nil {
				return err
			}
			return c.done(scheduled{args[0], "backfill"}, "%s: its runs of that time start", args[0])
		})
	}
	return cmd
}
