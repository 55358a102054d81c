package helm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// types has everything that the chart makes.
var types = map[string]func() any{
	"v1 ConfigMap":                            func() any { return &corev1.ConfigMap{} },
	"v1 Secret":                               func() any { return &corev1.Secret{} },
	"v1 Service":                              func() any { return &corev1.Service{} },
	"v1 ServiceAccount":                       func() any { return &corev1.ServiceAccount{} },
	"v1 Pod":                                  func() any { return &corev1.Pod{} },
	"apps/v1 Deployment":                      func() any { return &appsv1.Deployment{} },
	"batch/v1 Job":                            func() any { return &batchv1.Job{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policyv1.PodDisruptionBudget{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() any { return &autoscalingv2.HorizontalPodAutoscaler{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networkingv1.NetworkPolicy{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &monitoringv1.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return &monitoringv1.PrometheusRule{} },
	"keda.sh/v1alpha1 ScaledObject":           func() any { return &scaledObject{} },
}

// TestManifestsAreWhatKubernetesTakes decodes everything into the types of Kubernetes and of the
// operators. Unknown and duplicate names are refused.
func TestManifestsAreWhatKubernetesTakes(t *testing.T) {
	used := map[string]bool{}
	eachSet(t, func(t *testing.T, s set) {
		for _, o := range s.Objects {
			kind := o.APIVersion + " " + o.Kind
			used[kind] = true
			if types[kind] == nil {
				t.Errorf("%s: nobody knows what a %s is", o.Template, kind)
				continue
			}
			if err := o.Decode(types[kind]()); err != nil {
				t.Error(err)
			}
			at := field.NewPath(o.ID())
			errs := metav1validation.ValidateLabels(o.Metadata.Labels, at.Child("labels"))
			errs = append(errs, apivalidation.ValidateAnnotations(o.Metadata.Annotations, at.Child("annotations"))...)
			for _, wrong := range apivalidation.NameIsDNSSubdomain(o.Metadata.Name, false) {
				t.Errorf("%s: %s", o.ID(), wrong)
			}
			if err := errs.ToAggregate(); err != nil {
				t.Error(err)
			}
		}
		seen := map[string]string{}
		for _, o := range s.Objects {
			if before, twice := seen[o.ID()]; twice {
				t.Errorf("%s stands in %s and in %s", o.ID(), before, o.Template)
			}
			seen[o.ID()] = o.Template
		}
	})
	for kind := range types {
		if !used[kind] {
			t.Errorf("no set of values leads to a %s", kind)
		}
	}
}

// TestDecodingNotices makes sure that the decoding is as strict as it should be.
func TestDecodingNotices(t *testing.T) {
	for raw, want := range map[string]string{
		"kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, imagee: b}]}": "imagee",
		"kind: Pod\nmetadata: {name: x}\nspec: {containers: []}\nspec: {}":           "spec",
		"kind: Pod\nmetadata: {name: x}\nspec: {terminationGracePeriodSeconds: \"thirty\"}": "termination" +
			"GracePeriodSeconds",
	} {
		objects, err := split("x.yaml", raw)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s in it", raw, err, want)
			}
			continue
		}
		if err := objects[0].Decode(&corev1.Pod{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s in it", raw, err, want)
		}
	}
}

// TestScaledObjects checks conditions that the types do not express.
func TestScaledObjects(t *testing.T) {
	found := make(map[string]int)
	eachSet(t, func(t *testing.T, s set) {
		for _, o := range s.Of("ScaledObject") {
			var scaled scaledObject
			if err := o.Decode(&scaled); err != nil {
				t.Fatal(err)
			}
			if len(scaled.Spec.Triggers) == 0 || *scaled.Spec.MinReplicaCount > *scaled.Spec.MaxReplicaCount {
				t.Errorf("%s: %+v", o.ID(), scaled.Spec)
			}
			for _, trigger := range scaled.Spec.Triggers {
				scaler := map[string]map[string]bool{
					"nats-jetstream": jetStreamScaler, "prometheus": prometheusScaler}[trigger.Type]
				if scaler == nil {
					continue
				}
				found[trigger.Type]++
				for name := range trigger.Metadata {
					if _, ok := scaler[name]; !ok {
						t.Errorf("%s: the scaler has no %s", o.ID(), name)
					}
				}
				for name, needed := range scaler {
					if needed && trigger.Metadata[name] == "" {
						t.Errorf("%s: the scaler needs %s", o.ID(), name)
					}
				}
			}
		}
	})
	if found["nats-jetstream"] < 5 || found["prometheus"] < 5 {
		t.Errorf("%v triggers were looked at", found)
	}
}

// TestRulesAndBoardsAreCarriedOver checks that the operator gets each alert, and Grafana each
// dashboard.
func TestRulesAndBoardsAreCarriedOver(t *testing.T) {
	original, err := ReadValues("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, g := range original["groups"].([]any) {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			rule := r.(map[string]any)
			want[rule["alert"].(string)] = rule["expr"].(string)
		}
	}
	all, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d dashboards, %v", len(all), err)
	}
	eachSet(t, func(t *testing.T, s set) {
		var left []string
		if s.name == "everything" {
			left = []string{"RondoProcessDown"}
		}
		for _, o := range s.Of("PrometheusRule") {
			var rule monitoringv1.PrometheusRule
			if err := o.Decode(&rule); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, g := range rule.Spec.Groups {
				for _, r := range g.Rules {
					n++
					if r.Expr.String() != want[r.Alert] || slices.Contains(left, r.Alert) || r.For == nil ||
						r.Annotations["runbook"] != "" ||
						!strings.HasPrefix(r.Annotations["runbook_url"], "https://") ||
						!strings.HasSuffix(r.Annotations["runbook_url"], "docs/alerts.md#"+strings.ToLower(r.Alert)) {
						t.Errorf("%s: %+v", r.Alert, r)
					}
				}
			}
			if n != len(want)-len(left) || n < 20 {
				t.Errorf("%s has %d alerts, want %d without %v", o.ID(), n, len(want), left)
			}
		}
		boards := 0
		for _, o := range s.Of("ConfigMap") {
			if o.Metadata.Labels["grafana_dashboard"] == "" {
				continue
			}
			boards++
			var c corev1.ConfigMap
			if err := o.Decode(&c); err != nil {
				t.Fatal(err)
			}
			for name, text := range c.Data {
				if original := readFile(t,
					"../../deploy/grafana/"+strings.TrimPrefix(name, "rondo-")); strings.TrimSpace(original) != text {
					t.Errorf("%s: %s is not what is in deploy/grafana", o.ID(), name)
				}
			}
		}
		if boards != 0 && boards != len(all) || (s.name == "production") != (boards == len(all)) &&
			s.name != "everything" {
			t.Errorf("%d dashboards, want all %d or none", boards, len(all))
		}
	})
}
