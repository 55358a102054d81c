package natsbroker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/pkg/events"
)

// Config configures the connection to NATS and the streams there. The zero value is for a server on
// this machine, without replicas.
type Config struct {
	// URLs are the addresses of the servers, separated by commas. Default: those of the Context, or
	// nats://127.0.0.1:4222.
	URLs string
	// Context is the name or the path of a context of the nats command. The other fields of Config
	// take precedence.
	Context string
	// Name is the name of the connection, as the servers show it.
	Name string

	Login
	TLS
	// InProcess connects to a server in this process.
	InProcess nats.InProcessConnProvider

	// Domain and APIPrefix are those of JetStream, if it is not reached directly.
	Domain, APIPrefix string
	// InboxPrefix begins the subjects of responses. Default: _INBOX.
	InboxPrefix string

	// Prefix begins all subjects and, in capitals, the names of streams: the name of a system.
	// Default: rondo.
	Prefix string
	// Setup selects how to treat streams, consumers and buckets.
	Setup Setup
	// Partitions is the number of partitions of the inbox. 0 keeps the present number; a new inbox
	// gets 4, with replicas 8. Without replicas, it is safe to change the number at any time; with
	// replicas, see docs/nats.md.
	Partitions int
	// Replicas is the number of servers that keep each message: 1, 3 or 5. 0 keeps the present
	// number; a new stream gets 1.
	Replicas int
	// Memory keeps messages in memory, not in files. It suits only messages that need not outlive
	// the servers.
	Memory bool
	// MaxPayload is the size of the largest message that the servers must accept. Default: the size
	// of the largest input, about 1 MiB.
	MaxPayload int
	// InboxAckWait is the ack wait of messages for instances. Default: 5 seconds. TaskAckWait is
	// the ack wait of activity tasks. Default: 30 seconds.
	InboxAckWait, TaskAckWait time.Duration
	// DeadLetterTTL is how long NATS keeps dead letters. Default: 30 days.
	DeadLetterTTL time.Duration
	// InboxMaxBytes and DeadLetterMaxBytes bound the inbox and the dead letters. A full inbox
	// refuses messages; a full dead-letter stream drops its oldest ones. Default: the present
	// bounds; a new inbox gets a quarter to half of what NATS can reserve, 32 GiB at most, and the
	// dead-letter stream a quarter of that. -1 sets no bound.
	InboxMaxBytes, DeadLetterMaxBytes int64
	// SessionLease is the lease of a worker for its sessions. Default: 30 seconds.
	SessionLease time.Duration
	// MemberLease is the lease of a member: a member that does not renew it counts as dead.
	// Default: 3 seconds.
	MemberLease time.Duration
	// Timeout limits each request to the servers. A request that may be sent twice is sent up to
	// five times, with time limits of a fifth of it up to four fifths. Default: 5 seconds.
	Timeout time.Duration

	// Logger receives the log. Default: slog.Default.
	Logger *slog.Logger
}

// Login is one way to log in: a credentials file, a file with an nkey's seed, a user with a
// password, or a token.
type Login struct {
	Credentials, NKey, User, Password, Token string
}

// TLS has the files for TLS: the certificate authority of the servers, and a client certificate
// with its key.
type TLS struct {
	CA, Certificate, Key string
	// TLSFirst begins with TLS, before the server sends its greeting.
	TLSFirst bool
}

// Setup selects how to treat streams, consumers and buckets.
type Setup int

// The values of Setup.
const (
	// Make creates missing ones, and changes those that differ.
	Make Setup = iota
	// Verify fails if one is missing or differs, and changes nothing. A different number of
	// partitions is not an error: Verify logs a warning, and the service continues with that
	// number. Only task queues are created when they are needed, because they are not known before.
	Verify
	// Use changes nothing and checks nothing: for clients that only publish and send requests.
	Use
)

const (
	defaultURL    = "nats://127.0.0.1:4222"
	maxPartitions = 1024
	// headroom is the size of a message without its body.
	headroom = 48 << 10
)

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.InboxAckWait, 5*time.Second)
	set(&c.TaskAckWait, 30*time.Second)
	set(&c.DeadLetterTTL, 30*24*time.Hour)
	set(&c.SessionLease, 30*time.Second)
	set(&c.MemberLease, 3*time.Second)
	set(&c.Timeout, 5*time.Second)
	if c.Prefix == "" {
		c.Prefix = events.DefaultPrefix
	}
	if c.Name == "" {
		c.Name = "rondo"
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = events.MaxPayload + headroom
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)

// usualPartitions is the default number of partitions. Each partition costs the broker a little for
// each message. With replicas, a change of the number takes care, so that more partitions from the
// beginning are better.
func (c Config) usualPartitions() int {
	if c.Replicas > 1 {
		return 8
	}
	return 4
}

// check lists everything that is wrong with the configuration.
func (c Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !goodPrefix.MatchString(c.Prefix) {
		bad("prefix %q: want a letter, then letters, digits, - and _, 32 at most", c.Prefix)
	}
	if c.Partitions < 0 || c.Partitions > maxPartitions {
		bad("partitions: %d; want 1 to %d, or 0 for what is there", c.Partitions, maxPartitions)
	}
	switch c.Replicas {
	case 0, 1, 3, 5:
	default:
		bad("replicas: %d; want 1, 3 or 5, or 0 for what is there", c.Replicas)
	}
	for _, d := range []struct {
		name string
		is   time.Duration
		min  time.Duration
	}{
		{"the time that a message stays with an orchestrator", c.InboxAckWait, time.Second},
		{"the time that work stays with a worker", c.TaskAckWait, time.Second},
		{"the lease of a session", c.SessionLease, time.Second},
		{"the lease of a member", c.MemberLease, time.Second / 2},
		{"the time that dead letters are kept", c.DeadLetterTTL, time.Minute},
		{"the timeout of requests", c.Timeout, time.Second / 10},
	} {
		if d.is < d.min {
			bad("%s: %v; want at least %v", d.name, d.is, d.min)
		}
	}
	logins := 0
	for _, s := range []string{c.Credentials, c.NKey, c.User, c.Token} {
		if s != "" {
			logins++
		}
	}
	if logins > 1 {
		bad("choose one way to log in: credentials, nkey, user or token")
	}
	if (c.Certificate == "") != (c.Key == "") {
		bad("a certificate needs its key, and a key its certificate")
	}
	if c.MaxPayload < 64<<10 {
		bad("max payload: %d; want at least 64 KiB", c.MaxPayload)
	}
	return errors.Join(errs...)
}

// writeTimeout is how long a write to the connection may take. The client holds the lock of the
// connection meanwhile, which all publishers and health checks need. Then it connects again.
const writeTimeout = 10 * time.Second

// options returns the options of the connection.
func (c Config) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(c.Name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.Timeout(c.Timeout), nats.FlusherTimeout(writeTimeout), nats.ReconnectOnFlusherError(),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.RetryOnFailedConnect(false),
		nats.IgnoreAuthErrorAbort(), // servers may refuse a login while users or accounts are changed
		nats.ReconnectBufSize(16 << 20),
	}
	switch {
	case c.Credentials != "":
		opts = append(opts, nats.UserCredentials(c.Credentials))
	case c.NKey != "":
		o, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, problem("read the nkey of "+c.NKey, err)
		}
		opts = append(opts, o)
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	case c.Token != "":
		opts = append(opts, nats.Token(c.Token))
	}
	if c.CA != "" {
		opts = append(opts, nats.RootCAs(c.CA))
	}
	if c.Certificate != "" {
		opts = append(opts, nats.ClientCert(c.Certificate, c.Key))
	}
	if c.CA != "" || c.Certificate != "" || c.TLSFirst {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.Context != "" && c.URLs != "" {
		opts = append(opts, func(o *nats.Options) error { // instead of the context's
			o.Servers = strings.Split(c.URLs, ",")
			for i, s := range o.Servers {
				o.Servers[i] = strings.TrimSpace(s)
			}
			return nil
		})
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if c.InProcess != nil {
		opts = append(opts, nats.InProcessServer(c.InProcess))
	}
	return opts, nil
}
