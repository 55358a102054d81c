package helm

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	"github.com/rondo-run/rondo/internal/pgtest"
)

// This file starts the rendered chart: the containers of a release, from the image that
// deploy/images builds, with the very arguments, variables and files of the manifests, against a
// NATS server with the users of deploy/nats, and a PostgreSQL server with the roles of deploy/sql.

// cluster is a namespace with the surroundings that a release needs.
type cluster struct {
	*node
	nats     *embedded.Server
	options  embedded.Options
	postgres *pgtest.Cluster
	database string // of the administrator
}

// values are those of the release. Credentials are in Secrets, as in production, with a user of
// NATS and a role of the database for each part.
const values = `
nats:
  urls: [%s]
database:
  existingSecret: orders-database
streams:
  replicas: 1
orchestrator:
  replicas: 1
  nats: {auth: {method: userPassword, existingSecret: nats-orchestrator, inboxPrefix: _INBOX_orchestrator}}
workers:
  defaults:
    replicas: 1
    nats: {auth: {method: userPassword, existingSecret: nats-worker, inboxPrefix: _INBOX_worker}}
migration:
  nats: {auth: {method: userPassword, existingSecret: nats-setup}}
  database: {existingSecret: orders-database-owner}
tests:
  nats: {auth: {method: userPassword, existingSecret: nats-client, inboxPrefix: _INBOX_client}}
`

// The images: the stock one, and one of a program of a user's own, each built once.
const (
	stock = "ghcr.io/rondo-run/rondo"
	own   = "registry.example.com/shop/held"
)

var build = sync.OnceValues(func() (layouts map[string]string, err error) {
	if built, err = os.MkdirTemp("", "rondo-images-"); err != nil {
		return nil, err
	}
	layouts = make(map[string]string)
	for name, from := range map[string][2]string{stock: {"../..", "./cmd/rondo"},
		own: {"../../integration/helm", "./testdata/held"}} {
		layouts[name] = filepath.Join(built, filepath.Base(name))
		cmd := exec.Command("go", "run", ".", "-C", from[0], "--platform", "linux/"+runtime.GOARCH, "--output",
			layouts[name], from[1])
		cmd.Dir = "../../deploy/images"
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the image of %s: %w\n%s", from[1], err, out)
		}
	}
	return layouts, nil
})

var built string // where they are

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // if this fails, the system's cleanup of temporary files removes it
	}
	os.Exit(code)
}

// install prepares everything but the release itself.
func install(t *testing.T, more string) *cluster {
	t.Helper()
	needNetwork(t)
	pgtest.Need(t)
	layouts, err := build()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{node: &node{t: t, images: make(map[string]*image), secrets: make(map[string]map[string]string),
		network: newNetwork(t)}}
	for name, layout := range layouts {
		c.images[name] = unpack(t, layout, runtime.GOARCH)
	}
	conf, err := filepath.Abs("../../deploy/nats/accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	c.options = embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Config: conf}
	c.startNATS()
	t.Cleanup(func() { _ = c.nats.Close() })
	address, err := url.Parse(c.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	c.options.Listen = address.Host // the same after a restart
	for _, user := range []string{"setup", "orchestrator", "worker", "client"} {
		c.secrets["nats-"+user] = map[string]string{"user": "shop-" + user, "password": "shop-" + user}
	}
	c.postgres = pgtest.Start(t, pgtest.Fsync(false))
	c.database = c.postgres.Database(t)
	c.execute("../../deploy/sql/roles.sql")
	for secret, role := range map[string]string{"orders-database": "rondo_run",
		"orders-database-owner": "rondo_owner"} {
		u, err := url.Parse(c.database)
		if err != nil {
			t.Fatal(err)
		}
		c.do("ALTER ROLE " + role + " WITH PASSWORD '" + role + "'")
		u.User, u.Host = url.UserPassword(role, role), c.network.bring(u.Host)
		c.secrets[secret] = map[string]string{"url": u.String()}
	}
	usual, err := ParseValues(fmt.Sprintf(values, "nats://"+c.network.bring(address.Host)))
	c.must(err)
	special, err := ParseValues(more)
	c.must(err)
	if c.release, err = Render(Dir, Release{}, usual, special); err != nil {
		t.Fatal(err)
	}
	for _, o := range c.release.Of("Secret") {
		t.Errorf("the release has %s, though all secrets are elsewhere", o.ID())
	}
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) startNATS() {
	c.t.Helper()
	var err error
	c.nats, err = embedded.Start(c.options)
	c.must(err)
}

// do executes SQL as the administrator.
func (c *cluster) do(sql string) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.database)
	c.must(err)
	defer conn.Close(context.WithoutCancel(c.t.Context()))
	_, err = conn.Exec(c.t.Context(), sql)
	c.must(err)
}

func (c *cluster) execute(path string) {
	c.t.Helper()
	sql, err := os.ReadFile(path)
	c.must(err)
	c.do(string(sql))
}

// hooks runs Helm's hooks of an event, in their order, and waits for them.
func (c *cluster) hooks(event string) (ran int) {
	c.t.Helper()
	objects := slices.Clone(c.release.Objects)
	slices.SortStableFunc(objects, func(a, b Object) int {
		_, x := a.Hooks()
		_, y := b.Hooks()
		return x - y
	})
	for _, o := range objects {
		if events, _ := o.Hooks(); !slices.Contains(events, event) {
			continue
		}
		if o.Kind != "Job" && o.Kind != "Pod" {
			continue
		}
		x := c.start(o)
		if code := x.wait(patience); code != 0 {
			c.t.Fatalf("%s has ended with %d:\n%s", o.ID(), code, x.said())
		}
		ran++
	}
	return ran
}

// deploy starts a Pod of the Deployment of a component.
func (c *cluster) deploy(component string) *container {
	c.t.Helper()
	for _, o := range c.release.Of("Deployment") {
		if o.Metadata.Labels["app.kubernetes.io/component"] == component {
			return c.start(o)
		}
	}
	c.t.Fatalf("there is no Deployment of component %q", component)
	return nil
}

// rondo runs a command of the stock image where `helm test` runs one.
func (c *cluster) rondo(args ...string) (code int, said string) {
	c.t.Helper()
	x := c.start(c.release.Of("Pod")[0], args...)
	return x.wait(patience), x.said()
}

// queues makes the Secrets that the orchestrators need to serve job queues, and returns a function
// that pushes to one of them.
func (c *cluster) queues() func(at *container, token, path string) (status int, said string) {
	c.t.Helper()
	cert, key := certificate(c.t, "queues")
	c.secrets["jobs-tls"] = map[string]string{"tls.crt": cert, "tls.key": key}
	c.secrets["jobs-access"] = map[string]string{"access.yaml": fmt.Sprintf(
		"callers: [{name: shop, token_sha256: [%x], allow: [{queues: [orders-*], permissions: [push]}]}]",
		sha256.Sum256([]byte("shop-token")))}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(cert))
	client := c.network.client()
	// the name in the certificate
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"}
	return func(at *container, token, path string) (int, string) {
		c.t.Helper()
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost,
			fmt.Sprintf("https://%s:8000/queue/%s", at.addresses[0], path), strings.NewReader(`{"item": {"n": 1}}`))
		c.must(err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		c.must(err)
		defer answer.Body.Close()
		said, err := io.ReadAll(answer.Body)
		c.must(err)
		return answer.StatusCode, string(said)
	}
}

// TestWhatIsRenderedRuns installs a release, tests it, takes away its dependencies, restores them,
// and ends the release.
func TestWhatIsRenderedRuns(t *testing.T) {
	c := install(t, `jobs: {enabled: true, access: {existingSecret: jobs-access}, tls: {existingSecret: jobs-tls}}`)
	askQueues := c.queues()

	// Pods may be there before the migration has ended. They are alive, and not ready.
	early := c.deploy("orchestrator")
	early.becomes("it has begun", patience, early.live)
	early.turnsRed("")
	if n := c.hooks("pre-install"); n != 1 {
		t.Fatalf("%d hooks ran before the installation", n)
	}
	c.execute("../../deploy/sql/grants.sql")
	worker := c.deploy("worker")
	worker.begins()
	orchestrator := early
	orchestrator.becomes("it is ready", patience, orchestrator.ready)

	if n := c.hooks("test"); n != 1 {
		t.Fatalf("%d tests ran", n)
	}
	for path, want := range map[string]int{"orders-1/push": http.StatusOK, "mail/push": http.StatusForbidden} {
		if got, said := askQueues(orchestrator, "shop-token", path); got != want {
			t.Errorf("%s: %d, want %d: %s", path, got, want, said)
		}
	}
	if got, said := askQueues(orchestrator, "", "orders-1/push"); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d: %s", got, said)
	}

	t.Log("without the database")
	c.postgres.Kill(t)
	orchestrator.turnsRed("database")
	if err := worker.ready(); err != nil {
		t.Errorf("a worker needs no database: %v", err)
	}
	c.postgres.Restart(t)
	orchestrator.becomes("it is ready again", patience, orchestrator.ready)
	c.hooks("test")

	t.Log("without NATS")
	c.must(c.nats.Close())
	orchestrator.turnsRed("NATS")
	worker.turnsRed("NATS")
	c.startNATS()
	orchestrator.becomes("it is ready again", patience, orchestrator.ready)
	worker.becomes("it is ready again", patience, worker.ready)
	c.hooks("test")

	t.Log("an upgrade")
	if n := c.hooks("pre-upgrade"); n != 1 {
		t.Errorf("%d hooks ran before the upgrade", n)
	}
	if err := errors.Join(orchestrator.ready(), worker.ready()); err != nil {
		t.Errorf("who runs does not notice a migration: %v", err)
	}
	for _, x := range []*container{orchestrator, worker} {
		x.terminate()
	}
}

// TestTheImageSaysWhatItIs runs the commands of the image that need nothing, and that miss
// everything.
func TestTheImageSaysWhatItIs(t *testing.T) {
	c := install(t, "")
	if code, out := c.rondo("version"); code != 0 || !strings.Contains(out, "engine") {
		t.Errorf("version: %d: %s", code, out)
	}
	c.must(c.nats.Close())
	code, out := c.rondo("doctor")
	if code == 0 || !strings.Contains(out, "NATS") || strings.Contains(out, "goroutine ") {
		t.Errorf("doctor: %d: %s", code, out)
	}
}

// TestADrainIsSeen has a program of a user's own in all places, and ends its worker while it works:
// that is not ready any more, it is alive, and it lets the activity finish.
func TestADrainIsSeen(t *testing.T) {
	c := install(t, `
image: {registry: registry.example.com, repository: shop/held, tag: "1"}
tests: {orchestration: held, input: '"none"'}
`)
	called, answer := make(chan struct{}), make(chan string)
	world := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(called)
		select {
		case a := <-answer:
			_, _ = io.WriteString(w, a) // a client without an answer fails
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(world.Close)
	there := "http://" + c.network.bring(strings.TrimPrefix(world.URL, "http://"))
	c.hooks("pre-install")
	c.execute("../../deploy/sql/grants.sql")
	orchestrator, worker := c.deploy("orchestrator"), c.deploy("worker")
	orchestrator.begins()
	worker.begins()
	if code, said := c.rondo("start", "held", fmt.Sprintf("%q", there), "--id", "h"); code != 0 {
		t.Fatalf("start: %d: %s", code, said)
	}
	select {
	case <-called:
	case <-time.After(patience):
		t.Fatalf("the activity is not called:\n%s", worker.said())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		worker.terminate()
	}()
	worker.turnsRed("it is ending")
	answer <- "done"
	<-ended
	if code, said := c.rondo("wait", "h"); code != 0 || !strings.Contains(said, `"done"`) {
		t.Errorf("wait: %d: %s", code, said)
	}
	orchestrator.terminate()
}
