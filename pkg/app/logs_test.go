package app_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// logged is what programs have logged, as lines of JSON.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// records are those that say something.
func (l *logged) records(t *testing.T, msg string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r["msg"] == msg {
			all = append(all, r)
		}
	}
	return all
}

// await waits until something is logged.
func (l *logged) await(t *testing.T, what string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !strings.Contains(l.String(), what) {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("nobody logs %q:\n%s", what, l)
		}
	}
}

// program is one that runs inside of the test.
type program struct {
	*app.App
	t    *testing.T
	stop context.CancelFunc
	done chan error
	over bool
}

func run(t *testing.T, c app.Config, parts ...app.Part) *program {
	t.Helper()
	a, err := app.New(c, parts...)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{App: a, t: t, done: make(chan error, 1)}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() { p.done <- a.Run(ctx) }()
	t.Cleanup(p.end)
	select {
	case <-a.Started():
	case err := <-p.done:
		p.over = true
		t.Fatal(err)
	}
	return p
}

func (p *program) end() {
	if p.over {
		return
	}
	p.over = true
	p.stop()
	if err := <-p.done; err != nil {
		p.t.Error(err)
	}
}

// marker is what no log may tell, in everything that users pass along.
const marker = "MARKER-77f0c1"

var (
	carry   = orchestration.Define[string, string]("carry")
	moody   = orchestration.Define[string, string]("moody")
	odd     = orchestration.Define[string, string]("odd")
	breaks  = orchestration.Define[string, string]("breaks")
	wordy   = orchestration.Define[string, string]("wordy")
	proceed = orchestration.DefineEvent[string]("go")
	box     = orchestration.DefineMailbox[string]("box")
	where   = orchestration.DefineStatus[string]()
	memory  = orchestration.DefineValue[string]("memory")
	spill   = activity.Define[string, string]("spill")
	refuse  = activity.Define[string, string]("refuse", activity.Retry(1))
	explode = activity.Define[string, string]("explode", activity.Retry(1))
)

// leaky are orchestrations that pass the marker along wherever they can. In the second edition,
// some of them do other things than in the first.
func leaky(edition int) []app.Part {
	return []app.Part{
		carry.Bind(func(ctx *orchestration.Context, s string) (string, error) {
			ctx.Logger().Info("carry begins")
			where.Set(ctx, s)
			memory.Set(ctx, s)
			if _, err := spill.Call(ctx, s); err != nil {
				return "", err
			}
			if _, err := orchestration.Step(ctx, "peek", func(ctx context.Context) (string, error) {
				slog.New(activity.Logger(ctx).Handler()).InfoContext(ctx, "peeking")
				return s, nil
			}); err != nil {
				return "", err
			}
			_, refused := refuse.Call(ctx, s)
			_, exploded := explode.Call(ctx, s)
			if refused == nil || exploded == nil {
				return "", errors.New("they should have failed")
			}
			if _, err := wordy.Call(ctx, strings.Repeat(s, 10_000)); err == nil { // more than the broker takes
				return "", errors.New("it is too large")
			}
			if _, err := proceed.Wait(ctx); err != nil {
				return "", err
			}
			ctx.Logger().WithGroup("end").Info("carry ends", "edition", 1)
			return box.Receive(ctx)
		}),
		wordy.Bind(func(*orchestration.Context, string) (string, error) { return "", nil }),
		moody.Bind(func(ctx *orchestration.Context, s string) (string, error) {
			if _, err := spill.Call(ctx, fmt.Sprint(s, edition)); err != nil {
				return "", err
			}
			return proceed.Wait(ctx)
		}),
		odd.Bind(func(ctx *orchestration.Context, s string) (string, error) {
			if edition > 1 {
				return s, errors.New(s)
			}
			if _, err := spill.Call(ctx, s); err != nil {
				return "", err
			}
			return proceed.Wait(ctx)
		}),
		breaks.Bind(func(_ *orchestration.Context, s string) (string, error) { panic(s) }),
		spill.Bind(func(ctx context.Context, s string) (string, error) {
			activity.Logger(ctx).Info("spilling")
			return s, activity.Heartbeat(ctx, s)
		}),
		refuse.Bind(func(_ context.Context, s string) (string, error) {
			return "", activity.WithDetails(activity.Errorf("refused", "no: %s", s), s)
		}),
		explode.Bind(func(_ context.Context, s string) (string, error) { panic(s) }),
	}
}

// leak runs a system through everything that can go wrong with data, and gives what it has logged.
// The trace is that of the instance carry-1.
func leak(t *testing.T, payloads bool, trace string) *logged {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", MaxPayload: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	out := &logged{}
	database := filepath.Join(t.TempDir(), "rondo.db")
	config := func(command app.Command) app.Config {
		c := app.Defaults(command)
		c.NATS.URLs, c.Database.URL = s.URL(), database
		c.Streams.MaxPayload = 64 << 10
		c.Listen, c.Stdout, c.Stderr = "off", io.Discard, out
		c.Log = app.Log{Level: slog.LevelDebug, JSON: true, Payloads: payloads}
		return c
	}
	edition := leaky(1)
	o, w := run(t, config(app.Orchestrator), edition...), run(t, config(app.Worker), edition...)
	b := natstest.Connected(t, func() (*natsbroker.Bus, error) {
		return natsbroker.Connect(t.Context(), natsbroker.Config{URLs: s.URL(), Setup: natsbroker.Use})
	})
	c := busclient.New[*client.Client](b, busclient.Options{})
	t.Cleanup(func() { c.Close() })
	said := codec.Payload(`"` + marker + `"`)
	send := func(subject string, header events.Header) {
		t.Helper()
		if err := b.Publish(t.Context(), events.Wire{Subject: subject, Header: header, Body: said}); err != nil {
			t.Fatal(err)
		}
	}
	attributes := `{"who":"` + marker + `"}`
	for _, name := range []string{"carry", "moody", "odd", "breaks"} {
		send("rondo.start."+name+"."+name+"-1",
			events.Header{events.HeaderTrace: {trace}, events.HeaderAttributes: {attributes}})
	}
	waits := func(id, event string) {
		t.Helper()
		await(t, database, id, func(history.Info) bool {
			w, err := c.Instances().Waiting(t.Context(), id)
			return err == nil && slices.ContainsFunc(w.Waits, func(x client.Wait) bool { return x.Name == event })
		})
	}
	for _, id := range []string{"carry-1", "moody-1", "odd-1"} {
		waits(id, "go")
	}
	// Messages that say nothing, and messages that come too late.
	send("rondo.start.carry.carry-2", events.Header{events.HeaderConflict: {marker}})
	send("rondo.start.carry.carry-3", events.Header{events.HeaderAttributes: {marker}})
	send("rondo.control.explode.carry-1", nil)
	send("rondo.task._.spill.1-2.carry-9", events.Header{events.HeaderAttempt: {marker}})
	ended(t, database, "breaks-1")
	send("rondo.mailbox.box.breaks-1", nil)
	send("rondo.event.nobody.carry-1", nil)
	out.await(t, "task dead-lettered")
	// The same instances with other code.
	o.end()
	w.end()
	edition = leaky(2)
	run(t, config(app.Orchestrator), edition...)
	run(t, config(app.Worker), edition...)
	for _, id := range []string{"carry-1", "moody-1", "odd-1"} {
		send("rondo.event.go."+id, nil)
	}
	send("rondo.mailbox.box.carry-1", nil)
	ended(t, database, "carry-1")
	ended(t, database, "moody-1")
	await(t, database, "odd-1", func(i history.Info) bool { return i.Status == round.Halted })
	for _, what := range []string{"it has_ended", "malformed", "the broker refuses", "was recorded with",
		`"kind":"panicked"`, `"kind":"nondeterminism"`} {
		out.await(t, strings.TrimPrefix(what, "it "))
	}
	return out
}

const leakTrace = "0af7651916cd43dd8448eb211c80319c"

func TestLogsDoNotTellData(t *testing.T) {
	t.Parallel()
	out := leak(t, false, "00-"+leakTrace+"-b7ad6b7169203331-00")
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, marker) {
			t.Error(line)
		}
	}
	t.Run("records say what they are about", func(t *testing.T) { checkAbout(t, out) })
}

// checkAbout looks at the records about carry-1.
func checkAbout(t *testing.T, out *logged) {
	execution := map[string]any{"instance": "carry-1", "execution": 1.0, "orchestration": "carry", "version": "1.0.0"}
	for msg, want := range map[string]map[string]any{
		"carry begins": execution,
		"carry ends":   execution,
		"spilling": {"instance": "carry-1", "execution": 1.0, "orchestration": "carry", "activity": "spill",
			"attempt": 1.0},
		"peeking": {"instance": "carry-1", "execution": 1.0, "orchestration": "carry", "step": "peek",
			"attempt": 1.0},
	} {
		var found []map[string]any
		for _, r := range out.records(t, msg) {
			if r["instance"] == "carry-1" {
				found = append(found, r)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%q is logged %d times:\n%v", msg, len(found), found)
		}
		for k, v := range want {
			if found[0][k] != v {
				t.Errorf("%q: %s is %v, want %v", msg, k, found[0][k], v)
			}
		}
		if found[0]["trace_id"] != leakTrace || len(fmt.Sprint(found[0]["span_id"])) != 16 {
			t.Errorf("%q: it belongs to %v, %v", msg, found[0]["trace_id"], found[0]["span_id"])
		}
	}
	begins, ends := out.records(t, "carry begins")[0], out.records(t, "carry ends")[0]
	if begins["span_id"] != ends["span_id"] || fmt.Sprint(ends["end"]) != "map[edition:1]" {
		t.Errorf("%v\n%v", begins, ends)
	}
	for _, r := range out.records(t, "instance failed or halted by the orchestrator; see rondo show") {
		if r["trace_id"] != leakTrace || r["execution"] != 1.0 || r["orchestration"] == "" {
			t.Errorf("%v", r)
		}
	}
}

func TestLogsTellDataIfAskedTo(t *testing.T) {
	t.Parallel()
	out := leak(t, true, "")
	for _, msg := range []string{"message dead-lettered", "worker: task dead-lettered",
		"instance failed or halted by the orchestrator; see rondo show"} {
		if !slices.ContainsFunc(out.records(t, msg), func(r map[string]any) bool {
			return strings.Contains(fmt.Sprint(r), marker)
		}) {
			t.Errorf("%q does not tell: %v", msg, out.records(t, msg))
		}
	}
	if !strings.Contains(out.String(), `was recorded with \"`+marker+`1\", the code now gives \"`+marker+`2\"`) {
		t.Error("the warning about other data does not tell it")
	}
}

// TestLogsDoNotTellPasswords has addresses with passwords that lead nowhere, and ones that cannot
// be read.
func TestLogsDoNotTellPasswords(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ nats, database string }{
		{"nats://ann:" + marker + "@127.0.0.1:1", "postgres://ann:" + marker + "@127.0.0.1:1/rondo"},
		{"nats://" + marker + "@127.0.0.1:1",
			"host=127.0.0.1 port=1 user=ann sslpassword=x password='it''s " + marker + "'"},
		{"nats://ann:a/b@" + marker + "@127.0.0.1:1", "postgres://ann:a/b@" + marker + "@127.0.0.1:1/rondo"},
		{"tls://ann:" + marker + "@127.0.0.1:1,nats://bob:" + marker + "@127.0.0.1:2",
			"postgres://127.0.0.1:1/rondo?user=ann&sslpassword=" + marker},
		{"nats://ann:" + marker + "@[::1", "postgres://ann:" + marker + "@127.0.0.1:1:x/rondo"},
	} {
		out := &logged{}
		c := app.Defaults(app.Orchestrator)
		c.NATS.URLs, c.Database.URL, c.ConnectTimeout, c.NATS.Timeout = x.nats, x.database, 150*time.Millisecond,
			100*time.Millisecond
		c.Listen, c.Stdout, c.Stderr = "off", io.Discard, out
		c.Log = app.Log{Level: slog.LevelDebug, JSON: true}
		a, err := app.New(c, leaky(1)...)
		if err != nil {
			t.Fatal(err)
		}
		err = a.Run(t.Context())
		if err == nil || strings.Contains(err.Error(), marker) {
			t.Errorf("%v: it ends with %v", x, err)
		}
		if strings.Contains(out.String(), marker) || strings.Contains(fmt.Sprint(a.Addresses()), marker) {
			t.Errorf("%v: it logs\n%s and tells %v", x, out, a.Addresses())
		}
	}
}

// TestLevelsChangeAtRunTime changes what a program logs over HTTP and over NATS.
func TestLevelsChangeAtRunTime(t *testing.T) {
	t.Parallel()
	out := &logged{}
	c := app.Defaults(app.Dev)
	c.Dir, c.NATSListen, c.Listen, c.Stdout, c.Stderr = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", io.Discard, out
	c.Log = app.Log{Level: slog.LevelError, JSON: true}
	p := run(t, c, leaky(1)...)
	url := p.Addresses().Health + "/loglevel"
	ask := func(method, query, body string, header http.Header) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, strings.TrimSpace(string(text))
	}
	for _, x := range []struct {
		method, query, body string
		header              http.Header
		code                int
		want                string
	}{
		{"GET", "", "", nil, 200, "error"},
		{"PUT", "", "loud", nil, 400, "not a log level"},
		{"PUT", "?for=never", "debug", nil, 400, "not a duration"},
		{"PUT", "", strings.Repeat("x", 1000), nil, 400, "the body"},
		{"POST", "", "debug", nil, 405, "PUT changes it"},
		{"PUT", "", "debug", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403, "browsers"},
		{"PUT", "", "debug", http.Header{"Sec-Fetch-Site": {"same-origin"}}, 403, "browsers"},
		{"PUT", "", "debug", http.Header{"Origin": {"http://evil.example"}}, 403, "browsers"},
		{"GET", "", "", nil, 200, "error"},
		{"PUT", "?for=1h", "debug", nil, 200, "debug until 20"},
		{"PUT", "", "Warn\n", nil, 200, "warn"},
	} {
		if code, text := ask(x.method, x.query, x.body, x.header); code != x.code || !strings.Contains(text, x.want) {
			t.Errorf("%s %s %.10s: %d %s", x.method, x.query, x.body, code, text)
		}
	}
	b := natstest.Connected(t, func() (*natsbroker.Bus, error) {
		return natsbroker.Connect(t.Context(), natsbroker.Config{URLs: p.Addresses().NATS, Setup: natsbroker.Use})
	})
	defer b.Close()
	level := func(change process.Change) process.Logging {
		t.Helper()
		all, err := process.Levels(t.Context(), b, change)
		if err != nil || len(all) != 1 || !slices.Contains(all[0].IDs, "dev") || len(all[0].IDs) != 2 {
			t.Fatalf("%v, %v", all, err)
		}
		return all[0]
	}
	if l := level(process.Change{}); l.Level != "warn" || !l.Until.IsZero() {
		t.Error(l)
	}
	publish(t, p.Addresses().NATS, "rondo.event.nobody.carry-1", `1`)
	if l := level(process.Change{Level: "debug", For: "1ns", Process: "dev"}); l.Problem != "" {
		t.Error(l)
	}
	out.await(t, "the log level is warn again")
	if l := level(process.Change{Level: "loud"}); l.Problem == "" || l.Level != "warn" {
		t.Error(l)
	}
	if l := level(process.Change{Level: "debug"}); l.Level != "debug" {
		t.Error(l)
	}
	if all, err := process.Levels(t.Context(), b, process.Change{Level: "error", Process: "somebody"}); err != nil ||
		len(all) != 0 {
		t.Error(all, err)
	}
	publish(t, p.Addresses().NATS, "rondo.start.carry.c-1", `"x"`)
	publish(t, p.Addresses().NATS, "rondo.start.carry.c-1", `"x"`)
	out.await(t, "a message changed nothing")
	if strings.Count(out.String(), "the log level is") < 5 {
		t.Error(out.String())
	}
}

// TestLogsAreSent has a collector that takes logs, and one that is not configured.
func TestLogsAreSent(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		t.Run(fmt.Sprint(asked), func(t *testing.T) {
			t.Parallel()
			got, traces := &logged{}, make(chan struct{}, 100)
			collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/v1/logs":
					_, _ = io.Copy(got, r.Body) // a missing record fails below
				case "/v1/traces":
					select {
					case traces <- struct{}{}:
					default:
					}
				}
			}))
			defer collector.Close()
			env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
				"OTEL_BLRP_SCHEDULE_DELAY=50", "OTEL_BSP_SCHEDULE_DELAY=50"}
			if asked {
				env = append(env, "OTEL_LOGS_EXPORTER=otlp")
			}
			s := server(t)
			database := filepath.Join(t.TempDir(), "rondo.db")
			start(t, env, with("orchestrator", "--nats", s.URL(), "--database", database)...).ready()
			w := start(t, env, with("worker", "--nats", s.URL(), "--shutdown-timeout", "1s", "--cancel-grace",
				"1s")...).ready()
			b := natstest.Connected(t, func() (*natsbroker.Bus, error) {
				return natsbroker.Connect(t.Context(), natsbroker.Config{URLs: s.URL(), Setup: natsbroker.Use})
			})
			defer b.Close()
			wire := events.Wire{Subject: "rondo.start.toil.toil-1", Body: []byte("false"),
				Header: events.Header{events.HeaderTrace: {"00-" + leakTrace + "-b7ad6b7169203331-01"}}}
			if err := b.Publish(t.Context(), wire); err != nil {
				t.Fatal(err)
			}
			if line := w.errs.await(t, "msg=working"); !strings.Contains(line, "trace_id="+leakTrace) ||
				!strings.Contains(line, "instance=toil-1") {
				t.Error(line)
			}
			if !asked {
				<-traces
				w.end()
				if got.String() != "" {
					t.Errorf("logs are sent although nobody has asked for it: %q", got)
				}
				return
			}
			id, err := hex.DecodeString(leakTrace)
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"working", "toil-1", "the orchestrator has begun", string(id)} {
				got.await(t, what)
			}
		})
	}
}
