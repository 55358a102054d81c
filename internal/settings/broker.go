package settings

import (
	"log/slog"
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
)

// NATS has the fields of app.NATS, so that one converts to the other.
type NATS struct {
	URLs, Context         string
	Credentials, NKey     string
	User, Password, Token string
	CA, Certificate, Key  string
	TLSFirst              bool
	Domain, APIPrefix     string
	InboxPrefix           string
	Timeout               time.Duration
	Logger                *slog.Logger
}

// Streams has the fields of app.Streams, so that one converts to the other.
type Streams struct {
	Prefix                    string
	Verify                    bool
	Partitions, Replicas      int
	MaxPayload                int
	InboxAckWait, TaskAckWait time.Duration
	DeadLetterTTL             time.Duration
	InboxMaxBytes             int64
	DeadLetterMaxBytes        int64
	MemberLease, SessionLease time.Duration
}

// Broker converts settings to those of a connection.
func Broker(n NATS, s Streams) natsbroker.Config {
	c := natsbroker.Config{
		URLs: n.URLs, Context: n.Context,
		Login: natsbroker.Login{Credentials: n.Credentials, NKey: n.NKey, User: n.User, Password: n.Password,
			Token: n.Token},
		TLS:    natsbroker.TLS{CA: n.CA, Certificate: n.Certificate, Key: n.Key, TLSFirst: n.TLSFirst},
		Domain: n.Domain, APIPrefix: n.APIPrefix, InboxPrefix: n.InboxPrefix, Timeout: n.Timeout, Logger: n.Logger,

		Prefix: s.Prefix, Setup: natsbroker.Make, Partitions: s.Partitions, Replicas: s.Replicas,
		MaxPayload: s.MaxPayload, InboxAckWait: s.InboxAckWait, TaskAckWait: s.TaskAckWait,
		InboxMaxBytes: s.InboxMaxBytes, DeadLetterMaxBytes: s.DeadLetterMaxBytes,
		DeadLetterTTL: s.DeadLetterTTL, MemberLease: s.MemberLease, SessionLease: s.SessionLease,
	}
	if s.Verify {
		c.Setup = natsbroker.Verify
	}
	return c
}
