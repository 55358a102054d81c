package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
)

// readWith reads the settings of the worker from a file, variables and flags.
func readWith(t *testing.T, file string, env map[string]string, args ...string) (app.Config, settings.Reading, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rondo.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c := app.Defaults(app.Worker)
	r, problems := settings.Read(&c, settings.For(settings.Worker), append(args, "--config", path),
		func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		})
	var said []string
	for _, p := range problems {
		said = append(said, strings.ReplaceAll(p.Error(), path, "FILE"))
	}
	return c, r, strings.Join(said, "\n")
}

func TestFileWithSettings(t *testing.T) {
	c, r, problems := readWith(t, `
# of all commands
nats: [nats://a:4222, nats://b:4222]
slots: 7
slots-per-activity: {charge: 4, ship: 2}
tags: gpu
log-level: debug
shutdown-timeout: 5s
partitions: 16
database: postgres://somebody@somewhere/rondo   # of the orchestrator
worker-id:
`, map[string]string{"RONDO_SLOTS": "8", "RONDO_SHUTDOWN_TIMEOUT": "6s"}, "--shutdown-timeout", "7s")
	if problems != "" {
		t.Fatal(problems)
	}
	if c.NATS.URLs != "nats://a:4222,nats://b:4222" || c.Worker.Slots != 8 ||
		c.Worker.SlotsPerActivity["charge"] != 4 || c.Worker.SlotsPerActivity["ship"] != 2 ||
		c.ShutdownTimeout.String() != "7s" || c.Log.Level.String() != "DEBUG" || c.Streams.Partitions != 16 ||
		c.Worker.ID != "" {
		t.Errorf("%+v", c)
	}
	if r.From["shutdown-timeout"] != "flag" || r.From["slots"] != "environment" ||
		!strings.HasSuffix(r.From["tags"], "rondo.yaml") || r.From["worker-id"] != "" {
		t.Errorf("%v", r.From)
	}
}

func TestWrongFilesWithSettings(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"all problems at once", "slots: many\nslot: 3\nshutdown-timeout: [1, [2]]\n",
			"FILE: slot is no setting; did you mean slots?|FILE: shutdown-timeout, line 3: want a list of " +
				"words|FILE: slots: "},
		{"no YAML", "slots: 3\n\tshutdown-timeout: 5s\n", "FILE: line 2"},
		{"no names", "- slots\n", "FILE: "},
		{"said twice", "slots: 3\nslots: 4\n", "already defined"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, problems := readWith(t, c.file, nil)
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(problems, want) {
					t.Errorf("%s\nwant %s", problems, want)
				}
			}
		})
	}
	c := app.Defaults(app.Worker)
	_, problems := settings.Read(&c, settings.For(settings.Worker), nil, func(name string) (string, bool) {
		return "/nowhere.yaml", name == "RONDO_CONFIG"
	})
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "/nowhere.yaml") {
		t.Errorf("%v", problems)
	}
	_, problems = settings.Read(&c, settings.For(settings.Worker), []string{"--config"}, os.LookupEnv)
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "name of a file") {
		t.Errorf("%v", problems)
	}
}
