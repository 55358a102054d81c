package helm

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// live is a cluster that has Deployments, by their names.
type live map[string]map[string]any

func (l live) GetClientFor(_, _ string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return liveDeployments{live: l}, true, nil
}

type liveDeployments struct {
	dynamic.NamespaceableResourceInterface
	live live
}

func (d liveDeployments) Namespace(string) dynamic.ResourceInterface { return d }

func (d liveDeployments) Get(_ context.Context, name string, _ metav1.GetOptions,
	_ ...string) (*unstructured.Unstructured, error) {
	if o, ok := d.live[name]; ok {
		return &unstructured.Unstructured{Object: o}, nil
	}
	return nil, errors.NewNotFound(apischema.GroupResource{Resource: "deployments"}, name)
}

// deployment is a Deployment with a number of Pods, and the managers of its fields.
func deployment(replicas int, managers ...any) map[string]any {
	return map[string]any{"metadata": map[string]any{"managedFields": managers},
		"spec": map[string]any{"replicas": int64(replicas)}}
}

func manages(manager, operation string, replicas bool) any {
	spec := map[string]any{"f:template": map[string]any{}}
	if replicas {
		spec["f:replicas"] = map[string]any{}
	}
	return map[string]any{"manager": manager, "operation": operation, "fieldsV1": map[string]any{"f:spec": spec}}
}

// TestReplicas checks which manager sets the number of Pods. With an autoscaler, the chart repeats
// a number that Helm owns, because Kubernetes makes 1 of a number that is removed. The chart does
// not repeat a number that another manager owns, where Helm would refuse to share it.
func TestReplicas(t *testing.T) {
	const hpa, keda = `hpa: {enabled: true}`,
		`keda: {enabled: true, monitoringEndpoint: "n:8222", taskQueues: [{activity: a}]}`
	apply := func(mine bool) any { return manages("helm", "Apply", mine) }
	controller := manages("kube-controller-manager", "Update", true)
	for _, c := range []struct {
		name, scaler string
		cluster      live
		want         int // -1 for a Deployment that does not say it
	}{
		{"no autoscaler, whatever there is", "", live{"rondo-worker-default": deployment(7, apply(true))}, 3},
		{"a first installation", hpa, live{}, -1},
		{"no cluster to look at", hpa, nil, -1},
		{"Helm 4, turned on", hpa, live{"rondo-worker-default": deployment(4, apply(true))}, 4},
		{"Helm 4, turned on, with KEDA", keda, live{"rondo-worker-default": deployment(4, apply(true))}, 4},
		{"Helm 4, the autoscaler has changed it", hpa,
			live{"rondo-worker-default": deployment(7, apply(false), controller)}, -1},
		{"Helm 4, shared with the autoscaler", hpa,
			live{"rondo-worker-default": deployment(7, controller, apply(true))}, 7},
		{"Helm 3, turned on", hpa, live{"rondo-worker-default": deployment(4, manages("helm", "Update", true))}, 4},
		{"Helm 3, the autoscaler has changed it", hpa,
			live{"rondo-worker-default": deployment(7, manages("helm", "Update", false), controller)}, 7},
		{"Helm 3, KEDA has taken the last one away", keda,
			live{"rondo-worker-default": deployment(0, manages("helm", "Update", false), controller)}, 0},
		{"nobody knows who manages it", hpa, live{"rondo-worker-default": deployment(5)}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			values, err := ParseValues(
				`{database: {existingSecret: db}, workers: {pools: {default: {replicas: 3, autoscaling: {` +
					c.scaler + `}}}}}`)
			if err != nil {
				t.Fatal(err)
			}
			release := Release{Revision: 2}
			if c.cluster != nil {
				release.Cluster = c.cluster
			}
			r, err := Render(Dir, release, values)
			if err != nil {
				t.Fatal(err)
			}
			o, _ := r.Find("Deployment", "rondo-worker-default")
			var d appsv1.Deployment
			if err := o.Decode(&d); err != nil {
				t.Fatal(err)
			}
			got := -1
			if d.Spec.Replicas != nil {
				got = int(*d.Spec.Replicas)
			}
			if got != c.want {
				t.Errorf("%d Pods, want %d", got, c.want)
			}
		})
	}
}
