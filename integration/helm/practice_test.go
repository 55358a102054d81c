package helm

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestLint lints the chart with each set of values, and accepts no warning.
func TestLint(t *testing.T) {
	eachSet(t, func(t *testing.T, s set) {
		values, err := ReadValues(s.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.RunAll(Dir, values, "rondo").Messages {
			if !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Errorf("%s: %v", m.Path, m.Err)
			}
		}
	})
}

// accepted are findings of kube-score that are meant to be, with the reason; in one set of values,
// where it has its name before.
var accepted = map[string]string{
	"container-image-pull-policy": "tags of releases and digests stay what they are; with Always, nothing " +
		"starts while the registry is away",
	"deployment-has-host-podantiaffinity": "topology spread constraints do it, and bear with a small cluster",
	"dev deployment-replicas":             "it is for trying things out",
	"pools deployment-replicas":           "one customer has one worker",
	"keda deployment-replicas":            "KEDA says how many there are",
	"everything deployment-replicas":      "KEDA says how many there are",
	"everything deployment-strategy":      "it says so",
}

// TestPractice has kube-score look at the Pods and all that is around them. Nothing may be critical
// or a warning, except findings that were accepted for a reason.
func TestPractice(t *testing.T) {
	type finding struct {
		Object string `json:"object_name"`
		Checks []struct {
			Check struct {
				ID, Name string
			}
			Grade    int
			Skipped  bool
			Comments []struct{ Path, Summary, Description string }
		}
	}
	const warning = 5 // worse grades are lower
	used, looked := map[string]bool{}, 0
	eachSet(t, func(t *testing.T, s set) {
		var manifests strings.Builder
		for _, o := range s.Objects {
			if strings.Contains(o.APIVersion, "keda.sh") || strings.Contains(o.APIVersion, "monitoring.coreos.com") {
				continue // it does not know these
			}
			manifests.WriteString("---\n" + o.Raw)
		}
		cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../internal/tools/go.mod", "kube-score",
			"score", "--kubernetes-version", "v1.30", "--output-format", "json", "-")
		cmd.Stdin = strings.NewReader(manifests.String())
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output() // it fails when it finds something
		var found []finding
		if e := json.Unmarshal(out, &found); e != nil {
			t.Fatalf("%v, %v: %s", err, e, complaints.String())
		}
		for _, f := range found {
			for _, c := range f.Checks {
				looked++
				if c.Skipped || c.Grade > warning {
					continue
				}
				if c.Check.ID == "pod-networkpolicy" && len(s.Of("NetworkPolicy")) == 0 {
					continue // the values say so
				}
				if id := s.name + " " + c.Check.ID; accepted[id] != "" {
					used[id] = true
					continue
				}
				if accepted[c.Check.ID] != "" {
					used[c.Check.ID] = true
					continue
				}
				t.Errorf("%s: %s (%s): %+v", f.Object, c.Check.Name, c.Check.ID, c.Comments)
			}
		}
	})
	if looked < 500 {
		t.Errorf("%d things were looked at", looked)
	}
	for id := range accepted {
		if !used[id] {
			t.Errorf("%s is accepted, and nothing does it any more", id)
		}
	}
}

// TestRolling checks that an upgrade replaces the Pods that read changed settings, and no others.
func TestRolling(t *testing.T) {
	templates := func(r *Rendering) map[string]string {
		of := map[string]string{}
		for _, o := range r.Of("Deployment") {
			var d appsv1.Deployment
			if err := o.Decode(&d); err != nil {
				t.Fatal(err)
			}
			of[o.Metadata.Name] = string(must(json.Marshal(d.Spec.Template)))
		}
		return of
	}
	const all, none = "rondo-orchestrator rondo-worker-a rondo-worker-b", ""
	pools := `workers: {pools: {default: null, a: {}, b: {}}}`
	before := templates(render(t, `{`+pools+`}`))
	for _, c := range []struct{ name, values, want string }{
		{"nothing", pools, none},
		{"a shared setting", pools + `, settings: {inbox-ack-wait: 7s}`, all},
		{"the servers", pools + `, nats: {urls: ["nats://other:4222"]}`, all},
		{"the prefix", pools + `, streams: {prefix: other}`, all},
		{"a setting of the orchestrators", pools + `, orchestrator: {settings: {step-concurrency: 3}}`, "rondo-orchestrator"},
		{"a setting of a pool", `workers: {pools: {default: null, a: {settings: {session-idle: 1m}}, b: {}}}`,
			"rondo-worker-a"},
		{"the tags of a pool", `workers: {pools: {default: null, a: {}, b: {tags: [x]}}}`, "rondo-worker-b"},
		{"an inline password", pools + `, nats: {auth: {user: a, password: b}}`, all},
		{"how many there are", pools + `, orchestrator: {replicas: 7}`, none},
		{"the dashboards", pools + `, metrics: {dashboards: {enabled: true}, serviceMonitor: {enabled: true}}`, none},
		{"the migration", pools + `, migration: {settings: {connect-timeout: 5m}}`, none},
		{"the image", pools + `, image: {tag: "2"}`, all},
	} {
		var changed []string
		after := templates(render(t, `{`+c.values+`}`))
		for _, name := range strings.Fields(all) {
			if after[name] == "" {
				t.Fatalf("%s: there is no %s", c.name, name)
			}
			if after[name] != before[name] {
				changed = append(changed, name)
			}
		}
		if got := strings.Join(changed, " "); got != c.want {
			t.Errorf("%s: replaced are %q, want %q", c.name, got, c.want)
		}
	}
	first, second := render(t, `{nats: {auth: {user: a, password: b}}}`),
		render(t, `{nats: {auth: {user: a, password: c}}}`)
	if a, b := templates(first), templates(second); a["rondo-orchestrator"] == b["rondo-orchestrator"] {
		t.Error("another password replaces nothing")
	}
}

// TestWhatIsNotThereIsNotNeeded checks that a migration without streams gets no rights in NATS, and
// workers none in the database.
func TestWhatIsNotThereIsNotNeeded(t *testing.T) {
	r := render(t, `{migration: {streams: false}, nats: {auth: {method: credentials, existingSecret: creds}, tls: {ca: {existingSecret: authority}}}}`)
	job, _ := r.Find("Job", "rondo-migrate")
	if strings.Contains(job.Raw, "creds") || strings.Contains(job.Raw, "authority") ||
		strings.Contains(job.Raw, "--streams") {
		t.Errorf("it gets what it does not need:\n%s", job.Raw)
	}
	worker, _ := r.Find("Deployment", "rondo-worker-default")
	if strings.Contains(worker.Raw, "DATABASE") || strings.Contains(worker.Raw, "secretName: db") ||
		!strings.Contains(worker.Raw, "secretName: creds") {
		t.Errorf("it gets the database, or does not get NATS:\n%s", worker.Raw)
	}
	r = render(t, `{orchestrator: {enabled: false}, workers: {pools: {default: null}}, migration: {enabled: false}, tests: {enabled: false}}`)
	for _, o := range r.Objects {
		t.Errorf("%s is there", o.ID())
	}
}

// TestNotesWarnOfSecretsOnly has an address of a database in the values: with a password it is a
// secret, and without one it is not.
func TestNotesWarnOfSecretsOnly(t *testing.T) {
	for url, want := range map[string]bool{
		"postgres://rondo@db:5432/rondo": false, "postgres://db/rondo?user=rondo&sslmode=disable": false,
		"postgres://rondo:@db/rondo":          false,
		"postgres://rondo:hush@db:5432/rondo": true, "postgresql://db/rondo?user=rondo&password=hush": true,
		"postgres://db/rondo?sslpassword=hush": true,
	} {
		r := render(t, fmt.Sprintf(`{database: {existingSecret: "", url: %q}}`, url))
		if got := strings.Contains(r.Notes, "gets secrets from the values"); got != want {
			t.Errorf("%s: warned is %v", url, got)
		}
	}
	if r := render(t, `{nats: {auth: {user: ann, password: hush}}}`); !strings.Contains(r.Notes,
		"rondo-worker-default gets secrets from the values") {
		t.Error("nobody warns of a password of NATS")
	}
}

// TestImages checks which image each part gets.
func TestImages(t *testing.T) {
	const digest = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	for _, c := range []struct{ values, orchestrator, worker, migrate, test string }{
		{`{}`, "ghcr.io/rondo-run/rondo:0.1.0", "ghcr.io/rondo-run/rondo:0.1.0", "ghcr.io/rondo-run/rondo:0.1.0",
			"ghcr.io/rondo-run/rondo:0.1.0"},
		{`{image: {registry: ghcr.io, repository: me/rondo, tag: v1}}`, "ghcr.io/me/rondo:v1", "ghcr.io/me/rondo:v1",
			"ghcr.io/me/rondo:v1", "ghcr.io/me/rondo:v1"},
		{`{image: {registry: "", repository: rondo, digest: "` + digest + `"}}`, "rondo@" + digest, "rondo@" + digest,
			"rondo@" + digest, "rondo@" + digest},
		{`{image: {repository: shop/orders, tag: "2"}}`, "ghcr.io/shop/orders:2", "ghcr.io/shop/orders:2",
			"ghcr.io/shop/orders:2", ""},
		{`{image: {repository: shop/orders, tag: "2", digest: "` + digest + `"}, tests: {orchestration: probe}}`,
			"ghcr.io/shop/orders:2@" + digest, "ghcr.io/shop/orders:2@" + digest, "ghcr.io/shop/orders:2@" + digest,
			"ghcr.io/rondo-run/rondo:0.1.0"},
		{`{image: {repository: shop/orders, digest: "` + digest +
			`"}, migration: {image: {tag: "3"}}, workers: {defaults: {image: {repository: shop/gpu, tag: "4"}}}}`,
			"ghcr.io/shop/orders@" + digest, "ghcr.io/shop/gpu:4", "ghcr.io/shop/orders:3", ""},
		{`{orchestrator: {image: {registry: mirror.example.com}}}`, "mirror.example.com/rondo-run/rondo:0.1.0",
			"ghcr.io/rondo-run/rondo:0.1.0", "ghcr.io/rondo-run/rondo:0.1.0", "ghcr.io/rondo-run/rondo:0.1.0"},
	} {
		r := render(t, c.values)
		for name, want := range map[string]string{"Deployment/rondo-orchestrator": c.orchestrator,
			"Deployment/rondo-worker-default": c.worker, "Job/rondo-migrate": c.migrate, "Pod/rondo-test": c.test} {
			kind, of, _ := strings.Cut(name, "/")
			got := ""
			if o, ok := r.Find(kind, of); ok {
				pods, err := o.Pods()
				if err != nil {
					t.Fatal(err)
				}
				got = pods.Spec.Containers[0].Image
			}
			if got != want {
				t.Errorf("%s: %s is of %q, want %q", c.values, name, got, want)
			}
		}
	}
}

// TestNumbersOfUsersCanBeTakenOut checks the documented values for clusters that choose users
// themselves.
func TestNumbersOfUsersCanBeTakenOut(t *testing.T) {
	r := render(t, `{defaults: {podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}, securityContext: {runAsUser: null, runAsGroup: null}}}`)
	for _, o := range r.Objects {
		if strings.Contains(o.Raw, "65532") || strings.Contains(o.Raw, "null") {
			t.Errorf("%s has a number left:\n%s", o.ID(), o.Raw)
		}
	}
	if pods, err := r.Of("Deployment")[0].Pods(); err != nil || !*pods.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("%+v, %v", pods, err)
	}
}

// TestPortsOfDNS checks that the network policies allow the ports at which the Pods of DNS listen.
func TestPortsOfDNS(t *testing.T) {
	for values, want := range map[string]string{
		`{networkPolicy: {enabled: true}}`:                       "53/UDP 53/TCP",
		`{networkPolicy: {enabled: true, dnsPorts: [53, 5353]}}`: "53/UDP 53/TCP 5353/UDP 5353/TCP",
	} {
		all := render(t, values).Of("NetworkPolicy")
		if len(all) == 0 {
			t.Fatalf("%s: no policies", values)
		}
		for _, o := range all {
			var n networkingv1.NetworkPolicy
			if err := o.Decode(&n); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range n.Spec.Egress[0].Ports {
				got = append(got, fmt.Sprintf("%s/%s", p.Port, *p.Protocol))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %s allows %s, want %s", values, o.ID(), got, want)
			}
		}
	}
}

// TestPackage packs the chart as a release does, and renders the package: it has all that it needs.
func TestPackage(t *testing.T) {
	c, err := loader.LoadDir(Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	packed, err := chartutil.Save(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names[h.Name] = true
		if strings.Contains(h.Name, "examples") {
			t.Errorf("%s was packed", h.Name)
		}
	}
	for _, want := range []string{"rondo/README.md", "rondo/values.schema.json", "rondo/files/prometheus/rules.yaml",
		"rondo/files/grafana/overview.json"} {
		if !names[want] {
			t.Errorf("%s was not packed", want)
		}
	}
	if info, err := f.Stat(); err != nil || info.Size() > 200<<10 {
		t.Errorf("it has %d bytes (%v); a Secret of Helm takes 1 MiB with all values", info.Size(), err)
	}
	again, err := loader.LoadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	values, err := ReadValues(filepath.Join(Dir, "examples", "production.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := renderChart(again, Release{}, values)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Of("PrometheusRule")) + len(r.Of("ConfigMap")); n < 6 {
		t.Errorf("%d rules and dashboards", n)
	}
}
