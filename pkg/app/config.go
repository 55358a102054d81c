package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/events"
	jobserver "github.com/rondo-run/rondo/services/jobs"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// Command is what a program is started as.
type Command string

// The commands.
const (
	Dev          Command = "dev"
	Orchestrator Command = "orchestrator"
	Worker       Command = "worker"
	Migrate      Command = "migrate"
)

// Config is everything that can be set. Begin with [Defaults].
type Config struct {
	// Program is its name, empty: that of the binary.
	Program string
	Command Command
	// Try gives the commands that dev advises to try next, for the directory in which it runs; nil
	// advises to use the nats command.
	Try func(dir string) []string

	// Loggers that NATS, Orchestrator and Worker have are used as they are: Log, and the export of
	// logs, do not apply to what goes there. Without one, Log says where logs go.
	NATS         natsbroker.Config
	Database     Database
	Orchestrator orchestrator.Config
	Worker       worker.Config

	// Tags is which work the worker takes: tags, "_" for work without one, "*" for any. Empty: what
	// Worker says.
	Tags []string

	// Dir is where dev keeps everything. NATSListen is where its NATS server listens; empty:
	// 127.0.0.1:4222, or another port if that is taken.
	Dir        string
	NATSListen string
	// Demo has dev show what the program can do.
	Demo bool

	// Listen is where /livez, /readyz and /version are served, "off" for nowhere; without a host,
	// as in :7071, at all addresses. Empty: a port of each service's own on 127.0.0.1, or another
	// one if that is taken.
	Listen string
	// Wait is how long to wait for NATS and the database at the start. Grace is how long what is
	// under way may go on at the end.
	Wait, Grace time.Duration

	// Queues says where queues are served over HTTP.
	Queues Queues

	// Check has migrate change nothing. Streams has it look after NATS, too.
	Check, Streams bool

	Log Log
	// Stdout and Stderr are where the program writes to; nil for those of the process.
	Stdout, Stderr io.Writer
}

// Database says where the history is.
type Database struct {
	// URL is an address as pgx reads it, or the path of a SQLite file, which may have "sqlite:"
	// before it. In dev, empty stands for a file in Dir.
	URL string
	// Schema says what to do about the tables.
	Schema Schema
}

// Schema says what to do about the tables.
type Schema int

// The choices.
const (
	MigrateTables Schema = iota // bring them up to date
	VerifyTables                // only check them
)

// Log says what is logged, and how.
type Log struct {
	// Level is that of what the services say. What orchestrations and activities log is shown from
	// [slog.LevelInfo] on, or from Level if that is lower.
	Level slog.Level
	JSON  bool
	// Payloads lets logs tell the data of users where something is wrong with it. Otherwise they
	// tell its size and hash.
	Payloads bool
}

// Defaults are the settings of a command when nobody says anything, but for the parts that say
// something with [Configure].
func Defaults(command Command, parts ...Part) Config {
	c := defaults(command)
	for _, p := range parts {
		if change, ok := p.(configure); ok {
			change(&c)
		}
	}
	return c
}

func defaults(command Command) Config {
	c := Config{
		Command: command,
		Dir:     ".rondo",
		Wait:    time.Minute,
		Grace:   20 * time.Second,
		NATS: natsbroker.Config{
			Prefix: events.DefaultPrefix, InboxWait: 5 * time.Second, WorkWait: 30 * time.Second,
			DeadFor:      30 * 24 * time.Hour,
			SessionLease: 30 * time.Second, MemberLease: 3 * time.Second, Timeout: 5 * time.Second,
		},
		Orchestrator: orchestrator.Config{
			MaxInstances: 10_000, MaxInstanceBytes: 1 << 30, MaxMessages: 20_000, MaxMessageBytes: 256 << 20, Steps: 64,
			RunawayAfter:  10 * time.Second,
			CommitTimeout: 10 * time.Second, SweepEvery: 5 * time.Second,
		},
		Worker: worker.Config{
			Slots: 100, MaxAttempts: 10, Grace: 10 * time.Second, MaxSessions: 10, SessionIdle: 5 * time.Minute,
		},
	}
	c.Orchestrator.Round.MaxAttempts = 10
	c.Queues.MaxItem, c.Queues.MaxBody = jobserver.DefaultMaxItem, jobserver.DefaultMaxBody
	if command == Dev { // somebody sits in front of it
		c.Log.Level = slog.LevelWarn
		c.Grace = 5 * time.Second
	}
	return c
}

// The addresses that are served when nobody says anything.
var listenDefault = map[Command]string{Dev: "127.0.0.1:7070", Orchestrator: "127.0.0.1:7071", Worker: "127.0.0.1:7072"}

const (
	natsListenDefault = "127.0.0.1:4222"
	off               = "off"
)

// listen is where the program serves, and whether somebody has said so.
func (c *Config) listen() (address string, said bool) {
	if c.Listen != "" {
		return c.Listen, true
	}
	return listenDefault[c.Command], false
}

// database is the address of the database: in dev, a file if nobody says anything else.
func (c *Config) database() string {
	if c.Database.URL == "" && c.Command == Dev {
		return filepath.Join(c.Dir, "rondo.db")
	}
	return c.Database.URL
}

// isFile tells whether the address of a database is the path of a file, and gives the path.
func isFile(address string) (path string, ok bool) {
	if path, ok = strings.CutPrefix(address, "sqlite:"); ok {
		return path, true
	}
	return address, !strings.Contains(address, "://") && !strings.Contains(address, "=")
}

// SettingsError lists what is wrong with the settings.
type SettingsError struct{ Problems []error }

func (e *SettingsError) Error() string {
	if len(e.Problems) == 1 {
		return "the settings: " + e.Problems[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d things are wrong with the settings:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.Error())
	}
	return b.String()
}

// Unwrap gives the problems.
func (e *SettingsError) Unwrap() []error { return e.Problems }

// problems lists what is wrong with the settings, as far as that can be seen without trying them.
// What is wrong with a single value was found when it was read, or is found here when it comes from
// a program.
func (c *Config) problems() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	table := Settings(c.Command)
	if len(table) == 0 {
		return []error{fmt.Errorf("there is no command %q; there are %s", c.Command,
			strings.Join(commandNames(), ", "))}
	}
	for _, s := range table {
		if s.check != nil {
			if err := s.check(c); err != nil {
				bad("--%s: %w", s.Name, err)
			}
		}
	}
	needsDatabase := c.Command == Orchestrator || c.Command == Migrate
	if needsDatabase && c.Database.URL == "" {
		bad("--database: which database? Say it with --database or RONDO_DATABASE_URL: " +
			"postgres://user@host:26257/name, or the path of a SQLite file")
	}
	var logins []string
	for _, l := range []struct{ name, is string }{
		{"--nats-creds", c.NATS.Credentials}, {"--nats-nkey", c.NATS.NKey}, {"--nats-user", c.NATS.User},
		{"--nats-token", c.NATS.Token},
	} {
		if l.is != "" {
			logins = append(logins, l.name)
		}
	}
	if len(logins) > 1 {
		bad("%s: choose one way to log in", strings.Join(logins, ", "))
	}
	if c.NATS.Password != "" && c.NATS.User == "" {
		bad("--nats-password: a password without --nats-user")
	}
	if (c.NATS.Certificate == "") != (c.NATS.Key == "") {
		bad("--nats-tls-cert and --nats-tls-key: a certificate needs its key, and a key its certificate")
	}
	if c.Orchestrator.MaxMessages < max(c.Orchestrator.MaxInbox, 500) && c.Orchestrator.MaxMessages > 0 {
		bad("--max-messages: %d are less than the %d that one round may take", c.Orchestrator.MaxMessages,
			max(c.Orchestrator.MaxInbox, 500))
	}
	return append(errs, c.Queues.problems(c.Command)...)
}

// checkAddress wants host:port.
func checkAddress(address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("%q is not an address like 127.0.0.1:8080, or 0.0.0.0:8080 for all networks", address)
	}
	return nil
}

func (c *Config) stdout() io.Writer { return c.Stdout }
func (c *Config) stderr() io.Writer { return c.Stderr }

// openOutput makes both outputs good for several who write at the same time: loggers, and those who
// print.
func (c *Config) openOutput() {
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	c.Stdout, c.Stderr = &oneAtATime{w: c.Stdout}, &oneAtATime{w: c.Stderr}
}

// oneAtATime lets one writer write after the other.
type oneAtATime struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneAtATime) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
}

func programName() string {
	return strings.TrimSuffix(filepath.Base(cmp.Or(slices.Concat(os.Args[:min(1, len(os.Args))], []string{""})...)),
		".exe")
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func isSettings(err error) bool {
	var e *SettingsError
	return errors.As(err, &e)
}
