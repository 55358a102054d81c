package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/database"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/internal/x/redact"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

const (
	defaultNATS = "nats://127.0.0.1:4222"

	// The pauses between two attempts to connect.
	firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
)

// dialer connects to NATS and to the database, and waits for them.
type dialer struct {
	name    string        // of connections
	timeout time.Duration // 0: one attempt
	verify  bool          // tables are only checked
	check   bool          // an outdated database is a result, not a reason to wait
	places  *places
	stores  stores
	log     *slog.Logger
	metrics *telemetry.Metrics // nil: nothing is measured
}

// options are those of one attempt to open a database.
func (d *dialer) options() database.Options {
	return database.Options{Verify: d.verify, Log: d.log,
		DialTimeout: min(5*time.Second, max(time.Second, d.timeout)), Observer: d.metrics.StoreObserver()}
}

// connect connects to NATS and to the database, and waits for both at the same time.
func (d *dialer) connect(ctx context.Context, c natsbroker.Config, address string) (b *natsbroker.Bus,
	store opened, err error) {
	var errs [2]error
	var wait sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait.Go(func() {
		if b, errs[0] = d.connectNATS(ctx, c); errs[0] != nil && d.hopeless(errs[0]) {
			cancel()
		}
	})
	wait.Go(func() {
		if store, errs[1] = d.openStore(ctx, address); errs[1] != nil && d.hopeless(errs[1]) {
			cancel()
		}
	})
	wait.Wait()
	if err := worthTelling(errs[0], errs[1]); err != nil {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
		if store.Store != nil {
			err = errors.Join(err, store.Close())
		}
		return nil, opened{}, err
	}
	return b, store, nil
}

// worthTelling leaves out that waiting was given up because of the other error.
func worthTelling(errs ...error) error {
	var told []error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			told = append(told, err)
		}
	}
	if len(told) == 0 {
		return errors.Join(errs...)
	}
	return errors.Join(told...)
}

// connectNATS connects to NATS.
func (d *dialer) connectNATS(ctx context.Context, c natsbroker.Config) (b *natsbroker.Bus, err error) {
	c.Logger, c.Name = cmp.Or(c.Logger, d.log), cmp.Or(c.Name, d.name)
	at := cmp.Or(redact.Addresses(c.URLs), defaultNATS)
	if c.Context != "" {
		at = "context " + c.Context
	}
	d.places.set(func(w *Addresses) { w.NATS, w.Prefix = cmp.Or(w.NATS, at), c.Prefix })
	err = d.await(ctx, "NATS at "+at, func(ctx context.Context) (err error) {
		b, err = natsbroker.Connect(ctx, c)
		return err
	})
	if err == nil && d.metrics != nil {
		d.metrics.Bus(b)
	}
	return b, err
}

// opened is an open database, whose connections are measured until it is closed.
type opened struct {
	database.Store
	unwatch func()
}

// Close implements [io.Closer].
func (o opened) Close() error {
	o.unwatch()
	return o.Store.Close()
}

// openStore opens the database.
func (d *dialer) openStore(ctx context.Context, address string) (o opened, err error) {
	d.places.set(func(w *Addresses) { w.Database = redact.Addresses(address) })
	err = d.await(ctx, database.Describe(address), func(ctx context.Context) (err error) {
		if open := d.stores.of(address); open != nil {
			o.Store, err = d.openOwn(ctx, open, address)
			return err
		}
		o.Store, err = database.Open(ctx, address, d.options())
		return err
	})
	if err != nil {
		return opened{}, err
	}
	o.unwatch = d.metrics.Pool(o.Store)
	return o, nil
}

// await tries until it works, there is no hope, or it has waited long enough. Whatever it waits
// for, it says so at once, and again when the reason changes.
func (d *dialer) await(ctx context.Context, what string, try func(context.Context) error) error {
	until := time.Now().Add(d.timeout)
	pause := firstPause
	said := ""
	for {
		err := try(ctx)
		if err == nil {
			if said != "" {
				d.log.Info("there is " + what + " now")
			}
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		rest := time.Until(until)
		if d.hopeless(err) || d.timeout == 0 {
			return fmt.Errorf("%s: %w", what, err)
		}
		if rest <= 0 {
			return fmt.Errorf("waited %s for %s (--connect-timeout): %w", settings.FormatDuration(d.timeout), what, err)
		}
		if reason := err.Error(); reason != said {
			said = reason
			d.log.Warn("waiting for "+what+" at most", "for", settings.FormatDuration(rest.Round(time.Second)), "error",
				oneLine(reason))
		}
		select {
		case <-time.After(min(pause, rest)):
			pause = min(2*pause, longestPause)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}

// hopeless reports whether waiting cannot help: a file does not exist, the database refuses for
// good, or NATS has one server and the settings want replicas. It is worth waiting for all other
// errors of NATS, because accounts and streams may be created meanwhile; and for another process
// that has the database, for tables that another process creates or changes, and for the privileges
// on them.
func (d *dialer) hopeless(err error) bool {
	var of *history.Error
	var locked *sqlite.LockedError
	var schema *history.SchemaError
	var denied *history.DeniedError
	switch {
	case errors.As(err, &locked):
		return false
	case errors.As(err, &schema):
		return schema.Found > schema.Wanted || d.check // that is the answer
	case errors.As(err, &denied):
		return d.check
	case errors.As(err, &of):
		return of.Class == history.Permanent
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, natsbroker.ErrOneServer)
}

// oneLine puts what stands on several lines on one.
func oneLine(s string) string {
	var lines []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "; ")
}
