package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/pkg/app"
)

// schema is a piece of a JSON Schema.
type schema map[string]any

type props map[string]schema

// object has these values and no others, so that a slip of the pen is found.
func object(about string, p props) schema {
	return schema{"description": about, "type": "object", "additionalProperties": false, "properties": p}
}

// free is an object that Kubernetes defines; the chart copies it.
func free(about string) schema { return schema{"description": about, "type": "object"} }

// words are names with words.
func words(about string) schema {
	return schema{"description": about, "type": "object", "additionalProperties": schema{"type": "string"}}
}

func text(about string) schema    { return schema{"description": about, "type": "string"} }
func boolean(about string) schema { return schema{"description": about, "type": "boolean"} }

func pattern(about, p string) schema {
	return schema{"description": about, "type": "string", "pattern": p}
}

func oneOf(about string, choices ...string) schema {
	return schema{"description": about, "type": "string", "enum": choices}
}

func integer(about string, least int) schema {
	return schema{"description": about, "type": "integer", "minimum": least}
}

func duration(about string) schema {
	return pattern(about+"; like 30s, 5m, 12h or 30d", `^([0-9]+d|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$`)
}

func size(about string) schema {
	return schema{"description": about + "; like 512MiB", "type": []any{"string", "integer"},
		"pattern": `^[0-9]+ ?[KMGT]?i?B?$`}
}

func list(about string, of schema) schema {
	return schema{"description": about, "type": "array", "items": of}
}

func objects(about string) schema { return list(about, schema{"type": "object"}) }

func ref(about, name string) schema {
	return schema{"description": about, "allOf": []any{schema{"$ref": "#/definitions/" + name}}}
}

// secretName is the name of an object that exists outside the release.
const secretName = `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`

func existing(about string) schema { return pattern(about, secretName) }

// Schema is values.schema.json.
func Schema() ([]byte, error) {
	root := object("The values of Rondo's chart", rootValues())
	root["$schema"], root["title"] = "http://json-schema.org/draft-07/schema#", "Rondo"
	root["definitions"] = map[string]schema{
		"ca": object("", props{
			"existingSecret":    existing("The Secret with the certificates of the authority"),
			"existingConfigMap": existing("Or the ConfigMap with them"),
			"key":               text("Its key there"),
		}),
		"client": object("", props{
			"existingSecret": existing("The Secret with a certificate of one's own and its key"),
			"certKey":        text("The key of the certificate there"),
			"keyKey":         text("The key of the key there"),
		}),
		"image": object("", imageValues()),
		"nats":  object("", props{"auth": authValues(), "tls": natsTLS()}),
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func rootValues() props {
	return props{
		"global": free("Not used by this chart; Helm hands it to all charts of a release"),
		"nameOverride": pattern("The label app.kubernetes.io/name, and the end of all names",
			`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`),
		"fullnameOverride": pattern("The beginning of all names; made of the release and the chart if it is not set",
			`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`),
		"commonLabels":      words("Labels of everything"),
		"commonAnnotations": words("Annotations of everything"),
		"image": object(
			"The image of everything: your own, or the stock one with the code of examples/orders", imageValues()),
		"imagePullSecrets": list("Secrets with which images are pulled",
			object("", props{"name": text("The name of the Secret")})),
		"nats":     natsValues(),
		"database": databaseValues("The database of the orchestrators"),
		"streams": object("What the streams in NATS are like; the same for all services of a system", props{
			"prefix": pattern("The name of the system: the first word of all subjects and, in capitals, of the "+
				"names of streams. Several systems may share servers", `^[A-Za-z][A-Za-z0-9_-]{0,31}$`),
			"replicas": schema{"description": "How many servers keep each message: 3 in production, on three " +
				"servers or more. 1 is for a single server. 0 keeps what is there, and makes 1 where nothing is",
				"type": "integer", "enum": []any{0, 1, 3, 5}},
			"partitions": integer(
				"How many partitions the inbox has, which bounds how many orchestrators share the work. 0 keeps "+
					"what is there, and makes 8 on replicas, 4 without", 0),
		}),
		"jobs": jobsValues(),
		"settings": settingsSchema(
			"Settings of all services, by their names in pkg/app/settings.md. They stand in one file",
			settingsFor([]app.Command{app.Orchestrator, app.Worker, app.Migrate})),
		"telemetry": telemetryValues(),
		"defaults": object(
			"What all Pods have, unless orchestrator, workers, migration or tests say otherwise. A map is merged "+
				"with what they say; a list is replaced by theirs", workloadValues()),
		"orchestrator":  orchestratorValues(),
		"workers":       workersValues(),
		"migration":     migrationValues(),
		"tests":         testsValues(),
		"networkPolicy": networkPolicyValues(),
		"metrics":       metricsValues(),
		"extraObjects": list("Other objects of the release, as maps or as texts. Templates in them are evaluated",
			schema{"type": []any{"object", "string"}}),
	}
}

func imageValues() props {
	return props{
		"registry": text("The registry"),
		"repository": pattern("The repository there. What ends in /rondo is taken for the stock image, or a copy of it",
			`^[a-z0-9]+([._/-]+[a-z0-9]+)*$`),
		"tag": pattern("The tag; that of the stock image is the chart's appVersion if it is not set",
			`^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$`),
		"digest":     pattern("The digest, like sha256:…; it wins over the tag", `^(sha256:[a-f0-9]{64})?$`),
		"pullPolicy": oneOf("When it is pulled", "Always", "IfNotPresent", "Never"),
		"command":    list("The program, if the image has no ENTRYPOINT that is one", schema{"type": "string"}),
	}
}

func natsValues() schema {
	return object("NATS, with JetStream. It is not a part of this chart", props{
		"urls": schema{"description": "The addresses of the servers", "type": "array", "minItems": 1,
			"items": schema{"type": "string", "pattern": `^(nats|tls|ws|wss)://.+`}},
		"auth": authValues(),
		"tls":  natsTLS(),
	})
}

func authValues() schema {
	return object("How services log in to NATS", props{
		"method": oneOf(
			"What the Secret has: a credentials file, the seed of an nkey, a user and a password, or a token. "+
				"Empty: nothing is needed", "", "credentials", "nkey", "userPassword", "token"),
		"existingSecret": existing("The Secret"),
		"keys": object("The keys in the Secret", props{
			"credentials": text("Of the credentials file"), "nkey": text("Of the seed"), "user": text("Of the name"),
			"password": text("Of the password"), "token": text("Of the token"),
		}),
		"user":     text("For development: the name. Helm keeps it in the release"),
		"password": text("For development: the password"),
		"token":    text("For development: the token"),
		"inboxPrefix": schema{
			"description": "The prefix of the subjects of answers, if the user may subscribe to no other, as those " +
				"of deploy/nats: _INBOX_worker, say. _INBOX if it is not set",
			"type": "string", "pattern": `^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?$`,
		},
	})
}

func natsTLS() schema {
	return object("TLS to NATS. The addresses begin with tls://, or the servers ask for it", props{
		"first":  boolean("Begin with TLS, before the server says anything"),
		"ca":     ref("The authority of the servers", "ca"),
		"client": ref("A certificate of one's own", "client"),
	})
}

func databaseValues(about string) schema {
	return object(about, props{
		"existingSecret": existing("The Secret with the address, like postgres://rondo@db:26257/rondo"),
		"key":            text("Its key there"),
		"url":            text("For development: the address. Helm keeps it in the release"),
		"password": object("The password, if it does not stand in the address", props{
			"existingSecret": existing("The Secret with it"), "key": text("Its key there"),
		}),
		"tls": object("TLS to the database. What the address says of it wins", props{
			"mode":   oneOf("sslmode", "", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
			"ca":     ref("The authority of the servers", "ca"),
			"client": ref("A certificate of one's own", "client"),
		}),
	})
}

func jobsValues() schema {
	return object("Queues over HTTP, which the orchestrators serve", props{
		"enabled": boolean("Serve them, and make a Service for them"),
		"port": schema{"description": "The port, of Pods and of the Service", "type": "integer", "minimum": 1024,
			"maximum": 65535},
		"access": object("Who may do what", props{
			"existingSecret": existing("The Secret with the access file, which docs/job-queues.md explains"),
			"key":            text("Its key there"),
		}),
		"tls": object("TLS", props{
			"existingSecret": existing("The Secret with the certificate of the server and its key"),
			"certKey":        text("The key of the certificate there"), "keyKey": text("The key of the key there"),
			"clientCA": ref("The authorities of the certificates of callers, if they have some", "ca"),
		}),
		"service": object("The Service", props{"annotations": words("Its annotations"), "labels": words("Its labels")}),
	})
}

func telemetryValues() schema {
	return object("OpenTelemetry. Metrics are at /metrics in any case", props{
		"endpoint": pattern(
			"Where traces and metrics are sent, like http://collector:4318; empty for nowhere", `^(https?://.+)?$`),
		"protocol": oneOf("How they are sent; http/protobuf if it is not set", "", "grpc", "http/protobuf"),
		"headers": object("Headers with a secret, like authorization=Bearer …",
			props{"existingSecret": existing("The Secret with them"), "key": text("Their key there")}),
		"sampler": oneOf("Which traces are told of; all if it is not set", "", "always_on", "always_off",
			"traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"),
		"samplerArg": schema{"description": "Its share, like 0.01", "type": []any{"string", "number"}},
		"logs":       boolean("Send logs, too"),
		"resourceAttributes": schema{"description": "More attributes of the services", "type": "object",
			"additionalProperties": schema{"type": "string", "pattern": `^[^,=]*$`}},
	})
}

func probe(about string) schema {
	return object(about, props{
		"initialDelaySeconds": integer("When it is asked first", 0), "periodSeconds": integer("How often", 1),
		"timeoutSeconds":   integer("How long an answer may take; /readyz takes 3 seconds at most", 1),
		"failureThreshold": integer("After how many failures it counts", 1),
		"successThreshold": integer("After how many successes it counts", 1),
	})
}

// workloadValues are the values of any Pod, and of the objects around it.
func workloadValues() props {
	variable := schema{"type": "object", "required": []any{"name"}, "additionalProperties": false,
		"properties": props{"name": text("Its name"), "value": text("Its value"),
			"valueFrom": free("Where its value is")}}
	return props{
		"annotations":    words("Annotations of the Deployment, Job or Pod"),
		"labels":         words("Labels of the Deployment, Job or Pod"),
		"podAnnotations": words("Annotations of Pods"), "podLabels": words("Labels of Pods"),
		"nodeSelector": words("Labels that a node must have"), "tolerations": objects("Taints that Pods bear with"),
		"affinity": free("Affinity of Pods"),
		"topologySpreadConstraints": objects(
			"How Pods are spread. Without a labelSelector, a constraint is about the Pods of one rollout"),
		"priorityClassName":  text("The class of their priority. If it does not exist, Kubernetes creates no Pod"),
		"runtimeClassName":   text("The class of their runtime"),
		"podSecurityContext": free("The security context of Pods"),
		"securityContext":    free("The security context of containers"),
		"tmpSizeLimit": pattern("How large /tmp may become, which is the only place that can be written to",
			`^[0-9]+(Ki|Mi|Gi)$`),
		"extraEnv": list("More variables of the container, for your code. Settings of Rondo stand under settings",
			variable), "extraEnvFrom": objects("More variables, from Secrets or ConfigMaps"),
		"extraVolumes": objects("More volumes"), "extraVolumeMounts": objects("Where they are mounted"),
		"extraContainers": objects("More containers beside it, of Deployments"),
		"initContainers":  objects("Containers before it, of Deployments"),
		"serviceAccount": object("The ServiceAccount. Rondo never talks to Kubernetes", props{
			"create": boolean("Make one for each Deployment and Job"),
			"name": text(
				"Its name; that of the Deployment or Job if it is not set, default if it is not made"),
			"annotations":    words("Its annotations"),
			"automountToken": boolean("Mount its token, if your code needs it"),
		}),
		"networkPolicy": object("More rules for networkPolicy",
			props{"extraEgress": objects("Where your code goes"), "extraIngress": objects("Who comes to your code")}),
		"strategy":             free("How Pods are replaced, of Deployments"),
		"minReadySeconds":      integer("How long a new Pod must be ready before the next one is replaced", 0),
		"revisionHistoryLimit": integer("How many old ReplicaSets are kept", 0),
		"pdb": object("The PodDisruptionBudget; maxUnavailable 1 unless one of the two says otherwise", props{
			"enabled":        boolean("Make one"),
			"minAvailable":   schema{"description": "How many must stay", "type": []any{"integer", "string", "null"}},
			"maxUnavailable": schema{"description": "How many may be away", "type": []any{"integer", "string", "null"}},
		}),
		"service": object("The Service, which names the Pods for those who ask for metrics and health",
			props{"annotations": words("Its annotations"), "labels": words("Its labels")}),
		"probes": object("How health is asked for", props{"startup": probe("/livez, until it has answered once"),
			"liveness": probe("/livez"), "readiness": probe("/readyz")}),
		"autoscaling": autoscalingValues(),
		"terminationGracePeriodSeconds": schema{"description": "How long the end of a Pod may take. By default " +
			"shutdown-timeout with 10 seconds more for orchestrators, shutdown-timeout and cancel-grace with 15 " +
			"more for workers",
			"type": []any{"integer", "null"}, "minimum": 1},
		"resources": free("Requests and limits"),
	}
}

func autoscalingValues() schema {
	return object("How many Pods there are, by what they do; one of the two", props{
		"hpa": object("By processor and memory", props{
			"enabled": boolean("Make a HorizontalPodAutoscaler"), "minReplicas": integer("At least", 1),
			"maxReplicas": integer("At most; for orchestrators, not more than there are partitions", 1),
			"cpu":         integer("Percent of the requested processor", 1), "memory": integer(
				"Percent of the requested memory", 1), "behavior": free("How fast it goes up and down"),
		}),
		"keda": object("By the tasks that wait and are in flight, with KEDA; of workers", props{
			"enabled": boolean("Make a ScaledObject"), "minReplicas": integer("At least; 0 is possible", 0),
			"maxReplicas":     integer("At most", 1),
			"pollingInterval": integer("How often KEDA looks, in seconds", 1),
			"cooldownPeriod":  integer("How long it waits before the last Pod goes, in seconds", 0),
			"monitoringEndpoint": pattern(
				"Where NATS serves its monitoring, without a scheme, like nats-headless.nats.svc:8222",
				`^([^/:]+:[0-9]+)?$`),
			"account":  text("The account of NATS; $G if there are none"),
			"useHttps": boolean("Whether it is served with TLS"),
			"prometheus": pattern("The address of a Prometheus that has the metrics of orchestrators; KEDA then sees "+
				"short activities, too", `^(https?://.+)?$`),
			"prometheusLabels": text(`What selects the metrics of this system there; default: namespace="<namespace>"`),
			"taskQueues": list("The task queues that count", schema{"type": "object", "required": []any{"activity"},
				"additionalProperties": false, "properties": props{
					"activity": schema{"description": "The name of the activity", "type": "string", "minLength": 1},
					"tag":      text("The tag; empty for work without one"),
					"lagThreshold": integer("How much of it one Pod is for; the slots of the pool if it is not set",
						1),
				}}),
			"extraTriggers": objects("Other triggers of KEDA"), "behavior": free("How fast it goes up and down"),
		}),
	})
}

// deployed are the values of a Deployment.
func deployed(settings schema, more props) props {
	p := workloadValues()
	p["image"], p["nats"], p["settings"] = ref("What its image is, where it is another one", "image"),
		ref("How it logs in to NATS, where that is another way", "nats"), settings
	p["replicas"] = integer("How many Pods there are, unless they are scaled", 0)
	maps.Copy(p, more)
	return p
}

func orchestratorValues() schema {
	settings := settingsSchema("Settings of orchestrators alone; they win over the shared ones",
		settingsFor([]app.Command{app.Orchestrator}, "Streams", "Database", "Worker"))
	p := deployed(settings, props{"enabled": boolean("Whether this release has orchestrators")})
	return object("The orchestrators", p)
}

func poolValues() props {
	settings := settingsSchema("Settings of these workers alone; they win over the shared ones",
		settingsFor([]app.Command{app.Worker}, "Streams", "Orchestrator"))
	return deployed(settings, props{
		"tags": list("Which tags of work they take; _ is for work without a tag, * for any, and nothing at all for "+
			"work without a tag", schema{"type": "string", "pattern": `^[^, ]+$`}),
		"slots": integer("How many activities one Pod runs at once", 1),
	})
}

func workersValues() schema {
	pool := object("One pool", poolValues())
	pool["type"] = []any{"object", "null"}
	return object("The workers", props{
		"defaults": object("What all pools have, unless one says otherwise", poolValues()),
		"pools": schema{"description": "The pools, by their names: each is a Deployment, and may say everything " +
			"that workers.defaults may. null takes one out", "type": "object",
			"propertyNames": schema{"pattern": `^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`}, "additionalProperties": pool},
	})
}

func migrationValues() schema {
	p := workloadValues()
	for _, name := range []string{"strategy", "minReadySeconds", "revisionHistoryLimit", "pdb", "service", "probes",
		"autoscaling", "terminationGracePeriodSeconds", "topologySpreadConstraints", "extraContainers",
		"initContainers"} {
		delete(p, name)
	}
	maps.Copy(p, props{
		"enabled":  boolean("Run `migrate` before an installation and before an upgrade"),
		"streams":  boolean("Let it look after the streams in NATS, too, with the right to make them"),
		"image":    ref("What its image is, where it is another one", "image"),
		"nats":     ref("How it logs in to NATS, where that is another way", "nats"),
		"database": databaseValues("The database, with the right to change tables; what is not said is as in database"),
		"settings": settingsSchema("Settings of the migration alone",
			settingsFor([]app.Command{app.Migrate}, "Streams")),

		"backoffLimit": integer("How often it is tried again", 0), "activeDeadlineSeconds": integer(
			"How long it may take in all", 1),
		"ttlSecondsAfterFinished": integer("After how many seconds what is left of it goes", 0),
		"hookWeight":              schema{"description": "Its place among other hooks", "type": "integer"},
		"hookDeletePolicy":        text("When Helm removes it"),
	})
	return object("The migration, a Job before everything else", p)
}

func testsValues() schema {
	p := workloadValues()
	for _, name := range []string{"strategy", "minReadySeconds", "revisionHistoryLimit", "pdb", "service", "probes",
		"autoscaling", "terminationGracePeriodSeconds", "topologySpreadConstraints", "extraContainers",
		"initContainers"} {
		delete(p, name)
	}
	maps.Copy(p, props{
		"enabled": boolean("Have something for `helm test` to do"),
		"image":   ref("The image with the command line; the stock one if it is not set", "image"),
		"nats":    ref("How it logs in to NATS, where that is another way", "nats"),
		"orchestration": text("What it starts: fulfil of the stock image. With an image of your own, name one of " +
			"yours, or there is no test"),
		"input":   text("Its input, as JSON"),
		"timeout": pattern("How long it waits for the end", `^([0-9]+(ms|s|m|h))+$`),
	})
	return object("`helm test`: it starts an orchestration, and waits for its end", p)
}

func networkPolicyValues() schema {
	return object("NetworkPolicies: everybody reaches what it needs, and nothing else", props{
		"enabled":     boolean("Make them"),
		"ingressFrom": objects("Who may ask for metrics and health; nobody said: everybody"),
		"jobsFrom":    objects("The clients that may use job queues. Default: all, with a token or a certificate"),
		"dnsTo":       objects("Where DNS is"),
		"dnsPorts": list("Ports of the DNS Pods; they may differ from the port of the Service. OpenShift: 5353",
			schema{"type": "integer", "minimum": 1, "maximum": 65535}),
		"natsTo":        objects("Where NATS is; nobody said: anywhere, at its ports"),
		"databaseTo":    objects("Where the database is; nobody said: anywhere, at its ports"),
		"databasePorts": list("The ports of the database", schema{"type": "integer", "minimum": 1, "maximum": 65535}),
		"otlpTo":        objects("Where telemetry is sent; nobody said: anywhere, at its port"),
	})
}

func metricsValues() schema {
	return object("What Prometheus and Grafana are told", props{
		"serviceMonitor": object("Have the Prometheus operator scrape the services", props{
			"enabled": boolean("Make a ServiceMonitor"), "interval": duration("How often; 15 to 30 seconds"),
			"scrapeTimeout": duration("How long it may take"),
			"labels":        words("Its labels, by which an operator may choose"),
			"annotations":   words("Its annotations"), "relabelings": objects("Changes of targets"),
			"metricRelabelings": objects("Changes of metrics"),
		}),
		"prometheusRule": object("The alerts of docs/alerts.md", props{
			"enabled": boolean("Make a PrometheusRule"), "labels": words("Its labels, by which an operator may choose"),
			"annotations": words("Its annotations"),
			"runbookBase": text("What comes before docs/alerts.md in the address of what to do"),
			"except":      list("Alerts to leave out, by their names", schema{"type": "string"}),
		}),
		"dashboards": object("The dashboards of docs/dashboards.md", props{
			"enabled": boolean("Make ConfigMaps with them"), "labels": words(
				"Their labels, by which Grafana's sidecar finds them"),
			"annotations": words("Their annotations, such as the folder"),
		}),
	})
}

// ---- The table of values.

// Table lists all values as Markdown: name, default and description.
func Table(schemaJSON []byte, defaults map[string]any) (string, error) {
	var root map[string]any
	if err := json.Unmarshal(schemaJSON, &root); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| value | default | what it is |\n| --- | --- | --- |\n")
	definitions, _ := root["definitions"].(map[string]any)
	rows(&b, definitions, nil, root, defaults)
	return b.String(), nil
}

// shared are the values that have the same members as defaults. They are listed where they have a
// default of their own.
var shared = []string{"orchestrator", "workers.defaults", "migration", "tests"}

func rows(b *strings.Builder, definitions map[string]any, path []string, node map[string]any, value any) {
	node = resolved(definitions, node)
	name := strings.Join(path, ".")
	members, _ := node["properties"].(map[string]any)
	values, _ := value.(map[string]any)
	if len(members) == 0 || strings.HasSuffix(name, "settings") {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, markdown(value),
			strings.ReplaceAll(fmt.Sprint(node["description"]), "|", `\|`))
		return
	}
	if len(path) > 0 && len(values) == 0 && value != nil {
		fmt.Fprintf(b, "| `%s` | `{}` | %s |\n", name, node["description"])
		return
	}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		_, said := values[member]
		if !said && len(path) > 0 && (slices.Contains(shared, name) && inDefaults[member]) {
			continue
		}
		rows(b, definitions, append(slices.Clone(path), member), members[member].(map[string]any), values[member])
	}
}

// inDefaults are the members that all workloads share.
var inDefaults = func() map[string]bool {
	in := map[string]bool{}
	for name := range workloadValues() {
		in[name] = true
	}
	return in
}()

func resolved(definitions, node map[string]any) map[string]any {
	all, ok := node["allOf"].([]any)
	if !ok {
		return node
	}
	to, _ := all[0].(map[string]any)["$ref"].(string)
	out := maps.Clone(definitions[strings.TrimPrefix(to, "#/definitions/")].(map[string]any))
	out["description"] = node["description"]
	return out
}

func markdown(value any) string {
	if value == nil {
		return ""
	}
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was read from YAML
	}
	return "`" + strings.ReplaceAll(string(data), "|", `\|`) + "`"
}
