package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/database"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/jobpush"
)

// migrate brings tables, and if asked to also streams, up to date, or checks them.
func (a *App) migrate(ctx context.Context) error {
	d := a.dialer()
	d.verify = a.config.Migration.Check
	adopt := a.config.Migration.Adopt && !a.config.Migration.Check
	if adopt || a.config.Migration.Streams && !a.config.Migration.Check {
		if err := a.refuseFirst(ctx, adopt); err != nil {
			return err
		}
	}
	from, to, err := d.migrateTables(ctx, a.config.database())
	if err != nil {
		return err
	}
	fmt.Fprintln(a.config.Stdout, migrated(from, to))
	if !a.config.Migration.Streams && !adopt {
		return nil
	}
	c := brokerConfig(&a.config)
	c.Setup = natsbroker.Make
	if a.config.Migration.Check {
		c.Setup = natsbroker.Verify
	} else if !a.config.Migration.Streams {
		c.Setup = natsbroker.Use
	}
	b, err := d.connectNATS(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // every request was answered
	if err := a.migrateSystem(ctx, d, b, adopt); err != nil || !a.config.Migration.Streams {
		return err
	}
	needed := []broker.TaskQueueName{{Tag: jobpush.Tag, Activity: jobpush.Activity}}
	for _, tag := range tagNames(a.config.Worker.Tags) {
		for _, name := range a.code.activities.Names() {
			needed = append(needed, broker.TaskQueueName{Tag: tag, Activity: name})
		}
	}
	for _, q := range needed {
		if _, err := b.OpenTaskQueue(ctx, q); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.config.Stdout, "the streams of %s are as they are needed\n", c.Prefix)
	return nil
}

// refuseFirst refuses a database and a NATS that do not belong together, BEFORE anything is made: a
// wrong address leaves nothing behind.
func (a *App) refuseFirst(ctx context.Context, adopt bool) error {
	c := brokerConfig(&a.config)
	c.Setup = natsbroker.Use
	b, err := a.dialer().connectNATS(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // every request was answered
	e, err := identity.Read(ctx, b)
	isEmpty := errors.Is(err, natsbroker.ErrUnseen)
	switch {
	case adopt && isEmpty && !a.config.Migration.Streams:
		return fmt.Errorf("--adopt: NATS at %s has no streams with the prefix %q: correct the address, account or "+
			"--prefix; or add --streams, which makes them", a.Addresses().NATS, b.Prefix())
	case adopt:
		return nil // it waits until neither is in use
	case err != nil && !isEmpty:
		return err
	}
	d := a.dialer()
	d.verify, d.check = true, true
	store, err := d.openStore(ctx, a.config.database())
	if schema, is := errors.AsType[*history.SchemaError](err); is {
		if schema.Found > 0 {
			return nil // its system cannot be read before the migration
		}
		return a.named(identity.Compare(b.Prefix(), history.System{}, e))
	}
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, identity.AnswersWithin)
	defer cancel()
	now, err := store.Identity(reading)
	if err == nil {
		err = identity.Compare(b.Prefix(), now, e)
	}
	if err == nil && e == nil && now.Beats > 0 && !now.Exclusive {
		a.log.Info("NATS has no system; waiting to see whether the database is in use with another NATS")
		err = identity.AwaitUnused(ctx, store, &appearing{Bus: b})
	}
	return errors.Join(a.named(err), store.Close())
}

// appearing is a NATS whose bucket others may make.
type appearing struct{ *natsbroker.Bus }

// Get implements [broker.KV].
func (b *appearing) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := b.Bus.Get(ctx, key)
	if !errors.Is(err, natsbroker.ErrUnseen) {
		return value, err
	}
	if err := b.Repair(ctx); err != nil { // it looks again
		return nil, err
	}
	if value, err = b.Bus.Get(ctx, key); errors.Is(err, natsbroker.ErrUnseen) {
		return nil, nil
	}
	return value, err
}

// migrateSystem checks that the database and NATS belong together, or makes them.
func (a *App) migrateSystem(ctx context.Context, d *dialer, b *natsbroker.Bus, adopt bool) error {
	store, err := d.openStore(ctx, a.config.database())
	if err != nil {
		return err
	}
	if adopt {
		var now history.System
		if err = refuseInFlight(ctx, store, b); err != nil {
			return errors.Join(a.named(err), store.Close())
		}
		if now, err = identity.Adopt(ctx, store, b); err == nil {
			at := a.Addresses()
			fmt.Fprintf(a.config.Stdout, "%s and NATS at %s (prefix %s) are one system from now on, %s\n", at.Database,
				at.NATS, at.Prefix, identity.Short(now.ID))
		}
	} else if err = identity.Check(ctx, store, b); err == nil && !a.config.Migration.Check {
		// New ones belong together from here on, and not from when an orchestrator begins, which
		// may have a wrong address.
		_, err = identity.New(identity.Config{Store: store, Broker: b, Log: a.log}).Step(ctx)
	}
	return errors.Join(a.named(err), store.Close())
}

// refuseInFlight returns an error if a database was restored, and NATS has messages that its
// instances have not sent. If what NATS has cannot be read, Adopt writes it anew.
func refuseInFlight(ctx context.Context, store history.Store, b *natsbroker.Bus) error {
	e, err := identity.Read(ctx, b)
	if errors.Is(err, identity.ErrNoEntry) {
		return nil
	}
	if err != nil {
		return err
	}
	return refuseRestored(ctx, store, b, e)
}

func refuseRestored(ctx context.Context, store history.Store, b *natsbroker.Bus, e *identity.Entry) error {
	now, err := store.Identity(ctx)
	if err != nil {
		return err
	}
	mismatch, is := errors.AsType[*identity.Mismatch](identity.Compare(b.Prefix(), now, e))
	if !is || !mismatch.Restored() {
		return nil
	}
	streams, err := b.InFlight(ctx)
	if err != nil || len(streams) == 0 {
		return err
	}
	return fmt.Errorf("--adopt: the database is older than what NATS has seen of it, and the streams %s hold "+
		"messages that its instances have not sent: workers would execute those tasks; stop all services, do "+
		"what docs/operating.md says under \"After the database was restored\": `nats stream rm %s -f`; then "+
		"migrate again with --streams --adopt", strings.Join(streams, ", "),
		strings.Join(streams, " -f`, `nats stream rm "))
}

// named adds the addresses to the error that a database and NATS do not belong together; in dev,
// whose NATS belongs to its directory, it says which files to remove.
func (a *App) named(err error) error {
	mismatch, is := errors.AsType[*identity.Mismatch](err)
	if !is {
		return err
	}
	at := a.Addresses()
	if a.config.Command == Dev {
		dir := a.config.Dir
		return devError{fmt.Sprintf("%s: %s; remove the files of NATS: rm -r %s (dev publishes again what the "+
			"instances of %s wait for; schedules and dead letters are lost)", dir, mismatch.Problem(),
			shellWord(filepath.Join(dir, natsDir)), at.Database), err}
	}
	return fmt.Errorf("database %s, NATS %s with prefix %s: %w", at.Database, at.NATS, at.Prefix, err)
}

// migrateTables migrates the tables, or checks them. It returns their versions before and after, 0
// for a [Store], which migrates its tables when it is opened.
func (d *dialer) migrateTables(ctx context.Context, address string) (from, to int, err error) {
	if d.stores.of(address) != nil {
		s, err := d.openStore(ctx, address)
		if err != nil {
			return 0, 0, err
		}
		return 0, 0, s.Close()
	}
	if d.check {
		s, err := d.openStore(ctx, address)
		if err != nil {
			return 0, 0, err
		}
		to = database.SchemaVersion(address)
		return to, to, s.Close()
	}
	migrate := func(ctx context.Context) (err error) {
		from, to, err = database.Migrate(ctx, address, d.options())
		return err
	}
	if database.IsFile(address) {
		err = migrate(ctx)
	} else {
		err = d.await(ctx, database.Describe(address), migrate)
	}
	return from, to, err
}

func migrated(from, to int) string {
	switch {
	case to == 0:
		return "the store was opened, which migrates or checks its tables if it has any"
	case from == to:
		return fmt.Sprintf("the tables are of version %d, which is the one that is needed", to)
	case from == 0:
		return fmt.Sprintf("the tables were made; they are of version %d", to)
	}
	return fmt.Sprintf("the tables were of version %d, and are of version %d now", from, to)
}
