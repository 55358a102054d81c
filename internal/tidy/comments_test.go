package tidy

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

func TestPackageComments(t *testing.T) {
	byDir := make(map[string][]*source)
	for _, f := range tree(t) {
		if !f.test {
			byDir[f.dir] = append(byDir[f.dir], f)
		}
	}
	for dir, files := range byDir {
		report(t, checkPackageComment(dir, files))
	}
}

func checkPackageComment(dir string, files []*source) []string {
	var said []*source
	for _, f := range files {
		if f.file.Doc != nil {
			said = append(said, f)
		}
	}
	name := files[0].file.Name.Name
	want := "Package " + name + " "
	if name == "main" {
		want = "Command " + path.Base(dir) + " "
	}
	switch {
	case len(said) == 0:
		return []string{fmt.Sprintf(
			"%s: package %s has no package comment: say in one sentence, beginning with %q, what it is, above the "+
				"package line of the file that has its name", dir, name, want)}
	case len(said) > 1:
		return []string{fmt.Sprintf("%s: package %s has a package comment here and in %s: keep one", said[1].path, name,
			said[0].path)}
	case !strings.HasPrefix(said[0].file.Doc.Text(), want):
		return []string{fmt.Sprintf("%s: begin the package comment with %q", said[0].at(said[0].file.Doc.Pos()), want)}
	}
	return nil
}

func commentOf(f *source) []string { return checkPackageComment(f.dir, []*source{f}) }
