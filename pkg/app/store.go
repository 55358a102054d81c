package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/internal/database"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// OpenStore opens the store at an address, as --database has it. If it returns an error, the
// program tries again until --connect-timeout is over, unless the error is a [*history.Error] of
// class Permanent.
type OpenStore func(ctx context.Context, address string, o StoreOptions) (history.Store, error)

// StoreOptions are what a program tells a store that it opens.
type StoreOptions struct {
	// Verify says that the store may check its tables, but not create or migrate them.
	Verify bool
	// Observer gets the operations of the store, for metrics. Nil means none.
	Observer history.Observer
	// Log is the log of the program.
	Log *slog.Logger
}

// Store adds a kind of database that Rondo does not have itself: open opens the addresses that
// begin with the scheme and a colon.
//
//	app.Main(app.Store("memory", open), …) // --database memory:orders
//
// A store need not have everything that Rondo's own have. Without job queues, none are served, and
// pushes to them fail. Its tables, if any, are migrated or checked when it is opened. The command
// rondo does not know the scheme, so its checks of a database do not work there.
//
// The contract of a store is in [github.com/rondo-run/rondo/pkg/history], and its test suite in
// [github.com/rondo-run/rondo/pkg/history/historytest].
func Store(scheme string, open OpenStore) Part { return ownStore{scheme, open} }

type ownStore struct {
	scheme string
	open   OpenStore
}

// RondoPart marks what a program is made of.
func (ownStore) RondoPart() {}

// OnlyForProcesses has tests leave it out.
func (ownStore) OnlyForProcesses() {}

// stores are the kinds of databases that a program adds, by their schemes.
type stores map[string]OpenStore

// okScheme matches schemes of URLs. A single character is a drive of Windows.
var okScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]+$`)

// taken are schemes that have a meaning already.
var taken = []string{"postgres", "postgresql", "sqlite", "sqlite3", "file"}

// add adds a kind of database.
func (s *stores) add(own ownStore) error {
	switch {
	case !okScheme.MatchString(own.scheme):
		return fmt.Errorf("app.Store: %q cannot be a scheme; choose a lower-case word like %q", own.scheme, "memory")
	case slices.Contains(taken, own.scheme):
		return fmt.Errorf("app.Store: the scheme %q belongs to Rondo; choose another one", own.scheme)
	case (*s)[own.scheme] != nil:
		return fmt.Errorf("app.Store: the scheme %q is there twice; leave one out", own.scheme)
	case own.open == nil:
		return fmt.Errorf("app.Store: the scheme %q has no function that opens a store", own.scheme)
	case *s == nil:
		*s = make(stores)
	}
	(*s)[own.scheme] = own.open
	return nil
}

// of gives the function that opens an address; nil if that is a database of Rondo's own kinds.
func (s stores) of(address string) OpenStore {
	scheme, _, ok := strings.Cut(address, ":")
	if !ok {
		return nil
	}
	return s[scheme]
}

// check returns an error if an address cannot be one of a database.
func (s stores) check(address string) error {
	if s.of(address) != nil {
		return nil
	}
	return database.Check(address, slices.Sorted(maps.Keys(s))...)
}

// schemesOf lists the schemes of the stores among the parts of a program.
func schemesOf(parts []Part) (schemes []string) {
	for _, p := range parts {
		if own, ok := p.(ownStore); ok {
			schemes = append(schemes, own.scheme)
		}
	}
	slices.Sort(schemes)
	return schemes
}

// openOwn opens a store of the program's.
func (d *dialer) openOwn(ctx context.Context, open OpenStore, address string) (database.Store, error) {
	o := d.options()
	s, err := open(ctx, address, StoreOptions{Verify: o.Verify, Observer: o.Observer, Log: o.Log})
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, &history.Error{Class: history.Permanent, Op: "open",
			Err: errors.New("the function of app.Store returned neither a store nor an error")}
	}
	return partial{s}, nil
}

// partial is a store with what else a database may have, as far as it has it.
type partial struct{ history.Store }

// Queues returns the job queues; nil if there are none. A store has them that embeds one of
// Rondo's.
func (p partial) Queues() jobs.Store {
	if s, ok := p.Store.(interface{ Queues() jobs.Store }); ok {
		return s.Queues()
	}
	return nil
}

// Pool implements [history.Pooled]; its zero value says that the store has no connections.
func (p partial) Pool() history.Pool {
	if s, ok := p.Store.(history.Pooled); ok {
		return s.Pool()
	}
	return history.Pool{}
}
