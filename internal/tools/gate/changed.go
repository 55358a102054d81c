package main

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lines is a range of lines of a file, both ends included.
type lines struct{ from, to int }

// changes has the lines that differ from a branch, by file. A file that git does not know yet has
// all its lines.
type changes map[string][]lines

// changed prints the packages that differ from a branch, with -tests also the tests.
func changed(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gate changed", flag.ContinueOnError)
	base := flags.String("base", "main", "the branch to compare with")
	tests := flags.Bool("tests", false, "print the tests that differ, a line a package")
	module := flags.String("module", "", "leave out packages of other modules than that in this directory")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := changesSince(ctx, *base)
	if err != nil {
		return err
	}
	for _, dir := range c.packages() {
		if *module != "" && moduleOf(dir) != filepath.Clean(*module) {
			continue
		}
		if !*tests {
			fmt.Println(dir)
			continue
		}
		names, err := c.testsOf(dir)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			fmt.Println(dir, strings.Join(names, " "))
		}
	}
	return nil
}

// hunk is the head of a hunk of a diff: where it lies in the new file.
var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

func changesSince(ctx context.Context, base string) (changes, error) {
	fork, err := git(ctx, "merge-base", base, "HEAD")
	if err != nil {
		return nil, err
	}
	diff, err := git(ctx, "diff", "--unified=0", "--no-color", "--no-ext-diff", strings.TrimSpace(fork))
	if err != nil {
		return nil, err
	}
	c := parseDiff(diff)
	others, err := git(ctx, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	for _, file := range strings.Fields(others) {
		c[file] = []lines{{1, 1 << 30}}
	}
	return c, nil
}

func parseDiff(diff string) changes {
	c := make(changes)
	file := ""
	for line := range strings.Lines(diff) {
		if name, ok := strings.CutPrefix(line, "+++ "); ok {
			file, _ = strings.CutPrefix(strings.TrimSpace(name), "b/")
			if file == "/dev/null" {
				file = ""
			}
			continue
		}
		m := hunk.FindStringSubmatch(line)
		if m == nil || file == "" {
			continue
		}
		from, _ := strconv.Atoi(m[1])
		n := 1
		if m[2] != "" {
			n, _ = strconv.Atoi(m[2])
		}
		c[file] = append(c[file], lines{from, from + max(n, 1) - 1}) // removed lines lie after line from
	}
	return c
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// packages lists the directories with Go files that differ, or with files below a testdata.
func (c changes) packages() []string {
	dirs := make(map[string]bool)
	for file := range c {
		dir, data, is := strings.Cut(file, "/testdata/")
		switch {
		case is && data != "":
		case strings.HasSuffix(file, ".go"):
			dir = path.Dir(file)
		default:
			continue
		}
		if sources, _ := filepath.Glob(dir + "/*.go"); len(sources) > 0 {
			dirs["./"+dir] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// testsOf lists the tests of a package that differ, or that use functions of its test files that
// differ.
func (c changes) testsOf(dir string) ([]string, error) {
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil {
		return nil, err
	}
	uses := make(map[string][]string) // what a declaration uses, by name
	differ := make(map[string]bool)
	for _, file := range files {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		of := c[strings.TrimPrefix(path.Clean(file), "./")]
		for _, d := range f.Decls {
			at := lines{set.Position(d.Pos()).Line, set.Position(d.End()).Line}
			for _, name := range namesOf(d) {
				uses[name] = append(uses[name], usedBy(d)...)
				if slices.ContainsFunc(of, func(l lines) bool { return l.from <= at.to && at.from <= l.to }) {
					differ[name] = true
				}
			}
		}
	}
	var tests []string
	for name := range uses {
		if strings.HasPrefix(name, "Test") && name != "TestMain" && reaches(name, uses, differ, make(map[string]bool)) {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests, nil
}

// namesOf returns the names that a declaration declares.
func namesOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// usedBy returns all identifiers within a declaration.
func usedBy(d ast.Decl) (names []string) {
	ast.Inspect(d, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}

// reaches reports whether a name differs, or uses one that does.
func reaches(name string, uses map[string][]string, differ, been map[string]bool) bool {
	if differ[name] {
		return true
	}
	if been[name] {
		return false
	}
	been[name] = true
	return slices.ContainsFunc(uses[name], func(used string) bool { return reaches(used, uses, differ, been) })
}
