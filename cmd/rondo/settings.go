package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
)

// errNotConnected says that NATS cannot be reached.
var errNotConnected = errors.New("NATS cannot be reached")

const (
	// patience is how long a command may take if nobody says otherwise.
	patience = 15 * time.Second
	// dialFor is how long to try to connect.
	dialFor = 5 * time.Second
)

// connection is what is said about where NATS is. The settings are those of the services, with the
// same names and variables.
type connection struct {
	table []app.Setting
	said  []string // flags, as arguments
	dir   string
	print bool

	forDatabase app.Setting // of the one command that reads the database itself
}

// flags adds the settings to a command and all below it.
func (c *connection) flags(root *cobra.Command) {
	for _, s := range app.Settings(app.Worker) {
		if s.Section != "NATS" && s.Name != "prefix" && s.Name != "max-payload" {
			continue
		}
		c.table = append(c.table, s)
		f := root.PersistentFlags().VarPF(&said{s, c}, s.Name, "", fmt.Sprintf("%s [$%s]", s.Help, s.Env))
		if s.Switch {
			f.NoOptDefVal = "true"
		}
		f.Hidden = s.Name != "nats" && s.Name != "nats-context"
	}
	root.PersistentFlags().Var(&said{app.Setting{Name: "config"}, c}, "config",
		"a YAML `file` with settings, by the names of the flags [$RONDO_CONFIG]")
	root.PersistentFlags().StringVar(&c.dir, "dir", app.Defaults(app.Dev).Dir,
		"the `directory` of the dev to talk to, if nobody says where NATS is")
	root.PersistentFlags().BoolVar(&c.print, "print-config", false,
		"print the settings as they are, and where each is from, and do nothing")
}

// database adds the setting that says where the database is to a command that reads it.
func (c *connection) database(cmd *cobra.Command) {
	for _, s := range app.Settings(app.Migrate) {
		if s.Name == databaseSetting {
			c.forDatabase = s
			cmd.Flags().VarPF(&said{s, c}, s.Name, "", fmt.Sprintf("%s [$%s]", s.Help, s.Env))
		}
	}
}

const databaseSetting = "database"

// said is the value of a flag: it is read with all others, so that all problems are told at once.
type said struct {
	setting app.Setting
	c       *connection
}

var _ pflag.Value = (*said)(nil)

func (v *said) Set(value string) error {
	v.c.said = append(v.c.said, "--"+v.setting.Name+"="+value)
	return nil
}

func (v *said) Type() string   { return "" }
func (v *said) String() string { return "" }

// config puts together what flags, variables and the file say, and where nothing is said about
// NATS, what the dev says that runs here.
func (c *connection) config(cmd *cobra.Command) (app.Config, app.Reading, error) {
	config := app.Defaults(app.Worker)
	r, problems := app.ReadSettings(&config, c.table, c.said, os.LookupEnv)
	if len(problems) > 0 {
		return config, r, usageError{errors.Join(problems...)}
	}
	said := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return r.From[n] != "" })
	}
	if !said("nats", "nats-context") || cmd.Flags().Changed("dir") {
		if at, err := app.ReadAddresses(c.dir); err == nil {
			config.NATS.URLs, config.NATS.Context = at.NATS, ""
			r.From["nats"] = "the dev in " + c.dir
			if !said("prefix") {
				config.NATS.Prefix, r.From["prefix"] = at.Prefix, "the dev in "+c.dir
			}
		} else if cmd.Flags().Changed("dir") || errors.Is(err, app.ErrNotRunning) {
			// and not what another one says on the usual port
			return config, r, fmt.Errorf("%w: %w", errNotConnected, err)
		}
	}
	return config, r, nil
}

// connected connects, and does something with the client within the time that it may take.
func (c *cli) connected(cmd *cobra.Command, usual time.Duration, do func(ctx context.Context) error) error {
	config, r, err := c.settings.config(cmd)
	if err != nil {
		return err
	}
	if c.settings.print {
		return app.PrintConfig(c.out, &config, c.settings.table, r)
	}
	ctx := cmd.Context()
	if limit := max(c.timeout, 0); limit > 0 || usual > 0 {
		if limit == 0 {
			limit = usual
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	n := config.NATS
	n.Setup, n.Name, n.Logger = natsbroker.Use, "rondo "+cmd.Name(), slog.New(slog.DiscardHandler)
	dial, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	if c.bus, err = natsbroker.Connect(dial, n); err != nil {
		return notConnected(err)
	}
	c.client = client.New(c.bus, client.Options{Name: "rondo"})
	if err := do(ctx); err != nil {
		return inTime(ctx, err)
	}
	return nil
}

// systemWithin is for how long a system that does not run yet is waited for: people type the next
// command while it starts.
const systemWithin = time.Minute

// onceThere does something with a system, and tries again for a while if that does not run.
func (c *cli) onceThere(ctx context.Context, do func() error) error {
	within := systemWithin
	if c.timeout > 0 {
		within = min(within, c.timeout)
	}
	soon, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	told := false
	for {
		err := do()
		if !mayStart(err) {
			return err
		}
		if !told {
			told = true
			fmt.Fprintf(c.problems, "%v; waiting for it\n", err)
		}
		select {
		case <-tick.C:
		case <-soon.Done():
			return err
		}
	}
}

// mayStart reports whether somebody may be about to start the system that was not found.
func mayStart(err error) bool {
	var silent nobodyListens
	return errors.As(err, &silent) || errors.Is(err, app.ErrNotRunning) || errors.Is(err, errNotConnected) &&
		errors.Is(err, fs.ErrNotExist)
}

// nobodyListens says that no server listens where NATS should be.
type nobodyListens struct{ error }

func (e nobodyListens) Unwrap() error { return e.error }

// notConnected says that NATS cannot be reached, once.
func notConnected(err error) error {
	text := strings.TrimPrefix(err.Error(), "nats: ")
	err = fmt.Errorf("%w: %s", errNotConnected, text)
	if strings.Contains(text, "no servers available") {
		return nobodyListens{err}
	}
	return err
}

// inTime says so if it is the time that has ended something.
func inTime(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}
