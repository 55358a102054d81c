package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"syscall"
	"time"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/x/gctune"
	"github.com/rondo-run/rondo/pkg/app"
)

// This file is the code of a process that was started as a service. It writes its addresses to its
// standard output, as a line of JSON, and executes the orders on its standard input (see [orders]).
// It ends when its standard input does: when the process that has started it is gone, for whatever
// reason.

// found is where a service is.
type found struct {
	NATS   string `json:"nats,omitempty"`
	Health string `json:"health,omitempty"`     // of an orchestrator or a worker
	Queues string `json:"job_queues,omitempty"` // of an orchestrator that serves them
	Error  string `json:"error,omitempty"`
}

// serve is the main function of a service. It gives the exit code.
func serve(kind string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var err error
	if kind == "nats" {
		err = serveNATS(ctx, args)
	} else {
		err = serveApp(ctx, app.Command(kind), args)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	note(found{Error: err.Error()})
	return 1
}

func note(f found) {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // it is made of strings
	}
	fmt.Println(string(text))
}

func serveNATS(ctx context.Context, args []string) error {
	gctune.GiveRoom() // as in any program that has the server embedded
	var o embedded.Options
	flags := flag.NewFlagSet("nats", flag.ContinueOnError)
	flags.StringVar(&o.Dir, "dir", "", "")
	flags.StringVar(&o.Listen, "listen", "", "")
	flags.StringVar(&o.Config, "conf", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := embedded.Start(o)
	if err != nil {
		return err
	}
	note(found{NATS: s.URL()})
	go obey()
	<-ctx.Done()
	return s.Close()
}

// hasty is the first argument of a service that redelivers and sweeps sooner than usual, for runs
// that only check that everything works.
const hasty = "hasty"

// serveApp runs an orchestrator or a worker as [app.Main] would, from the arguments alone:
// environment variables have no effect.
func serveApp(ctx context.Context, command app.Command, args []string) error {
	gctune.GiveRoom()
	c := app.Defaults(command, parts()...)
	if len(args) > 0 && args[0] == hasty {
		args = args[1:]
		c.Streams.InboxAckWait, c.Orchestrator.OutboxAfter, c.Orchestrator.SweepEvery = time.Second,
			time.Second, time.Second/2
	}
	// the process that has started this one reads the answers from the standard output
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	unset := func(string) (string, bool) { return "", false }
	_, problems := settings.Read(&c, settings.For(string(command)), args, unset)
	if err := errors.Join(problems...); err != nil {
		return err
	}
	a, err := app.New(c, parts()...)
	if err != nil {
		return err
	}
	go func() {
		<-a.Started()
		note(found{NATS: a.Addresses().NATS, Health: a.Addresses().Health, Queues: a.Addresses().JobQueues})
		obey()
	}()
	return a.Run(ctx)
}

// obey executes the orders on the standard input, line by line, and answers each with a line.
func obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		order, file, _ := strings.Cut(lines.Text(), " ")
		answer := "there is no such order"
		if do := orders[order]; do != nil {
			answer = do(file)
		}
		fmt.Println(answer)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(3)
}

// orders are the commands that a service executes: the answer is "ok" or a number, or else an
// error.
var orders = map[string]func(file string) string{
	"profile": func(name string) string { return begin(name, pprof.StartCPUProfile) },
	"profiled": func(string) string {
		pprof.StopCPUProfile()
		return "ok"
	},
	// All allocations since the start, with their call sites.
	"allocs": func(name string) string {
		return begin(name, func(w io.Writer) error { return pprof.Lookup("allocs").WriteTo(w, 0) })
	},
	"trace": func(name string) string { return begin(name, trace.Start) },
	"traced": func(string) string {
		trace.Stop()
		return "ok"
	},
	// The heap in use after a garbage collection.
	"memory": func(string) string {
		runtime.GC()
		debug.FreeOSMemory()
		return readRuntime("/memory/classes/heap/objects:bytes")
	},
	// The stacks, beside the heap.
	"stacks": func(string) string { return readRuntime("/memory/classes/heap/stacks:bytes") },
	// The allocations since the start. Those in /metrics are up to 15 seconds old.
	"allocations": func(string) string { return readRuntime("/gc/heap/allocs:objects") },
	"allocated":   func(string) string { return readRuntime("/gc/heap/allocs:bytes") },
}

func readRuntime(name string) string {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return fmt.Sprint(sample[0].Value.Uint64())
}

func begin(name string, start func(io.Writer) error) string {
	f, err := os.Create(name) // it is complete when profile or trace were stopped
	if err == nil {
		err = start(f)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}
