package helm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Dir is where the chart is, from the directory of this package.
const Dir = "../../deploy/helm/rondo"

// Release is Helm's data about the release. The zero value is a first installation of "rondo" in
// the namespace "rondo".
type Release struct {
	Name, Namespace string
	Revision        int
	KubeVersion     string // v1.33.0 if it is empty
	// Cluster is where templates look objects up; nil is nowhere, as for `helm template`.
	Cluster engine.ClientProvider
}

// Object is one object that was rendered.
type Object struct {
	// Template is the file that it comes from, Raw its YAML.
	Template, Raw string

	APIVersion string
	Kind       string
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	}
}

// ID names the object.
func (o Object) ID() string { return o.Kind + "/" + o.Metadata.Name }

// Decode reads the object into a type. Unknown and duplicate names are errors.
func (o Object) Decode(into any) error {
	if err := sigsyaml.UnmarshalStrict([]byte(o.Raw), into); err != nil {
		return fmt.Errorf("%s of %s: %w", o.ID(), o.Template, err)
	}
	return nil
}

// Hooks are the events before or after which Helm makes the object; none if it belongs to the
// release itself. Weight is their order.
func (o Object) Hooks() (events []string, weight int) {
	for e := range strings.SplitSeq(o.Metadata.Annotations["helm.sh/hook"], ",") {
		if e = strings.TrimSpace(e); e != "" {
			events = append(events, e)
		}
	}
	weight, _ = strconv.Atoi(o.Metadata.Annotations["helm.sh/hook-weight"])
	return events, weight
}

// Rendering is the result of a chart with some values.
type Rendering struct {
	Objects []Object
	Notes   string
	// Values are those that were used: the given ones over the defaults of the chart.
	Values map[string]any
}

// Find returns an object by its kind and name.
func (r *Rendering) Find(kind, name string) (Object, bool) {
	i := slices.IndexFunc(r.Objects, func(o Object) bool { return o.Kind == kind && o.Metadata.Name == name })
	if i < 0 {
		return Object{}, false
	}
	return r.Objects[i], true
}

// Of returns all objects of a kind.
func (r *Rendering) Of(kind string) (all []Object) {
	for _, o := range r.Objects {
		if o.Kind == kind {
			all = append(all, o)
		}
	}
	return all
}

// Render renders a chart as `helm template` does: the values are checked against its schema, and
// later ones win.
func Render(dir string, release Release, values ...map[string]any) (*Rendering, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	return renderChart(c, release, values...)
}

func renderChart(c *chart.Chart, release Release, values ...map[string]any) (*Rendering, error) {
	merged := map[string]any{}
	for _, v := range values {
		merged = loader.MergeMaps(merged, v)
	}
	caps := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion(cmp.Or(release.KubeVersion, "v1.33.0"))
	if err != nil {
		return nil, err
	}
	caps.KubeVersion = *version
	if c.Metadata.KubeVersion != "" && !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, caps.KubeVersion.String()) {
		return nil, fmt.Errorf("the chart wants Kubernetes %s, and this is %s", c.Metadata.KubeVersion,
			caps.KubeVersion.Version)
	}
	all, err := util.ToRenderValues(c, merged, common.ReleaseOptions{
		Name: cmp.Or(release.Name, "rondo"), Namespace: cmp.Or(release.Namespace, "rondo"),
		Revision: max(release.Revision, 1), IsInstall: release.Revision < 2, IsUpgrade: release.Revision > 1,
	}, caps)
	if err != nil {
		return nil, err
	}
	files, err := renderFiles(c, all, release.Cluster)
	if err != nil {
		return nil, err
	}
	r := &Rendering{}
	if r.Values, err = asMap(all["Values"]); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.Notes = files[name]
			continue
		}
		objects, err := split(name, files[name])
		if err != nil {
			return nil, err
		}
		r.Objects = append(r.Objects, objects...)
	}
	return r, nil
}

func renderFiles(c *chart.Chart, all common.Values, cluster engine.ClientProvider) (map[string]string, error) {
	if cluster != nil {
		return engine.RenderWithClientProvider(c, all, cluster)
	}
	return engine.Engine{}.RenderWithContext(context.Background(), c, all)
}

func asMap(v any) (m map[string]any, err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return m, json.Unmarshal(data, &m)
}

// split takes the objects of a rendered file apart.
func split(name, text string) (objects []Object, err error) {
	documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		raw, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		o := Object{Template: name,
			Raw: strings.TrimSpace(strings.TrimPrefix(string(bytes.TrimSpace(raw)), "---")) + "\n"}
		if strings.TrimSpace(o.Raw) == "" {
			continue
		}
		if err := sigsyaml.Unmarshal(raw, &o); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, raw)
		}
		if o.Kind == "" || o.Metadata.Name == "" {
			return nil, fmt.Errorf("%s: an object without a kind or a name:\n%s", name, raw)
		}
		objects = append(objects, o)
	}
}

// ReadValues reads files with values.
func ReadValues(paths ...string) (map[string]any, error) {
	merged := map[string]any{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		values, err := ParseValues(string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		merged = loader.MergeMaps(merged, values)
	}
	return merged, nil
}

// ParseValues reads values as a file with values has them.
func ParseValues(text string) (map[string]any, error) {
	return loader.LoadValues(strings.NewReader(text))
}

// decodeLoosely reads only a part of an object.
func decodeLoosely(o Object, into any) error { return sigsyaml.Unmarshal([]byte(o.Raw), into) }
