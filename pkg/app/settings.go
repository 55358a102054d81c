package app

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
)

// envPrefix begins the variables.
const envPrefix = "RONDO_"

// The commands that settings are for.
var (
	everywhere = []Command{Dev, Orchestrator, Worker, Migrate}
	services   = []Command{Dev, Orchestrator, Worker}
	connecting = []Command{Orchestrator, Worker, Migrate}
	deciding   = []Command{Dev, Orchestrator}
	storing    = []Command{Dev, Orchestrator, Migrate}
	migrating  = []Command{Migrate}
	executing  = []Command{Dev, Worker}
	developing = []Command{Dev}
)

func commandNames() []string {
	var names []string
	for _, c := range everywhere {
		names = append(names, string(c))
	}
	return names
}

// Settings lists the settings of a command, in the order in which they are explained. The empty
// command stands for all of them.
func Settings(command Command) []Setting {
	var out []Setting
	for _, section := range sections {
		for _, s := range section.settings {
			if command != "" && !slices.Contains(s.of, command) {
				continue
			}
			s.Section = section.name
			if s.Env == "" {
				s.Env = envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
			}
			out = append(out, s)
		}
	}
	return out
}

type section struct {
	name     string
	settings []Setting
}

// sections is the table of settings.
var sections = []section{
	{"Development", []Setting{
		{Name: "dir", of: developing, Help: "the `directory` in which everything is kept",
			access: text(func(c *Config) *string {
				return &c.Dir
			})},
		{Name: "nats-listen", of: developing, Help: "the `address` of the NATS server; if nobody says it, " +
			natsListenDefault + " or, if that is taken, another port",
			access: address(func(c *Config) *string { return &c.NATSListen }, false)},
		{Name: "demo", of: developing, Switch: true, Help: "show what the program can do",
			access: onOff(func(c *Config) *bool {
				return &c.Demo
			})},
	}},
	{"NATS", []Setting{
		{Name: "nats", Env: envPrefix + "NATS_URL", of: connecting,
			Help: "the `addresses` of servers, with commas between them; if nobody says it, those of the context, " +
				"or nats://127.0.0.1:4222",
			access: text(func(c *Config) *string { return &c.NATS.URLs })},
		{Name: "nats-context", of: connecting, Help: "the `name` or path of a context of the nats command",
			access: text(func(c *Config) *string {
				return &c.NATS.Context
			})},
		{Name: "nats-creds", of: connecting, Help: "a credentials `file`", access: text(func(c *Config) *string {
			return &c.NATS.Credentials
		})},
		{Name: "nats-nkey", of: connecting, Help: "a `file` with the seed of an nkey",
			access: text(func(c *Config) *string {
				return &c.NATS.NKey
			})},
		{Name: "nats-user", of: connecting, Help: "the `name` to log in with", access: text(func(c *Config) *string {
			return &c.NATS.User
		})},
		{Name: "nats-password", of: connecting, Secret: true, Help: "the `password` to log in with",
			access: text(func(c *Config) *string {
				return &c.NATS.Password
			})},
		{Name: "nats-token", of: connecting, Secret: true, Help: "a `token` to log in with",
			access: text(func(c *Config) *string {
				return &c.NATS.Token
			})},
		{Name: "nats-tls-ca", of: connecting, Help: "a `file` with the authority of the servers",
			access: text(func(c *Config) *string {
				return &c.NATS.CA
			})},
		{Name: "nats-tls-cert", of: connecting, Help: "a `file` with a certificate of one's own",
			access: text(func(c *Config) *string {
				return &c.NATS.Certificate
			})},
		{Name: "nats-tls-key", of: connecting, Help: "the `file` with its key", access: text(func(c *Config) *string {
			return &c.NATS.Key
		})},
		{Name: "nats-tls-first", of: connecting, Switch: true, Help: "begin with TLS, before the server says anything",
			access: onOff(func(c *Config) *bool {
				return &c.NATS.TLSFirst
			})},
		{Name: "nats-domain", of: connecting, Help: "the `domain` of JetStream", access: text(func(c *Config) *string {
			return &c.NATS.Domain
		})},
		{Name: "nats-api-prefix", of: connecting,
			Help: "the `prefix` of the JetStream API, if it is imported from another account",
			access: text(func(c *Config) *string {
				return &c.NATS.APIPrefix
			})},
		{Name: "nats-inbox-prefix", of: connecting,
			Help: "the `prefix` of the subjects of answers; _INBOX if nobody says it",
			access: text(func(c *Config) *string {
				return &c.NATS.InboxPrefix
			})},
		{Name: "nats-timeout", of: everywhere, Help: "how long a request to the servers may take",
			access: duration(func(c *Config) *time.Duration {
				return &c.NATS.Timeout
			}, time.Second/10)},
	}},
	{"Streams", []Setting{
		{Name: "prefix", of: everywhere, Help: "the first `word` of all subjects; in capitals, of the names of streams",
			access: prefix()},
		{Name: "setup", of: []Command{Orchestrator, Worker},
			Help: "make streams, consumers and buckets that are missing, or only verify that they are there",
			access: choice(func(c *Config) *natsbroker.Setup {
				return &c.NATS.Setup
			}, map[string]natsbroker.Setup{"make": natsbroker.Make, "verify": natsbroker.Verify})},
		{Name: "partitions", of: everywhere,
			Help: "how many partitions the inbox has; 0 keeps what is there; where nothing is, it " +
				"makes 4, and 8 on replicas", access: number(func(c *Config) *int {
				return &c.NATS.Partitions
			}, 0)},
		{Name: "replicas", of: connecting,
			Help: "how many servers keep each message, 1, 3 or 5; 0 keeps what is there, and makes 1 where nothing " +
				"is",
			access: replicas()},
		{Name: "max-payload", of: everywhere,
			Help: "the largest message that the servers must take; 0 for what the largest input needs",
			access: size(func(c *Config) *int {
				return &c.NATS.MaxPayload
			}, 0)},
		{Name: "inbox-wait", of: everywhere, Help: "how long a message stays with an orchestrator that says nothing",
			access: duration(func(c *Config) *time.Duration {
				return &c.NATS.InboxWait
			}, time.Second)},
		{Name: "work-wait", of: everywhere, Help: "how long work stays with a worker that says nothing",
			access: duration(func(c *Config) *time.Duration {
				return &c.NATS.WorkWait
			}, time.Second)},
		{Name: "dead-for", of: everywhere, Help: "how long dead letters are kept",
			access: duration(func(c *Config) *time.Duration {
				return &c.NATS.DeadFor
			}, time.Minute)},
		{Name: "member-lease", of: everywhere,
			Help: "after how long an orchestrator that says nothing is taken for dead",
			access: duration(func(c *Config) *time.Duration {
				return &c.NATS.MemberLease
			}, time.Second/2)},
		{Name: "session-lease", of: everywhere, Help: "how long a session stays with a worker that says nothing",
			access: sessionLease()},
	}},
	{"Database", []Setting{
		{Name: "database", Env: envPrefix + "DATABASE_URL", of: storing, Secret: false,
			Help: "the `address` of the database, like postgres://user@host:26257/name, or the path of a SQLite " +
				"file; dev has a file in its directory",
			access: text(func(c *Config) *string { return &c.Database.URL })},
		{Name: "schema", of: deciding, Help: "migrate the tables to what is needed, or only verify that they are",
			access: choice(func(c *Config) *Schema {
				return &c.Database.Schema
			}, map[string]Schema{"migrate": MigrateTables, "verify": VerifyTables})},
	}},
	{"Orchestrator", []Setting{
		{Name: "orchestrator-id", of: deciding,
			Help: "the `name` that tells it from the others; if nobody says it, one is made up",
			access: text(func(c *Config) *string {
				return &c.Orchestrator.ID
			})},
		{Name: "max-instances", of: deciding, Help: "how many instances it keeps in memory",
			access: number(func(c *Config) *int {
				return &c.Orchestrator.MaxInstances
			}, 1)},
		{Name: "max-messages", of: deciding, Help: "how many messages it keeps in memory",
			access: number(func(c *Config) *int {
				return &c.Orchestrator.MaxMessages
			}, 1)},
		{Name: "max-instance-memory", of: deciding, Help: "about how much memory these instances take",
			access: size(func(c *Config) *int64 {
				return &c.Orchestrator.MaxInstanceBytes
			}, 1)},
		{Name: "max-message-memory", of: deciding, Help: "how much memory these messages take",
			access: size(func(c *Config) *int64 {
				return &c.Orchestrator.MaxMessageBytes
			}, 1)},
		{Name: "deciders", of: deciding, Help: "how many rounds are decided at once; 0 is one for each processor",
			access: number(func(c *Config) *int {
				return &c.Orchestrator.Deciders
			}, 0)},
		{Name: "steps", of: deciding, Help: "how many inline steps run at once", access: number(func(c *Config) *int {
			return &c.Orchestrator.Steps
		}, 1)},
		{Name: "message-attempts", of: deciding, Help: "how often a message may be tried before it is dead-lettered",
			access: number(func(c *Config) *int {
				return &c.Orchestrator.Round.MaxAttempts
			}, 1)},
		{Name: "runaway-after", of: deciding, Help: "how long the code of a round may compute before it is interrupted",
			access: duration(func(c *Config) *time.Duration {
				return &c.Orchestrator.RunawayAfter
			}, time.Millisecond)},
		{Name: "store-work", of: deciding, Switch: true,
			Help: "have NATS store all work, instead of passing it to workers that have room for it",
			access: onOff(func(c *Config) *bool {
				return &c.Orchestrator.StoreWork
			})},
		{Name: "commit-timeout", of: deciding, Help: "how long one attempt to commit may take",
			access: duration(func(c *Config) *time.Duration {
				return &c.Orchestrator.CommitTimeout
			}, time.Millisecond)},
		{Name: "sweep-every", of: deciding, Help: "how often overdue instances and promises are looked for",
			access: duration(func(c *Config) *time.Duration {
				return &c.Orchestrator.SweepEvery
			}, time.Millisecond)},
		{Name: "keep-ended", of: deciding,
			Help: "how long instances are kept after they have ended; 0s keeps them for ever",
			access: duration(func(c *Config) *time.Duration {
				return &c.Orchestrator.KeepEnded
			}, 0)},
		{Name: "keep-executions", of: deciding,
			Help: "how many executions of an instance that continues as new are kept; 0 keeps all",
			access: number(func(c *Config) *int {
				return &c.Orchestrator.KeepExecutions
			}, 0)},
		{Name: "fail-nondeterminism", of: deciding, Switch: true,
			Help: "fail instances whose code does not fit their history, instead of halting them",
			access: onOff(func(c *Config) *bool {
				return &c.Orchestrator.Round.FailNondeterminism
			})},
		{Name: "fail-unregistered", of: deciding,
			Help: "after how long a start fails that no orchestrator has the code for; 0s lets it wait",
			access: duration(func(c *Config) *time.Duration {
				return &c.Orchestrator.Round.FailUnregistered
			}, 0)},
	}},
	{"Queues", []Setting{
		{Name: "queues-listen", of: deciding,
			Help: "the `address` at which queues are served over HTTP, or off; :8000 and 0.0.0.0:8000 are for all " +
				"networks, as in a container, and need --queues-access; if nobody says it, 127.0.0.1:8000 or, if " +
				"that is taken, another port for dev, and off for the orchestrator",
			access: address(func(c *Config) *string { return &c.Queues.Listen }, true)},
		{Name: "queues-access", of: deciding,
			Help: "a `file` that says who may do what with which queues; without one, everybody on this machine may " +
				"do everything", access: text(func(c *Config) *string {
				return &c.Queues.Access
			})},
		{Name: "queues-tls-cert", of: deciding, Help: "a `file` with the certificate of the queues' server",
			access: text(func(c *Config) *string {
				return &c.Queues.Certificate
			})},
		{Name: "queues-tls-key", of: deciding, Help: "the `file` with its key", access: text(func(c *Config) *string {
			return &c.Queues.Key
		})},
		{Name: "queues-client-ca", of: deciding,
			Help: "a `file` with the authorities of the certificates of those who use queues",
			access: text(func(c *Config) *string {
				return &c.Queues.ClientCA
			})},
		{Name: "queues-rate", of: deciding,
			Help: "how many requests to queues a second each caller may make that has no rate of its own, with two " +
				"seconds' worth at once; 0 for no bound", access: decimal(func(c *Config) *float64 {
				return &c.Queues.Rate
			})},
		{Name: "queues-max-item", of: deciding, Help: "the largest item of a queue", access: size(func(c *Config) *int {
			return &c.Queues.MaxItem
		}, 1)},
		{Name: "queues-max-body", of: deciding, Help: "the largest request to a queue",
			access: size(func(c *Config) *int {
				return &c.Queues.MaxBody
			}, 1)},
	}},
	{"Worker", []Setting{
		{Name: "worker-id", of: executing,
			Help: "the `name` that it is known by; one that stays the same over a restart keeps its sessions. If " +
				"nobody says it, one is made up", access: text(func(c *Config) *string {
				return &c.Worker.ID
			})},
		{Name: "tags", of: slices.Concat(executing, migrating),
			Help:   "which `tags` of work it takes, with commas between them; _ is for work without a tag, * for any",
			access: tags()},
		{Name: "slots", of: executing, Help: "how many activities run at once", access: number(func(c *Config) *int {
			return &c.Worker.Slots
		}, 1)},
		{Name: "slots-per-tag", of: executing, Help: "how many of a tag run at once",
			access: numbers(func(c *Config) *map[string]int {
				return &c.Worker.SlotsPerTag
			}, strconv.Atoi)},
		{Name: "slots-per-activity", of: executing, Help: "how many of an activity run at once",
			access: numbers(func(c *Config) *map[string]int {
				return &c.Worker.SlotsPerActivity
			}, strconv.Atoi)},
		{Name: "rate-per-activity", of: executing, Help: "how many of an activity begin in a second",
			access: numbers(func(c *Config) *map[string]float64 {
				return &c.Worker.RatePerActivity
			}, parseFloat)},
		{Name: "work-attempts", of: executing, Help: "how often work is begun whose worker dies with it",
			access: number(func(c *Config) *int {
				return &c.Worker.MaxAttempts
			}, 1)},
		{Name: "cancel-grace", of: executing, Help: "how long an activity that is cancelled may take to return",
			access: duration(func(c *Config) *time.Duration {
				return &c.Worker.Grace
			}, time.Millisecond)},
		{Name: "max-sessions", of: executing, Help: "how many sessions it has at once; -1 for none",
			access: number(func(c *Config) *int {
				return &c.Worker.MaxSessions
			}, -1)},
		{Name: "session-idle", of: executing, Help: "how long it keeps a session that has no work",
			access: duration(func(c *Config) *time.Duration {
				return &c.Worker.SessionIdle
			}, time.Millisecond)},
	}},
	{"Service", []Setting{
		{Name: "listen", of: services,
			Help: "the `address` of /livez, /readyz, /metrics, /loglevel and /version, or off; :7071 and " +
				"0.0.0.0:7071 are for all networks, as in a container; if nobody says it, port 7070 for dev, 7071 " +
				"for the orchestrator and 7072 for the worker on 127.0.0.1, or, if that is taken, another one",
			access: address(func(c *Config) *string { return &c.Listen }, true)},
		{Name: "wait", of: everywhere, Help: "how long to wait for NATS and the database at the start",
			access: duration(func(c *Config) *time.Duration {
				return &c.Wait
			}, 0)},
		{Name: "grace", of: services, Help: "how long what is under way may go on at the end",
			access: duration(func(c *Config) *time.Duration {
				return &c.Grace
			}, time.Millisecond)},
		{Name: "log-level", of: everywhere, Help: "what is logged, that is everything of this level and above",
			access: level(func(c *Config) *slog.Level {
				return &c.Log.Level
			})},
		{Name: "log-payloads", of: services, Switch: true,
			Help: "let logs tell the data of users where something is wrong with it; otherwise " +
				"they tell its size and hash", access: onOff(func(c *Config) *bool {
				return &c.Log.Payloads
			})},
		{Name: "log-format", of: everywhere, Help: "how it is logged", access: choice(func(c *Config) *bool {
			return &c.Log.JSON
		}, map[string]bool{"text": false, "json": true})},
	}},
	{"Migration", []Setting{
		{Name: "check", of: migrating, Switch: true,
			Help: "change nothing, and fail if something would have to be changed",
			access: onOff(func(c *Config) *bool {
				return &c.Check
			})},
		{Name: "streams", of: migrating, Switch: true,
			Help: "look after the streams, consumers and buckets in NATS, too, so that services can run with " +
				"--setup verify", access: onOff(func(c *Config) *bool {
				return &c.Streams
			})},
	}},
}

// sessionLease is one value in two places: the bus keeps what the worker has to renew.
func sessionLease() access {
	a := duration(func(c *Config) *time.Duration { return &c.NATS.SessionLease }, time.Second)
	set := a.set
	a.set = func(c *Config, v string) error {
		err := set(c, v)
		c.Worker.SessionLease = c.NATS.SessionLease
		return err
	}
	return a
}

func replicas() access {
	a := number(func(c *Config) *int { return &c.NATS.Replicas }, 0)
	a.check = func(c *Config) error {
		if n := c.NATS.Replicas; n != 0 && n != 1 && n != 3 && n != 5 {
			return fmt.Errorf("%d; want 1, 3 or 5, or 0 for what is there", n)
		}
		return nil
	}
	return a
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)

func prefix() access {
	a := text(func(c *Config) *string { return &c.NATS.Prefix })
	a.check = func(c *Config) error {
		if !goodPrefix.MatchString(c.NATS.Prefix) {
			return fmt.Errorf("%q; want a letter, then letters, digits, - and _, 32 at most", c.NATS.Prefix)
		}
		return nil
	}
	return a
}
