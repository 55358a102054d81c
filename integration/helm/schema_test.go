package helm

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
)

var rewrite = flag.Bool("rewrite", false,
	"write what was made anew: the schema, the table, the copies in files/, the expected manifests")

// expect compares a file with its expected content, or writes it.
func expect(t *testing.T, path string, want []byte) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run go test -rewrite in integration/helm", err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is not what it should be: run go test -rewrite in integration/helm, and read the difference\n%s",
			path, firstDifference(string(have), string(want)))
	}
}

// firstDifference shows the first lines that differ.
func firstDifference(have, want string) string {
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return "line " + string(must(json.Marshal(i+1))) + "\n  there is: " + x + "\n  want:     " + y
		}
	}
	return ""
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// TestSchema also checks that each value in values.yaml has a description, and the other way round
// that each description is of a value that can be reached.
func TestSchema(t *testing.T) {
	made, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	expect(t, filepath.Join(Dir, "values.schema.json"), made)
	var root map[string]any
	if err := json.Unmarshal(made, &root); err != nil {
		t.Fatal(err)
	}
	n := 0
	var described func(path string, node map[string]any)
	described = func(path string, node map[string]any) {
		members, _ := node["properties"].(map[string]any)
		for name, m := range members {
			n++
			member := m.(map[string]any)
			if about, _ := member["description"].(string); about == "" || strings.HasSuffix(about, ".") {
				t.Errorf("%s.%s: its description is %q; want words without a full stop", path, name, about)
			}
			described(path+"."+name, member)
		}
	}
	described("", root)
	for name, d := range root["definitions"].(map[string]any) {
		described(name, d.(map[string]any))
	}
	if n < 300 {
		t.Errorf("%d values are described; where are the others?", n)
	}
}

// TestDefaultsHaveDescriptions walks through values.yaml. The schema makes sure that it has no
// other names.
func TestDefaultsHaveDescriptions(t *testing.T) {
	defaults, err := ReadValues(filepath.Join(Dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range rootValues() {
		if _, ok := defaults[name]; !ok && name != "global" {
			t.Errorf("values.yaml does not have %s", name)
		}
	}
	said := defaults["defaults"].(map[string]any)
	for name := range workloadValues() {
		if _, ok := said[name]; !ok && !slices.Contains([]string{"terminationGracePeriodSeconds", "resources",
			"extraContainers", "initContainers"}, name) {
			t.Errorf("values.yaml does not have defaults.%s", name)
		}
	}
}

// TestReadme checks the table of the chart's README.md.
func TestReadme(t *testing.T) {
	const begin, end = "<!-- values -->\n", "<!-- end of values -->"
	made, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := ReadValues(filepath.Join(Dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := Table(made, defaults)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(Dir, "README.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", path, begin, end)
	}
	expect(t, path, []byte(before+begin+table+end+after))
}

// TestEverySettingHasItsPlace checks that each setting of the program has one place in the chart,
// also new ones.
func TestEverySettingHasItsPlace(t *testing.T) {
	known := map[string]bool{}
	for _, s := range settingsFor([]app.Command{app.Orchestrator, app.Worker, app.Migrate}) {
		known[s.Name] = true
	}
	values := rootValues()
	for _, s := range settings.For("") {
		place, is := elsewhere[s.Name]
		switch {
		case is == known[s.Name]:
			t.Errorf("--%s has %d places", s.Name, map[bool]int{true: 2, false: 0}[is])
		case place != "":
			if first, _, _ := strings.Cut(place, "."); values[first] == nil {
				t.Errorf("--%s: there is no value %s", s.Name, place)
			}
		}
	}
	for name := range elsewhere {
		if !slices.ContainsFunc(settings.For(""), func(s settings.Setting) bool { return s.Name == name }) {
			t.Errorf("%s is no setting any more", name)
		}
	}
}

// TestCopies checks the copies in files/, so that a packaged chart has all that it needs.
func TestCopies(t *testing.T) {
	of := map[string]string{"grafana": "../../deploy/grafana/*.json", "prometheus": "../../deploy/prometheus/*.yaml"}
	for _, dir := range slices.Sorted(maps.Keys(of)) {
		originals, err := filepath.Glob(of[dir])
		if err != nil || len(originals) == 0 {
			t.Fatalf("%s: nothing is there (%v)", of[dir], err)
		}
		var names []string
		for _, o := range originals {
			data, err := os.ReadFile(o)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, filepath.Base(o))
			expect(t, filepath.Join(Dir, "files", dir, filepath.Base(o)), data)
		}
		there, err := os.ReadDir(filepath.Join(Dir, "files", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range there {
			if !slices.Contains(names, f.Name()) {
				t.Errorf("files/%s/%s: there is no such file in deploy/%s any more", dir, f.Name(), dir)
			}
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
