package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
)

// errNotConnected says that NATS cannot be reached.
var errNotConnected = errors.New("NATS cannot be reached")

const (
	// patience is how long a command may take without --timeout.
	patience = 15 * time.Second
	// dialFor is how long to try to connect.
	dialFor = 5 * time.Second
)

// connection has the settings that name the NATS servers. They are those of the services, with the
// same names and variables.
type connection struct {
	table []settings.Setting
	said  []string // flags, as arguments
	dir   string
	print bool
	// prefix is that of the subjects, when a command has connected.
	prefix string
	// guessed is whether guess has explained the address.
	guessed bool

	forDatabase settings.Setting // of the one command that reads the database itself
}

// flags adds the settings to a command and all below it.
func (c *connection) flags(root *cobra.Command) {
	for _, s := range settings.For(settings.Worker) {
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
	root.PersistentFlags().Var(&said{settings.Setting{Name: "config"}, c}, "config",
		"a YAML `file` with settings, by the names of the flags [$RONDO_CONFIG]")
	root.PersistentFlags().StringVar(&c.dir, "dir", app.Defaults(app.Dev).Dir,
		"the `directory` of the dev to talk to, if nobody says where NATS is")
	root.PersistentFlags().BoolVar(&c.print, "print-config", false,
		"print the settings as they are, and where each is from, and do nothing")
}

// database adds the setting that says where the database is to a command that reads it.
func (c *connection) database(cmd *cobra.Command) {
	for _, s := range settings.For(settings.Migrate) {
		if s.Name == databaseSetting {
			c.forDatabase = s
			cmd.Flags().VarPF(&said{s, c}, s.Name, "", fmt.Sprintf("%s [$%s]", s.Help, s.Env))
		}
	}
}

const databaseSetting = "database"

// said is the value of a flag: it is read with all others, so that all problems are reported at
// once.
type said struct {
	setting settings.Setting
	c       *connection
}

var _ pflag.Value = (*said)(nil)

func (v *said) Set(value string) error {
	v.c.said = append(v.c.said, "--"+v.setting.Name+"="+value)
	return nil
}

func (v *said) Type() string   { return "" }
func (v *said) String() string { return "" }

// config merges the settings of flags, variables and the file. If they do not name NATS, it uses
// the address of the dev that runs here.
func (c *connection) config(cmd *cobra.Command) (app.Config, settings.Reading, error) {
	config := app.Defaults(app.Worker)
	r, problems := settings.Read(&config, c.table, c.said, os.LookupEnv)
	if len(problems) > 0 {
		return config, r, usageError{errors.Join(problems...)}
	}
	said := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return r.From[n] != "" })
	}
	if !said("nats", "nats-context") || cmd.Flags().Changed("dir") {
		if at, err := devdir.Read(c.dir); err == nil {
			config.NATS.URLs, config.NATS.Context = at.NATS, ""
			r.From["nats"] = "the dev in " + c.dir
			if !said("prefix") {
				config.Streams.Prefix, r.From["prefix"] = at.Prefix, "the dev in "+c.dir
			}
		} else if cmd.Flags().Changed("dir") || errors.Is(err, devdir.ErrNotRunning) {
			// and not the answer of another one on the usual port
			if inside := filepath.Join(c.dir, app.Defaults(app.Dev).Dir); isDev(inside) {
				err = fmt.Errorf("%w; did you mean --dir %s?", err, argument(inside))
			}
			return config, r, fmt.Errorf("%w: %w", errNotConnected, err)
		}
	}
	return config, r, nil
}

// isDev reports whether a dev runs in a directory.
func isDev(dir string) bool {
	_, err := devdir.Read(dir)
	return err == nil
}

// guess explains the address of NATS if nothing names it: the system that listens there may be
// another one than the operator thinks of. It is "" if something names the address, and from the
// second call on.
func (c *connection) guess(r settings.Reading) string {
	if r.From["nats"] != "" || r.From["nats-context"] != "" || c.guessed {
		return ""
	}
	c.guessed = true
	return fmt.Sprintf("there is no %s here, and neither --nats nor $RONDO_NATS_URL: talking to %s; "+
		"--dir names the directory of a dev that was started elsewhere", c.dir, usualNATS)
}

// usualNATS is the address of NATS if nothing names one.
const usualNATS = "nats://127.0.0.1:4222"

// printConfig prints the settings as they are, and the source of each.
func (c *connection) printConfig(out io.Writer, config *app.Config, r settings.Reading) error {
	return settings.Print(out, c.table, func(s settings.Setting) string { return s.Get(config) }, r)
}

// brokerConfig has the settings of a connection.
func brokerConfig(c *app.Config) natsbroker.Config {
	return settings.Broker(settings.NATS(c.NATS), settings.Streams(c.Streams))
}

// seeing is connected for a command that looks into the streams itself. Without streams, it would
// find nothing in them, which is no answer to a wrong --prefix.
func (c *cli) seeing(cmd *cobra.Command, usual time.Duration, do func(ctx context.Context) error) error {
	return c.connected(cmd, usual, func(ctx context.Context) error {
		if err := c.bus.SeesStreams(); err != nil {
			return err
		}
		return do(ctx)
	})
}

// connected connects, and does something with the client within the time that it may take.
func (c *cli) connected(cmd *cobra.Command, usual time.Duration, do func(ctx context.Context) error) error {
	config, r, err := c.settings.config(cmd)
	if err != nil {
		return err
	}
	if c.settings.print {
		return c.settings.printConfig(c.out, &config, r)
	}
	if guess := c.settings.guess(r); guess != "" {
		fmt.Fprintln(c.problems, guess)
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
	c.settings.prefix = config.Streams.Prefix
	n := brokerConfig(&config)
	n.Setup, n.Name, n.Logger = natsbroker.Use, "rondo "+cmd.Name(), slog.New(slog.DiscardHandler)
	dial, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	if c.bus, err = natsbroker.Connect(dial, n); err != nil {
		return notConnected(err)
	}
	c.client = busclient.New[*client.Client](c.bus, busclient.Options{Name: "rondo"})
	if err := do(ctx); err != nil {
		return inTime(ctx, err)
	}
	return nil
}

// systemWithin is how long a command waits for a system that does not run yet: users type the next
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

// mayStart reports whether the system that was not found may be about to start.
func mayStart(err error) bool {
	var silent noServer
	return errors.As(err, &silent) || errors.Is(err, devdir.ErrNotRunning) || errors.Is(err, errNotConnected) &&
		errors.Is(err, fs.ErrNotExist)
}

// noServer says that no server listens where NATS should be, or that it ends just now.
type noServer struct{ error }

func (e noServer) Unwrap() error { return e.error }

// notConnected says that NATS cannot be reached, once.
func notConnected(err error) error {
	if errors.Is(err, broker.ErrPermission) {
		return err // NATS is there
	}
	text := strings.TrimPrefix(err.Error(), "nats: ")
	// A server that is just ending accepts connections and closes them.
	ends := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
	err = fmt.Errorf("%w: %s", errNotConnected, text)
	if strings.Contains(text, "no servers available") || ends {
		return noServer{err}
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
