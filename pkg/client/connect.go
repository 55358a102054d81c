package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/codec"
)

// Option is a setting of [Connect].
type Option func(*connection)

type connection struct {
	nats   natsbroker.Config
	client options
}

// Connect connects to NATS and returns a client, which closes the connection when the client is
// closed. urls are the servers, separated by commas, for example "nats://nats-1:4222,nats-2:4222";
// if urls is empty, Connect uses those of [NATSContext], or nats://127.0.0.1:4222.
//
// A client creates no streams: it needs permission to publish and to ask, and no more (see
// deploy/nats). Connect fails if no server answers within [Timeout]. Later the connection
// reconnects by itself, without limit.
func Connect(ctx context.Context, urls string, opts ...Option) (*Client, error) {
	c := connection{nats: natsbroker.Config{URLs: urls, Name: "client", Setup: natsbroker.Use}}
	for _, opt := range opts {
		opt(&c)
	}
	b, err := natsbroker.Connect(ctx, c.nats)
	if err != nil {
		return nil, err
	}
	client := newClient(b, c.client)
	client.owned = b
	return client, nil
}

// Name sets the name of the client: NATS shows it for the connection, and histories show it for
// activities that the client completes. Default: client.
func Name(name string) Option {
	return func(c *connection) { c.nats.Name, c.client.Name = name, name }
}

// Prefix sets the name of the system, which begins all its subjects. Default: rondo.
func Prefix(prefix string) Option { return func(c *connection) { c.nats.Prefix = prefix } }

// Codec sets the codec of inputs and results. It must be that of the orchestrators and workers.
// Default: [codec.JSON].
func Codec(codec codec.Codec) Option { return func(c *connection) { c.client.Codec = codec } }

// Timeout bounds each request to the servers. Default: 5 s.
func Timeout(d time.Duration) Option { return func(c *connection) { c.nats.Timeout = d } }

// Logger sets where the client logs a lost and a restored connection. Default: [slog.Default].
func Logger(l *slog.Logger) Option { return func(c *connection) { c.nats.Logger = l } }

// ---- Authentication.

// NATSContext takes the servers and credentials from a context of the nats command, given by its
// name or its path. Options override it.
func NATSContext(name string) Option { return func(c *connection) { c.nats.Context = name } }

// Credentials authenticates with a credentials file (a JWT and its nkey).
func Credentials(file string) Option { return func(c *connection) { c.nats.Credentials = file } }

// NKey authenticates with the nkey whose seed is in a file.
func NKey(file string) Option { return func(c *connection) { c.nats.NKey = file } }

// UserPassword authenticates with a user name and a password.
func UserPassword(user, password string) Option {
	return func(c *connection) { c.nats.User, c.nats.Password = user, password }
}

// Token authenticates with a token.
func Token(token string) Option { return func(c *connection) { c.nats.Token = token } }

// RootCAs verifies the servers' certificates with the certificate authorities in a PEM file.
func RootCAs(file string) Option { return func(c *connection) { c.nats.CA = file } }

// Certificate presents a client certificate, from PEM files of the certificate and its key.
func Certificate(file, key string) Option {
	return func(c *connection) { c.nats.Certificate, c.nats.Key = file, key }
}

// TLSFirst begins the connection with the TLS handshake, before the server's INFO. The server must
// have handshake_first.
func TLSFirst() Option { return func(c *connection) { c.nats.TLSFirst = true } }

// ---- Where the system is.

// InProcess connects to a NATS server in the same process.
func InProcess(server nats.InProcessConnProvider) Option {
	return func(c *connection) { c.nats.InProcess = server }
}

// JetStreamDomain names the JetStream domain of the system, if the client reaches the system
// through a leaf node.
func JetStreamDomain(domain string) Option { return func(c *connection) { c.nats.Domain = domain } }

// JetStreamAPIPrefix sets the prefix of JetStream's API, if an account imports it under another
// name.
func JetStreamAPIPrefix(prefix string) Option {
	return func(c *connection) { c.nats.APIPrefix = prefix }
}

// InboxPrefix sets the prefix of the subjects of replies, if permissions ask for one.
// Default: _INBOX.
func InboxPrefix(prefix string) Option { return func(c *connection) { c.nats.InboxPrefix = prefix } }
