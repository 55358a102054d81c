package helm

import (
	"strings"
	"testing"
)

// base are values with which the chart can be rendered.
const base = `{database: {existingSecret: db}}`

// TestWrongValues renders wrong values, one at a time. Each is refused with an error that has its
// place and the valid values.
func TestWrongValues(t *testing.T) {
	for _, c := range []struct {
		name, values string
		want         []string
	}{
		{"a value that there is not", `{orchestratorr: {}}`, []string{"orchestratorr", "not allowed"}},
		{"a pool with a slip of the pen", `{workers: {pools: {gpu: {slot: 2}}}}`,
			[]string{"/workers/pools/gpu", "slot", "not allowed"}},
		{"a pool whose name is none", `{workers: {pools: {GPU: {}}}}`, []string{"GPU", "does not match pattern"}},
		{"a setting that there is not", `{settings: {inbox-wait-time: 5s}}`,
			[]string{"/settings", "inbox-wait-time", "not allowed"}},
		{"a setting that has a place of its own", `{settings: {replicas: 3}}`,
			[]string{"/settings", "replicas", "not allowed"}},
		{"a setting of NATS for one service only", `{orchestrator: {settings: {inbox-ack-wait: 5s}}}`,
			[]string{"/orchestrator/settings", "inbox-ack-wait", "not allowed"}},
		{"a setting of orchestrators for workers", `{workers: {defaults: {settings: {round-concurrency: 2}}}}`,
			[]string{"/workers/defaults/settings", "round-concurrency", "not allowed"}},
		{"a duration without a unit", `{settings: {shutdown-timeout: 20}}`,
			[]string{"/settings/shutdown-timeout", "got number, want string"}},
		{"a duration that is none", `{settings: {task-ack-wait: soon}}`,
			[]string{"/settings/task-ack-wait", "soon", "does not match pattern"}},
		{"a choice that there is not", `{settings: {setup: perhaps}}`,
			[]string{"/settings/setup", "must be one of", "make", "verify"}},
		{"two replicas of streams", `{streams: {replicas: 2}}`,
			[]string{"/streams/replicas", "must be one of", "1, 3, 5"}},
		{"a prefix that is none", `{streams: {prefix: "a.b"}}`,
			[]string{"/streams/prefix", "a.b", "does not match pattern"}},
		{"a digest that is none", `{image: {digest: abc}}`, []string{"/image/digest", "abc", "does not match pattern"}},
		{"no server", `{nats: {urls: []}}`, []string{"/nats/urls", "minItems"}},
		{"a server without a scheme", `{nats: {urls: ["nats:4222"]}}`,
			[]string{"/nats/urls/0", "nats:4222", "does not match pattern"}},
		{"a probe that there is not", `{defaults: {probes: {live: {}}}}`,
			[]string{"/defaults/probes", "live", "not allowed"}},
		{"a queue without an activity",
			`{workers: {pools: {default: {autoscaling: {keda: {enabled: true, monitoringEndpoint: "nats:8222", taskQueues: [{tag: gpu}]}}}}}}`, []string{"taskQueues/0", "missing property", "activity"}},

		{"no database", `{database: {existingSecret: ""}}`,
			[]string{"database: which database?", "existingSecret", "postgres://"}},
		{"no address in the Secret's key's place", `{database: {url: "postgres://db/rondo"}}`,
			[]string{"database: existingSecret and url; say one of the two"}},
		{"a SQLite file", `{database: {existingSecret: "", url: /data/rondo.db}}`,
			[]string{"database.url", "SQLite", "postgres://"}},
		{"a SQLite file for the migration", `{migration: {database: {url: /data/rondo.db}}}`,
			[]string{"migration.database.url", "SQLite"}},
		{"two authorities", `{database: {tls: {ca: {existingSecret: a, existingConfigMap: b}}}}`,
			[]string{"database.tls.ca", "say one of the two"}},
		{"a password in an address", `{nats: {urls: ["nats://ann:hush@nats:4222"]}}`,
			[]string{"nats.urls", "nats.auth"}},
		{"a Secret of which nobody says what is in it", `{nats: {auth: {existingSecret: x}}}`,
			[]string{"nats.auth", "Secret x", "method: credentials, nkey, userPassword or token"}},
		{"a way to log in without a Secret", `{nats: {auth: {method: credentials}}}`,
			[]string{"nats.auth: method credentials needs existingSecret"}},
		{"a way to log in without a Secret, of one service",
			`{workers: {pools: {default: {nats: {auth: {method: nkey}}}}}}`,
			[]string{"workers.pools.default.nats.auth: method nkey needs existingSecret"}},
		{"a user without a password", `{nats: {auth: {user: ann}}}`,
			[]string{"nats.auth: method userPassword needs existingSecret", "user and password"}},
		{"a Secret and a token", `{nats: {auth: {method: token, existingSecret: x, token: hush}}}`,
			[]string{"nats.auth: existingSecret and", "say one of the two"}},
		{"queues for nobody", `{jobs: {enabled: true}}`,
			[]string{"jobs.access: who may do what?", "existingSecret", "access.yaml"}},
		{"queues that nobody serves",
			`{jobs: {enabled: true, access: {existingSecret: a}}, orchestrator: {enabled: false}}`,
			[]string{"jobs.enabled: orchestrators serve them"}},
		{"certificates of callers without TLS",
			`{jobs: {enabled: true, access: {existingSecret: a}, tls: {clientCA: {existingSecret: b}}}}`,
			[]string{"jobs.tls.clientCA", "jobs.tls.existingSecret"}},
		{"two authorities of callers",
			`{jobs: {enabled: true, access: {existingSecret: a}, tls: {existingSecret: b, clientCA: {existingSecret: a, existingConfigMap: b}}}}`, []string{"jobs.tls.clientCA", "say one of the two"}},
		{"queues at the port of metrics", `{jobs: {enabled: true, port: 7071, access: {existingSecret: a}}}`,
			[]string{"jobs.port: 7071 is that of metrics"}},
		{"queues at a port that only root may have", `{jobs: {port: 80}}`, []string{"/jobs/port", "minimum"}},
		{"where queues are served, as a setting", `{orchestrator: {settings: {jobs-listen: ":1"}}}`,
			[]string{"/orchestrator/settings", "jobs-listen", "not allowed"}},
		{"a rate that is none", `{orchestrator: {settings: {jobs-rate: fast}}}`,
			[]string{"/orchestrator/settings/jobs-rate", "want number"}},
		{"a setting as a variable", `{defaults: {extraEnv: [{name: RONDO_SLOTS, value: "3"}]}}`,
			[]string{"extraEnv: RONDO_SLOTS is a setting", "under settings"}},
		{"an end that is too short for a worker", `{workers: {defaults: {terminationGracePeriodSeconds: 30}}}`,
			[]string{"workers.pools.default.terminationGracePeriodSeconds: 30 is too short",
				"30 seconds (shutdown-timeout and cancel-grace)", "at least 35"}},
		{"an end that is too short for an orchestrator",
			`{settings: {shutdown-timeout: 1m30s}, orchestrator: {terminationGracePeriodSeconds: 60}}`,
			[]string{"orchestrator.terminationGracePeriodSeconds: 60 is too short", "90 seconds (shutdown-timeout)",
				"at least 95"}},
		{"an end that a setting of the pool makes too short",
			`{workers: {pools: {default: {terminationGracePeriodSeconds: 60, settings: {shutdown-timeout: 5m}}}}}`,
			[]string{"workers.pools.default.terminationGracePeriodSeconds: 60", "310 seconds"}},
		{"all tags and one more", `{workers: {pools: {default: {tags: ["*", gpu]}}}}`,
			[]string{"workers.pools.default.tags", "stands alone"}},
		{"two ways to scale",
			`{workers: {pools: {default: {autoscaling: {hpa: {enabled: true}, keda: {enabled: true}}}}}}`,
			[]string{"workers.pools.default.autoscaling: hpa and keda are both enabled", "choose one"}},
		{"fewer at most than at least",
			`{orchestrator: {autoscaling: {hpa: {enabled: true, minReplicas: 5, maxReplicas: 3}}}}`,
			[]string{"orchestrator.autoscaling.hpa: minReplicas 5 is more than maxReplicas 3"}},
		{"KEDA without queues", `{workers: {pools: {default: {autoscaling: {keda: {enabled: true}}}}}}`,
			[]string{"workers.pools.default.autoscaling.keda.taskQueues", "activity: charge"}},
		{"KEDA without NATS",
			`{workers: {pools: {default: {autoscaling: {keda: {enabled: true, taskQueues: [{activity: a}]}}}}}}`,
			[]string{"workers.pools.default.autoscaling.keda.monitoringEndpoint", "8222"}},
		{"KEDA for orchestrators", `{orchestrator: {autoscaling: {keda: {enabled: true}}}}`,
			[]string{"orchestrator.autoscaling.keda", "use hpa"}},
		{"a queue with a long name",
			`{workers: {pools: {default: {autoscaling: {keda: {enabled: true, monitoringEndpoint: "n:8222", taskQueues: [{activity: "` + strings.Repeat("a", 200) + `"}]}}}}}}`, []string{"too long", "extraTriggers"}},
		{"both budgets", `{orchestrator: {pdb: {minAvailable: 1, maxUnavailable: 1}}}`,
			[]string{"orchestrator.pdb: minAvailable and maxUnavailable", "say one of the two"}},
		{"an image of one's own without a tag", `{image: {repository: shop/orders}}`,
			[]string{"image: which shop/orders?", "tag", "digest"}},
		{"an image of a pool without a tag", `{workers: {pools: {default: {image: {repository: shop/gpu}}}}}`,
			[]string{"workers.pools.default.image: which shop/gpu?"}},
		{"a name that is too long", `{fullnameOverride: ` + strings.Repeat("a", 60) + `}`,
			[]string{"longer than the 63 letters", "fullnameOverride"}},
		{"one ServiceAccount made twice", `{defaults: {serviceAccount: {name: rondo}}}`,
			[]string{"serviceAccount: orchestrator would make the ServiceAccount rondo, too", "create: false"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, err := ParseValues(base)
			if err != nil {
				t.Fatal(err)
			}
			values, err := ParseValues(c.values)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Render(Dir, Release{}, first, values)
			if err == nil {
				t.Fatal("nobody refuses it")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("missing %q in: %v", want, err)
				}
			}
		})
	}
}

// TestOldKubernetes checks that Chart.yaml refuses old versions of Kubernetes.
func TestOldKubernetes(t *testing.T) {
	values, err := ParseValues(base)
	if err != nil {
		t.Fatal(err)
	}
	for version, ok := range map[string]bool{"v1.26.9": false, "v1.27.0": true, "v1.33.1-gke.100": true} {
		if _, err := Render(Dir, Release{KubeVersion: version}, values); (err == nil) != ok || err != nil &&
			!strings.Contains(err.Error(), "1.27") {
			t.Errorf("%s: %v", version, err)
		}
	}
}
