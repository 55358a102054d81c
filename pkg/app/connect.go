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
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

const (
	defaultNATS = "nats://127.0.0.1:4222"

	// The pauses between two attempts to connect.
	firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
)

// dialFor bounds one attempt to reach a database.
func (a *App) dialFor() time.Duration { return min(5*time.Second, max(time.Second, a.config.Wait)) }

// connect connects to NATS and to the database, and waits for both at the same time.
func (a *App) connect(ctx context.Context) (b *natsbroker.Bus, store history.Store, err error) {
	var errs [2]error
	var wait sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait.Go(func() {
		if b, errs[0] = a.connectNATS(ctx); errs[0] != nil && a.hopeless(errs[0]) {
			cancel()
		}
	})
	wait.Go(func() {
		if store, errs[1] = a.openStore(ctx); errs[1] != nil && a.hopeless(errs[1]) {
			cancel()
		}
	})
	wait.Wait()
	if err := worthTelling(errs[0], errs[1]); err != nil {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
		if store != nil {
			err = errors.Join(err, store.Close())
		}
		return nil, nil, err
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
func (a *App) connectNATS(ctx context.Context) (b *natsbroker.Bus, err error) {
	c := a.config.NATS
	c.Logger = cmp.Or(c.Logger, a.log)
	c.Name = cmp.Or(c.Name, a.name()+" "+string(a.config.Command))
	at := cmp.Or(withoutPassword(c.URLs), defaultNATS)
	if c.Context != "" {
		at = "context " + c.Context
	}
	a.found(func(w *Addresses) { w.NATS, w.Prefix = cmp.Or(w.NATS, at), c.Prefix })
	err = a.await(ctx, "NATS at "+at, func(ctx context.Context) (err error) {
		b, err = natsbroker.Connect(ctx, c)
		return err
	})
	if err == nil && a.telemetry != nil {
		a.telemetry.Metrics.Bus(b)
	}
	return b, err
}

// openStore opens the database.
func (a *App) openStore(ctx context.Context) (store history.Store, err error) {
	url := a.config.database()
	a.found(func(w *Addresses) { w.Database = withoutPassword(url) })
	verify := a.config.Database.Schema == VerifyTables
	if path, ok := isFile(url); ok {
		o := sqlite.Options{Log: a.log}
		if verify {
			o.Schema = sqlite.Verify
		}
		err = a.await(ctx, "the database "+path, func(ctx context.Context) (err error) {
			s, err := sqlite.Open(ctx, path, o)
			if err == nil {
				store = s
				a.keepQueues(s)
			}
			return err
		})
		return a.measured(store), err
	}
	o := cockroach.Options{Log: a.log, ConnectTimeout: a.dialFor()}
	if verify {
		o.Schema = cockroach.Verify
	}
	err = a.await(ctx, "the database at "+withoutPassword(url), func(ctx context.Context) (err error) {
		s, err := cockroach.Open(ctx, url, o)
		if err == nil {
			store = s
			a.keepQueues(s)
		}
		return err
	})
	return a.measured(store), err
}

// measured is a store whose operations are measured, if anything is.
func (a *App) measured(store history.Store) history.Store {
	if a.telemetry == nil {
		return store
	}
	return a.telemetry.Metrics.Store(store)
}

// OpenReadOnly opens a database to look at it, beside those who write to it. Methods that would
// change something fail.
func OpenReadOnly(ctx context.Context, address string, log *slog.Logger) (history.Store, error) {
	if path, ok := isFile(address); ok {
		s, err := sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true, Schema: sqlite.Verify, Log: log})
		if err != nil {
			return nil, fmt.Errorf("the database %s: %w", path, err)
		}
		return s, nil
	}
	const dialFor = 10 * time.Second
	s, err := cockroach.Open(ctx, address,
		cockroach.Options{ReadOnly: true, Schema: cockroach.Verify, ConnectTimeout: dialFor, Log: log})
	if err != nil {
		return nil, fmt.Errorf("the database at %s: %w", withoutPassword(address), err)
	}
	return s, nil
}

// await tries until it works, there is no hope, or it has waited long enough. Whatever it waits
// for, it says so at once, and again when the reason changes.
func (a *App) await(ctx context.Context, what string, try func(context.Context) error) error {
	until := time.Now().Add(a.config.Wait)
	pause := firstPause
	said := ""
	for {
		err := try(ctx)
		if err == nil {
			if said != "" {
				a.log.Info("there is " + what + " now")
			}
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		rest := time.Until(until)
		if a.hopeless(err) || a.config.Wait == 0 {
			return fmt.Errorf("%s: %w", what, err)
		}
		if rest <= 0 {
			return fmt.Errorf("waited %s for %s (--wait): %w", shortly(a.config.Wait), what, err)
		}
		if reason := err.Error(); reason != said {
			said = reason
			a.log.Warn("waiting for "+what, "for", shortly(rest.Round(time.Second)), "error", oneLine(reason))
		}
		select {
		case <-time.After(min(pause, rest)):
			pause = min(2*pause, longestPause)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}

// hopeless tells whether waiting cannot help: a file is not there, or the database refuses for
// good. What NATS says is waited for in any case, because accounts and streams may be on their way,
// too; and so are another process that has the database, tables that somebody else is to make or to
// change, and the rights to them.
func (a *App) hopeless(err error) bool {
	var of *history.Error
	var locked *sqlite.LockedError
	var schema *history.SchemaError
	var denied *history.DeniedError
	switch {
	case errors.As(err, &locked):
		return false
	case errors.As(err, &schema):
		return schema.Found > schema.Wanted || a.config.Check // that is the answer
	case errors.As(err, &denied):
		return a.config.Check
	case errors.As(err, &of):
		return of.Class == history.Permanent
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
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

// migrateTables brings the tables up to date, or checks them, and says what was done.
func (a *App) migrateTables(ctx context.Context) error {
	url := a.config.database()
	path, file := isFile(url)
	var from, to int
	var err error
	switch {
	case a.config.Check:
		a.config.Database.Schema = VerifyTables
		var s history.Store
		if s, err = a.openStore(ctx); err == nil {
			err = s.Close()
		}
		from, to = cockroach.SchemaVersion, cockroach.SchemaVersion
		if file {
			from, to = sqlite.SchemaVersion, sqlite.SchemaVersion
		}
	case file:
		from, to, err = a.migrateFile(ctx, path)
	default:
		err = a.await(ctx, "the database at "+withoutPassword(url), func(ctx context.Context) (err error) {
			from, to, err = cockroach.MigrateSchema(ctx, url,
				cockroach.Options{Log: a.log, ConnectTimeout: a.dialFor()})
			return err
		})
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(a.config.stdout(), migrated(from, to))
	return nil
}

func (a *App) migrateFile(ctx context.Context, path string) (from, to int, err error) {
	to = sqlite.SchemaVersion
	s, err := sqlite.Open(ctx, path, sqlite.Options{Schema: sqlite.Verify, Log: a.log})
	if err == nil {
		return to, to, s.Close()
	}
	var schema *history.SchemaError
	if !errors.As(err, &schema) {
		return 0, 0, err
	}
	if s, err = sqlite.Open(ctx, path, sqlite.Options{Log: a.log}); err != nil {
		return 0, 0, err
	}
	return schema.Found, to, s.Close()
}

func migrated(from, to int) string {
	switch {
	case from == to:
		return fmt.Sprintf("the tables are of version %d, which is the one that is needed", to)
	case from == 0:
		return fmt.Sprintf("the tables were made; they are of version %d", to)
	}
	return fmt.Sprintf("the tables were of version %d, and are of version %d now", from, to)
}
