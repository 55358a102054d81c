package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

var (
	onGPU    = activity.Define[int, int]("train", activity.Tag("gpu"))
	absent   = activity.Define[int, int]("absent")
	approve  = orchestration.DefineEvent[string]("approve")
	items    = orchestration.DefineMailbox[string]("items")
	trains   = orchestration.Define[int, int]("trains")
	naps     = orchestration.Define[int, int]("naps")
	asks     = orchestration.Define[int, string]("asks")
	listens  = orchestration.Define[int, string]("listens")
	hasChild = orchestration.Define[int, string]("has-child")
	changes  = orchestration.Define[int, int]("changes")
	fails    = orchestration.Define[int, int]("fails")
	asked    = orchestration.DefineStatus[string]()
	deadly   = activity.Define[int, int]("deadly")
	dies     = orchestration.Define[int, int]("dies")
)

// stuck are orchestrations that do not go on. What changes calls depends on the deployment.
func stuck(deployment int) []app.Part {
	return []app.Part{
		trains.Bind(func(ctx *orchestration.Context, n int) (int, error) { return onGPU.Call(ctx, n) }),
		naps.Bind(func(ctx *orchestration.Context, n int) (int, error) { return n, ctx.Sleep(24 * time.Hour) }),
		asks.Bind(func(ctx *orchestration.Context, n int) (string, error) { return approve.Wait(ctx) }),
		listens.Bind(func(ctx *orchestration.Context, n int) (string, error) { return items.Receive(ctx) }),
		hasChild.Bind(func(ctx *orchestration.Context, n int) (string, error) { return asks.Call(ctx, n) }),
		fails.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			return 0, orchestration.Errorf("no_money", "the account is empty")
		}),
		changes.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			if deployment > 1 {
				return onGPU.Call(ctx, n)
			}
			return absent.Call(ctx, n)
		}),
		dies.Bind(func(ctx *orchestration.Context, n int) (int, error) { return deadly.Call(ctx, n) }),
		activity.Define[int, int]("something").Bind(func(_ context.Context, n int) (int, error) { return n, nil }),
	}
}

// deployed is a system in this process.
type deployed struct {
	t   *testing.T
	dir string
	// where says to the command line which system is meant.
	where   []string
	address string // of its NATS
	stop    func()
}

// deploy starts a system in a directory.
func deploy(t *testing.T, dir string, parts []app.Part, change ...func(*app.Config)) *deployed {
	t.Helper()
	c := app.Defaults(app.Dev)
	c.Dir, c.NATSListen, c.Streams.TaskAckWait = dir, "127.0.0.1:0", 2*time.Second
	for _, f := range change {
		f(&c)
	}
	d := deployOn(t, c, parts)
	d.dir, d.where = dir, []string{"--dir", dir}
	return d
}

// deployOn starts what a config says.
func deployOn(t *testing.T, c app.Config, parts []app.Part) *deployed {
	t.Helper()
	c.Listen, c.Stdout, c.Stderr = "off", io.Discard, io.Discard
	a, err := app.New(c, parts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case <-a.Started():
	case err := <-done:
		t.Fatal(err)
	}
	stopped := false
	d := &deployed{t: t, address: a.Addresses().NATS, stop: func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}}
	t.Cleanup(d.stop)
	return d
}

// takeAndDie takes an activity task, like a worker that crashes while it executes the task.
func takeAndDie(t *testing.T, address, activity string) {
	t.Helper()
	b := natstest.Connect(t, at(address), natsbroker.Config{Setup: natsbroker.Use})
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	for taken := 0; taken == 0; {
		q, err := b.OpenTaskQueue(ctx, broker.TaskQueueName{Activity: activity})
		if errors.Is(err, broker.ErrNoTaskQueue) { // the first activity task creates the queue
			continue
		}
		if err == nil {
			taken, err = q.Take(ctx, 1, func(d broker.Delivery) { d.Hold.Nak(0) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// at is where something listens.
type at string

func (a at) URL() string { return string(a) }

// say runs a command, and gives its exit code and all that it says.
func (d *deployed) say(args ...string) (int, string) {
	d.t.Helper()
	var out strings.Builder
	code := run(d.t.Context(), append(args, d.where...), strings.NewReader(""), &out, &out)
	return code, out.String()
}

// until runs a command until it says something.
func (d *deployed) until(want string, args ...string) string {
	d.t.Helper()
	good := regexp.MustCompile("(?s)" + want)
	deadline := time.After(testPatience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, text := d.say(args...)
		if good.MatchString(text) {
			return text
		}
		select {
		case <-tick.C:
		case <-deadline:
			d.t.Fatalf("rondo %s says\n%s\nwant %s", strings.Join(args, " "), text, want)
		}
	}
}

// TestShowSaysWhyItDoesNotGoOn keeps in testdata/stuck.txt what `rondo show` says of instances that
// are stuck, each for another reason.
func TestShowSaysWhyItDoesNotGoOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "system")
	d := deploy(t, dir, stuck(1))
	var said strings.Builder
	tell := func(reason, text string) {
		said.WriteString("== " + reason + "\n" + strings.ReplaceAll(steady(text), dir, "DIR") + "\n\n")
	}
	start := func(name string) string {
		t.Helper()
		if code, text := d.say("start", name, "1", "--id", "i-"+name); code != succeeded {
			t.Fatal(text)
		}
		return "i-" + name
	}
	tell("no worker has the tag", d.until(`no worker takes`, "show", start("trains")))
	tell("no worker has the activity", d.until(`no worker takes`, "show", start("changes")))
	tell("a timer is due later", d.until(`it is due in`, "show", start("naps")))
	tell("an event does not come", d.until(`rondo raise`, "show", start("asks")))
	tell("a mailbox is empty", d.until(`rondo send`, "show", start("listens")))
	tell("a child does not end", d.until(`as "i-has-child`, "show", start("has-child")))
	tell("it has failed", d.until(`the account is empty`, "show", start("fails")))
	start("dies")
	takeAndDie(t, d.address, "deadly")
	start("misspelt")
	tell("no orchestrator has its code", d.until(`start has waited`, "show", "i-misspelt"))
	d.say("suspend", "i-asks", "--reason", "a holiday")
	tell("it is suspended", d.until(`rondo resume`, "show", "i-asks"))

	d.stop()
	_, text := d.say("show", "i-asks")
	tell("the broker is away", regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(text, "ADDRESS"))

	d = deploy(t, dir, append(stuck(2), deadly.Bind(func(_ context.Context, n int) (int, error) {
		return n, nil
	})), func(c *app.Config) { c.Worker.MaxTaskCrashes = 1 })
	tell("its task crashes its workers", d.until(`rondo deadletters`, "show", "i-dies"))
	d.say("raise", "i-changes", "approve") // so that its code runs
	tell("its code does not fit its history", d.until(`halted`, "show", "i-changes"))
	if code, text := d.say("cancel", "i-changes"); code != succeeded ||
		!strings.Contains(text, "it takes the cancellation when code that fits is deployed") {
		t.Errorf("cancel exits with %d and says %q", code, text)
	}

	path := filepath.Join("testdata", "stuck.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(said.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(said.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("%s is not what is said (go test -rewrite writes it anew), from line %d on:\n%s", path, i+1,
				strings.Join(got[min(i, len(got)):min(i+5, len(got))], "\n"))
		}
	}
}

// TestWaitingShowsProgressOnATerminal shows that a line on a terminal has the custom status of the
// instance waited for. The line is cleared before other output.
func TestWaitingShowsProgressOnATerminal(t *testing.T) {
	t.Parallel()
	d := deploy(t, t.TempDir(), []app.Part{asks.Bind(func(ctx *orchestration.Context, _ int) (string, error) {
		asked.Set(ctx, "asking around")
		return approve.Wait(ctx)
	})})
	said := &watched{changed: make(chan struct{}, 1)}
	var out strings.Builder
	c := &cli{in: strings.NewReader(""), printer: printer{out: &out, problems: said, terminal: true, now: time.Now}}
	code := make(chan int, 1)
	go func() {
		code <- c.run(t.Context(), append([]string{"start", "asks", "1", "--id", "i", "--wait"}, d.where...))
	}()
	for !strings.Contains(said.String(), `asking around`) {
		<-said.changed
	}
	d.say("raise", "i", "approve", `"yes"`)
	if got := <-code; got != succeeded || out.String() != "\"yes\"\n" {
		t.Errorf("it exits with %d and says %q", got, out.String())
	}
	if text := said.String(); !strings.HasPrefix(text, clearLine+"waiting ") || !strings.Contains(text, " for i ") ||
		!strings.HasSuffix(text, clearLine) || strings.Contains(text, "\n") {
		t.Errorf("the terminal gets %q", text)
	}
}

// TestWaitingSaysThatAnInstanceDoesNotRun shows that commands which wait for a suspended or halted
// instance name the state and the remedy, and go on waiting.
func TestWaitingSaysThatAnInstanceDoesNotRun(t *testing.T) {
	t.Parallel()
	d := deploy(t, t.TempDir(), stuck(1))
	for _, id := range []string{"waited", "watched", "drawn"} {
		d.say("start", "asks", "1", "--id", id)
		d.until(`event "approve"`, "show", id)
		d.say("suspend", id)
		d.until("rondo resume", "show", id)
	}
	for _, x := range []struct {
		id       string
		terminal bool
		args     []string
	}{
		{"waited", false, []string{"wait", "waited"}},
		{"watched", false, []string{"watch", "watched"}},
		{"drawn", true, []string{"start", "asks", "1", "--id", "drawn", "--wait"}},
	} {
		said := &watched{changed: make(chan struct{}, 1)}
		c := &cli{in: strings.NewReader(""), printer: printer{out: io.Discard, problems: said, terminal: x.terminal,
			now: time.Now}}
		code := make(chan int, 1)
		go func() { code <- c.run(t.Context(), append(x.args, d.where...)) }()
		want := regexp.MustCompile(x.id + ` is suspended since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ; waiting for ` +
			"`rondo resume " + x.id + "`\n")
		for !want.MatchString(said.String()) {
			select {
			case <-said.changed:
			case got := <-code:
				t.Fatalf("%v exits with %d and says %q", x.args, got, said.String())
			}
		}
		d.say("resume", x.id)
		d.say("raise", x.id, "approve", `"yes"`)
		if got := <-code; got != succeeded || len(want.FindAllString(said.String(), -1)) != 1 {
			t.Errorf("%v exits with %d and says %q", x.args, got, said.String())
		}
	}
}

func TestWhatHaltedInstancesWaitFor(t *testing.T) {
	since := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	const rest = "; waiting until code that fits its history is deployed: `rondo show i` tells why"
	for at, want := range map[time.Time]string{
		{}: "i is halted" + rest, since: "i is halted since 2027-01-01T12:00:00Z" + rest} {
		if got := stoppedText(client.Instance{ID: "i", Status: client.Halted}, at); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// watched collects the output, and signals when there is more.
type watched struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestStartOfAnotherOrchestration shows that the result of an instance that has the id is not taken
// for the result of the start.
func TestStartOfAnotherOrchestration(t *testing.T) {
	t.Parallel()
	d := deploy(t, t.TempDir(), stuck(1))
	d.say("start", "fails", "1", "--id", "x", "--wait")
	for _, wait := range []string{"--wait", "--wait=false"} {
		code, text := d.say("start", "naps", "1", "--id", "x", wait)
		if code != ended || !strings.Contains(text, "x was there already, as fails (failed)") {
			t.Errorf("it exits with %d:\n%s", code, text)
		}
	}
}

// TestAPrefixWithoutStreamsIsNamed shows that a command does not ask for more time if no stream
// takes its messages.
func TestAPrefixWithoutStreamsIsNamed(t *testing.T) {
	t.Parallel()
	d := deploy(t, t.TempDir(), stuck(1))
	for _, args := range [][]string{{"start", "naps", "1"}, {"start", "naps", "1", "--wait"}, {"cancel", "x"}} {
		code, text := timeIsOver, ""
		// On a slow machine, NATS may not have responded within 4 seconds.
		for limit := 4 * time.Second; code == timeIsOver && limit < time.Hour; limit *= 4 {
			code, text = d.say(append(args, "--prefix", "shop", "--timeout", limit.String())...)
		}
		if code != unavailable || strings.Contains(text, "--timeout") ||
			!strings.Contains(text, `no stream of NATS takes messages with the prefix "shop"`) ||
			!strings.Contains(text, "is --prefix that of the system?") {
			t.Errorf("%v exits with %d:\n%s", args, code, text)
		}
	}
}
