package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	healthserver "github.com/rondo-run/rondo/internal/health"
	"github.com/rondo-run/rondo/internal/settings"
)

// askFor is how long a service may take to say how it is.
const askFor = 3 * time.Second

// health serves /livez, /readyz, /metrics, /loglevel and /version.
type health struct {
	server  *healthserver.Server
	untell  func() // ends telling whether it is ready
	watched atomic.Pointer[watched]
}

type watched struct {
	ctx      context.Context
	services group
}

// openHealth begins to serve. Until there are services to watch, the process is alive and not
// ready.
func (a *App) openHealth() (*health, error) {
	h := &health{}
	h.untell = a.telemetry.Metrics.Ready(h.ready)
	address, said := a.config.listen()
	if address == settings.Off {
		return h, nil
	}
	c := healthserver.Config{Address: address, Live: h.live, Ready: h.ready, Metrics: a.telemetry.Scrape,
		LogLevel: a.logs.level, Version: a.build(), Logger: a.log}
	var err error
	h.server, err = healthserver.Serve(c)
	if err != nil && !said { // without a configured address, any port will do
		if host, _, splitErr := net.SplitHostPort(address); splitErr == nil {
			c.Address = net.JoinHostPort(host, "0")
			h.server, err = healthserver.Serve(c)
		}
		if err == nil {
			a.log.Warn("the usual address is taken; serving /livez and /readyz at another one", "usual", address,
				"address", h.server.Address())
		}
	}
	if err != nil {
		return nil, fmt.Errorf(
			"serve /livez, /readyz and /metrics: %w: choose it with --listen, or leave it out with --listen off", err)
	}
	a.places.set(func(w *Addresses) { w.Health = "http://" + h.server.Address() })
	return h, nil
}

func (h *health) watch(ctx context.Context, services group) {
	h.watched.Store(&watched{ctx, services})
}

func (h *health) close() error {
	h.untell()
	if h.server == nil {
		return nil
	}
	return h.server.Close()
}

func (h *health) live() (err error) {
	if x := h.watched.Load(); x != nil {
		for _, s := range x.services {
			err = errors.Join(err, named(s.name, s.live()))
		}
	}
	return err
}

func (h *health) ready() (err error) {
	x := h.watched.Load()
	switch {
	case x == nil:
		return errors.New("it is connecting")
	case x.ctx.Err() != nil:
		return errors.New("it is ending")
	}
	ctx, cancel := context.WithTimeout(x.ctx, askFor)
	defer cancel()
	for _, s := range x.services {
		err = errors.Join(err, named(s.name, s.ready(ctx)))
	}
	return err
}

func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
