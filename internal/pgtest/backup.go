package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// This file makes backups of servers and restores them, as the manual of PostgreSQL says: a copy of
// the data, and the log of all that was changed after it.

// Archived has a server keep its log, so that [Cluster.RestoreTo] can go to any moment after a
// [Cluster.Backup].
func Archived() Option { return func(o *options) { o.archived = true } }

// NeedBackups skips a test where the programs that make backups are not installed, and says so.
func NeedBackups(tb testing.TB) {
	tb.Helper()
	Need(tb)
	bin, err := Found()
	for _, name := range []string{"pg_basebackup", "pg_dump", "pg_restore"} {
		if err == nil {
			_, err = exec.LookPath(backupProgram(bin, name))
		}
	}
	if err != nil {
		tb.Skip("BACKUPS OF POSTGRESQL ARE NOT TESTED: ", err)
	}
}

// backupProgram finds one of the programs that are only for backups: beside the others, or in their
// real directory, if these are symbolic links.
func backupProgram(bin, name string) string {
	beside := filepath.Join(bin, name)
	if _, err := exec.LookPath(beside); err == nil {
		return beside
	}
	if initdb, err := filepath.EvalSymlinks(filepath.Join(bin, "initdb")); err == nil {
		return filepath.Join(filepath.Dir(initdb), name)
	}
	return beside
}

// The directories in which an archived server keeps its log and a backup is.
const (
	archiveDir = "archive"
	backupDir  = "backup"
)

// archive has a server keep its log.
func (s *server) archive() error {
	return errors.Join(
		s.keep("mkdir", archiveDir),
		s.configure("archive_mode", "on"),
		s.configure("archive_command", "cp %p "+filepath.Join(s.dir, archiveDir)+"/%f"),
	)
}

// Backup copies the data of a server that runs (pg_basebackup).
func (c *Cluster) Backup(tb testing.TB) {
	tb.Helper()
	err := c.keep(backupProgram(c.bin, "pg_basebackup"), "-d", c.dsn("postgres"), "-D", backupDir, "-c",
		"fast", "-X", "none")
	if err != nil {
		tb.Fatal(err)
	}
}

// Mark gives this moment a name, and waits until the log up to it is in the archive.
func (c *Cluster) Mark(tb testing.TB, name string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.dsn("postgres"))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	var file string
	if err := conn.QueryRow(ctx, "SELECT pg_walfile_name(pg_create_restore_point($1))", name).Scan(&file); err != nil {
		tb.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_switch_wal()"); err != nil {
		tb.Fatal(err)
	}
	for there := false; !there; time.Sleep(10 * time.Millisecond) {
		if err := conn.QueryRow(ctx, "SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver",
			file).Scan(&there); err != nil {
			tb.Fatal(fmt.Errorf("the log %s does not come into the archive: %w", file, err))
		}
	}
}

// RestoreTo replaces the data with the backup, and lets the server recover from it up to the moment
// with a name. All later changes are gone.
func (c *Cluster) RestoreTo(tb testing.TB, name string) {
	tb.Helper()
	if err := c.restoreTo(name); err != nil {
		tb.Fatal(err)
	}
	var recovers bool
	for first := true; first || recovers; first = false {
		conn, err := pgx.Connect(tb.Context(), c.dsn("postgres"))
		if err != nil {
			tb.Fatal(err)
		}
		err = conn.QueryRow(tb.Context(), "SELECT pg_is_in_recovery()").Scan(&recovers)
		_ = conn.Close(tb.Context()) // it was only read
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func (c *Cluster) restoreTo(name string) error {
	if err := c.stop(); err != nil {
		return err
	}
	return errors.Join(
		c.keep("mv", "data", "data.lost"),
		c.keep("mv", backupDir, "data"),
		c.keep("touch", "data/recovery.signal"),
		c.configure("restore_command", "cp "+filepath.Join(c.dir, archiveDir)+"/%f %p"),
		c.configure("recovery_target_name", name),
		c.configure("recovery_target_action", "promote"),
		c.restart(),
	)
}

// Dump writes a database into a file (pg_dump); Load replaces the contents of the database with it
// (pg_restore). There is one file.
func (c *Cluster) Dump(tb testing.TB, dsn string) {
	tb.Helper()
	if err := c.keep(backupProgram(c.bin, "pg_dump"), "--format", "custom", "--file", dumpFile, dsn); err != nil {
		tb.Fatal(err)
	}
}

// Load is the other half of [Cluster.Dump].
func (c *Cluster) Load(tb testing.TB, dsn string) {
	tb.Helper()
	if err := c.keep(backupProgram(c.bin, "pg_restore"), "--clean", "--if-exists", "--exit-on-error", "--dbname", dsn,
		dumpFile); err != nil {
		tb.Fatal(err)
	}
}

const dumpFile = "dump"
