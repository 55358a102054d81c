// Command bench measures how fast Rondo is and which resources it needs, and checks its results:
// NATS, the database, the orchestrators and the worker are processes of their own on this machine,
// as in production, and this process is the client.
//
//	go run ./bench                                  all workloads, with PostgreSQL
//	go run ./bench -w W1,W2 -database sqlite
//	go run ./bench -w 'W1s?' -runs 3 -profile dir   the run in the middle of three, and profiles of all processes
//	go run ./bench table results.jsonl              a table of what -out has collected
//
// docs/performance.md says what the workloads are and what the columns mean.
//
// The services that are measured are this program, too: see service.go. The workloads are listed in
// workloads.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/x/gctune"
)

// serviceWord is the first argument of a process that is to be a service.
const serviceWord = "service"

// options are the values of the flags.
type options struct {
	workloads, variants string
	database            string
	postgres            []pgtest.Option // settings of the server that is started
	settings            []string        // these, as they were given
	nats, monitor       string
	runs                int
	size                string
	time                time.Duration
	rate                float64
	profile, trace      string
	out, dir            string
	keep                bool

	orchestratorArgs, workerArgs string
}

func main() {
	if !supported {
		fmt.Fprintln(os.Stderr, "bench: it reads in /proc what processes use, and so runs on Linux only")
		os.Exit(1)
	}
	var err error
	switch args := os.Args[1:]; {
	case len(args) > 1 && args[0] == serviceWord:
		os.Exit(serve(args[1], args[2:]))
	case len(args) > 0 && args[0] == "table":
		err = printTable(os.Stdout, args[1:])
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		gctune.GiveRoom() // the client's memory for the checker must not disturb the measurement
		err = measureAll(ctx, args)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func readOptions(args []string) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.workloads, "w", "",
		"which `workloads`: names with commas between them, or a regular expression; all if nobody says it")
	f.StringVar(&o.variants, "variant", "", "which variants of them, as a `regular expression`")
	f.StringVar(&o.database, "database", "postgres",
		"postgres (a server that is started for this), sqlite, or the `address` of a PostgreSQL or "+
			"CockroachDB database")
	f.Func("postgres", "`settings` of the PostgreSQL server that is started, like \"max_wal_size=4GB "+
		"wal_compression=lz4\"; its defaults if nobody says it", o.readSettings)
	f.StringVar(&o.nats, "nats", "", "the `address` of a NATS server; if nobody says it, one is started")
	f.StringVar(&o.monitor, "nats-monitor", "",
		"the `address` at which that server tells about itself, like http://127.0.0.1:8222")
	f.IntVar(&o.runs, "runs", 1, "how often each is run; what counts is the run in the middle")
	f.StringVar(&o.size, "size", "small", "tiny (to see that it works), small or full")
	f.DurationVar(&o.time, "time", 0,
		"for how long things are measured that have no end; if nobody says it, as the size says")
	f.Float64Var(&o.rate, "rate", 0,
		"how many are started in a second in W10; if nobody says it, half of what it can do at its best")
	f.StringVar(&o.profile, "profile", "",
		"write profiles of processors and of allocations, of NATS and the services, into this `directory`")
	f.StringVar(&o.trace, "trace", "",
		"write execution traces of the services into this `directory`, of three seconds each")
	f.StringVar(&o.out, "out", "", "add the results to this `file`, too")
	f.StringVar(&o.dir, "dir", "",
		"the `directory` for data of NATS and SQLite, and for logs; the one for temporary files if nobody says it")
	f.BoolVar(&o.keep, "keep", false, "keep that")
	f.StringVar(&o.orchestratorArgs, "orchestrator", "",
		"more `settings` of orchestrators, like \"--max-instances 20000\"")
	f.StringVar(&o.workerArgs, "worker", "", "more `settings` of the worker")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("what is %q? See -help", f.Arg(0))
	}
	if !slices.Contains([]string{"tiny", "small", "full"}, o.size) {
		return o, fmt.Errorf("-size %s: there are tiny, small and full", o.size)
	}
	if len(o.postgres) > 0 && o.database != "postgres" {
		return o, errors.New("-postgres is for the server that is started: set up the one that is there yourself")
	}
	if o.rate < 0 {
		return o, fmt.Errorf("-rate %v: it has to be more than 0", o.rate)
	}
	return o, nil
}

// readSettings reads settings of PostgreSQL.
func (o *options) readSettings(list string) error {
	for _, setting := range strings.Fields(list) {
		name, value, ok := strings.Cut(setting, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is no setting: want name=value", setting)
		}
		o.settings = append(o.settings, setting)
		o.postgres = append(o.postgres, pgtest.Setting(name, value))
	}
	return nil
}

// measureAll runs the chosen workloads, and prints a line for each variant.
func measureAll(ctx context.Context, args []string) error {
	o, err := readOptions(args)
	if err != nil {
		return err
	}
	chosen, err := choose(workloads, o)
	if err != nil {
		return err
	}
	out, closeOut, err := output(o.out)
	if err != nil {
		return err
	}
	b, err := open(o)
	if err != nil {
		return errors.Join(err, closeOut())
	}
	err = b.measure(ctx, out, chosen)
	return errors.Join(err, b.close(), closeOut())
}

func (b *bench) measure(ctx context.Context, out io.Writer, chosen []workload) error {
	for _, w := range chosen {
		for _, v := range w.variants {
			var runs []*Result
			for range max(1, b.o.runs) {
				began := time.Now()
				r, err := b.once(ctx, w, v)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, v.name, err)
				}
				fmt.Fprintf(os.Stderr, "%s, %s, %s: %s (%.0f s in all)\n", w.name, v.name, r.Database, r.inShort(),
					time.Since(began).Seconds())
				runs = append(runs, r)
			}
			if err := writeResult(out, ofMiddle(runs)); err != nil {
				return err
			}
		}
	}
	return nil
}

// output is where results go: to the standard output, and to a file if it has a name.
func output(name string) (io.Writer, func() error, error) {
	if name == "" {
		return os.Stdout, func() error { return nil }, nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	return io.MultiWriter(os.Stdout, f), f.Close, nil
}

// choose gives the workloads and variants that are wanted, of those that the database can do.
func choose(all []workload, o options) (chosen []workload, err error) {
	wanted, err := regexp.Compile("^(" + strings.ReplaceAll(o.workloads, ",", "|") + ")$")
	if err != nil {
		return nil, err
	}
	variants, err := regexp.Compile(o.variants)
	if err != nil {
		return nil, err
	}
	var refused error
	for _, w := range all {
		if o.workloads != "" && !wanted.MatchString(w.name) {
			continue
		}
		if w.database == "postgres" && o.database == "sqlite" {
			refused = fmt.Errorf("%s needs PostgreSQL: %s", w.name, w.about)
			continue
		}
		w.variants = slices.DeleteFunc(slices.Clone(w.variants), func(v variant) bool {
			return !variants.MatchString(v.name)
		})
		if len(w.variants) > 0 {
			chosen = append(chosen, w)
		}
	}
	if len(chosen) > 0 {
		return chosen, nil
	}
	if refused != nil {
		return nil, refused
	}
	var lines []string
	for _, w := range all {
		lines = append(lines, fmt.Sprintf("  %-4s %s", w.name, w.about))
	}
	return nil, fmt.Errorf("there is no such workload; there are\n%s", strings.Join(lines, "\n"))
}
