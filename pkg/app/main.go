package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rondo-run/rondo/internal/columns"
	"github.com/rondo-run/rondo/internal/database"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/version"
	"github.com/rondo-run/rondo/internal/x/gctune"
	"github.com/rondo-run/rondo/internal/x/printable"
)

// The exit codes.
const (
	succeeded = 0
	failed    = 1
	misused   = 2
	bySignal  = 128 // and the number of the signal
)

// Main is the main function of a program: it reads the arguments and the environment, runs until it
// is told to end, and exits.
func Main(parts ...Part) {
	gctune.GiveRoom()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx := ending(signals, os.Stderr, os.Exit)
	os.Exit(run(ctx, os.Args[1:], os.LookupEnv, os.Environ(), os.Stdout, os.Stderr, os.Exit, parts))
}

// oneSignal is the time in which a repeated signal counts as the same one: the parent process may
// forward a signal that the terminal has already sent.
const oneSignal = 250 * time.Millisecond

// ending gives a context that ends with the first signal. The second one ends the process.
func ending(signals <-chan os.Signal, say io.Writer, exit func(int)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		first := time.Now()
		fmt.Fprintln(say, programName()+": shutting down; a second Ctrl-C or signal ends it at once")
		cancel()
		code := failed
		s := <-signals
		for time.Since(first) < oneSignal {
			s = <-signals
		}
		if n, ok := s.(syscall.Signal); ok {
			code = bySignal + int(n)
		}
		fmt.Fprintln(say, programName()+": ended at once; what was in flight comes again with the next start")
		exit(code)
	}()
	return ctx
}

// run does what the arguments say, and gives the exit code. A failed write of the output is a
// failure: a script must not take a truncated output for a complete one. run calls exit if the
// process does not end.
func run(ctx context.Context, args []string, env settings.Environment, environ []string, stdout, stderr io.Writer,
	exit func(int), parts []Part) int {
	written := &keptOutput{to: printable.To(stdout)}
	code := execute(ctx, args, env, environ, written, printable.To(stderr), exit, parts)
	written.mu.Lock()
	defer written.mu.Unlock()
	if written.err == nil {
		return code
	}
	fmt.Fprintf(stderr, "%s: write output: %v\n", programName(), written.err)
	return max(code, failed)
}

// keptOutput keeps the first error of writing, for commands that print without checking it. It
// writes nothing after that. It is safe for concurrent use.
type keptOutput struct {
	to io.Writer

	mu  sync.Mutex
	err error
}

func (o *keptOutput) Write(b []byte) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		n, o.err = o.to.Write(b)
	}
	return n, o.err
}

// execute does what the arguments say, and gives the exit code.
func execute(ctx context.Context, args []string, env settings.Environment, environ []string, stdout, stderr io.Writer,
	exit func(int), parts []Part) int {
	name := programName()
	if len(args) == 0 {
		printUsage(stderr, name)
		return misused
	}
	command := Command(strings.TrimLeft(args[0], "-"))
	switch command {
	case "help", "h":
		return help(stdout, stderr, name, args[1:], parts)
	case "version":
		fmt.Fprintln(stdout, version.Of(name))
		return succeeded
	default:
	}
	if !slices.Contains(settings.Commands(), string(command)) {
		fmt.Fprintf(stderr, "%s: there is no command %q%s\n", name, args[0],
			settings.DidYouMean(args[0], settings.Commands()))
		if ofRondo[args[0]] {
			fmt.Fprintf(stderr, "`rondo %s` is what you want: the command rondo talks to instances of all programs\n",
				args[0])
		}
		printUsage(stderr, name)
		return misused
	}
	c := Defaults(command, parts...)
	c.Stdout, c.Stderr = stdout, stderr
	r, problems := settings.Read(&c, settings.For(string(command)), args[1:], env)
	if r.Help {
		return help(stdout, stderr, name, args[:1], parts)
	}
	for _, rest := range r.Rest {
		problems = append(problems,
			fmt.Errorf("%q: only settings can follow %q, like --log-level debug", rest, command))
	}
	a, err := New(c, parts...)
	if err == nil || isSettings(err) {
		err = settingsError(append(problems, err)...)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s %s: %v\n", name, command, err)
		fmt.Fprintf(stderr, "`%s help %s` lists the settings\n", name, command)
		return misused
	}
	if r.PrintConfig {
		if err := settings.Print(stdout, settings.For(string(command)), c.value, r); err != nil {
			return failed
		}
		return succeeded
	}
	slog.SetDefault(a.logs.codeLogger()) // for code that logs with a context, and not with the logger that it is given
	for _, p := range settings.UnknownVariables(environ) {
		a.log.Warn(p)
	}
	defer a.exitOverdue(ctx, exit)()
	if err := a.Run(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) { // told to end before everything had begun
			return succeeded
		}
		problem := strings.TrimPrefix(err.Error(), string(command)+": ") // the service has the name of its command
		fmt.Fprintf(stderr, "%s %s: %s\n", name, command, problem)
		return failed
	}
	return succeeded
}

// ofRondo are commands that operators look for in their program and that the command line has.
var ofRondo = map[string]bool{
	"start": true, "raise": true, "send": true, "cancel": true, "terminate": true, "suspend": true, "resume": true,
	"wait": true, "list": true, "show": true,
	"history": true, "tree": true, "watch": true, "doctor": true, "check": true, "delete": true, "prune": true,
	"recover": true, "schedules": true,
}

// The first sentence of each command's help.
var summaries = map[Command]string{
	Dev:          "run everything in this process, with a NATS server and a SQLite file in a directory",
	Orchestrator: "run the service that decides what happens next; it needs NATS and the database",
	Worker:       "run the service that executes activities; it needs NATS",
	Migrate:      "bring the tables of the database up to date, and with --streams what is needed in NATS",
}

// helpColumn is where the explanations of commands begin.
const helpColumn = 18

// elsewhere says where the commands are that a program does not have.
const elsewhere = `To start instances, talk to them and look at them, use the command rondo: "rondo start", "rondo list", "rondo show" and others. In a clone of Rondo,
"go install ./cmd/rondo" makes it.`

func printUsage(w io.Writer, name string) {
	fmt.Fprintf(w, "%s <command> [settings]\n\n", name)
	for _, c := range settings.Commands() {
		fmt.Fprintln(w, columns.Row(c, summaries[Command(c)], helpColumn))
	}
	fmt.Fprintln(w, columns.Row("version", "say which version it is", helpColumn))
	fmt.Fprintln(w, columns.Row("help <command>", "explain a command and its settings", helpColumn))
	fmt.Fprintf(w, "\nBegin with: %s dev\n\n", name)
	fmt.Fprintln(w, columns.Paragraphs(elsewhere))
}

func help(stdout, stderr io.Writer, name string, args []string, parts []Part) int {
	if len(args) == 0 {
		printUsage(stdout, name)
		return succeeded
	}
	command := Command(args[0])
	if !slices.Contains(settings.Commands(), string(command)) {
		fmt.Fprintf(stderr, "%s help: there is no command %q%s\n", name, command,
			settings.DidYouMean(args[0], settings.Commands()))
		return misused
	}
	fmt.Fprintln(stdout, columns.Paragraphs(fmt.Sprintf("%s %s: %s\n\n", name, command, summaries[command])+
		"Each setting is a flag or a variable, with its default in brackets, or stands in a YAML file that --config "+
		"or $RONDO_CONFIG names, by the name "+
		"of the flag. A flag wins over a variable, and that over the file. --print-config shows how they are now "+
		"and where each is from. A secret, and the "+
		"address of the database, can also stand in a file that the variable with _FILE at its end names."))
	c := Defaults(command)
	more := map[string]string{"database": database.Also(schemesOf(parts)...)}
	settings.WriteHelp(stdout, string(command), &c, more)
	return succeeded
}
