package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

// The flags that isolate tests from each other, and from other programs on the machine.
var anywhere = []string{"--listen", "127.0.0.1:0", "--log-level", "info", "--connect-timeout", "15s"}

func with(command string, args ...string) []string {
	return append(append([]string{command}, anywhere...), args...)
}

// server starts a NATS server.
func server(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// publish publishes a message by hand, as any client can that knows the subject.
func publish(t *testing.T, url, subject, body string) {
	t.Helper()
	b := natstest.Connected(t, func() (*natsbroker.Bus, error) {
		return natsbroker.Connect(t.Context(), natsbroker.Config{URLs: url, Setup: natsbroker.Use})
	})
	defer b.Close()
	if err := b.Publish(t.Context(), events.Wire{Subject: subject, Body: []byte(body)}); err != nil {
		t.Fatal(err)
	}
}

// ended waits until an instance has ended, and gives what the database says about it.
func ended(t *testing.T, database, instance string) history.Info {
	t.Helper()
	return await(t, database, instance, func(i history.Info) bool { return i.Status.Ended() })
}

func await(t *testing.T, database, instance string, enough func(history.Info) bool) (i history.Info) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), database, sqlite.Options{ReadOnly: true, Schema: sqlite.Verify})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if !slowtest.Until(patience, func() bool {
		i, err = store.Instance(t.Context(), instance)
		if err != nil && !errors.Is(err, history.ErrNoInstance) {
			t.Fatal(err)
		}
		return err == nil && enough(i)
	}) {
		t.Fatalf("%s has not come so far: %v, %v", instance, i.Row, err)
	}
	return i
}

func wantOutput(t *testing.T, i history.Info, want string) {
	t.Helper()
	if i.Status != round.Completed || string(i.Output) != want {
		t.Errorf("%s, output %s, error %v; want %s", i.Status, i.Output, i.Error, want)
	}
}

func TestOrchestratorAndWorker(t *testing.T) {
	t.Parallel()
	s := server(t)
	database := filepath.Join(t.TempDir(), "rondo.db")
	o := start(t, []string{"RONDO_NATS_URL=" + s.URL(), "RONDO_DATABASE_URL=" + database},
		with("orchestrator")...).ready()
	w := start(t, []string{"RONDO_NATS_URL=" + s.URL()}, with("worker", "--log-format", "json")...)
	w.errs.await(t, `"msg":"ready"`)
	publish(t, s.URL(), "rondo.start.hello.h-1", `"bob"`)
	wantOutput(t, ended(t, database, "h-1"), `"hello bob"`)
	w.end()
	o.end()
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := server(t)
	w := start(t, nil, with("worker", "--nats", s.URL())...).ready()
	url := addressIn(t, w.errs.await(t, "msg=ready"), "health=")
	for path, want := range map[string]string{"/livez": "ok", "/readyz": "ok", "/version": "engine 1",
		"/metrics": "\nrondo_worker_slots 100\n"} {
		code, body := get(t, url+path)
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
	s.Close()
	w.errs.await(t, "the connection broke")
	if code, body := get(t, url+"/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "worker: not connected to NATS") {
		t.Errorf("without NATS: %d %s", code, body)
	}
	if code, body := get(t, url+"/livez"); code != http.StatusOK {
		t.Errorf("a worker that has lost NATS is alive, and a restart would not help: %d %s", code, body)
	}
}

// TestServicesWaitForWhatIsNotThereYet starts the service first, then NATS.
func TestServicesWaitForWhatIsNotThereYet(t *testing.T) {
	t.Parallel()
	for range 5 { // another process may take the port meanwhile
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		o := start(t, nil, with("orchestrator", "--nats", "nats://"+address, "--database", "rondo.db")...)
		o.errs.await(t, "waiting for NATS at nats://"+address)
		s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: address})
		if err != nil {
			t.Log(err)
			continue
		}
		t.Cleanup(func() { s.Close() })
		o.ready().end()
		return
	}
	t.Error("NATS cannot be started")
}

func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	s := server(t)
	code, _, problems := inside(t, environment(), with("orchestrator", "--nats", s.URL(), "--connect-timeout", "300ms",
		"--database", "postgres://ann:hush@127.0.0.1:1/rondo")...)
	if code != 1 || !strings.Contains(problems,
		"waited 300ms for the database at postgres://ann:(hidden)@127.0.0.1:1/rondo") ||
		strings.Contains(problems, "hush") {
		t.Errorf("exit code %d: %s", code, problems)
	}
	if code, _, problems := inside(t, environment(), with("worker", "--nats", s.URL(), "--nats-creds",
		"none.creds")...); code != 1 || !strings.Contains(problems, "none.creds") ||
		strings.Contains(problems, "waiting for NATS") {
		t.Errorf("a file that is not there is not waited for: exit code %d: %s", code, problems)
	}
	if code, _, problems := inside(t, environment(), with("worker", "--nats", "nats://127.0.0.1:1", "--connect-timeout",
		"0s")...); code != 1 || !strings.Contains(problems, "NATS at nats://127.0.0.1:1: ") {
		t.Errorf("exit code %d: %s", code, problems)
	}
}

func TestAWrongDatabaseIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := server(t)
	for address, want := range map[string]struct {
		code int
		says string
	}{
		"postgres://ann:hush@:port/rondo": {1, "the database at postgres://ann:(hidden)@:port/rondo"},
		"oracle://db/rondo":               {2, `a database cannot be of the kind "oracle"`},
	} {
		code, _, problems := inside(t, environment(), with("orchestrator", "--nats", s.URL(), "--database", address)...)
		if code != want.code || !strings.Contains(problems, want.says) || strings.Contains(problems, "hush") ||
			strings.Contains(problems, "waiting for the database") {
			t.Errorf("%s: exit code %d: %s", address, code, problems)
		}
	}
	code, _, problems := inside(t, environment(), with("orchestrator", "--nats", s.URL(), "--database",
		filepath.Join(t.TempDir(), "none.db"), "--schema", "verify")...)
	if code != 1 || !strings.Contains(problems, "there is no file") {
		t.Errorf("exit code %d: %s", code, problems)
	}
}

// Replicas that the NATS server cannot have are no reason to wait for it.
func TestReplicasOnOneServerEndTheService(t *testing.T) {
	t.Parallel()
	code, _, problems := inside(t, environment(), with("worker", "--nats", server(t).URL(), "--replicas", "3")...)
	if code != 1 || !strings.Contains(problems, "set --replicas 1") || strings.Contains(problems, "waiting for NATS") {
		t.Errorf("exit code %d: %s", code, problems)
	}
}

func TestAWaitingServiceEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, nil, with("worker", "--nats", "nats://127.0.0.1:1")...)
	p.errs.await(t, "waiting for NATS")
	p.end()
}

func TestTheSecondSignalForces(t *testing.T) {
	t.Parallel()
	p := start(t, nil, with("dev", "--nats-listen", "127.0.0.1:0", "--shutdown-timeout", "1h")...).ready()
	at := addressIn(t, p.errs.await(t, "msg=ready"), "nats=")
	publish(t, at, "rondo.start.toil.t-1", "true")
	p.errs.await(t, "msg=working")
	p.signal(syscall.SIGINT)
	p.errs.await(t, "a second Ctrl-C or signal ends it at once")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	signals := 0
	for ended := false; !ended; { // those that come at once count as the first one
		select {
		case <-tick.C:
			signals++
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
		case <-p.done:
			ended = true
		}
	}
	if code, _, problems := p.wait(); code != 128+int(syscall.SIGTERM) || signals < 3 {
		t.Errorf("exit code %d after %d signals: %s", code, signals, problems)
	}
}

// dev names the reason why its NATS server cannot listen, which may be another than a server that
// listens already.
func TestDevNamesWhyNATSCannotListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{":99999": "invalid port", l.Addr().String(): "in use"} {
		code, _, problems := inside(t, environment(), "dev", "--dir", t.TempDir(), "--nats-listen", address)
		if code != 1 || !strings.Contains(problems, want) || !strings.Contains(problems, "with --nats-listen") {
			t.Errorf("%s: exit code %d: %s", address, code, problems)
		}
	}
}

func TestAddressesThatAreTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := server(t)
	code, _, problems := inside(t, environment(), "worker", "--nats", s.URL(), "--listen", l.Addr().String())
	if code != 1 || !strings.Contains(problems, "choose it with --listen, or leave it out with --listen off") {
		t.Errorf("exit code %d: %s", code, problems)
	}
	code, _, problems = inside(t, environment(),
		with("dev", "--dir", t.TempDir(), "--nats-listen", l.Addr().String())...)
	if code != 1 || !strings.Contains(problems, "choose another address with --nats-listen") {
		t.Errorf("exit code %d: %s", code, problems)
	}
	// Without configured ports, others will do than the usual ones. They may be taken on this
	// machine or not.
	start(t, nil, "worker", "--nats", s.URL(), "--log-level", "info").ready()
	start(t, nil, "worker", "--nats", s.URL(), "--log-level", "info").ready().errs.await(t,
		"the usual address is taken")
	start(t, nil, "dev", "--log-level", "info").ready()
	start(t, nil, "dev", "--log-level", "info").ready().errs.await(t, "the usual address of NATS is taken")
	start(t, nil, "worker", "--nats", s.URL(), "--listen", "off", "--log-level", "info").ready().end()
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	s := server(t)
	database := filepath.Join(t.TempDir(), "sub", "rondo.db")
	migrate := func(want string, wantCode int, args ...string) {
		t.Helper()
		code, out, problems := inside(t, environment(),
			append([]string{"migrate", "--database", database, "--nats", s.URL(), "--connect-timeout", "1s"},
				args...)...)
		if code != wantCode || !strings.Contains(out+problems, want) {
			t.Errorf("%v: exit code %d, want %d and %q in: %s%s", args, code, wantCode, want, out, problems)
		}
	}
	migrate("there is no file", 1, "--check")
	migrate("the tables were made", 0)
	migrate("is the one that is needed", 0, "--check")
	migrate("is missing", 1, "--check", "--streams")
	migrate("the streams of rondo are as they are needed", 0, "--streams", "--tags", "_,gpu")
	migrate("the streams of rondo are as they are needed", 0, "--check", "--streams", "--tags", "_,gpu")
	start(t, nil, with("worker", "--nats", s.URL(), "--setup", "verify", "--tags", "gpu,_")...).ready().end()
	start(t, nil, with("orchestrator", "--nats", s.URL(), "--setup", "verify", "--schema", "verify", "--database",
		"sqlite:"+database)...).ready().end()
}

// ---- dev.

func TestDev(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	p := start(t, nil, with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0", "--demo")...)
	p.out.await(t, "the demo says: hello demo")
	for _, want := range []string{"nats --server nats://127.0.0.1:", "pub rondo.start.hello.my-2 '\"text\"'",
		"rondo start hello '\"text\"' --id my-1 --dir " + dir, "Ctrl-C ends it", filepath.Join(dir, "rondo.db"),
		"hello 1.0.0; nap 1.0.0; toil 1.0.0; activities greet, work"} {
		p.out.await(t, want)
	}
	at, err := devdir.Read(dir)
	if err != nil || at.Database != filepath.Join(dir, "rondo.db") || at.Prefix != "rondo" {
		t.Errorf("%+v, %v", at, err)
	}
	if code, body := get(t, at.Health+"/readyz"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	for _, want := range []string{
		`rondo_orchestration_completions_total{orchestration="hello",status="completed",version="1.0.0"} 1`,
		`rondo_activity_executions_total{activity="greet",attempt="1",outcome="success",tag=""} 1`,
		`rondo_store_operation_duration_seconds_count{operation="commit",status="ok"}`, "rondo_nats_connected 1",
		"rondo_build_info{", "go_goroutines",
	} {
		natstest.Eventually(t, "/metrics says "+want, func() bool { // an end is counted AFTER its notice is published
			code, body := get(t, at.Health+"/metrics")
			return code == http.StatusOK && strings.Contains(body, want)
		})
	}
	// A nap that is longer than this process runs: the next one finishes it. On a slow machine,
	// that takes a longer one.
	var id string
	var waiting history.Info
	for nap := 3 * time.Second; ; nap *= 4 {
		id = "n-" + nap.String()
		publish(t, at.NATS, "rondo.start.nap."+id, strconv.FormatInt(nap.Milliseconds(), 10))
		waiting = await(t, at.Database, id, func(i history.Info) bool { return i.LastEvent >= 2 })
		p.end()
		if _, err := devdir.Read(dir); err == nil {
			t.Error("the file with the addresses is still there")
		}
		over := instance(t, at.Database, id).Status.Ended()
		p = start(t, nil, with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0")...).ready()
		if !over {
			break
		}
		if at, err = devdir.Read(dir); err != nil || nap > time.Hour {
			t.Fatalf("the timer of %v was over before the process had ended; %v", nap, err)
		}
	}
	i := ended(t, at.Database, id)
	wantOutput(t, i, `"hello sleeper"`)
	if i.CreatedAt != waiting.CreatedAt {
		t.Errorf("it began at %v, and anew at %v", waiting.CreatedAt, i.CreatedAt)
	}
	other := start(t, nil, with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0")...)
	if code, _, problems := other.wait(); code != 1 ||
		!strings.Contains(problems, "choose another directory with --dir") {
		t.Errorf("a second one in the same directory: exit code %d: %s", code, problems)
	}
	other = start(t, nil, with("dev", "--dir", t.TempDir(), "--database", at.Database,
		"--nats-listen", "127.0.0.1:0")...)
	if code, _, problems := other.wait(); code != 1 ||
		!strings.Contains(problems, "uses the database "+at.Database) ||
		!strings.Contains(problems, "choose another database with --database") {
		t.Errorf("one in another directory with the same database: exit code %d: %s", code, problems)
	}
	p.end()
}

// TestDevAfterACrash kills the process while an activity runs: the next one executes it again.
func TestDevAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0", "--task-ack-wait", "1s")
	p := start(t, nil, args...).ready()
	at, err := devdir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, at.NATS, "rondo.start.toil.t-1", "false")
	p.errs.await(t, "msg=working")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	p = start(t, nil, args...).ready()
	p.errs.await(t, "msg=working")
	at, err = devdir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, at.NATS, "rondo.control.cancel.t-1", "enough")
	if i := ended(t, at.Database, "t-1"); i.Status != round.Cancelled || i.Execution != 1 {
		t.Errorf("%v", i.Row)
	}
	p.end()
}

func TestDevInADirectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locked")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Create(filepath.Join(dir, "x")); err == nil {
		f.Close()
		dir = "/proc" // root may write everywhere, but not there
	}
	code, _, problems := inside(t, environment(), with("dev", "--dir", dir)...)
	if code != 1 || !strings.Contains(problems, "the directory "+dir) ||
		!strings.Contains(problems, "choose another one with --dir") {
		t.Errorf("exit code %d: %s", code, problems)
	}
}

// TestDevEndsWithoutItsDirectory removes, renames and replaces the directory of a dev that runs.
func TestDevEndsWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(dir string) error{
		"removed": func(dir string) (err error) {
			slowtest.Until(patience, func() bool { err = os.RemoveAll(dir); return err == nil }) // dev still writes
			return err
		},
		"renamed": func(dir string) error { return os.Rename(dir, dir+"-old") },
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-old"), os.MkdirAll(filepath.Join(dir, "nats"), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "kept")
			p := start(t, nil, with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0")...).ready()
			if err := lose(dir); err != nil {
				t.Fatal(err)
			}
			code, _, problems := p.wait()
			if code != 1 || !strings.Contains(problems, "the directory "+dir+" was removed, renamed or replaced") ||
				!strings.Contains(problems, "start dev again") {
				t.Errorf("exit code %d: %s", code, problems)
			}
		})
	}
}

// TestUnknownVariablesAreNoticed also shows that they do no harm.
func TestUnknownVariablesAreNoticed(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := start(t, []string{"RONDO_SLOT=3"}, with("worker", "--nats", s.URL())...).ready()
	p.errs.await(t, "the variable RONDO_SLOT is no setting; did you mean RONDO_SLOTS?")
	p.end()
}

func instance(t *testing.T, database, id string) history.Info {
	t.Helper()
	return await(t, database, id, func(history.Info) bool { return true })
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(data)
}

// addressIn finds an address in a line of the log.
func addressIn(t *testing.T, line, key string) string {
	t.Helper()
	_, rest, ok := strings.Cut(line, key)
	if !ok {
		t.Fatalf("there is no %s in %s", key, line)
	}
	address, _, _ := strings.Cut(rest, " ")
	return address
}

// TestAppAsAValue runs a program inside of another one.
func TestAppAsAValue(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := app.Defaults(app.Dev)
	c.Dir, c.NATSListen, c.Listen, c.Stdout, c.Stderr = t.TempDir(), "127.0.0.1:0", "off", io.Discard, io.Discard
	a, err := app.New(c, parts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case <-a.Started():
	case err := <-done:
		t.Fatal(err)
	}
	at := a.Addresses()
	publish(t, at.NATS, "rondo.start.hello.v-1", `"value"`)
	wantOutput(t, ended(t, at.Database, "v-1"), `"hello value"`)
	data, err := os.ReadFile(filepath.Join(c.Dir, devdir.File))
	var file map[string]any
	if err != nil || json.Unmarshal(data, &file) != nil || file["pid"] != float64(os.Getpid()) {
		t.Errorf("%s: %v", data, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "run before") {
		t.Error(err)
	}
}

// TestRightsMayCome starts an orchestrator whose role has no rights to the tables yet.
func TestRightsMayCome(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	s := server(t)
	address := pgtest.Database(t)
	do := func(sql string) {
		t.Helper()
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			_, err = conn.Exec(ctx, sql)
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const role = "late"
	do("CREATE ROLE " + role + " LOGIN PASSWORD '" + role + "'")
	t.Cleanup(func() { do("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	own, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	own.User = url.UserPassword(role, role)
	if code, out, problems := inside(t, environment("RONDO_DATABASE_URL", address), "migrate"); code != 0 {
		t.Errorf("exit code %d: %s%s", code, out, problems)
	}
	if code, out, problems := inside(t, environment("RONDO_DATABASE_URL", own.String()), "migrate",
		"--check"); code != 1 || !strings.Contains(problems, "grant SELECT") ||
		strings.Contains(problems, "waiting for") {
		t.Errorf("exit code %d: %s%s", code, out, problems)
	}
	p := start(t, []string{"RONDO_DATABASE_URL=" + own.String()},
		with("orchestrator", "--nats", s.URL(), "--schema", "verify")...)
	p.errs.await(t, "grant SELECT, INSERT, UPDATE and DELETE on the tables")
	do("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + role)
	p.ready().end()
}

// TestOnPostgreSQL has tables that were made beforehand, and a service that only checks them.
func TestOnPostgreSQL(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	s := server(t)
	address := pgtest.Database(t)
	if code, out, problems := inside(t, environment("RONDO_DATABASE_URL", address), "migrate", "--check"); code != 1 ||
		!strings.Contains(problems, "has no tables") || strings.Contains(problems, "waiting for") {
		t.Errorf("exit code %d: %s%s", code, out, problems)
	}
	early := start(t, []string{"RONDO_DATABASE_URL=" + address},
		with("orchestrator", "--nats", s.URL(), "--schema", "verify")...)
	early.errs.await(t, "has no tables of Rondo's") // and waits until the tables are there
	if code, out, problems := inside(t, environment("RONDO_DATABASE_URL", address), "migrate"); code != 0 ||
		!strings.Contains(out, "the tables were made") {
		t.Errorf("exit code %d: %s%s", code, out, problems)
	}
	early.ready().end()
	start(t, []string{"RONDO_DATABASE_URL=" + address},
		with("orchestrator", "--nats", s.URL(), "--schema", "verify")...).ready()
	start(t, nil, with("worker", "--nats", s.URL())...).ready()
	b := natstest.Connected(t, func() (*natsbroker.Bus, error) {
		return natsbroker.Connect(t.Context(), natsbroker.Config{URLs: s.URL(), Setup: natsbroker.Use})
	})
	defer b.Close()
	c := busclient.New[*client.Client](b, busclient.Options{})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := hello.Run(ctx, c, "ann"); err != nil || got != "hello ann" {
		t.Errorf("%q, %v", got, err)
	}
}
