package app_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
)

var rewrite = flag.Bool("rewrite", false, "write settings.md anew")

// TestTable checks the rules for each line of the table.
func TestTable(t *testing.T) {
	good := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	names, variables := map[string]bool{}, map[string]bool{}
	for _, s := range settings.For("") {
		if !good.MatchString(s.Name) || names[s.Name] {
			t.Errorf("%q is no good name, or stands twice", s.Name)
		}
		if !strings.HasPrefix(s.Env, "RONDO_") || variables[s.Env] {
			t.Errorf("--%s: the variable %q does not begin with RONDO_, or stands twice", s.Name, s.Env)
		}
		names[s.Name], variables[s.Env] = true, true
		if s.Help == "" || strings.HasSuffix(s.Help, ".") || strings.Contains(s.Help, "|") ||
			strings.Count(s.Help, "`")%2 != 0 {
			t.Errorf("--%s: its help is %q; want words without a full stop and without |", s.Name, s.Help)
		}
	}
	if len(names) < 50 {
		t.Errorf("there are %d settings; where are the others?", len(names))
	}
}

// TestDefaultsAreGood also checks that a value that was read from its own text is the same.
func TestDefaultsAreGood(t *testing.T) {
	for _, command := range []app.Command{app.Dev, app.Orchestrator, app.Worker, app.Migrate} {
		c := app.Defaults(command)
		c.Database.URL = "x.db"
		if _, err := app.New(c, parts...); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		for _, s := range settings.For(string(command)) {
			before := s.Get(&c)
			if err := s.Set(&c, before); err != nil {
				t.Errorf("%s --%s: its default %q is not good: %v", command, s.Name, before, err)
			}
			if after := s.Get(&c); after != before {
				t.Errorf("%s --%s: %q becomes %q", command, s.Name, before, after)
			}
		}
	}
}

func TestAFlagWinsOverAVariableWhichWinsOverWhatThereWas(t *testing.T) {
	c := app.Defaults(app.Worker)
	c.Worker.Slots, c.Worker.MaxSessions, c.Streams.Prefix = 7, 8, "mine"
	r, problems := settings.Read(&c, settings.For(settings.Worker),
		[]string{"--slots", "9", "-task-ack-wait=1m", "--slots=10", "--nats-tls-first", "rest"},
		environment("RONDO_SLOTS", "11", "RONDO_MAX_SESSIONS", "12", "RONDO_NATS_URL", "", "RONDO_TAGS", "gpu, _"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if c.Worker.Slots != 10 || c.Worker.MaxSessions != 12 || c.Streams.Prefix != "mine" ||
		c.Streams.TaskAckWait != time.Minute || !c.NATS.TLSFirst {
		t.Errorf("slots %d, sessions %d, prefix %s, wait %v, TLS %v", c.Worker.Slots, c.Worker.MaxSessions,
			c.Streams.Prefix, c.Streams.TaskAckWait, c.NATS.TLSFirst)
	}
	if !slices.Equal(c.Worker.Tags, []string{"gpu", "_"}) {
		t.Errorf("tags %q", c.Worker.Tags)
	}
	if !slices.Equal(r.Rest, []string{"rest"}) || r.From["slots"] != "flag" ||
		r.From["max-sessions"] != "environment" || r.From["prefix"] != "" || r.From["nats"] != "" {
		t.Errorf("%+v", r)
	}
}

// An empty variable is not set, but an empty flag is an error: the program must not connect to the
// default servers because a variable of the shell is not set.
func TestAnEmptyFlagIsAnError(t *testing.T) {
	for _, args := range [][]string{{"--nats", ""}, {"--nats="}, {"--nats", " "},
		{"--nats", "", "--nats", "nats://a"}} {
		c := app.Defaults(app.Worker)
		_, problems := settings.Read(&c, settings.For(settings.Worker), args, environment("RONDO_TAGS", ""))
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), "--nats: the value is empty") {
			t.Errorf("%q: %v", args, problems)
		}
	}
}

func TestSizesAndDurations(t *testing.T) {
	c := app.Defaults(app.Orchestrator)
	for _, v := range []struct{ name, value, want string }{
		{"max-instance-memory", "2GiB", "2GiB"}, {"max-instance-memory", "1048576", "1MiB"},
		{"max-instance-memory", "1000", "1000"}, {"max-instance-memory", "512 KiB", "512KiB"},
		{"max-instance-memory", "1GB", `"1GB" is not a size`},
		{"max-instance-memory", "9999999999GiB", "is not a size"}, {"max-instance-memory", "0", "want at least 1"},
		{"retention", "30d", "30d"}, {"retention", "36h", "36h"}, {"retention", "90m", "1h30m"},
		{"retention", "-1s", "want at least 0s"}, {"retention", "1y", "is not a duration"},
	} {
		for _, s := range settings.For(settings.Orchestrator) {
			if s.Name != v.name {
				continue
			}
			got := ""
			if err := s.Set(&c, v.value); err != nil {
				got = err.Error()
			} else {
				got = s.Get(&c)
			}
			if !strings.Contains(got, v.want) {
				t.Errorf("--%s %s: %s, want %s", v.name, v.value, got, v.want)
			}
		}
	}
}

func TestSecretsMayStandInFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := app.Defaults(app.Worker)
	r, problems := settings.Read(&c, settings.For(settings.Worker), nil, environment("RONDO_NATS_PASSWORD_FILE", file))
	if len(problems) > 0 || c.NATS.Password != "hush" || r.From["nats-password"] != "file" {
		t.Errorf("%q from %v, %v", c.NATS.Password, r.From, problems)
	}
	_, problems = settings.Read(&c, settings.For(settings.Worker), nil,
		environment("RONDO_NATS_PASSWORD_FILE", file, "RONDO_NATS_PASSWORD", "x", "RONDO_NATS_TOKEN_FILE", file+"x"))
	if got := errors.Join(problems...).Error(); !strings.Contains(got, "are mutually exclusive") ||
		!strings.Contains(got, "RONDO_NATS_TOKEN_FILE: open") {
		t.Error(got)
	}
}

// TestEverythingThatIsWrongIsToldAtOnce checks the words, too: an operator needs them for the
// repair.
func TestEverythingThatIsWrongIsToldAtOnce(t *testing.T) {
	code, _, problems := inside(t, environment("RONDO_PARTITIONS", "many", "RONDO_SCHEMA", "perhaps"),
		"orchestrator", "--nats-urll", "nats://x", "--step-concurrency=0", "--retention", "forever", "--nats-creds",
		"a",
		"--nats-token", "b", "--listen", "here",
		"--nats-tls-cert", "c", "--sweep-every", "again", "--max-messages", "3", "--log-level", "loud", "--replicas")
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		`--nats-urll: there is no such setting; did you mean --nats?`,
		`--step-concurrency: 0; want at least 1`,
		`--retention: "forever" is not a duration; write it like 30s, 5m, 12h or 30d`,
		`--nats-creds, --nats-token: choose one way to log in`,
		`--listen: "here" is not an address like 127.0.0.1:8080`,
		`a certificate needs its key`,
		`--sweep-every: "again"`,
		`--max-messages: 3 are less than the 500 that one round may take`,
		`--log-level: "loud" is none of debug, error, info, warn`,
		`--replicas: it needs a value`,
		`RONDO_PARTITIONS: "many" is not a number`,
		`RONDO_SCHEMA: "perhaps" is none of migrate, verify`,
		`--database: which database? Say it with --database or RONDO_DATABASE_URL`,
		`13 things are wrong with the settings`,
		"help orchestrator` lists the settings",
	} {
		if !strings.Contains(problems, want) {
			t.Errorf("missing: %s\nin: %s", want, problems)
		}
	}
}

// TestAWrongVariableIsOneProblem names the variable, and not the flag that it stands for.
func TestAWrongVariableIsOneProblem(t *testing.T) {
	for variable, want := range map[string]string{
		"RONDO_SLOTS=0":                    "the settings: RONDO_SLOTS: 0; want at least 1\n",
		"RONDO_PREFIX=1x":                  "the settings: RONDO_PREFIX: \"1x\"; want a letter",
		"RONDO_SLOTS=99999999999999999999": "is out of range; want -9223372036854775808 to 9223372036854775807\n",
	} {
		name, value, _ := strings.Cut(variable, "=")
		code, _, problems := inside(t, environment(name, value), "worker")
		if code != 2 || !strings.Contains(problems, want) {
			t.Errorf("%s: it exits with %d and says %s", variable, code, problems)
		}
	}
}

func TestCommandsAreExplained(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "Begin with: "},
		{[]string{"help"}, 0, "help <command>"},
		{[]string{"--help"}, 0, "help <command>"},
		{[]string{"help", "worker"}, 0, "--slots number                   RONDO_SLOTS (100)"},
		{[]string{"worker", "-h"}, 0, "maximum number of concurrent activities"},
		{[]string{"help", "wroker"}, 2, "did you mean worker?"},
		{[]string{"wroker"}, 2, "did you mean worker?"},
		{[]string{"version"}, 0, "engine 1"},
		{[]string{"worker", "twice"}, 2, `"twice": only settings can follow "worker"`},
		{[]string{"worker", "--slots-per-activity", "gret=1"}, 2,
			`the program has no activity "gret"; did you mean greet?`},
		{[]string{"worker", "--slots-per-activity", "greet=0,x"}, 2, `"greet=0" is not a name with a number above 0`},
		{[]string{"worker", "--nats-pasword", "x"}, 2, "did you mean --nats-password?"},
		{[]string{"worker", "--tags", "*,a"}, 2, "stands alone"},
		{[]string{"dev", "--dir", "/dev/null/x"}, 1, "choose another one with --dir"},
	} {
		code, out, problems := inside(t, environment(), c.args...)
		if code != c.code || !strings.Contains(out+problems, c.want) {
			t.Errorf("%q: code %d, want %d and %q in: %s%s", c.args, code, c.code, c.want, out, problems)
		}
	}
}

func TestPrintConfigHidesSecrets(t *testing.T) {
	const secret = "hush-hush"
	code, out, problems := inside(t, environment("RONDO_NATS_PASSWORD", secret), "orchestrator", "--nats-user", "ann",
		"--database", "postgres://ann:"+secret+"@db/rondo", "--nats", "nats://ann:"+secret+"@nats:4222",
		"--print-config")
	if code != 0 || strings.Contains(out+problems, secret) {
		t.Errorf("exit code %d: %s%s", code, out, problems)
	}
	for _, want := range []string{
		`nats-password +\(hidden\) +environment`, `database +postgres://ann:\(hidden\)@db/rondo +flag`,
		`nats +nats://ann:\(hidden\)@nats:4222 +flag`,
		`connect-timeout +1m +default`, `listen +127\.0\.0\.1:7071 +default`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("missing: %s\nin: %s", want, out)
		}
	}
	code, out, _ = inside(t, environment(), "migrate", "--database", "host=db password='a b' user=ann",
		"--print-config")
	if code != 0 || strings.Contains(out, "a b") || !strings.Contains(out, "host=db password=(hidden) user=ann") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestSettingsPage checks that the page about the settings is what the table says.
func TestSettingsPage(t *testing.T) {
	var b bytes.Buffer
	err := settings.WritePage(&b, func(command string) any {
		c := app.Defaults(app.Command(command))
		return &c
	})
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile("settings.md", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("settings.md")
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("settings.md is not what the table says (%v): run go test ./pkg/app -run TestSettingsPage -rewrite",
			err)
	}
}

func TestPartsThatDoNotFit(t *testing.T) {
	c := app.Defaults(app.Worker)
	if _, err := app.New(c, sleepy); err == nil || !strings.Contains(err.Error(), "the program has no activities") {
		t.Error(err)
	}
	if _, err := app.New(c, greeting, greeting); err == nil || !strings.Contains(err.Error(), "registered twice") {
		t.Error(err)
	}
	c = app.Defaults("wroker")
	if _, err := app.New(c, greeting); err == nil || !strings.Contains(err.Error(), `no command "wroker"`) {
		t.Error(err)
	}
	c = app.Defaults(app.Worker)
	c.Worker.Slots, c.Streams.Verify = -1, true
	if _, err := app.New(c, greeting); err == nil || !strings.Contains(err.Error(), "--slots: -1") {
		t.Error("a value that a program sets is checked, too:", err)
	}
}

func environment(pairs ...string) settings.Environment {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func inside(t *testing.T, env settings.Environment, args ...string) (code int, out, problems string) {
	t.Helper()
	return app.RunInside(t.Context(), env, args, parts...)
}
