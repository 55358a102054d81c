package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rondo-run/rondo/internal/columns"
)

// Environment looks a variable up; [os.LookupEnv] is one.
type Environment func(name string) (value string, ok bool)

// Reading is what came of reading settings.
type Reading struct {
	// From says where the value of each setting is from: "flag", "environment", "file" for one that
	// a variable names, the file with settings, or nothing for what the program had before.
	From map[string]string
	// Rest are the arguments that are no settings.
	Rest []string
	// Help and PrintConfig say that somebody wants to read instead of run.
	Help, PrintConfig bool

	file string // with settings
}

// ReadSettings sets what flags, the environment and the file with settings say: a flag wins over a
// variable, which wins over the file, which wins over what there was. The problems are all there
// are.
func ReadSettings(c *Config, table []Setting, args []string, env Environment) (r Reading, problems []error) {
	r.From = make(map[string]string)
	flags, problems := r.split(table, args)
	if r.file == "" {
		r.file, _ = env(configVariable)
	}
	var file map[string]string
	if r.file != "" {
		var bad []error
		file, bad = readFile(r.file)
		problems = append(problems, bad...)
	}
	for _, s := range table {
		values := flags[s.Name]
		if len(values) == 0 {
			problems = append(problems, r.fromEnvironment(c, s, env)...)
			if value := file[s.Name]; value != "" && r.From[s.Name] == "" {
				r.From[s.Name] = r.file
				if err := s.Set(c, value); err != nil {
					problems = append(problems, fmt.Errorf("%s: %s: %w", r.file, s.Name, err))
				}
			}
			continue
		}
		r.From[s.Name] = "flag"
		for _, v := range values { // as usual, the last one counts
			if err := s.Set(c, v); err != nil {
				problems = append(problems, fmt.Errorf("--%s: %w", s.Name, err))
			}
		}
	}
	return r, problems
}

func (r *Reading) fromEnvironment(c *Config, s Setting, env Environment) (problems []error) {
	value, ok := env(s.Env)
	from, where := "environment", s.Env
	if s.Secret || s.Name == "database" {
		file, inFile := env(s.Env + "_FILE")
		switch {
		case inFile && ok:
			return []error{fmt.Errorf("%s and %s_FILE: say one of the two", s.Env, s.Env)}
		case inFile && file != "":
			data, err := os.ReadFile(file)
			if err != nil {
				return []error{fmt.Errorf("%s_FILE: %w", s.Env, err)}
			}
			value, ok, from, where = string(data), true, "file", s.Env+"_FILE"
		}
	}
	if !ok || value == "" { // an empty variable is how many tools write "not set"
		return nil
	}
	r.From[s.Name] = from
	if err := s.Set(c, value); err != nil {
		return []error{fmt.Errorf("%s: %w", where, err)}
	}
	return nil
}

// split takes arguments apart: --name value, --name=value, --switch, and one dash will do.
func (r *Reading) split(table []Setting, args []string) (values map[string][]string, problems []error) {
	values = make(map[string][]string)
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name = strings.TrimPrefix(name, "-")
		if !isFlag || name == "" {
			r.Rest = append(r.Rest, args[i])
			continue
		}
		name, value, hasValue := strings.Cut(name, "=")
		switch name {
		case "h", "help":
			r.Help = true
			continue
		case "print-config":
			r.PrintConfig = true
			continue
		}
		at := slices.IndexFunc(table, func(s Setting) bool { return s.Name == name })
		switch {
		case name == "config" && hasValue && value != "":
			r.file = value
			continue
		case name == "config" && !hasValue && i+1 < len(args):
			i++
			r.file = args[i]
			continue
		case name == "config":
			problems = append(problems, errors.New("--config: it needs the name of a file"))
			continue
		case at < 0:
			problems = append(problems, fmt.Errorf("--%s: there is no such setting%s", name, meant(name, table)))
			if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++ // most likely its value
			}
			continue
		case !hasValue && table[at].Switch:
			value = "true"
		case !hasValue && (i+1 == len(args) || strings.HasPrefix(args[i+1], "--")):
			problems = append(problems, fmt.Errorf("--%s: it needs a value", name))
			continue
		case !hasValue:
			i++
			value = args[i]
		}
		values[name] = append(values[name], value)
	}
	return values, problems
}

// meant names the flag that somebody may have meant, who may also have made a flag of the
// variable's name.
func meant(name string, table []Setting) string {
	var names []string
	of := make(map[string]string)
	for _, s := range table {
		variable := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.Env, envPrefix), "_", "-"))
		of[variable], of[s.Name] = s.Name, s.Name
		names = append(names, s.Name, variable)
	}
	if best := nearest(name, names); best != "" {
		return "; did you mean --" + of[best] + "?"
	}
	return ""
}

// unknownVariables lists the variables that look as if they were settings and are none.
func unknownVariables(environ []string) (problems []string) {
	var known []string
	for _, s := range Settings("") {
		known = append(known, s.Env, s.Env+"_FILE")
	}
	known = append(known, configVariable)
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, envPrefix) && !strings.HasPrefix(name, envPrefix+"TEST_") &&
			!slices.Contains(known, name) {
			problems = append(problems, fmt.Sprintf("the variable %s is no setting%s", name, DidYouMean(name, known)))
		}
	}
	return problems
}

// DidYouMean names what somebody may have meant, to be put behind an error: "; did you mean
// start?", or nothing.
func DidYouMean(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// nearest is the one of several words that a word looks like, "" if it looks like none.
func nearest(name string, known []string) string {
	best, least := "", 1+len(name)/3
	for _, k := range known {
		if d := distance(name, k, least+1); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters that must be changed, added or removed to make b of a. It gives up at
// the limit.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}

// ---- For people.

// PrintConfig writes the settings of a table as they are, and where each is from.
func PrintConfig(w io.Writer, c *Config, table []Setting, r Reading) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, s := range table {
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Name, cmp.Or(effective(s, c), "-"), cmp.Or(r.From[s.Name], "default"))
	}
	return t.Flush()
}

// effective is the value that counts, where it is made of others.
func effective(s Setting, c *Config) string {
	switch s.Name {
	case "listen":
		address, _ := c.listen()
		return address
	case "nats-listen":
		return cmp.Or(c.NATSListen, natsListenDefault)
	case "queues-listen":
		address, _ := c.queuesListen()
		return address
	case "database":
		return withoutPassword(c.database())
	}
	return s.Get(c)
}

// printSettings explains the settings of a command.
func printSettings(w io.Writer, command Command) {
	defaults := Defaults(command)
	section := ""
	for _, s := range Settings(command) {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(w, "\n%s\n", section)
		}
		hint, help := s.explained()
		flag := "--" + s.Name
		if hint != "" {
			flag += " " + hint
		}
		fmt.Fprintf(w, "  %-32s %s", flag, s.Env)
		if d := s.defaultOf(&defaults); d != "" {
			fmt.Fprintf(w, " (%s)", d)
		}
		fmt.Fprintf(w, "\n      %s\n", columns.Wrap(help, "      ", 6))
	}
}

// explained gives the word that stands for the value, and the help without its backticks.
func (s Setting) explained() (hint, help string) {
	help = strings.ReplaceAll(s.Help, "`", "")
	if parts := strings.Split(s.Help, "`"); len(parts) == 3 {
		return parts[1], help
	}
	return s.hint, help
}

// defaultOf is the default as help shows it.
func (s Setting) defaultOf(defaults *Config) string {
	if s.Switch {
		return ""
	}
	return s.Get(defaults)
}

// WriteSettingsPage writes all settings as tables, for documents.
func WriteSettingsPage(w io.Writer) error {
	var b strings.Builder
	b.WriteString(columns.Paragraphs("# Settings\n\nThis page is made from the table of settings in `pkg/app`; a " +
		"test checks that it is up to date.\n\nA flag wins over a variable, which wins over the YAML file that " +
		"`--config` or `RONDO_CONFIG` names (with lines like `slots: 8`), which wins over what the program says, " +
		"which wins over the default. A secret, and the address of the database, can also stand in a file that the " +
		"variable with `_FILE` at its end names. The last column lists the commands that take it; a default in " +
		"brackets is that of `dev`.\n"))
	section := ""
	for _, s := range Settings("") {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, "\n## %s\n\n| flag | variable | default | what it is | commands |\n| --- | --- | --- | "+
				"--- | --- |\n", section)
		}
		_, help := s.explained()
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s | %s |\n", s.Name, s.Env, s.markdownDefault(),
			strings.ReplaceAll(help, "*", `\*`), joinCommands(s.of))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Setting) markdownDefault() string {
	quoted := func(command Command) string {
		defaults := Defaults(command)
		if v := s.defaultOf(&defaults); v != "" {
			return "`" + v + "`"
		}
		return ""
	}
	first := quoted(s.of[len(s.of)-1])
	if dev := quoted(Dev); slices.Contains(s.of, Dev) && dev != first {
		return first + " (" + dev + ")"
	}
	return first
}

func joinCommands(of []Command) string {
	if slices.Equal(of, everywhere) {
		return "all"
	}
	var names []string
	for _, c := range of {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// settingsError makes one error of problems, without repeating any.
func settingsError(problems ...error) error {
	var kept []error
	for _, p := range problems {
		var e *SettingsError
		if errors.As(p, &e) {
			kept = append(kept, e.Problems...)
		} else if p != nil {
			kept = append(kept, p)
		}
	}
	said := make(map[string]bool)
	kept = slices.DeleteFunc(kept, func(err error) bool {
		again := said[err.Error()]
		said[err.Error()] = true
		return again
	})
	if len(kept) == 0 {
		return nil
	}
	return &SettingsError{Problems: kept}
}
