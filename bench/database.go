package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// database is where the history is.
type database struct {
	kind    string // postgres, sqlite or external
	address string
	dir     string                // where its files are, if they are here
	usage   func() (usage, error) // nil if it is part of the orchestrator, or elsewhere
	crash   func() error          // nil if it cannot be crashed
	revive  func() error
	drop    func() error
}

func nothing() error { return nil }

// newDatabase makes an empty database.
func (b *bench) newDatabase(ctx context.Context, dir string) (d database, err error) {
	switch {
	case b.postgres != nil:
		d = database{kind: "postgres", dir: b.postgres.Data(), crash: b.postgres.Crash, revive: b.postgres.Revive}
		d.usage = func() (usage, error) {
			pid, err := b.postgres.PID()
			if err != nil {
				return usage{}, err
			}
			return usageOfFamily(pid)
		}
		d.address, d.drop, err = b.postgres.Create()
	case b.o.database == "sqlite":
		d = database{kind: "sqlite", dir: dir, address: filepath.Join(dir, "history.db"), drop: nothing}
	default:
		d = database{kind: "external"}
		d.address, d.drop, err = createOn(ctx, b.o.database, fmt.Sprintf("bench_%d_%d", os.Getpid(), b.systems))
	}
	if err != nil {
		d.drop = nothing
	}
	return d, err
}

// createOn creates a database on a server that is there.
func createOn(ctx context.Context, server, name string) (address string, drop func() error, err error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		return "", nil, errors.New(
			"the database: want postgres, sqlite, or an address like postgres://user@host:5432/name")
	}
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	var version string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return "", nil, err
	}
	how := " WITH (FORCE)"
	if strings.Contains(version, "Cockroach") {
		how = " CASCADE"
	}
	u.Path = "/" + name
	return u.String(), func() error {
		ctx := context.WithoutCancel(ctx)
		conn, err := pgx.Connect(ctx, server)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "DROP DATABASE "+name+how)
		return err
	}, nil
}

// read returns the version of the server, and the counters of PostgreSQL for the database. Its
// processes report their counts when they are idle for a while, or end.
func (d *database) read(ctx context.Context) (version string, c databaseCounts, err error) {
	if d.kind == "sqlite" {
		return "", c, nil
	}
	conn, err := pgx.Connect(ctx, d.address)
	if err != nil {
		return "", c, err
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil ||
		strings.Contains(version, "Cockroach") {
		return version, c, err
	}
	err = conn.QueryRow(ctx,
		"SELECT xact_commit, tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = "+
			"current_database()").Scan(&c.Transactions, &c.Rows)
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT wal_sync, CAST(wal_bytes AS INT8), wal_fpi FROM pg_stat_wal").Scan(&c.Syncs,
			&c.Logged, &c.Pages)
	}
	return version, c, err
}
