package app

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
)

const module = "github.com/rondo-run/rondo"

// version says which binary it is.
type version struct {
	program string
	// version is that of the program's module, revision the commit it was built from.
	version, revision string
	modified          bool
	// rondo is the version of this module.
	rondo string
}

// Version says which build of a program this is.
func Version(program string) string { return versionOf(program).String() }

func versionOf(name string) version {
	v := version{program: name, version: "unknown", rondo: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.version = info.Main.Version
	if info.Main.Path == module {
		v.rondo = info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == module {
			v.rondo = d.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.revision = s.Value
		case "vcs.modified":
			v.modified = s.Value == "true"
		}
	}
	return v
}

// String says it in a line.
func (v version) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", v.program, v.version)
	if v.revision != "" {
		fmt.Fprintf(&b, ", revision %.12s", v.revision)
		if v.modified {
			b.WriteString(" with changes")
		}
	}
	fmt.Fprintf(&b, "; rondo %s, engine %d, %s", v.rondo, events.Engine, runtime.Version())
	return b.String()
}
