package helm

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Pods returns the Pod template of a Deployment, a Job or a Pod; nil for other objects.
func (o Object) Pods() (*corev1.PodTemplateSpec, error) {
	switch o.Kind {
	case "Deployment":
		var d appsv1.Deployment
		err := o.Decode(&d)
		return &d.Spec.Template, err
	case "Job":
		var j batchv1.Job
		err := o.Decode(&j)
		return &j.Spec.Template, err
	case "Pod":
		var p corev1.Pod
		err := o.Decode(&p)
		return &corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}, err
	}
	return nil, nil
}

// Process is a container of the chart as a process of this machine.
type Process struct {
	Object    Object
	Container corev1.Container
	Pods      *corev1.PodTemplateSpec
	// Args are the arguments, without the program. Env are the variables, like PATH=/bin, with
	// those that came from Secrets.
	Args, Env []string
}

// Lookup returns a variable.
func (p Process) Lookup(name string) (value string, ok bool) {
	for _, e := range p.Env {
		if v, is := strings.CutPrefix(e, name+"="); is {
			value, ok = v, true
		}
	}
	return value, ok
}

// mounted is the directory in containers below which the chart mounts all files.
const mounted = "/etc/rondo/"

// Process makes a process of the first container of an object, which is the one of the chart. It
// writes the container's files below dir, and changes the paths in variables to that. secrets are
// the Secrets and ConfigMaps that the release expects to exist, by name and key.
func (r *Rendering) Process(o Object, dir string, secrets map[string]map[string]string) (p Process, err error) {
	p.Object = o
	if p.Pods, err = o.Pods(); err != nil {
		return p, err
	}
	if p.Pods == nil {
		return p, fmt.Errorf("%s has no Pods", o.ID())
	}
	p.Container = p.Pods.Spec.Containers[0]
	if err := r.writeFiles(p, dir, secrets); err != nil {
		return p, err
	}
	env, err := r.variables(o, p.Container, secrets)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if rest, ok := strings.CutPrefix(value, mounted); ok {
			value = filepath.Join(dir, rest)
		}
		p.Env = append(p.Env, name+"="+value)
	}
	p.Args = expand(p.Container.Args, env)
	return p, err
}

// expand puts variables into arguments, as a kubelet does.
func expand(args, env []string) []string {
	var pairs []string
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		pairs = append(pairs, "$("+name+")", value)
	}
	r, out := strings.NewReplacer(pairs...), make([]string, 0, len(args))
	for _, a := range args {
		out = append(out, r.Replace(a))
	}
	return out
}

// annotation returns the content of a file of the downward API.
func annotation(annotations map[string]string, item corev1.DownwardAPIVolumeFile) (string, error) {
	name, ok := strings.CutPrefix(item.FieldRef.FieldPath, "metadata.annotations['")
	name, closed := strings.CutSuffix(name, "']")
	text, there := annotations[name]
	if !ok || !closed || !there {
		return "", fmt.Errorf("the Pod has nothing at %s", item.FieldRef.FieldPath)
	}
	return text, nil
}

// variables are those of a container, in their order.
func (r *Rendering) variables(o Object, c corev1.Container,
	secrets map[string]map[string]string) (env []string, err error) {
	values := map[string]string{}
	for _, e := range c.Env {
		value := e.Value
		switch from := e.ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil:
			if value, err = r.entry("Secret", from.SecretKeyRef.Name, from.SecretKeyRef.Key, secrets); err != nil {
				return nil, fmt.Errorf("%s: the variable %s: %w", o.ID(), e.Name, err)
			}
		case from.FieldRef != nil:
			value = map[string]string{
				"metadata.name": o.Metadata.Name + "-0", "metadata.namespace": o.Metadata.Namespace,
				"metadata.uid": newUID(), "spec.nodeName": "node",
			}[from.FieldRef.FieldPath]
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			value = strings.ReplaceAll(value, "$("+name+")", values[name])
		}
		values[e.Name] = value
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

// newUID makes up the uid of a Pod. Each Pod has another one.
func newUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (r *Rendering) writeFiles(p Process, dir string, secrets map[string]map[string]string) error {
	for _, m := range p.Container.VolumeMounts {
		below, ok := strings.CutPrefix(m.MountPath, mounted)
		if !ok {
			continue
		}
		i := slices.IndexFunc(p.Pods.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return fmt.Errorf("%s: there is no volume %s", p.Object.ID(), m.Name)
		}
		var kind, name string
		var items []corev1.KeyToPath
		file := func(name, text string) error {
			if err := os.MkdirAll(filepath.Join(dir, below), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, below, name), []byte(text), 0o600)
		}
		switch v := p.Pods.Spec.Volumes[i]; {
		case v.DownwardAPI != nil:
			for _, item := range v.DownwardAPI.Items {
				text, err := annotation(p.Pods.Annotations, item)
				if err == nil {
					err = file(item.Path, text)
				}
				if err != nil {
					return fmt.Errorf("%s: the volume %s: %w", p.Object.ID(), m.Name, err)
				}
			}
		case v.Secret != nil:
			kind, name, items = "Secret", v.Secret.SecretName, v.Secret.Items
		case v.ConfigMap != nil:
			kind, name, items = "ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items
		default:
			return fmt.Errorf("%s: the volume %s has no files", p.Object.ID(), m.Name)
		}
		for _, item := range items {
			text, err := r.entry(kind, name, item.Key, secrets)
			if err != nil {
				return fmt.Errorf("%s: the volume %s: %w", p.Object.ID(), m.Name, err)
			}
			if err := file(item.Path, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry looks a key up, in the rendered objects or in the existing Secrets.
func (r *Rendering) entry(kind, name, key string, secrets map[string]map[string]string) (string, error) {
	if o, ok := r.Find(kind, name); ok {
		var data struct {
			Data, StringData map[string]string
		}
		if err := decodeLoosely(o, &data); err != nil {
			return "", err
		}
		value, ok := data.StringData[key]
		if !ok {
			value, ok = data.Data[key]
		}
		if !ok {
			return "", fmt.Errorf("%s has no key %s", o.ID(), key)
		}
		return value, nil
	}
	value, ok := secrets[name][key]
	if !ok {
		return "", fmt.Errorf("%s %s is not in the release, and nobody has made its key %s", kind, name,
			cmp.Or(key, `""`))
	}
	return value, nil
}
