// Package version tells which build of a program runs.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
)

const module = "github.com/rondo-run/rondo"

// Of describes the build of a program in one line: its version and revision, and the versions of
// this module, of the engine and of Go.
func Of(program string) string {
	version, revision, rondo, modified := "unknown", "", "unknown", false
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		if info.Main.Path == module {
			rondo = info.Main.Version
		}
		for _, d := range info.Deps {
			if d.Path == module {
				rondo = d.Version
			}
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", program, version)
	if revision != "" {
		fmt.Fprintf(&b, ", revision %.12s", revision)
		if modified {
			b.WriteString(" with changes")
		}
	}
	fmt.Fprintf(&b, "; rondo %s, engine %d, %s", rondo, events.Engine, runtime.Version())
	return b.String()
}
