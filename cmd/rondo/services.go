package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
)

// services are the commands that any program has which is made with package app. Those of this one
// have the code of examples/orders.
func services() (all []*cobra.Command) {
	for _, s := range []struct {
		command     app.Command
		short, long string
	}{
		{app.Dev, "Run a whole system in this process, with everything in one directory",
			"It needs no NATS server and no database. --demo shows an order from beginning to end."},
		{app.Orchestrator, "Run the service that decides what happens next", "It needs NATS and the database."},
		{app.Worker, "Run the service that executes activities", "It needs NATS."},
		{app.Migrate, "Bring the tables of the database up to date",
			"Any number of processes may do it at once. With --check it only says whether they are."},
	} {
		cmd := &cobra.Command{
			Use: string(s.command) + " [settings]", Short: s.short, Long: s.short + ". " + s.long,
			DisableFlagParsing: true,
			// app.Main reads the arguments of the process itself, and exits.
			Run: func(cmd *cobra.Command, args []string) {
				if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
					printOfExample(cmd)
				}
				app.Main(append(shop.Parts, app.Configure(advise))...)
			},
			ValidArgsFunction: func(_ *cobra.Command, _ []string, begun string) (names []string,
				_ cobra.ShellCompDirective) {
				for _, x := range settings.For(string(s.command)) {
					if name := "--" + x.Name; strings.HasPrefix(name, begun) {
						names = append(names, name+"\t"+strings.ReplaceAll(x.Help, "`", ""))
					}
				}
				return names, cobra.ShellCompDirectiveNoFileComp
			},
		}
		cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { // the help is about the settings
			printOfExample(cmd)
			os.Args = []string{os.Args[0], "help", string(s.command)}
			app.Main(shop.Parts...)
		})
		all = append(all, cmd)
	}
	return all
}

// printOfExample begins the help of a service: what runs is not the code of the reader.
func printOfExample(cmd *cobra.Command) {
	if cmd.Name() != string(app.Migrate) {
		fmt.Fprint(cmd.OutOrStdout(), "This command runs the code of examples/orders. Your own program has it, too, "+
			"with your code.\n\n")
	}
}

// advise sets the commands that dev suggests when it runs.
func advise(c *app.Config) {
	usual := c.Dir
	c.Try = func(dir string) (commands []string) {
		where := ""
		if dir != usual {
			where = " --dir " + argument(dir)
		}
		for _, what := range []string{
			`start fulfil '{"sku":"piano","cents":900000,"card":"1111","ship_to":"Bremen"}' --id order-1`,
			`show order-1`,
			`raise order-1 approve '{"by":"ann","ok":true}'`,
			`history order-1`,
		} {
			commands = append(commands, argument(os.Args[0])+" "+what+where)
		}
		return commands
	}
}
