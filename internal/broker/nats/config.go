package natsbroker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/rondo-run/rondo/pkg/events"
)

// Config says how to reach NATS, and how things are to be there. The zero value is for a server on
// this machine, without replicas.
type Config struct {
	// URLs are the servers, with commas between them; empty: those of the Context, or
	// nats://127.0.0.1:4222.
	URLs string
	// Context is the name of a context of the nats command, or the path of one; what is said here
	// otherwise is added to it.
	Context string
	// Name is how the connection is shown.
	Name string

	// How to log in: a credentials file, a file with an nkey's seed, a user, or a token.
	Credentials, NKey, User, Password, Token string
	// TLS: the authority of the servers, and a certificate of one's own with its key.
	CA, Certificate, Key string
	// TLSFirst begins with TLS, before the server says anything.
	TLSFirst bool
	// InProcess connects to a server in this process.
	InProcess nats.InProcessConnProvider

	// Domain and APIPrefix are those of JetStream, if it is not reached directly.
	Domain, APIPrefix string
	// InboxPrefix begins the subjects of answers; "" is _INBOX.
	InboxPrefix string

	// Prefix begins all subjects and, in capitals, the names of streams: the name of a system. ""
	// is rondo.
	Prefix string
	// Setup says what to do about streams, consumers and buckets.
	Setup Setup
	// Partitions is how many partitions the inbox has. 0 keeps what is there; where there is none,
	// it makes 4, and 8 on replicas. Changing it is safe at any time where each message is kept
	// once; on replicas see docs/nats.md.
	Partitions int
	// Replicas is how many servers keep each message: 1, 3 or 5. 0 keeps what is there, and makes 1
	// where there is none.
	Replicas int
	// Memory keeps messages in memory, not in files. Only for what need not outlive the servers.
	Memory bool
	// MaxPayload is the size of the largest message that the servers must take. 0 is what the
	// largest input needs, about 1 MiB.
	MaxPayload int
	// InboxWait is how long a message stays with an orchestrator that says nothing about it: 5
	// seconds. WorkWait is the same for a piece of work and its worker: 30 seconds.
	InboxWait, WorkWait time.Duration
	// DeadFor is how long dead letters are kept: 30 days.
	DeadFor time.Duration
	// SessionLease is how long a worker that says nothing keeps its sessions: 30 seconds.
	SessionLease time.Duration
	// MemberLease is after how long a member that says nothing is taken for dead: 3 seconds.
	MemberLease time.Duration
	// Timeout bounds each request to the servers: 5 seconds.
	Timeout time.Duration

	// Logger gets what operators should know; nil is slog.Default.
	Logger *slog.Logger
}

// Setup says what to do about streams, consumers and buckets.
type Setup int

// The choices.
const (
	// Make makes what is missing and changes what differs.
	Make Setup = iota
	// Verify fails if something is missing or differs, and changes nothing. Another number of
	// partitions is no error: it warns, and continues with that. Only queues of work are made when
	// they are needed: nobody knows them before.
	Verify
	// Use changes nothing and checks nothing: for clients that may publish and ask, and no more.
	Use
)

const (
	defaultURL    = "nats://127.0.0.1:4222"
	maxPartitions = 1024
	// headroom is what a message has besides its body.
	headroom = 48 << 10
)

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.InboxWait, 5*time.Second)
	set(&c.WorkWait, 30*time.Second)
	set(&c.DeadFor, 30*24*time.Hour)
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

// usualPartitions is how many partitions there are if nobody says. Each costs the broker something
// for each message; but more of them are better there from the beginning where changing the number
// takes care.
func (c Config) usualPartitions() int {
	if c.Replicas > 1 {
		return 8
	}
	return 4
}

// check lists everything that is wrong with it.
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
		{"the time that a message stays with an orchestrator", c.InboxWait, time.Second},
		{"the time that work stays with a worker", c.WorkWait, time.Second},
		{"the lease of a session", c.SessionLease, time.Second},
		{"the lease of a member", c.MemberLease, time.Second / 2},
		{"the time that dead letters are kept", c.DeadFor, time.Minute},
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

// dial connects.
func (b *Bus) dial(ctx context.Context) error {
	c := b.config
	opts, err := c.options()
	if err != nil {
		return err
	}
	opts = append(opts, b.handlers()...)
	var settings natscontext.Settings
	if c.Context != "" && c.InProcess == nil {
		b.nc, settings, err = natscontext.Connect(contextPath(c.Context), opts...)
		if err != nil {
			return problem("connect with context "+strconv.Quote(c.Context), explainDial(err))
		}
	} else {
		urls := c.URLs
		if urls == "" {
			urls = defaultURL
		}
		if b.nc, err = nats.Connect(urls, opts...); err != nil {
			return problem("connect to "+withoutPassword(urls), explainDial(err))
		}
	}
	if b.js, err = b.newJetStream(settings); err != nil {
		b.nc.Close()
		return problem("JetStream", err)
	}
	if err := ctx.Err(); err != nil {
		b.nc.Close()
		return problem("connect", err)
	}
	return nil
}

// contextPath makes the path of a context absolute: that is how the library tells it from a name.
func contextPath(name string) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		return name
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}

func (b *Bus) newJetStream(s natscontext.Settings) (jetstream.JetStream, error) {
	opts := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(b.config.Timeout),
	}
	domain, prefix := b.config.Domain, b.config.APIPrefix
	if domain == "" {
		domain = s.JSDomain
	}
	if prefix == "" {
		prefix = s.JSAPIPrefix
	}
	b.api = "$JS.API."
	switch {
	case prefix != "":
		b.api = strings.TrimSuffix(prefix, ".") + "."
		return jetstream.NewWithAPIPrefix(b.nc, prefix, opts...)
	case domain != "":
		b.api = "$JS." + domain + ".API."
		return jetstream.NewWithDomain(b.nc, domain, opts...)
	}
	return jetstream.New(b.nc, opts...)
}

// options are those of the connection.
func (c Config) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(c.Name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.Timeout(c.Timeout), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.RetryOnFailedConnect(false),
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

// handlers tell of what happens to the connection.
func (b *Bus) handlers() []nats.Option {
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.answers.lost(nats.ErrDisconnected)
			if err != nil {
				b.events.disconnects.Add(1)
				b.log.Warn("NATS: the connection broke; connecting again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.log.Info("NATS: connected again", "server", nc.ConnectedUrlRedacted())
			b.tellReconnected()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			b.events.note(err)
			if errors.Is(err, nats.ErrPermissionViolation) {
				b.deniedShort(b.denied.tell(err))
			}
			b.log.Warn("NATS: an error", "subject", subject, "error", err)
		}),
	}
}

// denied tells those who have asked for something that the servers do not let them: otherwise they
// would wait for an answer in vain.
type denied struct {
	mu       sync.Mutex
	next     int
	waiting  map[int]requester
	subjects map[string]bool // on which nothing may be published
}

// requester waits for an answer to what it has published on a subject; "" is for several subjects.
type requester struct {
	subject string
	cancel  context.CancelCauseFunc
}

// maxDenied bounds how many subjects are remembered.
const maxDenied = 1000

var deniedPublish = regexp.MustCompile(`(?i)publish to "([^"]+)"`)

// tell tells them, and gives the subject on which nothing may be published, if that is what the
// servers say.
func (d *denied) tell(err error) (subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := deniedPublish.FindStringSubmatch(err.Error()); m != nil {
		if d.subjects == nil || len(d.subjects) >= maxDenied {
			d.subjects = make(map[string]bool)
		}
		if subject = m[1]; isAnswer(subject) {
			return subject // nobody here waits for something because of it
		}
		d.subjects[subject] = true
	}
	for _, w := range d.waiting {
		if w.subject == "" || w.subject == subject {
			w.cancel(err)
		}
	}
	return subject
}

// publishing tells whether the servers have refused something on a subject since somebody last
// asked.
func (d *denied) publishing(subject string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.subjects[subject]
	delete(d.subjects, subject)
	return was
}

// during does something that ends early when the servers do not allow it.
func (d *denied) during(ctx context.Context, do func(context.Context) error) error {
	return d.requesting(ctx, "", do)
}

// requesting does something that ends early when the servers do not allow publishing on its
// subject.
func (d *denied) requesting(ctx context.Context, subject string, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.mu.Lock()
	if d.waiting == nil {
		d.waiting = make(map[int]requester)
	}
	d.next++
	me := d.next
	d.waiting[me] = requester{subject, cancel}
	d.mu.Unlock()
	err := do(ctx)
	d.mu.Lock()
	delete(d.waiting, me)
	d.mu.Unlock()
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, nats.ErrPermissionViolation) {
		return cause
	}
	return err
}

// explainDial adds to an error what to do about it.
func explainDial(err error) error {
	var address *url.Error
	switch {
	case errors.As(err, &address): // it has the whole address, and parts of a password in its reason
		return errors.New("the address cannot be read; it should look like nats://user:password@host:4222, with : / " +
			"? # @ in a password written as %3A %2F %3F %23 %40")
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("%w (is a NATS server running there? `nats-server -js` starts one)", err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("%w (check the credentials)", err)
	}
	return err
}

var password = regexp.MustCompile(`//[^,\s]*@`)

func withoutPassword(urls string) string {
	return password.ReplaceAllString(strings.TrimSpace(urls), "//…@")
}
