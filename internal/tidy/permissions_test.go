package tidy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestPermissions checks that every row, every import and every exception in the tables of
// imports_test.go is in use. An unused permission allows an arrow that was never reviewed.
func TestPermissions(t *testing.T) { report(t, checkPermissions(tree(t), packages, testImports)) }

// checkPermissions lists the permissions without a file that needs them. A file with tests needs a
// permission only if none in use grants the same import to its package.
func checkPermissions(files []*source, rows map[string]rule, tests []string) (bad []string) {
	used := make(map[string]bool) // "row import" and "row package.name"; the row of tests is ""
	has := make(map[string]bool)  // rows with a file
	for _, test := range []bool{false, true} {
		for _, f := range files {
			key, ok := rowOf(f.dir, rows)
			if f.test != test || !ok { // checkImports reports missing rows
				continue
			}
			has[key] = true
			for _, i := range f.file.Imports {
				matching := func(list []string) []string {
					return slices.DeleteFunc(slices.Clone(list), func(p string) bool { return !within(ownPath(i), p) })
				}
				mine, row := matching(rows[key].imports), key
				switch granted := slices.ContainsFunc(mine, func(p string) bool { return used[key+" "+p] }); {
				case test && (granted || ownPath(i) == f.dir):
					continue
				case test && len(matching(tests)) > 0:
					mine, row = matching(tests), ""
				}
				for _, p := range mine {
					used[row+" "+p] = true
				}
				used[key+" "+importPath(i)+"."] = !test || used[key+" "+importPath(i)+"."]
			}
			for _, m := range f.mentions {
				used[key+" "+m.pkg+"."+m.name] = !test || used[key+" "+m.pkg+"."+m.name]
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if !has[key] {
			bad = append(bad, fmt.Sprintf("the table of packages has a row for %s, which has no Go file: remove it",
				key))
			continue
		}
		bad = append(bad, unusedIn("the row of "+key, key, rows[key].imports, used)...)
		for _, p := range slices.Sorted(maps.Keys(rows[key].partly)) {
			names := strings.Fields(strings.ReplaceAll(rows[key].partly[p], "*", ""))
			if len(names) == 0 {
				names = []string{""}
			}
			for _, name := range names {
				if !used[key+" "+p+"."+name] {
					bad = append(bad, fmt.Sprintf("the row of %s allows %s, which no file of it uses: remove it", key,
						strings.Trim(p+"."+name, ".")))
				}
			}
		}
	}
	return append(bad, unusedIn("testImports", "", tests, used)...)
}

// unusedIn lists the imports of one list that are unused, or that another entry includes.
func unusedIn(list, key string, imports []string, used map[string]bool) (bad []string) {
	for n, p := range imports {
		wider := slices.IndexFunc(imports, func(other string) bool { return other != p && within(p, other) })
		switch {
		case wider >= 0:
			bad = append(bad, fmt.Sprintf("%s allows %s twice, as %s includes it: remove one", list, p, imports[wider]))
		case slices.Index(imports, p) < n:
			bad = append(bad, fmt.Sprintf("%s allows %s twice: remove one", list, p))
		case !used[key+" "+p]:
			bad = append(bad, fmt.Sprintf("%s allows %s, which no file needs: remove it", list, p))
		}
	}
	return bad
}

func TestUnusedPermissionsAreFound(t *testing.T) {
	var files []*source
	for name, src := range map[string]string{
		"pkg/a/a.go":       `package a; import ("` + module + `/pkg/b"; "log/slog"); var r slog.Record`,
		"pkg/a/a_test.go":  `package a_test; import ("` + module + `/pkg/a"; "` + module + `/pkg/c")`,
		"pkg/b/b.go":       `package b; import "example.com/x/y"; import "context"`,
		"pkg/b/b_test.go":  `package b; import ("example.com/t"; "example.com/x/y")`,
		"examples/e/e.go":  `package e; import "` + module + `/pkg/a"`,
		"pkg/c/sub/c.go":   `package sub`,
		"pkg/new/new.go":   `package new; import "example.com/unknown"`,
		"pkg/c/c_test.go":  `package c; import "log/slog"; var r slog.Record`,
		"pkg/c/sub/c2.go":  `package sub; import "` + module + `/pkg/c/sub"`,
		"pkg/a/doc.go":     `package a`,
		"pkg/b/b2_test.go": `package b; import "` + module + `/pkg/b"`,
	} {
		f, err := parse(name, src)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	rows := func() map[string]rule {
		return map[string]rule{
			"pkg/a":        {imports: []string{"pkg/b", "pkg/c"}, partly: map[string]string{"log/slog": "Record"}},
			"pkg/b":        {imports: []string{"example.com/x/..."}, partly: map[string]string{"context": "*"}},
			"pkg/c":        {},
			"pkg/c/sub":    {imports: []string{"pkg/c/..."}},
			"examples/...": {imports: []string{"pkg/..."}},
		}
	}
	for _, c := range []struct {
		name  string
		tests []string
		edit  func(map[string]rule)
		want  string
	}{
		{"all are used", []string{"example.com/t"}, func(map[string]rule) {}, ""},
		{"granted to the package", []string{"example.com/t", "example.com/x/y"}, func(map[string]rule) {},
			"testImports allows example.com/x/y, which no file needs: remove it"},
		{"unused in tests", []string{"example.com/t", "example.com/u"}, func(map[string]rule) {},
			"testImports allows example.com/u, which no file needs: remove it"},
		{"only a test needs it, and may", []string{"example.com/t", "pkg/c"}, func(map[string]rule) {},
			"the row of pkg/a allows pkg/c, which no file needs: remove it"},
		{"unused", []string{"example.com/t"}, func(rows map[string]rule) {
			rows["pkg/c"] = rule{imports: []string{"pkg/a"}}
		}, "the row of pkg/c allows pkg/a, which no file needs: remove it"},
		{"unused below a directory", []string{"example.com/t"}, func(rows map[string]rule) {
			rows["pkg/c"] = rule{imports: []string{"example.com/x/y/..."}}
		}, "the row of pkg/c allows example.com/x/y/..., which no file needs: remove it"},
		{"included", []string{"example.com/t"}, func(rows map[string]rule) {
			rows["pkg/b"] = rule{imports: []string{"example.com/x/y", "example.com/x/..."}}
		}, "the row of pkg/b allows example.com/x/y twice, as example.com/x/... includes it: remove one"},
		{"twice", []string{"example.com/t", "example.com/t"}, func(map[string]rule) {},
			"testImports allows example.com/t twice: remove one"},
		{"row without files", []string{"example.com/t"}, func(rows map[string]rule) { rows["pkg/gone"] = rule{} },
			"the table of packages has a row for pkg/gone, which has no Go file: remove it"},
		{"unused name", []string{"example.com/t"}, func(rows map[string]rule) {
			rows["pkg/a"].partly["log/slog"] = "Attr Record"
		}, "the row of pkg/a allows log/slog.Attr, which no file of it uses: remove it"},
		{"unused package", []string{"example.com/t"}, func(rows map[string]rule) {
			rows["pkg/a"].partly["math/rand"] = "*"
		}, "the row of pkg/a allows math/rand, which no file of it uses: remove it"},
		{"name that only a test uses", []string{"example.com/t"}, func(rows map[string]rule) {
			rows["pkg/c"] = rule{partly: map[string]string{"log/slog": "Record"}}
		}, "the row of pkg/c allows log/slog.Record, which no file of it uses: remove it"},
	} {
		r := rows()
		c.edit(r)
		if got := strings.Join(checkPermissions(files, r, c.tests), "\n"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
