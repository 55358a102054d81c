package settings

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rondo-run/rondo/internal/columns"
)

// Print writes the values of a table, and the source of each.
func Print(w io.Writer, table []Setting, value func(Setting) string, r Reading) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, s := range table {
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Name, cmp.Or(value(s), "-"), cmp.Or(r.From[s.Name], "default"))
	}
	return t.Flush()
}

// WriteHelp explains the settings of a command. The defaults are a configuration. More has the
// ends of explanations, by the names of settings.
func WriteHelp(w io.Writer, command string, defaults any, more map[string]string) {
	section := ""
	for _, s := range For(command) {
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
		if d := s.defaultOf(defaults); d != "" {
			fmt.Fprintf(w, " (%s)", d)
		}
		fmt.Fprintf(w, "\n      %s\n", columns.Wrap(help+more[s.Name], "      ", 6))
	}
}

// explained gives the word that stands for the value, and the help without its backticks.
func (s Setting) explained() (hint, help string) {
	help = strings.ReplaceAll(s.Help, "`", "")
	if parts := strings.Split(s.Help, "`"); len(parts) == 3 {
		return parts[1], help
	}
	return s.kind.hint, help
}

// defaultOf is the default as help shows it.
func (s Setting) defaultOf(defaults any) string {
	value := s.Get(defaults)
	if s.Switch && value == "false" {
		return ""
	}
	return value
}

// WritePage writes all settings as tables, for documents. The defaults of a command are a
// configuration.
func WritePage(w io.Writer, defaults func(command string) any) error {
	var b strings.Builder
	b.WriteString(columns.Paragraphs("# Settings\n\n" +
		"This page is made from the table of settings in `internal/settings`; " +
		"a test checks that it is up to date.\n\nA flag wins over a variable, which wins over the YAML file that " +
		"`--config` or `RONDO_CONFIG` names (with lines like `slots: 8`), which wins over what the program says, " +
		"which wins over the default. A secret, and the address of the database, can also stand in a file that the " +
		"variable with `_FILE` at its end names. The last column lists the commands that take it; a default in " +
		"brackets is that of `dev`.\n"))
	section := ""
	for _, s := range For("") {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, "\n## %s\n\n| flag | variable | default | what it is | commands |\n| --- | --- | --- | "+
				"--- | --- |\n", section)
		}
		_, help := s.explained()
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s | %s |\n", s.Name, s.Env, s.markdownDefault(defaults),
			strings.ReplaceAll(help, "*", `\*`), joinCommands(s.of))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Setting) markdownDefault(defaults func(command string) any) string {
	quoted := func(command string) string {
		if v := s.defaultOf(defaults(command)); v != "" {
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

func joinCommands(of []string) string {
	if slices.Equal(of, everywhere) {
		return "all"
	}
	return strings.Join(of, ", ")
}
