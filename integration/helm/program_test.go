package helm

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
)

// outside makes up the contents of the Secrets and ConfigMaps that a release expects to exist: each
// key that the Pods of the chart ask for.
func outside(t *testing.T, r *Rendering) map[string]map[string]string {
	t.Helper()
	made := map[string]map[string]string{}
	want := func(name, key string) {
		if made[name] == nil {
			made[name] = map[string]string{}
		}
		made[name][key] = "made-up"
	}
	for _, o := range r.Objects {
		pods, err := o.Pods()
		if err != nil {
			t.Fatal(err)
		}
		if pods == nil {
			continue
		}
		for _, v := range pods.Spec.Volumes {
			if v.Secret != nil {
				for _, item := range v.Secret.Items {
					want(v.Secret.SecretName, item.Key)
					if item.Path == "url" {
						made[v.Secret.SecretName][item.Key] = "postgres://ann@db:26257/rondo\n"
					}
				}
			}
			if v.ConfigMap != nil {
				for _, item := range v.ConfigMap.Items {
					want(v.ConfigMap.Name, item.Key)
				}
			}
		}
		for _, e := range pods.Spec.Containers[0].Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				want(e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
			}
		}
	}
	return made
}

// eachProcess makes a process of each Deployment, Job and Pod of a set.
func eachProcess(t *testing.T, s set, look func(t *testing.T, p Process)) {
	t.Helper()
	n := 0
	for _, o := range s.Objects {
		if !slices.Contains([]string{"Deployment", "Job", "Pod"}, o.Kind) {
			continue
		}
		n++
		t.Run(o.ID(), func(t *testing.T) {
			p, err := s.Process(o, t.TempDir(), outside(t, s.Rendering))
			if err != nil {
				t.Fatal(err)
			}
			look(t, p)
		})
	}
	if n < 2 {
		t.Errorf("%d processes", n)
	}
}

// read reads the settings of a process as the program does. The command line reads those of a
// worker that are about NATS.
func read(t *testing.T, p Process) (app.Config, settings.Reading) {
	t.Helper()
	command, args := app.Command(p.Args[0]), p.Args[1:]
	if command == "start" {
		command, args = app.Worker, nil
	}
	c := app.Defaults(command)
	r, problems := settings.Read(&c, settings.For(string(command)), args, p.Lookup)
	if err := errors.Join(problems...); err != nil {
		t.Fatal(err)
	}
	if len(r.Rest) > 0 || r.From["nats"] == "" {
		t.Errorf("%+v", r)
	}
	return c, r
}

var foreignActivity = regexp.MustCompile(`the program has no activity`)

// TestProgramTakesItsSettings reads arguments, variables and files as the program reads them: each
// is known to the command that gets it, and none is wrong.
func TestProgramTakesItsSettings(t *testing.T) {
	eachSet(t, func(t *testing.T, s set) {
		eachProcess(t, s, func(t *testing.T, p Process) {
			c, _ := read(t, p)
			var wrong *app.SettingsError
			if _, err := app.New(c, shop.Parts...); errors.As(err, &wrong) {
				for _, problem := range wrong.Problems {
					if !foreignActivity.MatchString(problem.Error()) { // the examples with programs of their own
						t.Error(problem)
					}
				}
			} else if err != nil {
				t.Error(err)
			}
			checkVariables(t, p, c.Command)
		})
	})
}

// checkVariables checks the names of variables: those of Rondo are settings of the very command,
// those of OpenTelemetry are documented, those of PostgreSQL are known to its clients.
func checkVariables(t *testing.T, p Process, command app.Command) {
	t.Helper()
	documents := readFile(t, "../../docs/observability.md") + readFile(t, "../../docs/logs.md")
	known := []string{"RONDO_CONFIG", "PGPASSWORD", "PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "POD_NAME",
		"POD_NAMESPACE", "NODE_NAME"}
	for _, setting := range settings.For(string(command)) {
		known = append(known, setting.Env)
		if setting.Secret || setting.Name == "database" {
			known = append(known, setting.Env+"_FILE")
		}
	}
	own := map[string]bool{}
	for _, e := range p.Env {
		name, _, _ := strings.Cut(e, "=")
		if own[name] {
			t.Errorf("%s stands twice", name)
		}
		own[name] = true
		switch {
		case slices.Contains(known, name):
		case strings.HasPrefix(name, "OTEL_"):
			if !strings.Contains(documents, "`"+name+"`") {
				t.Errorf("no document knows %s", name)
			}
		case strings.HasPrefix(name, "RONDO_") || strings.HasPrefix(name, "PG"):
			t.Errorf("%s is no setting of %s", name, command)
		}
	}
}

// TestServicesAgreeAboutNATS compares the settings of streams in the parts of one system.
func TestServicesAgreeAboutNATS(t *testing.T) {
	shared := []string{"nats", "prefix", "partitions", "replicas", "max-payload", "inbox-ack-wait", "task-ack-wait",
		"dead-letter-ttl", "inbox-max-bytes", "dead-letter-max-bytes",
		"member-lease", "session-lease", "nats-domain", "nats-api-prefix"}
	eachSet(t, func(t *testing.T, s set) {
		said := map[string]string{}
		eachProcess(t, s, func(t *testing.T, p Process) {
			c, _ := read(t, p)
			for _, setting := range settings.For(string(c.Command)) {
				if !slices.Contains(shared, setting.Name) {
					continue
				}
				value := setting.Get(&c)
				if before, ok := said[setting.Name]; ok && before != value {
					t.Errorf("--%s is %q, and elsewhere %q", setting.Name, value, before)
				}
				said[setting.Name] = value
			}
			if !c.Streams.Verify && c.Command != app.Migrate && p.Args[0] != "start" &&
				s.name != "everything" {
				t.Errorf("%s changes streams", p.Object.ID())
			}
			if !c.Database.Verify && c.Command == app.Orchestrator && s.name != "everything" {
				t.Errorf("%s changes tables", p.Object.ID())
			}
			if !c.Log.JSON && s.name != "dev" {
				t.Errorf("%s logs no JSON", p.Object.ID())
			}
		})
	})
}

// TestMigrationKnowsAllTags checks that the migration makes the task queues of the pools.
func TestMigrationKnowsAllTags(t *testing.T) {
	for values, want := range map[string]string{
		`{}`: "_",
		`{workers: {pools: {default: {tags: [gpu]}}}}`:                                 "gpu",
		`{workers: {pools: {default: {tags: ["*"]}, b: {tags: [gpu, b]}}}}`:            "_,b,gpu",
		`{workers: {pools: {default: {}, gpu: {tags: [gpu]}, x: {tags: [_, gpu]}}}}`:   "_,gpu",
		`{workers: {pools: {default: null}}}`:                                          "",
		`{migration: {streams: false}, workers: {pools: {default: {tags: [gpu]}}}}`:    "",
		`{workers: {defaults: {tags: [all]}, pools: {default: {}, b: {tags: [two]}}}}`: "all,two",
	} {
		r := render(t, values)
		job, ok := r.Find("Job", "rondo-migrate")
		if !ok {
			t.Fatal("there is no migration")
		}
		p, err := r.Process(job, t.TempDir(), outside(t, r))
		if err != nil {
			t.Fatal(err)
		}
		if tags, _ := p.Lookup("RONDO_TAGS"); tags != want {
			t.Errorf("%s: %q, want %q", values, tags, want)
		}
	}
}

// TestConsumers compares the consumer names in KEDA's queries with those of the bus.
func TestConsumers(t *testing.T) {
	for _, q := range []broker.TaskQueueName{
		{Activity: "charge"}, {Activity: "send_mail"}, {Activity: "a.b/c d"}, {Tag: "gpu", Activity: "x"},
		{Tag: "a_b", Activity: "größe"}, {Tag: "日本", Activity: "~:@+=,-"},
		{Activity: "100%"}, {Tag: "*", Activity: "new\nline"}, {Activity: strings.Repeat("a", 190)},
	} {
		quote := func(s string) string { return `"` + strings.ReplaceAll(s, "\n", `\n`) + `"` }
		r := render(t, `{workers: {pools: {default: {autoscaling: {keda: {enabled: true, monitoringEndpoint: "n:8222", taskQueues: [{activity: `+quote(q.Activity)+`, tag: `+quote(q.Tag)+`}]}}}}}}`)
		var scaled scaledObject
		if err := r.Of("ScaledObject")[0].Decode(&scaled); err != nil {
			t.Fatal(err)
		}
		if name, want := scaled.Spec.Triggers[0].Metadata["consumer"], natsbroker.ConsumerOf(q); name != want {
			t.Errorf("%+v: %q, want %q", q, name, want)
		}
	}
}

// TestEndsInTime compares how long Kubernetes waits with how long the program may take, as the
// program has read it.
func TestEndsInTime(t *testing.T) {
	check := func(t *testing.T, p Process) (period, drain time.Duration) {
		c, _ := read(t, p)
		if p.Object.Kind != "Deployment" {
			return 0, 0
		}
		drain = c.ShutdownTimeout
		if c.Command == app.Worker {
			drain += c.Worker.CancelGrace
		}
		period = time.Duration(*p.Pods.Spec.TerminationGracePeriodSeconds) * time.Second
		if period < drain+5*time.Second {
			t.Errorf("%s is killed after %v, and may take %v", p.Object.ID(), period, drain)
		}
		return period, drain
	}
	eachSet(t, func(t *testing.T, s set) {
		eachProcess(t, s, func(t *testing.T, p Process) { check(t, p) })
	})
	for _, c := range []struct {
		values               string
		orchestrator, worker time.Duration
	}{
		{`{}`, 30 * time.Second, 45 * time.Second},
		{`{settings: {shutdown-timeout: null, cancel-grace: null}}`, 30 * time.Second, 45 * time.Second},
		{`{settings: {shutdown-timeout: 1m30s}}`, 100 * time.Second, 115 * time.Second},
		{`{settings: {cancel-grace: 1500ms}}`, 30 * time.Second, 37 * time.Second},
		{`{orchestrator: {settings: {shutdown-timeout: 2h}}, workers: {defaults: {settings: {shutdown-timeout: 1d, cancel-grace: 1m}}}}`,
			7210 * time.Second, 86475 * time.Second},
		{`{workers: {pools: {default: {terminationGracePeriodSeconds: 90}}}}`, 30 * time.Second, 90 * time.Second},
		{`{workers: {defaults: {settings: {shutdown-timeout: 5m}}, pools: {default: {settings: {shutdown-timeout: 0.5s}}}}}`,
			30 * time.Second, 26 * time.Second},
	} {
		r := render(t, c.values)
		for name, want := range map[string]time.Duration{"rondo-orchestrator": c.orchestrator,
			"rondo-worker-default": c.worker} {
			o, _ := r.Find("Deployment", name)
			p, err := r.Process(o, t.TempDir(), outside(t, r))
			if err != nil {
				t.Fatal(err)
			}
			if period, drain := check(t, p); period != want {
				t.Errorf("%s: %s is killed after %v, want %v; it may take %v", c.values, name, period, want, drain)
			}
		}
	}
}

// TestCommandLineTakesIt builds the command line, and has it parse the arguments of each container
// of the stock image.
func TestCommandLineTakesIt(t *testing.T) {
	program := buildProgram(t)
	ran := map[string]int{}
	eachSet(t, func(t *testing.T, s set) {
		eachProcess(t, s, func(t *testing.T, p Process) {
			if !strings.HasPrefix(p.Container.Image, "ghcr.io/rondo-run/rondo:") {
				return
			}
			ran[p.Args[0]]++
			cmd := exec.CommandContext(t.Context(), program, append(slices.Clone(p.Args), "--print-config")...)
			cmd.Env = append(p.Env, "HOME="+t.TempDir(), "PATH="+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{`nats +(nats|tls)://nats`, `prefix +(rondo|tenant-a) +.+rondo\.yaml`} {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("missing %s in\n%s", want, out)
				}
			}
		})
	})
	for _, command := range []string{"orchestrator", "worker", "migrate", "start"} {
		if ran[command] < 5 {
			t.Errorf("%s was run %d times", command, ran[command])
		}
	}
}

// TestLargeNumbersStayNumbers checks that a number is not written as 1e+06, which the program does
// not read.
func TestLargeNumbersStayNumbers(t *testing.T) {
	r := render(t, `{settings: {max-messages: 3000000}, orchestrator: {settings: {max-instances: 10000000}}, workers: {pools: {default: {slots: 1000000, settings: {rate-per-activity: {a: 0.25, b: 2000000}}}}}}`)
	o, _ := r.Find("Deployment", "rondo-orchestrator")
	p, err := r.Process(o, t.TempDir(), outside(t, r))
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := read(t, p); c.Orchestrator.MaxInstances != 10_000_000 || c.Orchestrator.MaxMessages != 3_000_000 {
		t.Errorf("%+v", c.Orchestrator)
	}
	o, _ = r.Find("Deployment", "rondo-worker-default")
	if p, err = r.Process(o, t.TempDir(), outside(t, r)); err != nil {
		t.Fatal(err)
	}
	if c, _ := read(t, p); c.Worker.Slots != 1_000_000 || c.Worker.RatePerActivity["a"] != 0.25 ||
		c.Worker.RatePerActivity["b"] != 2_000_000 {
		t.Errorf("%+v", c.Worker)
	}
}

// render renders values over the required ones.
func render(t *testing.T, values string) *Rendering {
	t.Helper()
	first, err := ParseValues(base)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ParseValues(values)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Render(Dir, Release{}, first, second)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// env finds a variable of a container.
func env(c corev1.Container, name string) (corev1.EnvVar, bool) {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if i < 0 {
		return corev1.EnvVar{}, false
	}
	return c.Env[i], true
}
