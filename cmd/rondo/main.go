// Command rondo is the command line. So far it can do one thing: bring the tables of a database up to date, before the services that use them are
// deployed, with a role that may change tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// The exit codes.
const (
	succeeded = 0
	failed    = 1
	misused   = 2
)

const usage = `rondo migrate brings the tables of a database up to date. Any number of processes may do it at once.

    rondo migrate --database postgres://user@host:26257/rondo?sslmode=verify-full
    rondo migrate --database data/rondo.db      a SQLite file

Flags:
`

// databaseVariable gives the address where no flag does: so that its password is not in the list of processes.
const databaseVariable = "RONDO_DATABASE_URL"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run does what the arguments say, and gives the exit code.
func run(ctx context.Context, args []string, env func(string) string, out, problems io.Writer) int {
	if len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help") {
		args = []string{"migrate", "-h"}
	}
	if len(args) == 0 || args[0] != "migrate" {
		fmt.Fprintf(problems, "rondo: what should be done? There is `rondo migrate`; `rondo migrate -h` says more\n")
		return misused
	}
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	flags.SetOutput(problems)
	var (
		database = flags.String("database", "", "the database's `address`, or the path of a SQLite file; otherwise $"+databaseVariable)
		check    = flags.Bool("check", false, "change nothing, and fail if something would have to be changed")
		timeout  = flags.Duration("timeout", 30*time.Minute, "how long to try; an index on a large table takes a while")
	)
	flags.Usage = func() {
		fmt.Fprint(problems, usage)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return succeeded
	case err != nil:
		return misused
	case flags.NArg() > 0:
		fmt.Fprintf(problems, "rondo migrate: %q is too much; the address is given with --database\n", flags.Arg(0))
		return misused
	}
	if *database == "" {
		*database = env(databaseVariable)
	}
	if *database == "" {
		fmt.Fprintf(problems, "rondo migrate: which database? Say it with --database or $%s\n", databaseVariable)
		return misused
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	said, err := migrate(ctx, *database, *check)
	if err != nil {
		fmt.Fprintf(problems, "rondo migrate: %v\n", err)
		return failed
	}
	fmt.Fprintln(out, said)
	return succeeded
}

// migrate brings a database up to date, or only checks that it is, and says what was done.
func migrate(ctx context.Context, address string, check bool) (string, error) {
	if !strings.Contains(address, "://") && !strings.Contains(address, "=") {
		return migrateFile(ctx, strings.TrimPrefix(address, "sqlite:"), check)
	}
	if check {
		s, err := cockroach.Open(ctx, address, cockroach.Options{Schema: cockroach.Verify})
		if err != nil {
			return "", err
		}
		return current(cockroach.SchemaVersion), s.Close()
	}
	from, to, err := cockroach.MigrateSchema(ctx, address, cockroach.Options{})
	return told(from, to), err
}

func migrateFile(ctx context.Context, path string, check bool) (string, error) {
	s, err := sqlite.Open(ctx, path, sqlite.Options{Schema: sqlite.Verify})
	if err == nil {
		return current(sqlite.SchemaVersion), s.Close()
	}
	var schema *history.SchemaError
	if check || !errors.As(err, &schema) {
		return "", err
	}
	if s, err = sqlite.Open(ctx, path, sqlite.Options{}); err != nil {
		return "", err
	}
	return told(schema.Found, sqlite.SchemaVersion), s.Close()
}

func current(version int) string {
	return fmt.Sprintf("the tables are of version %d, which is the one that is needed", version)
}

func told(from, to int) string {
	switch {
	case from == to:
		return current(to)
	case from == 0:
		return fmt.Sprintf("the tables were made; they are of version %d", to)
	}
	return fmt.Sprintf("the tables were of version %d, and are of version %d now", from, to)
}
