package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-run/rondo/internal/columns"
)

// This file has help fit into 80 columns. Examples stay as they are: a command that is broken
// cannot be copied.

// helpText is cobra's own template, with the function wrap.
const helpText = `{{with (or .Long .Short)}}{{wrap .}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

const usageText = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{wrap .Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help")))}}
{{row .Name .Short .NamePadding}}{{end}}{{end}}{{end}}{{if not .AllChildCommandsHaveGroup}}

{{if .Groups}}More commands:{{else}}Commands:{{end}}{{range $cmds}}{{if (and (eq .GroupID "") (or .IsAvailableCommand .IsAdditionalHelpTopicCommand (eq .Name "help")))}}
{{row .Name .Short .NamePadding}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{flags .LocalFlags}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of all commands:
{{flags .InheritedFlags}}

"rondo connecting" lists the flags for users, TLS and prefixes of NATS.{{end}}{{if .HasAvailableSubCommands}}

{{wrap (printf "\"%s [command] --help\" says more about a command." .CommandPath)}}{{end}}
`

func init() {
	cobra.AddTemplateFunc("wrap", columns.Paragraphs)
	cobra.AddTemplateFunc("row", func(name, what string, padding int) string {
		return columns.Row(name, what, padding+3)
	})
	cobra.AddTemplateFunc("flags", flagRows)
}

// flagRows are the flags with their descriptions, which stand below a flag if they do not fit
// beside it.
func flagRows(set *pflag.FlagSet) string {
	set.VisitAll(func(f *pflag.Flag) {
		if _, isSlice := f.Value.(pflag.SliceValue); f.DefValue == "[]" && !isSlice { // nothing is the default
			f.DefValue = ""
		}
	})
	return strings.TrimRight(set.FlagUsagesWrapped(columns.Width), " \n")
}
