package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/database"
	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// checking is one call of check.
type checking struct {
	c           *cli
	filter      filter
	acks        []string
	withoutNATS bool
	overdue     time.Duration
	o           check.Options
	some, must  bool // only some instances are checked; there must be one

	// at is the database and server the NATS server that were read, for the report.
	at, server string
}

// violations is the error of a check that found some; the output lists them.
type violations int64

func (v violations) Error() string { return fmt.Sprintf("violations were found: %d", int64(v)) }

func (c *cli) check() *cobra.Command {
	k := &checking{c: c}
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Prove that nothing was lost: check histories and acknowledgements",
		Long: `Prove that nothing was lost. It reads the database, and changes nothing in it: the history of each instance must make sense, parents and children must agree, and
what the database shows must be what the histories say. It asks NATS whether what instances wait for is there. With --acks, each start, message and end that a
client was told of must be in history, too.

Database and NATS must be those of one system: where neither is named, they are those of the "dev" that runs in this directory; otherwise name both, or add
--without-nats. The report begins with both.

It may be used while everything runs, and takes the same memory for ten instances and for a million. What was deleted or pruned cannot be judged; it is counted.

With files, it checks exported histories (rondo history --export) instead of a database: files, directories with .json files, or - for the standard input.

It exits with 0 if nothing was found, with 7 if something was, and with 3 if no instance has the name or id that flags say. "Prove that nothing was lost" in docs/operating.md says what each rule means.`,
		Example: `  rondo check
  rondo check --database postgres://rondo@db/rondo --nats nats://n1:4222
  rondo check --name fulfil --created-after 24h
  rondo check --acks shop-1.jsonl --acks shop-2.jsonl --quiescent
  rondo history order-1 --export | rondo check -`,
		Args: cobra.ArbitraryArgs,
	}
	k.filter.flags(cmd)
	c.settings.database(cmd)
	cmd.Flags().StringArrayVar(&k.acks, "acks", nil,
		"a `file` with a client's acknowledgements, one JSON object in a line; once for each client")
	cmd.Flags().BoolVar(&k.withoutNATS, "without-nats", false,
		"do not ask NATS what is in flight, nor for dead letters")
	cmd.Flags().BoolVar(&k.o.Quiescent, "quiescent", false,
		"nothing may be in flight: no outbox entry, no task, no timer that is due")
	durationVar(cmd.Flags(), &k.overdue, "overdue", check.Overdue,
		"how long something may be in flight; 0 for any `time`")
	cmd.Flags().BoolVar(&k.o.NothingRemoved, "nothing-removed", false,
		"nothing was deleted, pruned or left out of an export: what is not there is lost")
	cmd.Flags().IntVar(&k.o.Most, "most", 100, "how many violations are printed; the others are counted")
	cmd.RunE = k.run
	return cmd
}

func (k *checking) run(cmd *cobra.Command, files []string) (err error) {
	only, err := k.filter.read(k.c.now())
	if err != nil {
		return err
	}
	k.o.Filter = storeFilter(only)
	k.some = !isEmpty(only) || only.IDPrefix != ""
	// That none of them has a status, a version, a time and so on is no mistake.
	k.must = k.some && isEmpty(client.Filter{Version: only.Version, Parent: only.Parent, Statuses: only.Statuses,
		Attributes: only.Attributes, RootsOnly: only.RootsOnly, CreatedAfter: only.CreatedAfter,
		CreatedBefore: only.CreatedBefore, EndedBefore: only.EndedBefore})
	only.IDPrefix = ""
	switch {
	case k.o.Most < 1:
		return misuse("--most %d: at least one has to be printed", k.o.Most)
	case k.overdue < 0:
		return misuse("--overdue %v: want 0 or more", k.overdue)
	case len(k.acks) > 0 && !isEmpty(only):
		return misuse("which acknowledgements are meant? With --acks, only --prefix-of-id can say which instances")
	case len(files) > 0 && cmd.Flags().Changed(databaseSetting):
		return misuse("--database and files are mutually exclusive")
	}
	if k.o.Overdue = k.overdue; k.overdue == 0 {
		k.o.Overdue = -1
	}
	closeAll, err := k.openAcks()
	if err != nil {
		return err
	}
	defer closeAll()
	if len(files) > 0 {
		return k.exports(cmd.Context(), files)
	}
	return k.database(cmd)
}

// isEmpty reports whether a filter lets everything through.
func isEmpty(f client.Filter) bool {
	return f.Name == "" && f.Version == "" && f.Parent == "" && len(f.Statuses)+len(f.Attributes)+len(f.IDs) == 0 &&
		!f.RootsOnly &&
		f.CreatedAfter.IsZero() && f.CreatedBefore.IsZero() && f.EndedBefore.IsZero()
}

// storeFilter converts a filter for the checker, which reads the store.
func storeFilter(f client.Filter) history.Filter {
	out := history.Filter{IDs: f.IDs, IDPrefix: f.IDPrefix, Name: f.Name, Version: f.Version, Parent: f.Parent,
		Attributes: f.Attributes, CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore,
		EndedBefore: f.EndedBefore, RootsOnly: f.RootsOnly}
	for _, s := range f.Statuses {
		out.Statuses = append(out.Statuses, round.Status(s))
	}
	return out
}

// openAcks opens the logs, so that a missing one is an error before the check begins.
func (k *checking) openAcks() (closeAll func(), err error) {
	var open []*os.File
	closeAll = func() {
		for _, f := range open {
			_ = f.Close() // it was only read
		}
	}
	for _, name := range k.acks {
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, usageError{fmt.Errorf("--acks: %w", err)}
		}
		open = append(open, f)
		k.o.Acknowledgements = append(k.o.Acknowledgements, check.Acknowledgements{Name: name, Each: check.ReadLog(f)})
	}
	return closeAll, nil
}

// database checks a database, and asks NATS.
func (k *checking) database(cmd *cobra.Command) error {
	s := &k.c.settings
	s.table = append(slices.Clone(s.table), s.forDatabase)
	config, r, err := s.config(cmd)
	if k.withoutNATS && errors.Is(err, errNotConnected) {
		err = nil // a dev that does not run has a database all the same
	}
	if err != nil {
		return err
	}
	if err := k.oneSystem(cmd, &config, r); err != nil {
		return err
	}
	if s.print {
		return s.printConfig(k.c.out, &config, r)
	}
	k.at = s.forDatabase.Get(&config)
	ctx, cancel := k.within(cmd.Context())
	defer cancel()
	var b *natsbroker.Bus
	if !k.withoutNATS {
		n := brokerConfig(&config)
		n.Setup, n.Name, n.Logger = natsbroker.Use, "rondo check", slog.New(slog.DiscardHandler)
		dial, stop := context.WithTimeout(ctx, dialFor)
		b, err = natsbroker.Connect(dial, n)
		stop()
		if err != nil {
			return fmt.Errorf("%w; --without-nats checks the database alone", notConnected(err))
		}
		defer func() { _ = b.Close() }() // it has only read
		k.server = b.Server()
		k.o.Broker, k.o.Dead, k.o.Prefix, k.o.DeadLetterTTL = b, b, config.Streams.Prefix, config.Streams.DeadLetterTTL
	}
	if err := database.Check(config.Database.URL); err != nil {
		return misuse("--database: %v", err)
	}
	store, err := database.OpenReadOnly(ctx, config.Database.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		return inTime(ctx, err)
	}
	if err = k.belongTogether(ctx, store, b); err == nil {
		err = k.check(ctx, store)
	}
	return errors.Join(err, store.Close())
}

// belongTogether refuses a database and NATS of different systems. Without the permission to read
// what NATS says of that, it has to trust the addresses.
func (k *checking) belongTogether(ctx context.Context, store history.Systems, b *natsbroker.Bus) error {
	if b == nil {
		return nil
	}
	if err := b.SeesStreams(); err != nil {
		return err
	}
	err := identity.Check(ctx, store, b)
	if identity.IsMismatch(err) {
		return fmt.Errorf("database %s, NATS %s with prefix %s: %w", k.at, k.server, b.Prefix(), err)
	}
	return nil
}

// oneSystem finds the database if it is not named, and refuses two addresses that may belong to two
// systems: a database checked against the NATS of another system proves nothing, and the check
// would succeed.
func (k *checking) oneSystem(cmd *cobra.Command, config *app.Config, r settings.Reading) error {
	s := &k.c.settings
	named := config.Database.URL != ""
	if cmd.Flags().Changed("dir") && r.From[databaseSetting] != "flag" {
		named = false // a flag comes before the environment, as for NATS
	}
	dev := "the dev in " + s.dir
	ofDev := r.From["nats"] == dev
	natsNamed := !ofDev && (r.From["nats"] != "" || r.From["nats-context"] != "")
	switch {
	case !named && natsNamed:
		return misuse("NATS is named (%s), but no database: add --database postgres://USER@HOST/NAME or set $%s, so "+
			"that both are of one system",
			natsOf(r), s.forDatabase.Env)
	case !named:
		config.Database.URL, r.From[databaseSetting] = s.databaseOfDev(), dev
		if config.Database.URL == "" {
			return misuse("which database? Say it with --database or $%s and where NATS is with --nats, or name "+
				"files with exported histories",
				s.forDatabase.Env)
		}
	case k.withoutNATS || natsNamed || ofDev && s.isOfDev(config):
	default:
		return misuse("a database is named (%s), but not NATS: add --nats nats://HOST:4222 of the same system, or "+
			"--without-nats to check the database alone",
			r.From[databaseSetting])
	}
	return nil
}

// natsOf says where the address of NATS is from.
func natsOf(r settings.Reading) string { return cmp.Or(r.From["nats"], r.From["nats-context"]) }

// isOfDev reports whether the database that is named is that of the dev in the directory.
func (c *connection) isOfDev(config *app.Config) bool {
	at, err := devdir.Read(c.dir)
	return err == nil && at.Database == c.forDatabase.Get(config) || sameFile(config.Database.URL, c.databaseOfDev())
}

// sameFile reports whether two paths are of one file.
func sameFile(a, b string) bool {
	x, err := os.Stat(strings.TrimPrefix(a, "sqlite:"))
	if err != nil {
		return false
	}
	y, err := os.Stat(strings.TrimPrefix(b, "sqlite:"))
	return err == nil && os.SameFile(x, y)
}

// databaseOfDev is the file that the dev in a directory has, "" if there is none.
func (c *connection) databaseOfDev() string {
	names := []string{filepath.Join(c.dir, "rondo.db")}
	if at, err := devdir.Read(c.dir); err == nil {
		names = []string{at.Database, filepath.Join(c.dir, filepath.Base(at.Database))}
	}
	for _, name := range names {
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	return ""
}

// within bounds the time of the check if there is a timeout.
func (k *checking) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if k.c.timeout > 0 {
		return context.WithTimeout(ctx, k.c.timeout)
	}
	return context.WithCancel(ctx)
}

// exports checks exported histories.
func (k *checking) exports(ctx context.Context, files []string) (err error) {
	ctx, cancel := k.within(ctx)
	defer cancel()
	x := check.NewExports("")
	defer func() { err = errors.Join(err, x.Close()) }()
	total := 0
	add := func(name string, from io.Reader) error {
		n, err := x.Add(from)
		if total += n; err != nil {
			return usageError{fmt.Errorf("%s: %w", name, err)}
		}
		return ctx.Err()
	}
	for _, name := range files {
		if name == "-" {
			err = add("the standard input", k.c.in)
		} else {
			err = eachExport(name, add)
		}
		if err != nil {
			return err
		}
	}
	if total == 0 {
		return misuse("there is no exported history in %s; `rondo history INSTANCE --export` writes one",
			strings.Join(files, ", "))
	}
	if err := x.Sort(); err != nil {
		return err
	}
	return k.check(ctx, x)
}

// eachExport opens a file, or all .json files of a directory.
func eachExport(name string, add func(name string, from io.Reader) error) error {
	return filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return usageError{err}
		}
		if d.IsDir() || path != name && filepath.Ext(path) != ".json" {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return usageError{err}
		}
		defer func() { _ = f.Close() }() // it was only read
		return add(path, f)
	})
}

// check checks a store, and prints the report.
func (k *checking) check(ctx context.Context, store check.Store) error {
	drawn, began := false, k.c.now()
	if k.c.terminal {
		k.o.Progress = func(r check.Report) {
			if k.c.now().Sub(began) >= progressAfter {
				drawn = true
				fmt.Fprintf(k.c.screen, "%schecked %s, %s, %s; %s", clearLine,
					plural.Count(r.Instances, "instance"), plural.Count(r.Events, "event"),
					plural.Count(r.Acknowledgements, "acknowledgement"), plural.Count(r.Total(), "violation"))
			}
		}
	}
	r, err := check.System(ctx, store, k.o)
	if drawn {
		fmt.Fprint(k.c.screen, clearLine)
	}
	var log *check.LogError
	switch {
	case errors.As(err, &log):
		return usageError{err}
	case err != nil:
		return inTime(ctx, err)
	}
	if err := k.print(r); err != nil {
		return err
	}
	if n := r.Total(); n > 0 {
		return violations(n)
	}
	if k.must && r.Instances == 0 {
		return errNoneChecked
	}
	return nil
}

// errNoneChecked is the error of a check that proves nothing, because a flag may be misspelt.
var errNoneChecked = errors.New("nothing was checked: no instance is as the flags say")

// checked is a report as JSON, with the systems that it is about.
type checked struct {
	Database string `json:"database,omitempty"` // not for exported histories
	NATS     string `json:"nats,omitempty"`     // not if it was not asked
	check.Report
}

func (k *checking) print(r check.Report) error {
	if k.c.asJSON() {
		server, _, _ := strings.Cut(k.server, ", ") // without its version
		return k.c.json(checked{k.at, server, r})
	}
	for _, f := range r.Findings {
		fmt.Fprintln(k.c.out, printable.Below(f.Error(), "  "))
	}
	if more := r.Total() - int64(len(r.Findings)); more > 0 {
		fmt.Fprintf(k.c.out, "and %s; --most prints more\n", plural.Count(more, "other"))
	}
	line := func(name, format string, args ...any) { k.c.row(14, name, format, args...) }
	if k.at != "" {
		line("database", "%s", k.at)
	}
	line("NATS", "%s", cmp.Or(k.server, "was not asked"))
	if r.ClockAhead != 0 {
		ahead, side := time.Duration(r.ClockAhead*float64(time.Second)), "ahead of"
		if ahead < 0 {
			side = "behind"
		}
		line("clock", "that of this machine is %v %s that of the database, which the check uses", ahead.Abs(), side)
	}
	line("looked at", "%s, %s, %s, %s", plural.Count(r.Instances, "instance"),
		plural.Count(r.Executions, "execution"), plural.Count(r.Events, "event"),
		plural.Count(r.Acknowledgements, "acknowledgement"))
	if r.Said > 0 {
		line("", "starts and messages from one instance to another: %d", r.Said)
	}
	if r.InFlight+r.Refused+r.DeadLetters > 0 {
		line("acks", "%d in flight, %s for existing instances, %s", r.InFlight,
			plural.Count(r.Refused, "start"), plural.Count(r.DeadLetters, "dead letter"))
	}
	for _, why := range slices.Sorted(maps.Keys(r.NotJudged)) {
		line("not judged", "%d: %s", r.NotJudged[why], why.Text())
	}
	for _, rule := range slices.SortedFunc(maps.Keys(r.Found), func(a, b check.Rule) int {
		return cmp.Or(cmp.Compare(r.Found[b], r.Found[a]), cmp.Compare(a, b))
	}) {
		line("violated", "%s: %d", rule, r.Found[rule])
	}
	switch {
	case r.Total() > 0 || k.must && r.Instances == 0: // there is an error
		return nil
	case k.some && r.Instances == 0:
		return k.c.print("no instance is as the flags say")
	}
	return k.c.print("nothing is wrong with what was looked at")
}
