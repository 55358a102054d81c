package helm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
)

// elsewhere are the settings that have a value of their own in the chart, or make no sense there,
// with the value to use instead.
var elsewhere = map[string]string{
	"nats": "nats.urls", "nats-context": "nats", "nats-creds": "nats.auth", "nats-nkey": "nats.auth",
	"nats-user": "nats.auth", "nats-password": "nats.auth", "nats-token": "nats.auth",
	"nats-inbox-prefix": "nats.auth.inboxPrefix",
	"nats-tls-ca":       "nats.tls", "nats-tls-cert": "nats.tls", "nats-tls-key": "nats.tls",
	"nats-tls-first": "nats.tls",
	"prefix":         "streams", "partitions": "streams", "replicas": "streams", "database": "database",
	"tags":        "workers",
	"slots":       "workers",
	"jobs-listen": "jobs", "jobs-access": "jobs.access", "jobs-tls-cert": "jobs.tls",
	"jobs-tls-key": "jobs.tls", "jobs-client-ca": "jobs.tls.clientCA",
	"listen": "", "check": "", "streams": "migration.streams", "orchestrator-id": "", "worker-id": "", "dir": "",
	"nats-listen": "", "demo": "",
}

// settingsFor are the settings of some commands. Those of the sections in without must be the same
// for all commands, so they are left out.
func settingsFor(commands []app.Command, without ...string) (all []settings.Setting) {
	for _, s := range settings.For("") {
		if _, is := elsewhere[s.Name]; is || slices.Contains(without, s.Section) {
			continue
		}
		for _, c := range commands {
			if slices.ContainsFunc(settings.For(string(c)), func(x settings.Setting) bool { return x.Name == s.Name }) {
				all = append(all, s)
				break
			}
		}
	}
	return all
}

// settingsSchema describes them. Each has the name that it has for the program.
func settingsSchema(about string, settings []settings.Setting) schema {
	p := props{}
	for _, s := range settings {
		p[s.Name] = settingSchema(s)
	}
	return object(about, p)
}

var choices = regexp.MustCompile(`is none of (.+)$`)

// settingSchema derives the schema of a setting from its error for an invalid value.
func settingSchema(s settings.Setting) schema {
	about := strings.ReplaceAll(s.Help, "`", "") + " (" + s.Env + ")"
	about = strings.ToUpper(about[:1]) + about[1:]
	if s.Switch {
		return boolean(about)
	}
	c := app.Defaults(app.Dev)
	err := s.Set(&c, "?")
	if err == nil {
		return text(about)
	}
	what := err.Error()
	switch m := choices.FindStringSubmatch(what); {
	case m != nil:
		return oneOf(about, strings.Split(m[1], ", ")...)
	case strings.Contains(what, "is not a duration"):
		return duration(about)
	case strings.Contains(what, "is not a name with a number"):
		return schema{"description": about, "type": []any{"object", "string"},
			"additionalProperties": schema{"type": "number", "exclusiveMinimum": 0}}
	case strings.Contains(what, "is no number"):
		return schema{"description": about, "type": "number", "minimum": 0}
	case strings.Contains(what, "is not a number"):
		return schema{"description": about, "type": "integer"}
	case strings.Contains(what, "is not a size"):
		return size(about)
	}
	panic(fmt.Sprintf("nobody knows of what kind --%s is: %s", s.Name, what))
}
