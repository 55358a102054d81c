package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/internal/x/redact"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	jobserver "github.com/rondo-run/rondo/services/jobs"
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

// Config is everything that can be set. Begin with [Defaults]: some zero values are not valid. A
// tag names the flag of a field; settings.md lists flags, variables and commands.
type Config struct {
	// Program is the name of the program. Default: that of the binary.
	Program string
	// Command selects what runs.
	Command Command
	// Try returns the commands that dev advises to try next, for the directory in which it runs.
	// Default: commands that start an instance.
	Try func(dir string) []string

	// Dir is the directory in which dev keeps everything. Default: .rondo.
	Dir string `setting:"dir"`
	// NATSListen is the address of the NATS server of dev. Default: 127.0.0.1:4222, or another port
	// if that is taken.
	NATSListen string `setting:"nats-listen"`
	// Demo has dev show what the program can do. Default: false.
	Demo bool `setting:"demo"`

	NATS         NATS
	Streams      Streams
	Database     Database
	Orchestrator OrchestratorConfig
	JobQueues    JobQueues
	Worker       WorkerConfig
	// Codec turns values into payloads and back, in orchestrators and workers. Clients need the
	// same one. Default: JSON.
	Codec codec.Codec

	// Listen is the address of /livez, /readyz, /metrics, /loglevel and /version, "off" for none;
	// without a host, as in :7071, all addresses. Default: 127.0.0.1 with port 7070 for dev, 7071
	// for the orchestrator, 7072 for the worker, or another port if that is taken.
	Listen string `setting:"listen"`
	// ConnectTimeout is the time limit for connecting to NATS and the database at the start.
	// Default: 1 minute.
	ConnectTimeout time.Duration `setting:"connect-timeout"`
	// ShutdownTimeout is the time limit for finishing tasks and rounds at the end. Default: 20
	// seconds, for dev 5 seconds.
	ShutdownTimeout time.Duration `setting:"shutdown-timeout"`
	Log             Log
	Migration       Migration

	// Stdout and Stderr are where the program writes to. Default: those of the process.
	Stdout, Stderr io.Writer
}

// NATS configures the connection to NATS. At most one way to log in may be set.
type NATS struct {
	// URLs are the addresses of servers, separated by commas. Default: those of Context, or
	// nats://127.0.0.1:4222.
	URLs string `setting:"nats"`
	// Context is the name or path of a context of the nats command. Default: none.
	Context string `setting:"nats-context"`
	// Credentials is a credentials file, NKey a file with the seed of an nkey. Default: none.
	Credentials string `setting:"nats-creds"`
	NKey        string `setting:"nats-nkey"`
	// User and Password, or a Token, log in. Default: none.
	User     string `setting:"nats-user"`
	Password string `setting:"nats-password"`
	Token    string `setting:"nats-token"`
	// CA is a file with the certificate authority of the servers. Default: those of the system.
	CA string `setting:"nats-tls-ca"`
	// Certificate and Key are files with the client certificate and its key. Default: none.
	Certificate string `setting:"nats-tls-cert"`
	Key         string `setting:"nats-tls-key"`
	// TLSFirst begins with TLS, before the server sends its greeting. Default: false.
	TLSFirst bool `setting:"nats-tls-first"`
	// Domain is the domain of JetStream, APIPrefix the prefix of its API if it is imported from
	// another account. Default: none.
	Domain    string `setting:"nats-domain"`
	APIPrefix string `setting:"nats-api-prefix"`
	// InboxPrefix begins the subjects of responses. Default: _INBOX.
	InboxPrefix string `setting:"nats-inbox-prefix"`
	// Timeout limits each request to the servers. Default: 5 seconds.
	Timeout time.Duration `setting:"nats-timeout"`
	// Logger receives the log of the connection. Default: the log of the program; [Log] and the
	// export of logs apply only to that.
	Logger *slog.Logger
}

// Streams configures the streams, consumers and buckets in NATS.
type Streams struct {
	// Prefix is the first word of all subjects and, in capitals, of the names of streams. Default:
	// rondo.
	Prefix string `setting:"prefix"`
	// Verify has services only check that everything exists, and create nothing. Default: false.
	Verify bool `setting:"setup"`
	// Partitions is the number of partitions of the inbox; 0 keeps the present number. Default: 0;
	// a new inbox gets 4, with replicas 8.
	Partitions int `setting:"partitions"`
	// Replicas is the number of servers that keep each message: 1, 3 or 5; 0 keeps the present
	// number. Default: 0; a new stream gets 1.
	Replicas int `setting:"replicas"`
	// MaxPayload is the size of the largest message that the servers must accept, in bytes.
	// Default: 0, the size of the largest input.
	MaxPayload int `setting:"max-payload"`
	// InboxAckWait is the ack wait of messages for instances. Default: 5 seconds.
	InboxAckWait time.Duration `setting:"inbox-ack-wait"`
	// TaskAckWait is the ack wait of activity tasks. Default: 30 seconds.
	TaskAckWait time.Duration `setting:"task-ack-wait"`
	// DeadLetterTTL is how long NATS keeps dead letters. Default: 30 days.
	DeadLetterTTL time.Duration `setting:"dead-letter-ttl"`
	// InboxMaxBytes bounds the stream RONDO, which refuses further messages, DeadLetterMaxBytes the
	// stream RONDO_DEAD, which drops its oldest ones. Default: 0, the present bound; new streams
	// get a quarter to half of what NATS can reserve, 32 GiB at most, and a quarter of that.
	InboxMaxBytes      int64 `setting:"inbox-max-bytes"`
	DeadLetterMaxBytes int64 `setting:"dead-letter-max-bytes"`
	// MemberLease is the lease of an orchestrator: one that does not renew it counts as dead.
	// Default: 3 seconds.
	MemberLease time.Duration `setting:"member-lease"`
	// SessionLease is the lease of a worker for its sessions. Default: 30 seconds.
	SessionLease time.Duration `setting:"session-lease"`
}

// Database configures the database with the history.
type Database struct {
	// URL is an address as pgx reads it, or the path of a SQLite file, which may have "sqlite:"
	// before it, or has the scheme of a [Store]. Default: none; for dev, a file in Dir.
	URL string `setting:"database"`
	// Verify only checks the tables, and does not migrate them. Default: false.
	Verify bool `setting:"schema"`
}

// OrchestratorConfig configures an orchestrator.
type OrchestratorConfig struct {
	// ID is unique among the orchestrators. Default: generated; for dev, dev.
	ID string `setting:"orchestrator-id"`
	// MaxInstances bounds the instances in memory. Default: 10,000.
	MaxInstances int `setting:"max-instances"`
	// MaxMessages bounds the messages in memory. Default: 20,000. Minimum: 500.
	MaxMessages int `setting:"max-messages"`
	// MaxInstanceMemory bounds about how much memory the instances take, in bytes. Default: 1 GiB.
	MaxInstanceMemory int64 `setting:"max-instance-memory"`
	// MaxMessageMemory bounds how much memory the messages take, in bytes. Default: 256 MiB.
	MaxMessageMemory int64 `setting:"max-message-memory"`
	// RoundConcurrency is how many rounds run at once. Default: 0, one for each processor.
	RoundConcurrency int `setting:"round-concurrency"`
	// StepConcurrency is how many inline steps run at once. Default: 64.
	StepConcurrency int `setting:"step-concurrency"`
	// MessageAttempts is how often an orchestrator tries a message before it dead-letters it.
	// Default: 10.
	MessageAttempts int `setting:"message-attempts"`
	// RunawayAfter is how long the code of a round may compute before the orchestrator interrupts
	// it. Default: 10 seconds.
	RunawayAfter time.Duration `setting:"runaway-after"`
	// MaxClockSkew is by how much the clock of this machine may differ from those of NATS and the
	// database. While it differs by more, the orchestrator decides nothing. Default: 10 seconds.
	MaxClockSkew time.Duration `setting:"max-clock-skew"`
	// NoDirectDelivery has NATS store all activity tasks first, instead of delivering them straight
	// to workers that have room for them. Default: false.
	NoDirectDelivery bool `setting:"direct-delivery"`
	// CommitTimeout limits one attempt to commit. Default: 10 seconds.
	CommitTimeout time.Duration `setting:"commit-timeout"`
	// SweepEvery is the interval of sweeps for overdue instances and outbox entries. Default: 5
	// seconds.
	SweepEvery time.Duration `setting:"sweep-every"`
	// OutboxAfter is the age at which another orchestrator publishes an outbox entry. Default: 10
	// seconds. With less than 5, workers execute directly delivered tasks twice that take a second.
	OutboxAfter time.Duration
	// Retention is how long instances are kept after they have ended; 0 keeps them for ever.
	// Default: 0.
	Retention time.Duration `setting:"retention"`
	// KeepExecutions is how many executions of an instance that continues as new are kept, the
	// current one included; 0 keeps all. Default: 0.
	KeepExecutions int `setting:"keep-executions"`
	// KeepFormerFor is how long a former execution stays in any case, because it tells which
	// messages were taken. Default: 10 minutes.
	KeepFormerFor time.Duration
	// FailNondeterminism fails instances whose code does not fit their history, instead of halting
	// them. Default: false.
	FailNondeterminism bool `setting:"fail-nondeterminism"`
	// FailUnregistered is the time after which a start fails for which no orchestrator has the
	// code; 0 lets it wait. Default: 0.
	FailUnregistered time.Duration `setting:"fail-unregistered"`
	// Logger receives the log of the orchestrator. Default: the log of the program; [Log] and the
	// export of logs apply only to that.
	Logger *slog.Logger
	// CodeLogger receives the log of orchestrations. Default: Logger.
	CodeLogger *slog.Logger
}

// JobQueues configures the server of job queues over HTTP.
type JobQueues struct {
	// Listen is the address, "off" for none. Default: off; for dev, 127.0.0.1:8000, or another port
	// if that is taken.
	Listen string `setting:"jobs-listen"`
	// Access is a file with the access control. Default: none: every client on this machine may do
	// everything, and no other client can connect.
	Access string `setting:"jobs-access"`
	// Certificate and Key are files for TLS, ClientCA one with the authorities of clients'
	// certificates. Default: none.
	Certificate string `setting:"jobs-tls-cert"`
	Key         string `setting:"jobs-tls-key"`
	ClientCA    string `setting:"jobs-client-ca"`
	// Rate is how many requests a second each caller may make for which the access file has no
	// rate; 0 for no bound. Default: 0.
	Rate float64 `setting:"jobs-rate"`
	// MaxJob bounds an item, in bytes. Default: 256 KiB.
	MaxJob int `setting:"jobs-max-size"`
	// MaxBody bounds a whole request, in bytes. Default: 4 MiB.
	MaxBody int `setting:"jobs-max-body"`
}

// WorkerConfig configures a worker.
type WorkerConfig struct {
	// ID is the name of the worker. If it stays the same over a restart, the worker keeps its
	// sessions. Default: generated.
	ID string `setting:"worker-id"`
	// Tags select the tasks that it takes, "_" those without a tag, "*" all. Default: those without
	// a tag.
	Tags []string `setting:"tags"`
	// Slots is the maximum number of activities that run at once. Default: 100.
	Slots int `setting:"slots"`
	// SlotsPerTag and SlotsPerActivity are the maximum for a tag and for an activity. Default:
	// none.
	SlotsPerTag      map[string]int `setting:"slots-per-tag"`
	SlotsPerActivity map[string]int `setting:"slots-per-activity"`
	// RatePerActivity is the maximum number of tasks of an activity that this worker begins per
	// second. Default: none.
	RatePerActivity map[string]float64 `setting:"rate-per-activity"`
	// MaxTaskCrashes is how many workers may die while they execute an activity task before it
	// fails with the kind poison. Default: 10.
	MaxTaskCrashes int `setting:"max-task-crashes"`
	// CancelGrace is how long a cancelled activity may take to return. Default: 10 seconds.
	CancelGrace time.Duration `setting:"cancel-grace"`
	// MaxSessions is the maximum number of sessions, -1 for none. Default: 10.
	MaxSessions int `setting:"max-sessions"`
	// SessionIdle is how long the worker keeps a session without tasks. Default: 5 minutes.
	SessionIdle time.Duration `setting:"session-idle"`
	// Logger receives the log of the worker and of activities. Default: the log of the program;
	// [Log] and the export of logs apply only to that.
	Logger *slog.Logger
}

// Log configures the log of the program.
type Log struct {
	// Level is that of the services. What orchestrations and activities log is shown from
	// [slog.LevelInfo] on, or from Level if that is lower. Default: [slog.LevelInfo]; for dev,
	// [slog.LevelWarn].
	Level slog.Level `setting:"log-level"`
	// JSON writes lines of JSON instead of text. Default: false.
	JSON bool `setting:"log-format"`
	// Payloads lets logs have the data of users where something is wrong with it. Otherwise logs
	// have its size and hash. Default: false.
	Payloads bool `setting:"log-payloads"`
}

// Migration configures the command migrate.
type Migration struct {
	// Check changes nothing, and fails if something would have to be changed. Default: false.
	Check bool `setting:"check"`
	// Streams creates or checks the streams in NATS, too. Default: false.
	Streams bool `setting:"streams"`
	// Adopt makes the database and NATS one system from now on, whatever each belonged to before.
	// Default: false.
	Adopt bool `setting:"adopt"`
}

// Defaults are the default settings of a command, changed by the parts that call [Configure].
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
		Command:         command,
		Dir:             ".rondo",
		ConnectTimeout:  time.Minute,
		ShutdownTimeout: 20 * time.Second,
		NATS:            NATS{Timeout: 5 * time.Second},
		Streams: Streams{
			Prefix: events.DefaultPrefix, InboxAckWait: 5 * time.Second, TaskAckWait: 30 * time.Second,
			DeadLetterTTL: 30 * 24 * time.Hour, SessionLease: 30 * time.Second, MemberLease: 3 * time.Second,
		},
		Orchestrator: OrchestratorConfig{
			MaxInstances: 10_000, MaxInstanceMemory: 1 << 30, MaxMessages: 20_000, MaxMessageMemory: 256 << 20,
			StepConcurrency: 64, MessageAttempts: 10, RunawayAfter: 10 * time.Second,
			CommitTimeout: 10 * time.Second, SweepEvery: 5 * time.Second, MaxClockSkew: 10 * time.Second,
		},
		JobQueues: JobQueues{MaxJob: jobserver.DefaultMaxJob, MaxBody: jobserver.DefaultMaxBody},
		Worker: WorkerConfig{
			Slots: 100, MaxTaskCrashes: 10, CancelGrace: 10 * time.Second, MaxSessions: 10,
			SessionIdle: 5 * time.Minute,
		},
	}
	if command == Dev { // a developer reads them
		c.Log.Level, c.Log.Payloads = slog.LevelWarn, true // the data is the developer's own
		c.ShutdownTimeout = 5 * time.Second
	}
	return c
}

// The default addresses.
var listenDefault = map[Command]string{Dev: "127.0.0.1:7070", Orchestrator: "127.0.0.1:7071", Worker: "127.0.0.1:7072"}

// listen is the address of the program, and whether it was set.
func (c *Config) listen() (address string, said bool) {
	if c.Listen != "" {
		return c.Listen, true
	}
	return listenDefault[c.Command], false
}

// value is a setting as --print-config shows it: the default of an address where none is
// set.
func (c *Config) value(s settings.Setting) string {
	switch s.Name {
	case "listen":
		address, _ := c.listen()
		return address
	case "nats-listen":
		return cmp.Or(c.NATSListen, settings.NATSListen)
	case "jobs-listen":
		address, _ := c.queuesListen()
		return address
	case "database":
		return redact.Addresses(c.database())
	}
	return s.Get(c)
}

// database is the address of the database. Default in dev: a file.
func (c *Config) database() string {
	if c.Database.URL == "" && c.Command == Dev {
		return filepath.Join(c.Dir, "rondo.db")
	}
	return c.Database.URL
}

// SettingsError lists the problems of the settings.
type SettingsError struct{ Problems []error }

// Error is one problem on one line, or a list of them.
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

// settingsError makes one error of problems, without repeating any.
func settingsError(problems ...error) error {
	var kept []error
	for _, p := range problems {
		var e *SettingsError
		if errors.As(p, &e) {
			kept = append(kept, e.Problems...)
		} else if p != nil {
			kept = append(kept, p)
		}
	}
	said := make(map[string]bool)
	kept = slices.DeleteFunc(kept, func(err error) bool {
		text := err.Error()
		if v, ok := errors.AsType[*settings.Invalid](err); ok { // New finds it again, as that of a flag
			text = "--" + v.Setting + ": " + v.Err.Error()
		}
		again := said[text]
		said[text] = true
		return again
	})
	if len(kept) == 0 {
		return nil
	}
	return &SettingsError{Problems: kept}
}

// minMessages is how many messages an orchestrator needs in memory for one round.
const minMessages = 500

// problems lists the problems of the settings that can be found without connecting. Problems of
// single values were found when they were read, or are found here if a program has set them.
func (c *Config) problems(own stores) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !slices.Contains(settings.Commands(), string(c.Command)) {
		return []error{fmt.Errorf("there is no command %q; there are %s", c.Command,
			strings.Join(settings.Commands(), ", "))}
	}
	for _, s := range settings.For(string(c.Command)) {
		if err := s.Check(c); err != nil {
			errs = append(errs, &settings.Invalid{Setting: s.Name, Where: "--" + s.Name, Err: err})
		}
	}
	needsDatabase := c.Command == Orchestrator || c.Command == Migrate
	if needsDatabase && c.Database.URL == "" {
		bad("--database: which database? Say it with --database or RONDO_DATABASE_URL: " +
			"postgres://user@host:26257/name, or the path of a SQLite file")
	}
	if c.Database.URL != "" {
		if err := own.check(c.Database.URL); err != nil {
			bad("--database: %w", err)
		}
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
	if n := c.Orchestrator.MaxMessages; n < minMessages && n > 0 {
		bad("--max-messages: %d are less than the %d that one round may take", n, minMessages)
	}
	return append(errs, c.JobQueues.problems(c.Command)...)
}

// openOutput makes both outputs safe for concurrent use by loggers and commands, and for terminals.
func (c *Config) openOutput() {
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	c.Stdout, c.Stderr = printable.To(c.Stdout), printable.To(c.Stderr)
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
