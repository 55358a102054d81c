package helm

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// set is one set of values, and its rendering.
type set struct {
	name, path string
	release    Release
	*Rendering
}

var readSets = sync.OnceValues(func() (sets []set, err error) {
	paths, err := filepath.Glob(filepath.Join(Dir, "examples", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(paths, filepath.Join("testdata", "everything.yaml")) {
		s := set{name: strings.TrimSuffix(filepath.Base(path), ".yaml"), path: path}
		if s.name == "everything" {
			s.release = Release{Name: "everything", Namespace: "shop", Revision: 3}
		}
		values, err := ReadValues(path)
		if err != nil {
			return nil, err
		}
		if s.Rendering, err = Render(Dir, s.release, values); err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	return sets, nil
})

// eachSet runs a check with all examples, and with a set that has all other values.
func eachSet(t *testing.T, look func(t *testing.T, s set)) {
	t.Helper()
	sets, err := readSets()
	if err != nil {
		t.Fatal(err)
	}
	if len(sets) < 10 {
		t.Fatalf("there are %d sets of values", len(sets))
	}
	for _, s := range sets {
		t.Run(s.name, func(t *testing.T) { look(t, s) })
	}
}

// TestManifests compares the rendered objects with golden files, so that each change of the chart
// shows.
func TestManifests(t *testing.T) {
	var names []string
	eachSet(t, func(t *testing.T, s set) {
		names = append(names, s.name+".yaml")
		var b strings.Builder
		for _, o := range s.Objects {
			b.WriteString("---\n# " + o.Template + "\n")
			raw := o.Raw
			if o.Kind == "PrometheusRule" || o.Metadata.Labels["grafana_dashboard"] != "" {
				// a copy of a large file, which has a test of its own
				raw, _, _ = strings.Cut(raw, "\ndata:")
				raw, _, _ = strings.Cut(raw, "\nspec:")
				raw += "\n# and so on\n"
			}
			b.WriteString(raw)
		}
		b.WriteString("---\n# NOTES.txt\n")
		for line := range strings.Lines(strings.TrimSpace(s.Notes) + "\n") {
			b.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
		}
		expect(t, filepath.Join("testdata", "manifests", s.name+".yaml"), []byte(b.String()))
	})
	there, err := filepath.Glob(filepath.Join("testdata", "manifests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if !slices.Contains(names, filepath.Base(path)) {
			t.Errorf("%s belongs to no set of values any more", path)
		}
	}
}
