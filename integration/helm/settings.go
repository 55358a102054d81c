package helm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/pkg/app"
)

// elsewhere are the settings that have a value of their own in the chart, or make no sense there,
// with what to say instead.
var elsewhere = map[string]string{
	"nats": "nats.urls", "nats-context": "nats", "nats-creds": "nats.auth", "nats-nkey": "nats.auth",
	"nats-user": "nats.auth", "nats-password": "nats.auth", "nats-token": "nats.auth",
	"nats-inbox-prefix": "nats.auth.inboxPrefix",
	"nats-tls-ca":       "nats.tls", "nats-tls-cert": "nats.tls", "nats-tls-key": "nats.tls",
	"nats-tls-first": "nats.tls",
	"prefix":         "streams", "partitions": "streams", "replicas": "streams", "database": "database",
	"tags":          "workers",
	"slots":         "workers",
	"queues-listen": "queues", "queues-access": "queues.access", "queues-tls-cert": "queues.tls",
	"queues-tls-key": "queues.tls", "queues-client-ca": "queues.tls.clientCA",
	"listen": "", "check": "", "streams": "migration.streams", "orchestrator-id": "", "worker-id": "", "dir": "",
	"nats-listen": "", "demo": "",
}

// settingsFor are the settings that may be said for some commands. Those of sections that are left
// out must be the same for all, so they can only be said for all.
func settingsFor(commands []app.Command, without ...string) (all []app.Setting) {
	for _, s := range app.Settings("") {
		if _, is := elsewhere[s.Name]; is || slices.Contains(without, s.Section) {
			continue
		}
		for _, c := range commands {
			if slices.ContainsFunc(app.Settings(c), func(x app.Setting) bool { return x.Name == s.Name }) {
				all = append(all, s)
				break
			}
		}
	}
	return all
}

// settingsSchema describes them. Each has the name that it has for the program.
func settingsSchema(about string, settings []app.Setting) schema {
	p := props{}
	for _, s := range settings {
		p[s.Name] = settingSchema(s)
	}
	return object(about, p)
}

var choices = regexp.MustCompile(`is none of (.+)$`)

// settingSchema asks the setting what it takes: what it says about nonsense tells of what kind it
// is.
func settingSchema(s app.Setting) schema {
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
