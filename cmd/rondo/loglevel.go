package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/pkg/client"
)

// errNoProcess says that no process has answered the request for its log level.
var errNoProcess = errors.New("no process answers")

func (c systemCommands) logLevel() *cobra.Command {
	var change client.LogLevelChange
	var after time.Duration
	cmd := &cobra.Command{
		Use: "log-level [LEVEL]", Short: "Tell or change what the running processes log", Args: between(0, "LEVEL"),
		Long: `Tell what each running process logs, or change it without a restart: debug, info, warn or error. With --for it goes back by itself; otherwise it stays until the
process ends. What orchestrations and activities log is shown from info on, or from this level if that is lower.

With the shipped permissions of NATS, clients may not do this: log in as the user setup, with --nats-inbox-prefix _INBOX_operator.`,
		Example: "  rondo log-level\n  rondo log-level debug --for 5m\n  rondo log-level debug --process " +
			"laptop-4711-50fa89b3",
		ValidArgs: []string{"debug", "info", "warn", "error"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				change.Level = args[0]
				switch change.Level {
				case "debug", "info", "warn", "error":
				default:
					return misuse("%q is not a log level: it is debug, info, warn or error", change.Level)
				}
			}
			switch {
			case change.Level == "" && cmd.Flags().Changed("for"):
				return misuse("--for needs a level: rondo log-level debug --for 5m")
			case cmd.Flags().Changed("for") && after <= 0:
				return misuse("--for %v: want a time above 0", after)
			case after > 0:
				change.For = after
			}
			return c.connected(cmd, patience, func(ctx context.Context) error {
				all, err := c.client.System().SetLogLevel(ctx, change)
				if err != nil {
					return err
				}
				return c.logLevelsShown(all, change)
			})
		},
	}
	cmd.Flags().StringVar(&change.Process, "process", "",
		"only of the process in which the orchestrator or worker with this `id` runs")
	durationVar(cmd.Flags(), &after, "for", 0, "after how long it goes back")
	return cmd
}

func (c systemCommands) logLevelsShown(all []client.LogLevel, change client.LogLevelChange) error {
	if len(all) == 0 && change.Process != "" {
		return fmt.Errorf("%w that is %s", errNoProcess, change.Process)
	}
	var problems []error
	rows := make([][]string, len(all))
	for i, l := range all {
		until := "-"
		if !l.Until.IsZero() {
			until = stamp(l.Until)
		}
		who := strings.Join(l.IDs, ", ")
		rows[i] = []string{l.Command, who, l.Level, until}
		if l.Problem != "" {
			problems = append(problems, fmt.Errorf("%s: %s", who, l.Problem))
		}
	}
	var err error
	switch {
	case c.asJSON():
		err = c.json(struct {
			Processes []client.LogLevel `json:"processes"`
		}{append([]client.LogLevel{}, all...)})
	case len(all) == 0:
		err = c.print("no process answers; start one: your program, or `rondo dev`")
	default:
		err = c.table([]string{"PROCESS", "IDS", "LEVEL", "UNTIL"}, rows)
	}
	return errors.Join(append(problems, err)...)
}
