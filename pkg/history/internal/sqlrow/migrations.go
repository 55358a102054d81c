package sqlrow

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Migration is a file that takes the tables one version further.
type Migration struct {
	Version    int
	Name, Text string
}

// Migrations are the files of a directory whose names begin with their versions, 1, 2, 3, …. They
// only go forward, and a file that was released never changes.
func Migrations(files fs.FS) []Migration {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	slices.Sort(names)
	list := make([]Migration, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			panic(fmt.Sprintf("migration %s should have number %d", name, i+1))
		}
		list[i] = Migration{version, name, string(text)}
	}
	return list
}
