// Package busclient makes clients of package client over a broker to which the process is
// connected already. The command rondo, `dev` and tests do so; users call client.Connect.
//
// Package client imports this package and says how clients are made ([Register]), so that what only
// this repository needs stays out of its exported API.
package busclient

import (
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/history"
)

// Broker is the part of a broker that a client needs.
type Broker interface {
	broker.Publisher
	broker.Notifications
	broker.Requests
	broker.Discovery
	// Prefix begins all subjects.
	Prefix() string
}

// Options are the settings of a client. The zero value is good.
type Options struct {
	// Store is asked instead of the orchestrators, where there is direct access to the database. If
	// it is a [history.Remover], too, it also removes.
	Store history.Reader
	// Codec is that of the system; nil is [codec.JSON].
	Codec codec.Codec
	// NewID makes ids; nil makes UUIDs that sort by time.
	NewID func() string
	// Now is the clock from which delays are counted; nil is [time.Now].
	Now func() time.Time
	// Name is the name of the client in the history of activities that it completes. Default:
	// client.
	Name string
}

// registered makes the clients.
var registered func(Broker, Options) any

// Register sets how clients are made. Package client calls it when it is initialized.
func Register(make func(Broker, Options) any) { registered = make }

// New makes a client, which is a *client.Client: C is its type. Its Close does not close the
// broker.
func New[C any](b Broker, o Options) C { return registered(b, o).(C) }
