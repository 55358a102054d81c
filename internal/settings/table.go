package settings

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The commands of a program.
const (
	Dev          = "dev"
	Orchestrator = "orchestrator"
	Worker       = "worker"
	Migrate      = "migrate"
)

// NATSListen is the usual address of the NATS server of dev.
const NATSListen = "127.0.0.1:4222"

// envPrefix begins the variables.
const envPrefix = "RONDO_"

// The commands that settings are for.
var (
	everywhere = []string{Dev, Orchestrator, Worker, Migrate}
	services   = []string{Dev, Orchestrator, Worker}
	connecting = []string{Orchestrator, Worker, Migrate}
	deciding   = []string{Dev, Orchestrator}
	storing    = []string{Dev, Orchestrator, Migrate}
	migrating  = []string{Migrate}
	executing  = []string{Dev, Worker}
	developing = []string{Dev}
)

// Commands lists the commands of a program.
func Commands() []string { return slices.Clone(everywhere) }

// For lists the settings of a command, in the order in which they are explained. The empty command
// stands for all of them.
func For(command string) []Setting {
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
		{Name: "dir", of: developing, Help: "the `directory` in which everything is kept", kind: text(nil)},
		{Name: "nats-listen", of: developing, Help: "the `address` of the NATS server; if nobody says it, " +
			NATSListen + " or, if that is taken, another port", kind: text(address)},
		{Name: "demo", of: developing, Switch: true, Help: "show what the program can do", kind: onOff()},
	}},
	{"NATS", []Setting{
		{Name: "nats", Env: envPrefix + "NATS_URL", of: connecting,
			Help: "the `addresses` of servers, with commas between them; if nobody says it, those of the context, " +
				"or nats://127.0.0.1:4222", kind: text(nil)},
		{Name: "nats-context", of: connecting, Help: "the `name` or path of a context of the nats command",
			kind: text(nil)},
		{Name: "nats-creds", of: connecting, Help: "a credentials `file`", kind: text(nil)},
		{Name: "nats-nkey", of: connecting, Help: "a `file` with the seed of an nkey", kind: text(nil)},
		{Name: "nats-user", of: connecting, Help: "the `name` to log in with", kind: text(nil)},
		{Name: "nats-password", of: connecting, Secret: true, Help: "the `password` to log in with", kind: text(nil)},
		{Name: "nats-token", of: connecting, Secret: true, Help: "a `token` to log in with", kind: text(nil)},
		{Name: "nats-tls-ca", of: connecting, Help: "a `file` with the authority of the servers", kind: text(nil)},
		{Name: "nats-tls-cert", of: connecting, Help: "a `file` with a certificate of one's own", kind: text(nil)},
		{Name: "nats-tls-key", of: connecting, Help: "the `file` with its key", kind: text(nil)},
		{Name: "nats-tls-first", of: connecting, Switch: true, Help: "begin with TLS, before the server says anything",
			kind: onOff()},
		{Name: "nats-domain", of: connecting, Help: "the `domain` of JetStream", kind: text(nil)},
		{Name: "nats-api-prefix", of: connecting,
			Help: "the `prefix` of the JetStream API, if it is imported from another account", kind: text(nil)},
		{Name: "nats-inbox-prefix", of: connecting,
			Help: "the `prefix` of the subjects of answers; _INBOX if nobody says it", kind: text(nil)},
		{Name: "nats-timeout", of: everywhere, Help: "how long a request to the servers may take",
			kind: duration(time.Second / 10)},
	}},
	{"Streams", []Setting{
		{Name: "prefix", of: everywhere, Help: "the first `word` of all subjects; in capitals, of the names of streams",
			kind: text(checkPrefix)},
		{Name: "setup", of: []string{Orchestrator, Worker},
			Help: "make streams, consumers and buckets that are missing, or only verify that they are there",
			kind: choice(map[string]bool{"make": false, "verify": true})},
		{Name: "partitions", of: everywhere,
			Help: "how many partitions the inbox has; 0 keeps what is there; where nothing is, it " +
				"makes 4, and 8 on replicas", kind: number(0)},
		{Name: "replicas", of: connecting,
			Help: "how many servers keep each message, 1, 3 or 5; 0 keeps what is there, and makes 1 where nothing " +
				"is", kind: replicas()},
		{Name: "max-payload", of: everywhere,
			Help: "the largest message that the servers must take; 0 for what the largest input needs",
			kind: size[int](0)},
		{Name: "inbox-ack-wait", of: everywhere,
			Help: "after how long NATS redelivers a message that an orchestrator has neither acknowledged nor extended",
			kind: duration(time.Second)},
		{Name: "task-ack-wait", of: everywhere,
			Help: "after how long NATS redelivers an activity task that a worker has neither acknowledged nor extended",
			kind: duration(time.Second)},
		{Name: "dead-letter-ttl", of: everywhere, Help: "how long dead letters are kept", kind: duration(time.Minute)},
		{Name: "inbox-max-bytes", of: everywhere,
			Help: "how many bytes of messages for instances NATS keeps before it refuses more; 0 keeps the bound",
			kind: size[int64](0)},
		{Name: "dead-letter-max-bytes", of: everywhere,
			Help: "how many bytes of dead letters NATS keeps before it drops the oldest; 0 keeps the bound",
			kind: size[int64](0)},
		{Name: "member-lease", of: everywhere,
			Help: "after how long an orchestrator that says nothing is taken for dead",
			kind: duration(time.Second / 2)},
		{Name: "session-lease", of: everywhere, Help: "how long a session stays with a worker that says nothing",
			kind: duration(time.Second)},
	}},
	{"Database", []Setting{
		{Name: "database", Env: envPrefix + "DATABASE_URL", of: storing, Secret: false,
			Help: "the `address` of the database, like postgres://user@host:26257/name, or the path of a SQLite " +
				"file; dev has a file in its directory", kind: text(nil)},
		{Name: "schema", of: deciding, Help: "migrate the tables to what is needed, or only verify that they are",
			kind: choice(map[string]bool{"migrate": false, "verify": true})},
	}},
	{"Orchestrator", []Setting{
		{Name: "orchestrator-id", of: deciding,
			Help: "the `name` that tells it from the others; if nobody says it, one is made up", kind: text(nil)},
		{Name: "max-instances", of: deciding, Help: "how many instances it keeps in memory", kind: number(1)},
		{Name: "max-messages", of: deciding, Help: "how many messages it keeps in memory", kind: number(1)},
		{Name: "max-instance-memory", of: deciding, Help: "about how much memory these instances take",
			kind: size[int64](1)},
		{Name: "max-message-memory", of: deciding, Help: "how much memory these messages take", kind: size[int64](1)},
		{Name: "round-concurrency", of: deciding, Help: "how many rounds run at once; 0 is one for each processor",
			kind: number(0)},
		{Name: "step-concurrency", of: deciding, Help: "how many inline steps run at once", kind: number(1)},
		{Name: "message-attempts", of: deciding, Help: "how often a message may be tried before it is dead-lettered",
			kind: number(1)},
		{Name: "runaway-after", of: deciding, Help: "how long the code of a round may compute before it is interrupted",
			kind: duration(time.Millisecond)},
		{Name: "direct-delivery", of: deciding, Switch: true,
			Help: "deliver activity tasks straight to workers that have room for them; without it, NATS stores " +
				"all tasks first", kind: offOn()},
		{Name: "max-clock-skew", of: deciding,
			Help: "by how much the clock of this machine may differ from those of NATS and the database; while it " +
				"differs by more, nothing is decided",
			kind: duration(time.Millisecond)},
		{Name: "commit-timeout", of: deciding, Help: "how long one attempt to commit may take",
			kind: duration(time.Millisecond)},
		{Name: "sweep-every", of: deciding, Help: "how often overdue instances and outbox entries are looked for",
			kind: duration(time.Millisecond)},
		{Name: "retention", of: deciding,
			Help: "how long instances are kept after they have ended; 0s keeps them for ever", kind: duration(0)},
		{Name: "keep-executions", of: deciding,
			Help: "how many executions of an instance that continues as new are kept; 0 keeps all", kind: number(0)},
		{Name: "fail-nondeterminism", of: deciding, Switch: true,
			Help: "fail instances whose code does not fit their history, instead of halting them", kind: onOff()},
		{Name: "fail-unregistered", of: deciding,
			Help: "after how long a start fails that no orchestrator has the code for; 0s lets it wait",
			kind: duration(0)},
	}},
	{"Job queues", []Setting{
		{Name: "jobs-listen", of: deciding,
			Help: "the `address` at which queues are served over HTTP, or off; :8000 and 0.0.0.0:8000 are for all " +
				"networks, as in a container, and need --jobs-access; if nobody says it, 127.0.0.1:8000 or, if " +
				"that is taken, another port for dev, and off for the orchestrator", kind: text(addressOrOff)},
		{Name: "jobs-access", of: deciding,
			Help: "a `file` that says who may do what with which queues; without one, everybody on this machine may " +
				"do everything", kind: text(nil)},
		{Name: "jobs-tls-cert", of: deciding, Help: "a `file` with the certificate of the queues' server",
			kind: text(nil)},
		{Name: "jobs-tls-key", of: deciding, Help: "the `file` with its key", kind: text(nil)},
		{Name: "jobs-client-ca", of: deciding,
			Help: "a `file` with the authorities of the certificates of those who use queues", kind: text(nil)},
		{Name: "jobs-rate", of: deciding,
			Help: "how many requests to queues a second each caller may make that has no rate of its own, with two " +
				"seconds' worth at once; 0 for no bound", kind: decimal()},
		{Name: "jobs-max-size", of: deciding, Help: "the largest item of a queue", kind: size[int](1)},
		{Name: "jobs-max-body", of: deciding, Help: "the largest request to a queue", kind: size[int](1)},
	}},
	{"Worker", []Setting{
		{Name: "worker-id", of: executing,
			Help: "the `name` that it is known by; one that stays the same over a restart keeps its sessions. If " +
				"nobody says it, one is made up", kind: text(nil)},
		{Name: "tags", of: slices.Concat(executing, migrating),
			Help: "which `tags` of work it takes, with commas between them; _ is for work without a tag, * for any",
			kind: tags()},
		{Name: "slots", of: executing, Help: "maximum number of concurrent activities", kind: number(1)},
		{Name: "slots-per-tag", of: executing, Help: "maximum number of concurrent activities with a tag",
			kind: numbers(strconv.Atoi)},
		{Name: "slots-per-activity", of: executing, Help: "maximum number of concurrent executions of an activity",
			kind: numbers(strconv.Atoi)},
		{Name: "rate-per-activity", of: executing, Help: "maximum number of starts of an activity in a second",
			kind: numbers(parseFloat)},
		{Name: "max-task-crashes", of: executing,
			Help: "how many workers may die while they execute an activity task before it fails with the kind poison",
			kind: number(1)},
		{Name: "cancel-grace", of: executing, Help: "how long an activity that is cancelled may take to return",
			kind: duration(time.Millisecond)},
		{Name: "max-sessions", of: executing, Help: "how many sessions it has at once; -1 for none", kind: number(-1)},
		{Name: "session-idle", of: executing, Help: "how long it keeps a session that has no work",
			kind: duration(time.Millisecond)},
	}},
	{"Service", []Setting{
		{Name: "listen", of: services,
			Help: "the `address` of /livez, /readyz, /metrics, /loglevel and /version, or off; :7071 and " +
				"0.0.0.0:7071 are for all networks, as in a container; if nobody says it, port 7070 for dev, 7071 " +
				"for the orchestrator and 7072 for the worker on 127.0.0.1, or, if that is taken, another one",
			kind: text(addressOrOff)},
		{Name: "connect-timeout", of: everywhere,
			Help: "how long a service waits for NATS and the database when it starts", kind: duration(0)},
		{Name: "shutdown-timeout", of: services, Help: "time that running work gets after a service is told to end",
			kind: duration(time.Millisecond)},
		{Name: "log-level", of: everywhere, Help: "lowest level that is logged",
			kind: level()},
		{Name: "log-payloads", of: services, Switch: true,
			Help: "let logs tell the data of users where something is wrong with it; otherwise " +
				"they tell its size and hash", kind: onOff()},
		{Name: "log-format", of: everywhere, Help: "format of the log",
			kind: choice(map[string]bool{"text": false, "json": true})},
	}},
	{"Migration", []Setting{
		{Name: "check", of: migrating, Switch: true,
			Help: "change nothing, and fail if something would have to be changed", kind: onOff()},
		{Name: "adopt", of: migrating, Switch: true,
			Help: "make the database and NATS one system from now on, whatever each belonged to; stop all " +
				"orchestrators of both first", kind: onOff()},
		{Name: "streams", of: migrating, Switch: true,
			Help: "look after the streams, consumers and buckets in NATS, too, so that services can run with " +
				"--setup verify", kind: onOff()},
	}},
}
