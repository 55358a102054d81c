package helm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/pgtest"
)

// TestReleaseWorks runs the rendered containers as processes of this machine, with nothing but
// their own arguments, variables and files: the migration, then the Deployments, which may change
// neither tables nor streams, then `helm test`. Only the port at which a service listens is another
// one, so that tests do not get into each other's way; TestWhatIsRenderedRuns keeps it.
func TestReleaseWorks(t *testing.T) {
	pgtest.Need(t)
	program := buildProgram(t)
	values, err := ParseValues(
		fmt.Sprintf(`{nats: {urls: [%q]}, streams: {replicas: 1}, database: {url: %q}, workers: {pools: {default: {}, gpu: {tags: [gpu], slots: 2}}}}`,
			natstest.Start(t).URL(), pgtest.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Render(Dir, Release{}, values)
	if err != nil {
		t.Fatal(err)
	}
	command := func(kind, name string) (*exec.Cmd, *bytes.Buffer) {
		o, ok := r.Find(kind, name)
		if !ok {
			t.Fatalf("there is no %s %s", kind, name)
		}
		p, err := r.Process(o, t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cmd, out := exec.CommandContext(t.Context(), program, p.Args...), &bytes.Buffer{}
		cmd.Env = append(p.Env, "HOME="+t.TempDir())
		for i, e := range cmd.Env {
			if listen, ok := strings.CutPrefix(e, "RONDO_LISTEN="); ok {
				cmd.Env[i] = "RONDO_LISTEN=" + listen[:strings.LastIndex(listen, ":")] + ":0"
			}
		}
		cmd.Stdout, cmd.Stderr = out, out
		return cmd, out
	}
	migration, said := command("Job", "rondo-migrate")
	if err := migration.Run(); err != nil ||
		!strings.Contains(said.String(), "the streams of rondo are as they are needed") {
		t.Fatalf("the migration: %v\n%s", err, said)
	}
	for _, o := range r.Of("Deployment") {
		service, said := command(o.Kind, o.Metadata.Name)
		if err := service.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			err := service.Process.Signal(syscall.SIGTERM)
			if ended := service.Wait(); err != nil || ended != nil ||
				strings.Contains(said.String(), `"level":"WARN"`) || strings.Contains(said.String(), "made a stream") {
				t.Errorf("%s: %v, %v\n%s", o.ID(), err, ended, said)
			}
		}()
	}
	orders := map[string]bool{} // each test has one of its own
	for range 2 {
		test, said := command("Pod", "rondo-test")
		err := test.Run()
		payment := regexp.MustCompile(
			`"payment":"payment-helm-test-rondo-rondo-[0-9a-f-]{36}/`).FindString(said.String())
		if err != nil || payment == "" || orders[payment] ||
			!strings.Contains(said.String(), `"tracking":"parcel-chair-Bremen"`) {
			t.Errorf("helm test: %v\n%s", err, said)
		}
		orders[payment] = true
	}
}

// buildProgram builds the command line, unless RONDO_TEST_BINARY names it: a whole run builds it
// once.
func buildProgram(t *testing.T) string {
	t.Helper()
	if program := os.Getenv("RONDO_TEST_BINARY"); program != "" {
		return program
	}
	program := filepath.Join(t.TempDir(), "rondo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", program,
		"./cmd/rondo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
