package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// This file has the rules for how things are run. Each is a function that lists violations, so that
// TestRulesNotice can show it some.

// problems are the findings of a rule.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func TestPodsAreHardened(t *testing.T) {
	eachPods(t, func(o Object, pods *corev1.PodTemplateSpec, s set) problems { return hardened(o, pods) })
}

func TestPodsAreSound(t *testing.T) {
	eachPods(t, func(o Object, pods *corev1.PodTemplateSpec, s set) problems { return sound(o, pods) })
}

func TestHealthIsAskedForWhatItSays(t *testing.T) {
	eachPods(t, func(o Object, pods *corev1.PodTemplateSpec, s set) problems { return healthy(o, pods) })
}

func TestSecretsStayInSecrets(t *testing.T) {
	eachSet(t, func(t *testing.T, s set) {
		for _, wrong := range secretive(s.Rendering) {
			t.Error(wrong)
		}
	})
}

func TestReferencesAreThere(t *testing.T) {
	eachSet(t, func(t *testing.T, s set) {
		text := readFile(t, s.path)
		for _, wrong := range referring(s.Rendering, text) {
			t.Error(wrong)
		}
	})
}

func TestLabelsFit(t *testing.T) {
	eachSet(t, func(t *testing.T, s set) {
		for _, wrong := range selecting(t, s.Rendering) {
			t.Error(wrong)
		}
	})
}

func eachPods(t *testing.T, rule func(o Object, pods *corev1.PodTemplateSpec, s set) problems) {
	t.Helper()
	eachSet(t, func(t *testing.T, s set) {
		n := 0
		for _, o := range s.Objects {
			pods, err := o.Pods()
			if err != nil {
				t.Fatal(err)
			}
			if pods == nil {
				continue
			}
			n++
			for _, wrong := range rule(o, pods, s) {
				t.Errorf("%s: %s", o.ID(), wrong)
			}
		}
		if n < 2 {
			t.Errorf("%d objects with Pods", n)
		}
	})
}

// hardened is about the security context of a Pod.
func hardened(_ Object, pods *corev1.PodTemplateSpec) (bad problems) {
	spec := pods.Spec
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		bad.add("the token of the ServiceAccount is mounted")
	}
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		bad.add("variables of Services are there, which look like settings")
	}
	if spec.HostNetwork || spec.HostPID || spec.HostIPC {
		bad.add("it shares something with the host")
	}
	if p := spec.SecurityContext; p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.SeccompProfile == nil ||
		p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || p.FSGroup == nil {
		bad.add("the security context of the Pod is too wide, or files of Secrets cannot be read: %+v", p)
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			bad.add("the volume %s is of the host", v.Name)
		}
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode&0o007 != 0) {
			bad.add("the files of the Secret %s can be read by everybody", v.Secret.SecretName)
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		s := c.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser < 10_000 ||
			s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Privileged != nil && *s.Privileged ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			len(s.Capabilities.Add) > 0 ||
			s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			bad.add("the security context of %s is too wide: %+v", c.Name, s)
		}
		for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory,
			corev1.ResourceEphemeralStorage} {
			request, limit := c.Resources.Requests[resource], c.Resources.Limits[resource]
			if request.IsZero() || limit.IsZero() || request.Cmp(limit) > 0 {
				bad.add("%s of %s: requested %s, limit %s", resource, c.Name, request.String(), limit.String())
			}
		}
	}
	return bad
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// sound is about objects that Kubernetes refuses although the types accept them.
func sound(o Object, pods *corev1.PodTemplateSpec) (bad problems) {
	volumes, names := map[string]bool{}, map[string]bool{}
	for _, v := range pods.Spec.Volumes {
		if volumes[v.Name] || len(validation.IsDNS1123Label(v.Name)) > 0 {
			bad.add("the name of the volume %q is none, or stands twice", v.Name)
		}
		volumes[v.Name] = true
	}
	for _, c := range slices.Concat(pods.Spec.InitContainers, pods.Spec.Containers) {
		if names[c.Name] || len(validation.IsDNS1123Label(c.Name)) > 0 {
			bad.add("the name of the container %q is none, or stands twice", c.Name)
		}
		names[c.Name] = true
		if tag := c.Image[strings.LastIndex(c.Image, "/")+1:]; !strings.Contains(tag, ":") &&
			!strings.Contains(tag, "@") || strings.HasSuffix(tag, ":latest") {
			bad.add("the image %s may be another one tomorrow", c.Image)
		}
		paths, variables := map[string]bool{}, map[string]bool{}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] || paths[m.MountPath] {
				bad.add("%s mounts %s at %s, which is not there or stands twice", c.Name, m.Name, m.MountPath)
			}
			paths[m.MountPath] = true
		}
		for _, e := range c.Env {
			if !envName.MatchString(e.Name) || variables[e.Name] || e.Value != "" && e.ValueFrom != nil {
				bad.add("the variable %s of %s is none, or stands twice", e.Name, c.Name)
			}
			variables[e.Name] = true
		}
	}
	if o.Kind == "Deployment" {
		var d appsv1.Deployment
		if err := o.Decode(&d); err != nil {
			bad.add("%v", err)
		}
		if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && d.Spec.Strategy.RollingUpdate != nil {
			bad.add("a strategy that replaces all at once says how one at a time is replaced")
		}
	} else if pods.Spec.RestartPolicy != corev1.RestartPolicyNever {
		bad.add("it is started again and again by the node: %q", pods.Spec.RestartPolicy)
	}
	return bad
}

// healthy is about probes: those that decide on restarts must not depend on NATS and the database.
func healthy(o Object, pods *corev1.PodTemplateSpec) (bad problems) {
	c := pods.Spec.Containers[0]
	if o.Kind != "Deployment" {
		if c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil {
			bad.add("what ends by itself has probes")
		}
		return bad
	}
	const answersWithin = 3 // seconds, which /readyz may take
	for name, p := range map[string]*corev1.Probe{"/livez of startup": c.StartupProbe,
		"/livez of liveness": c.LivenessProbe, "/readyz of readiness": c.ReadinessProbe} {
		path, _, _ := strings.Cut(name, " ")
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.String() != "http" ||
			p.TimeoutSeconds <= answersWithin {
			bad.add("%s: %+v", name, p)
		}
	}
	listen, _ := env(c, "RONDO_LISTEN")
	queues, _ := env(c, "RONDO_JOBS_LISTEN")
	switch others := c.Ports[min(1, len(c.Ports)):]; {
	case queues.Value == "" && len(others) == 0:
	case len(others) != 1 || others[0].Name != "jobs" ||
		queues.Value != "0.0.0.0:"+strconv.Itoa(int(others[0].ContainerPort)):
		bad.add("it serves queues at %q, and its other ports are %+v", queues.Value, others)
	}
	if len(c.Ports) == 0 || c.Ports[0].Name != "http" ||
		listen.Value != ":"+strconv.Itoa(int(c.Ports[0].ContainerPort)) {
		bad.add("it listens at %q, and its ports are %+v", listen.Value, c.Ports)
	}
	if want := map[string]int32{"orchestrator": 7071, "worker": 7072}[c.Args[0]]; c.Ports[0].ContainerPort != want {
		bad.add("port %d is not the usual one, %d", c.Ports[0].ContainerPort, want)
	}
	return bad
}

// secretVariables must come from Secrets.
var secretVariables = regexp.MustCompile(`PASSWORD$|TOKEN$|DATABASE_URL$|HEADERS$|_KEY$|NATS_USER$`)

// secretive lists secrets that a user with read access to objects could see.
func secretive(r *Rendering) (bad problems) {
	for _, o := range r.Objects {
		if o.Kind != "Secret" && strings.Contains(o.Raw, "hush") {
			bad.add("%s tells a secret", o.ID())
		}
		pods, err := o.Pods()
		if err != nil || pods == nil {
			continue
		}
		for _, c := range slices.Concat(pods.Spec.InitContainers, pods.Spec.Containers) {
			for _, e := range c.Env {
				if secretVariables.MatchString(e.Name) && e.Value != "" && !strings.HasPrefix(e.Value, mounted) {
					bad.add("%s: the value of %s stands in it", o.ID(), e.Name)
				}
			}
			for _, a := range slices.Concat(c.Command, c.Args) {
				if strings.Contains(a, "://") || strings.Contains(a, "password") || strings.Contains(a, "token") {
					bad.add("%s: its arguments have %q, which everybody on the node can read", o.ID(), a)
				}
			}
		}
	}
	return bad
}

// reference is an object that another one needs, with keys that it must have.
type reference struct {
	kind, name string
	keys       []string
}

func references(pods *corev1.PodTemplateSpec) (all []reference) {
	all = append(all, reference{"ServiceAccount", pods.Spec.ServiceAccountName, nil})
	for _, s := range pods.Spec.ImagePullSecrets {
		all = append(all, reference{"Secret", s.Name, nil})
	}
	for _, v := range pods.Spec.Volumes {
		var items []corev1.KeyToPath
		r := reference{}
		switch {
		case v.Secret != nil:
			r.kind, r.name, items = "Secret", v.Secret.SecretName, v.Secret.Items
		case v.ConfigMap != nil:
			r.kind, r.name, items = "ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items
		case v.PersistentVolumeClaim != nil:
			r.kind, r.name = "PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName
		default:
			continue
		}
		for _, i := range items {
			r.keys = append(r.keys, i.Key)
		}
		all = append(all, r)
	}
	for _, c := range slices.Concat(pods.Spec.InitContainers, pods.Spec.Containers) {
		for _, e := range c.EnvFrom {
			if e.SecretRef != nil {
				all = append(all, reference{"Secret", e.SecretRef.Name, nil})
			}
			if e.ConfigMapRef != nil {
				all = append(all, reference{"ConfigMap", e.ConfigMapRef.Name, nil})
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				all = append(all, reference{"Secret", e.ValueFrom.SecretKeyRef.Name,
					[]string{e.ValueFrom.SecretKeyRef.Key}})
			}
		}
	}
	return all
}

// referring is about the dependencies of Pods: they are in the release, and made before the Pods,
// or the values name them.
func referring(r *Rendering, values string) (bad problems) {
	for _, o := range r.Objects {
		pods, err := o.Pods()
		if err != nil || pods == nil {
			continue
		}
		events, weight := o.Hooks()
		for _, ref := range references(pods) {
			there, ok := r.Find(ref.kind, ref.name)
			if !ok {
				if !regexp.MustCompile(`[ \[:{]` + regexp.QuoteMeta(ref.name) + `(\n|[ ,}\]]|$)`).MatchString(values) {
					bad.add("%s needs the %s %q, which is neither in the release nor in the values", o.ID(),
						ref.kind, ref.name)
				}
				continue
			}
			theirs, theirWeight := there.Hooks()
			switch {
			case len(events) == 0 && len(theirs) > 0:
				bad.add("%s needs %s, which belongs to a hook", o.ID(), there.ID())
			case slices.Contains(events, "pre-install") && (!slices.Equal(events, theirs) || theirWeight >= weight):
				bad.add("%s is made before %s, which it needs", o.ID(), there.ID())
			case slices.Contains(events, "pre-install") &&
				there.Metadata.Annotations["helm.sh/hook-delete-policy"] != "before-hook-creation":
				bad.add("%s needs %s, which Helm deletes while it is running", o.ID(), there.ID())
			}
			for _, key := range ref.keys {
				if _, err := r.entry(ref.kind, ref.name, key, nil); err != nil {
					bad.add("%s: %v", o.ID(), err)
				}
			}
		}
	}
	return bad
}

// selecting is about labels: each selector selects the right objects, and no others.
func selecting(t *testing.T, r *Rendering) (bad problems) {
	t.Helper()
	pods := map[string]labels.Set{} // of each object with Pods
	for _, o := range r.Objects {
		p, err := o.Pods()
		if err != nil {
			t.Fatal(err)
		}
		if p != nil {
			pods[o.ID()] = p.Labels
		}
		if o.Template != "rondo/templates/extra.yaml" {
			for _, name := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance",
				"app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
				if o.Metadata.Labels[name] == "" {
					bad.add("%s has no label %s", o.ID(), name)
				}
			}
			if o.Metadata.Namespace == "" {
				bad.add("%s has no namespace", o.ID())
			}
		}
	}
	exactly := func(o Object, selector map[string]string, want string) {
		var found []string
		for id, l := range pods {
			if len(selector) > 0 && labels.SelectorFromSet(selector).Matches(l) {
				found = append(found, id)
			}
		}
		if !slices.Equal(found, []string{want}) {
			bad.add("%s selects %v, want %s", o.ID(), found, want)
		}
	}
	budgets, services, scaled := map[string]bool{}, map[string]bool{}, map[string]bool{}
	decode := func(o Object, into any) {
		if err := o.Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range r.Objects {
		target := "Deployment/" + o.Metadata.Name
		switch o.Kind {
		case "Deployment":
			var d appsv1.Deployment
			decode(o, &d)
			exactly(o, d.Spec.Selector.MatchLabels, o.ID())
			for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
				if c.LabelSelector == nil || len(c.LabelSelector.MatchLabels) == 0 {
					bad.add("%s: a constraint is about nothing", o.ID())
				}
			}
		case "Service":
			var s corev1.Service
			decode(o, &s)
			if name, ok := strings.CutSuffix(o.Metadata.Name, "-jobs"); ok {
				exactly(o, s.Spec.Selector, "Deployment/"+name+"-orchestrator")
				if p := s.Spec.Ports[0]; p.TargetPort.String() != "jobs" ||
					s.Spec.Type != corev1.ServiceTypeClusterIP || s.Spec.ClusterIP != "" ||
					s.Spec.PublishNotReadyAddresses {
					bad.add("%s leads to %s, or also to Pods that are not ready: %+v", o.ID(),
						p.TargetPort.String(), s.Spec)
				}
				continue
			}
			exactly(o, s.Spec.Selector, target)
			services[target] = true
			if s.Spec.Ports[0].TargetPort.String() != "http" {
				bad.add("%s leads to %s", o.ID(), s.Spec.Ports[0].TargetPort.String())
			}
		case "PodDisruptionBudget":
			var b policyv1.PodDisruptionBudget
			decode(o, &b)
			exactly(o, b.Spec.Selector.MatchLabels, target)
			budgets[target] = true
			if (b.Spec.MinAvailable == nil) == (b.Spec.MaxUnavailable == nil) {
				bad.add("%s says both or none", o.ID())
			}
		case "NetworkPolicy":
			var n networkingv1.NetworkPolicy
			decode(o, &n)
			kind := map[string]string{"migrate": "Job/",
				"test": "Pod/"}[o.Metadata.Labels["app.kubernetes.io/component"]]
			if kind == "" {
				kind = "Deployment/"
			}
			exactly(o, n.Spec.PodSelector.MatchLabels, kind+o.Metadata.Name)
			if len(n.Spec.PolicyTypes) != 2 || len(n.Spec.Egress) < 2 {
				bad.add("%s: %+v", o.ID(), n.Spec)
			}
		case "HorizontalPodAutoscaler":
			var h autoscalingv2.HorizontalPodAutoscaler
			decode(o, &h)
			scaled[h.Spec.ScaleTargetRef.Kind+"/"+h.Spec.ScaleTargetRef.Name] = true
		case "ScaledObject":
			var s scaledObject
			decode(o, &s)
			scaled[s.Spec.ScaleTargetRef.Kind+"/"+s.Spec.ScaleTargetRef.Name] = true
		case "ServiceMonitor":
			var m monitoringv1.ServiceMonitor
			decode(o, &m)
			for _, s := range r.Of("Service") {
				if known := labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(
					labels.Set(s.Metadata.Labels)); known == strings.HasSuffix(s.Metadata.Name, "-jobs") {
					bad.add("%s knows %s: %v", o.ID(), s.ID(), known)
				}
			}
		}
	}
	for _, o := range r.Of("Deployment") {
		var d appsv1.Deployment
		decode(o, &d)
		if off := strings.Contains(o.ID(), "customer-7"); budgets[o.ID()] == off {
			bad.add("%s: a budget is there: %v", o.ID(), budgets[o.ID()])
		}
		if !services[o.ID()] {
			bad.add("%s has no Service", o.ID())
		}
		if (d.Spec.Replicas == nil) != scaled[o.ID()] {
			bad.add("%s says how many there are, and is scaled, or neither", o.ID())
		}
		delete(scaled, o.ID())
	}
	for target := range scaled {
		bad.add("%s is scaled, and does not exist", target)
	}
	return bad
}

// TestRulesNotice breaks rendered objects, and makes sure that a rule finds it.
func TestRulesNotice(t *testing.T) {
	sets, err := readSets()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(sets, func(s set) bool { return s.name == "everything" })
	values := readFile(t, sets[i].path)
	all := func(t *testing.T, r *Rendering) (bad problems) {
		for _, o := range r.Objects {
			pods, err := o.Pods()
			if err != nil {
				t.Fatal(err)
			}
			if pods != nil {
				bad = slices.Concat(bad, hardened(o, pods), sound(o, pods), healthy(o, pods))
			}
		}
		return slices.Concat(bad, secretive(r), referring(r, values), selecting(t, r))
	}
	if bad := all(t, sets[i].Rendering); len(bad) > 0 {
		t.Fatal(bad)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"root", "runAsNonRoot: true", "runAsNonRoot: false", "too wide"},
		{"user", "runAsUser: 65532", "runAsUser: 0", "too wide"},
		{"writable", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "too wide"},
		{"capabilities", "- ALL", "- CHOWN", "too wide"},
		{"escalation", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "too wide"},
		{"seccomp", "type: RuntimeDefault", "type: Unconfined", "too wide"},
		{"token", "automountServiceAccountToken: false", "automountServiceAccountToken: true",
			"token of the ServiceAccount"},
		{"links", "enableServiceLinks: false", "enableServiceLinks: true", "look like settings"},
		{"no limit", "ephemeral-storage: 256Mi", "x/y: 1", "ephemeral-storage of"},
		{"readable", "defaultMode: 0440", "defaultMode: 0444", "read by everybody"},
		{"liveness", "path: /livez", "path: /readyz", "/livez of"},
		{"readiness", "path: /readyz", "path: /livez", "/readyz of"},
		{"slow answer", "timeoutSeconds: 5", "timeoutSeconds: 1", "of liveness"},
		{"port", `value: ":7071"`, `value: ":7070"`, "listens at"},
		{"service port", "targetPort: http", "targetPort: metrics", "leads to metrics"},
		{"jobs port", `value: "0.0.0.0:9000"`, `value: ":9000"`, "it serves queues at"},
		{"port of the queues' Service", "targetPort: jobs", "targetPort: http", "Service/sys-jobs leads to http"},
		{"metrics at the queues' Service", "example.com/jobs: x", "rondo.run/metrics: \"true\"",
			"knows Service/sys-jobs: true"},
		{"tag", "shop/orders:1.2", "shop/orders:latest", "another one tomorrow"},
		{"secret in a variable", "name: TZ\n", "name: MY_PASSWORD\n", "the value of MY_PASSWORD"},
		{"secret in the settings", `nats-domain: "hub"`, `nats-domain: "hush"`, "tells a secret"},
		{"secret in arguments", "- --streams", "- --database=postgres://x", "everybody on the node"},
		{"Secret of nobody", "secretName: sys-orchestrator", "secretName: nobodys", `needs the Secret "nobodys"`},
		{"ServiceAccount of nobody", "serviceAccountName: sys-worker-any", "serviceAccountName: nobodys",
			`needs the ServiceAccount "nobodys"`},
		{"key of nobody", "key: url", "key: uri", "has no key uri"},
		{"hook too early", `helm.sh/hook-weight: "4"`, `helm.sh/hook-weight: "5"`, "is made before"},
		{"no hook", "name: sys-migrate\n  namespace: shop\n  labels",
			"name: sys-other\n  namespace: shop\n  labels", `needs the`},
		{"account of a hook", "serviceAccountName: sys-worker-any", "serviceAccountName: sys-migrate",
			"belongs to a hook"},
		{"hook that is deleted too early", "helm.sh/hook-delete-policy: before-hook-creation\n",
			"helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded\n", "deletes while it is running"},
		{"pool", "rondo.run/pool: odd\n  ports", "rondo.run/pool: old\n  ports", "Service/sys-worker-odd selects"},
		{"budget", "kind: PodDisruptionBudget", "kind: ConfigMap", "a budget is there: false"},
		{"no autoscaler", "kind: HorizontalPodAutoscaler", "kind: ConfigMap", "says how many there are"},
		{"label", "app.kubernetes.io/version: ", "app.kubernetes.io/vrsion: ", "has no label"},
		{"strategy", "type: Recreate\n", "type: Recreate\n    rollingUpdate: {maxSurge: 1}\n", "all at once"},
		{"mount", "mountPath: /tmp", "mountPath: /data", "stands twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			broken := &Rendering{}
			changed := 0
			for _, o := range sets[i].Objects {
				raw := strings.ReplaceAll(o.Raw, c.old, c.new)
				if raw == o.Raw {
					broken.Objects = append(broken.Objects, o)
					continue
				}
				changed++
				objects, err := split(o.Template, raw)
				if err != nil {
					t.Fatal(err)
				}
				broken.Objects = append(broken.Objects, objects...)
			}
			if changed == 0 {
				t.Fatalf("nothing has %q", c.old)
			}
			if got := strings.Join(all(t, broken), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("want %q in: %s", c.want, got)
			}
		})
	}
}

// TestExamplesOfOtherCharts reads the values for NATS and CockroachDB: they agree with the examples
// of this chart.
func TestExamplesOfOtherCharts(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(Dir, "examples", "*", "*.yaml"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		values, err := ReadValues(path)
		if err != nil || len(values) == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	nats, err := ReadValues(filepath.Join(Dir, "examples", "nats", "production.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := ReadValues(filepath.Join(Dir, "examples", "production.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	servers := nats["config"].(map[string]any)["cluster"].(map[string]any)["replicas"]
	if replicas := ours["streams"].(map[string]any)["replicas"]; fmt.Sprint(servers) != fmt.Sprint(replicas) {
		t.Errorf("%v servers, %v replicas", servers, replicas)
	}
	if _, err := os.Stat(filepath.Join(Dir, "examples", "dev.yaml")); err != nil {
		t.Error(err)
	}
}
