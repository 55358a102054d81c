package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/internal/x/bounded"
)

// conn is a connection to NATS, for the system that its names begin with. The parts of a Bus share
// it: each of them subscribes, publishes and sends requests by itself.
type conn struct {
	names
	nc      *nats.Conn
	js      jetstream.JetStream
	api     string // begins the subjects of JetStream's API
	log     *slog.Logger
	timeout time.Duration // of a request, unless its caller sets one
	denied  denied
	events  happened
	hooks   hooks
	direct  directLimits
	odd     oddMessages
	gaveUp  atomic.Pointer[error] // why the client does not connect again; nil: it does

	ctx         context.Context // ends with the connection
	stop        context.CancelFunc
	mu          sync.Mutex
	reconnected map[*func()]bool // to call after a reconnect
	closed      bool
	wait        sync.WaitGroup // for the goroutines in the background
}

// hooks are what a conn calls when the connection breaks, and when the servers deny publishing.
type hooks struct {
	broken func()
	denied func(subject string)
}

func newConn(config Config) *conn {
	c := &conn{names: namesOf(config.Prefix), log: config.Logger, timeout: config.Timeout}
	c.denied.isAnswer = func(subject string) bool { return c.isDirectAnswer(subject) || !c.isOurs(subject) }
	c.denied.isAPI = func(subject string) bool { // one request asks for messages of one consumer
		return c.isAPI(subject) && !strings.HasPrefix(subject, c.api+pullWord)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// run runs something in the background, until the connection is closed, and reports whether it
// does: a closed connection runs nothing more.
func (c *conn) run(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wait.Go(f)
	}
	return !c.closed
}

// closeFor bounds how long Close waits. The client holds the lock of the connection while it dials,
// and while it writes to a server that does not read.
const closeFor = 2 * time.Second

// Close closes the connection. NATS redelivers the messages that are not settled. Close waits 2
// seconds at most for a server that does not respond.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	if !bounded.Wait(closeFor, func() {
		c.wait.Wait()
		c.nc.Close()
	}) {
		c.log.Warn("NATS: the connection is not closed in time; not waiting for it any longer", "for", closeFor)
	}
	return nil
}

// dial connects.
func (c *conn) dial(ctx context.Context, config Config) error {
	opts, err := config.options()
	if err != nil {
		return err
	}
	opts = append(opts, c.handlers()...)
	done := make(chan dialed, 1)
	go func() { done <- connect(config, opts) }()
	var d dialed
	select {
	case d = <-done:
	case <-ctx.Done(): // the client library takes no context, and tries each server for the time limit
		c.stop()
		go func() {
			if d := <-done; d.err == nil {
				d.nc.Close()
			}
		}()
		return problem("connect", context.Cause(ctx))
	}
	if d.err != nil {
		return d.err
	}
	c.nc = d.nc
	if err = c.mayHear(ctx); err == nil {
		c.js, err = c.newJetStream(config, d.settings)
		err = problem("JetStream", err)
	}
	if err == nil {
		err = problem("connect", ctx.Err())
	}
	if err != nil {
		_ = c.Close() // it never fails
	}
	return err
}

// dialed is the outcome of connect.
type dialed struct {
	nc       *nats.Conn
	settings natscontext.Settings
	err      error
}

// connect connects to one of the servers, each of which it tries once.
func connect(config Config, opts []nats.Option) (d dialed) {
	if config.Context != "" && config.InProcess == nil {
		d.nc, d.settings, d.err = natscontext.Connect(contextPath(config.Context), opts...)
		d.err = problem("connect with context "+strconv.Quote(config.Context), explainDial(d.err))
		return d
	}
	urls := cmp.Or(config.URLs, defaultURL)
	d.nc, d.err = nats.Connect(urls, opts...)
	d.err = problem("connect to "+withoutPassword(urls), explainDial(d.err))
	return d
}

// mayHear returns an error if the servers do not let this user subscribe to responses, without
// which every request would wait in vain.
func (c *conn) mayHear(ctx context.Context) error {
	inbox := c.nc.NewInbox()
	subject := inbox + ".*" // as the client library does
	sub, err := c.nc.SubscribeSync(subject)
	if err != nil {
		return problem("connect", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	if err := c.flush(ctx); err != nil {
		return problem("connect", err)
	}
	if err := c.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) &&
		strings.Contains(err.Error(), strconv.Quote(subject)) {
		return fmt.Errorf("nats: %w: NATS does not let this user subscribe to responses on %s.>; set "+
			"--nats-inbox-prefix to the prefix that its permissions have, like _INBOX_client", broker.ErrPermission,
			inbox[:strings.LastIndexByte(inbox, '.')])
	}
	return nil
}

// contextPath makes the path of a context absolute: so the library distinguishes it from a name.
func contextPath(name string) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		return name
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}

// defaultAPI begins the subjects of JetStream's API, unless the settings name a domain or a prefix.
const defaultAPI = "$JS.API."

func (c *conn) newJetStream(config Config, s natscontext.Settings) (jetstream.JetStream, error) {
	opts := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(c.timeout),
	}
	domain, prefix := config.Domain, config.APIPrefix
	if domain == "" {
		domain = s.JSDomain
	}
	if prefix == "" {
		prefix = s.JSAPIPrefix
	}
	c.api = defaultAPI
	switch {
	case prefix != "":
		c.api = strings.TrimSuffix(prefix, ".") + "."
		return jetstream.NewWithAPIPrefix(c.nc, prefix, opts...)
	case domain != "":
		c.api = "$JS." + domain + ".API."
		return jetstream.NewWithDomain(c.nc, domain, opts...)
	}
	return jetstream.New(c.nc, opts...)
}

// handlers log and count the events of the connection.
func (c *conn) handlers() []nats.Option {
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.hooks.broken()
			if err != nil {
				c.events.disconnects.Add(1)
				c.log.Warn("NATS: the connection broke; connecting again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.log.Info("NATS: connected again", "server", nc.ConnectedUrlRedacted())
			c.notifyReconnected()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			c.events.note(err)
			isAnswer := false
			if errors.Is(err, nats.ErrPermissionViolation) {
				denied := c.denied.note(err)
				c.hooks.denied(denied)
				isAnswer = denied != "" && c.denied.isAnswer(denied)
			}
			if again := c.odd.repeated(err, isAnswer); again != nil {
				again.do(func(dropped int) {
					c.log.Warn("NATS: an error", "subject", subject, "error", err, "dropped", dropped)
				})
				return
			}
			c.log.Warn("NATS: an error", "subject", subject, "error", err)
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			if c.ctx.Err() == nil { // otherwise this process has closed it
				err := fmt.Errorf("the client of NATS does not connect again: %w", cmp.Or(nc.LastError(),
					nats.ErrConnectionClosed))
				c.gaveUp.Store(&err)
				c.log.Error("NATS: the connection is closed for good; this process must be restarted", "error", err)
			}
		}),
	}
}

// Closed returns an error if the client has closed the connection and will not connect again. It
// does so after some errors of the servers, such as the one for a message that exceeds a
// max_payload that was lowered meanwhile. Closed does not wait for a write that is in progress.
func (c *conn) Closed() error {
	if err := c.gaveUp.Load(); err != nil {
		return *err
	}
	return nil
}

// Server describes the connected server and its version, for operators.
func (c *conn) Server() string {
	return fmt.Sprintf("%s, nats-server %s", c.nc.ConnectedUrlRedacted(), c.nc.ConnectedServerVersion())
}

// happened counts the events of the connection.
type happened struct{ disconnects, slow, errors atomic.Uint64 }

func (h *happened) note(err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		h.slow.Add(1)
	} else {
		h.errors.Add(1)
	}
}

// RoundTrip measures how long the server takes to respond.
func (c *conn) RoundTrip(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return 0, fmt.Errorf("ask NATS for an answer: %w", err)
	}
	return time.Since(began), nil
}

// Connected returns an error while the connection is down. The client reconnects by itself.
func (c *conn) Connected() error {
	if c.nc.IsConnected() {
		return nil
	}
	if err := c.nc.LastError(); err != nil {
		return fmt.Errorf("not connected to NATS: %w", err)
	}
	return errors.New("not connected to NATS")
}

// Prefix begins all subjects.
func (c *conn) Prefix() string { return c.names.prefix }

// explainDial adds the remedy to an error.
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

// problem wraps an error with the operation that failed.
func problem(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nats: %s: %w", what, err)
}

// backlog returns the backlog of a consumer; none if there is no such consumer.
func (c *conn) backlog(ctx context.Context, stream, consumer string) (broker.Backlog, error) {
	found, err := c.lookFor(ctx, stream, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return broker.Backlog{}, nil
	}
	if err != nil {
		return broker.Backlog{}, problem("look at consumer "+consumer, err)
	}
	i := found.CachedInfo()
	return broker.Backlog{Waiting: int64(i.NumPending), Held: int64(i.NumAckPending), Receivers: i.NumWaiting}, nil
}

// awaitConnection waits until there is a connection, and reports whether there is one.
func (c *conn) awaitConnection(ctx context.Context, most time.Duration) bool {
	if c.nc.IsConnected() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(reconnected)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if c.nc.IsConnected() {
				return true
			}
		case <-ctx.Done():
			return false
		case <-c.ctx.Done():
			return false
		}
	}
}

// Reconnected implements broker.Connection.
func (c *conn) Reconnected(told func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reconnected == nil {
		c.reconnected = make(map[*func()]bool)
	}
	c.reconnected[&told] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.reconnected, &told)
	}
}

// notifyReconnected calls the functions that Reconnected has registered.
func (c *conn) notifyReconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for told := range c.reconnected {
		(*told)()
	}
}

// answerWaits are the time limits of the attempts: with a timeout of 5 seconds, 1, 2, and then 4
// seconds.
func answerWaits(timeout time.Duration) backoff.Backoff {
	return backoff.Backoff{First: timeout / 5, Most: timeout / 5 * 4}
}

// askAgain sends the servers a request that may be sent twice. It retries if a server reports a
// fault of its own, because the server may be cleaning up or waiting for others. It also retries if
// no server responds: when several processes ask to create the same stream, a cluster does not
// answer all of them.
func (c *conn) askAgain(ctx context.Context, do func(context.Context) error) (err error) {
	for attempt := range askAttempts {
		answered, cancel := context.WithTimeout(ctx, answerWaits(c.timeout).After(attempt))
		err = c.denied.during(answered, do)
		silent := errors.Is(err, nats.ErrTimeout) || answered.Err() != nil
		cancel()
		var api *jetstream.APIError
		if err == nil || ctx.Err() != nil || isOneServer(err) || !silent && (!errors.As(err, &api) || api.Code < 500) {
			return err
		}
		if silent || attempt == askAttempts-1 {
			continue
		}
		select {
		case <-time.After(answerPauses.After(attempt)):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// lookFor finds a consumer.
func (c *conn) lookFor(ctx context.Context, stream, name string) (found jetstream.Consumer, err error) {
	err = c.askAgain(ctx, func(ctx context.Context) error {
		found, err = c.js.Consumer(ctx, stream, name)
		return err
	})
	return found, err
}

// streamCalled finds a stream.
func (c *conn) streamCalled(ctx context.Context, name string) (found jetstream.Stream, err error) {
	err = c.askAgain(ctx, func(ctx context.Context) error {
		found, err = c.js.Stream(ctx, name)
		return err
	})
	return found, err
}

// flush waits until the servers have processed everything that this connection has sent. If they
// take longer than the time limit of a request, the error is [context.DeadlineExceeded].
func (c *conn) flush(ctx context.Context) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.nc.FlushWithContext(ctx)
}

// bounded gives a context a deadline if it has none.
func (c *conn) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// Now implements broker.Connection.
func (c *conn) Now(ctx context.Context) (time.Time, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	st, err := c.js.Stream(ctx, c.names.inbox)
	if err != nil {
		return time.Time{}, problem("read the clock of NATS", err)
	}
	return st.CachedInfo().TimeStamp.UTC(), nil
}

// mayAnswer reports whether a request has a reply subject to which this process may respond. The
// requester chooses the subject, and the response is published with the permissions of this
// process. These must not reach the streams of this system, nor the API by which streams are
// changed.
func (c *conn) mayAnswer(m *nats.Msg) bool {
	ours := c.isOurs(m.Reply)
	if ours {
		c.odd.request.do(func(dropped int) {
			c.log.Warn("NATS: a request is not handled, because its reply subject is one of the system",
				"subject", m.Subject, "to", m.Reply, "dropped", dropped)
		})
	}
	return m.Reply != "" && !ours
}

// isOurs reports whether a subject is one of this system or of the servers. Elsewhere, a process
// publishes only the responses to requests.
func (c *conn) isOurs(subject string) bool {
	return strings.HasPrefix(subject, c.names.prefix+".") || c.isAPI(subject)
}

// isAPI reports whether a subject is one of the servers, such as those of the API of JetStream.
func (c *conn) isAPI(subject string) bool {
	return strings.HasPrefix(subject, "$") || c.api != "" && strings.HasPrefix(subject, c.api)
}

// mayAnswerDirect reports whether a direct delivery has a reply subject to which this process may
// respond: one of the answers to deliveries of its kind. The servers replace it if the delivery has
// crossed from one account into another.
func (c *conn) mayAnswerDirect(kind directKind, m *nats.Msg) bool {
	name, ok := strings.CutPrefix(m.Reply, c.directAnswers(kind))
	random, n, two := strings.Cut(name, ".")
	if ok && two && random != "" && n != "" && !strings.ContainsAny(n, ".*>") || strings.HasPrefix(m.Reply, "_R_.") {
		return true
	}
	c.odd.delivery.do(func(dropped int) {
		c.log.Warn("NATS: a direct delivery is not handled, because its reply subject is not one of its answers",
			"subject", m.Subject, "to", m.Reply, "dropped", dropped)
	})
	return false
}
