package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// step is one command of a list, and how it went.
type step struct {
	name, command string
	result        string
	wall, cpu     time.Duration
	again         []string // commands that repeat a failure
}

// steps runs NAME=COMMAND after NAME=COMMAND, also after a failure, and prints a table of them.
func steps(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gate steps", flag.ContinueOnError)
	from := flags.String("from", "", "the first step; those before are left out")
	table := flags.String("table", "", "a file for the table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := parseSteps(flags.Args(), *from)
	if err != nil {
		return err
	}
	failed := false
	for i, s := range all {
		if ctx.Err() != nil {
			s.result = "not run"
			continue
		}
		fmt.Printf("\n== step %d of %d: %s\n", i+1, len(all), s.name)
		s.run(ctx, os.Stdout)
		failed = failed || s.result != "ok"
		if *table != "" { // a step that never ends must not cost the table of the others
			if err := os.WriteFile(*table, []byte(tableOf(all[:i+1])), 0o644); err != nil {
				return err
			}
		}
	}
	fmt.Print("\n", tableOf(all))
	if failed || ctx.Err() != nil {
		return errFailed
	}
	return nil
}

func parseSteps(args []string, from string) (all []*step, err error) {
	for _, arg := range args {
		name, command, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q: want NAME=COMMAND", arg)
		}
		all = append(all, &step{name: name, command: command})
	}
	if from == "" {
		return all, nil
	}
	var names []string
	for i, s := range all {
		if s.name == from {
			return all[i:], nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("there is no step %q; the steps are %s", from, strings.Join(names, ", "))
}

// run runs a step. Its output goes to out.
func (s *step) run(ctx context.Context, out io.Writer) {
	began := time.Now()
	c := exec.CommandContext(ctx, "bash", "-c", s.command)
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that an interrupt ends what the step has started
	r, w := io.Pipe()
	c.Stdout, c.Stderr = w, w
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			_, _ = io.WriteString(out, line) // a closed output must not end the step
			s.note(line)
			if err != nil {
				return
			}
		}
	}()
	err := c.Run()
	_ = w.Close()
	<-read
	s.wall = time.Since(began)
	if c.ProcessState != nil {
		s.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	switch {
	case ctx.Err() != nil:
		s.result = "stopped"
	case err != nil:
		s.result = "FAILED"
	default:
		s.result = "ok"
	}
}

// again finds the command that a test prints for its repetition.
var again = regexp.MustCompile(`again: (make .*|go test .*)`)

func (s *step) note(line string) {
	if m := again.FindStringSubmatch(line); m != nil && len(s.again) < 10 {
		s.again = append(s.again, strings.TrimSpace(m[1]))
	}
}

// tableOf prints steps as a table in Markdown.
func tableOf(all []*step) string {
	var b strings.Builder
	b.WriteString("| step | result | wall s | CPU s | to repeat it |\n| --- | --- | ---: | ---: | --- |\n")
	for _, s := range all {
		repeat := ""
		if s.result != "ok" {
			repeat = "`make " + s.name + "`"
			for _, command := range s.again {
				repeat += ", `" + command + "`"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.0f | %s |\n", s.name, s.result, s.wall.Seconds(), s.cpu.Seconds(), repeat)
	}
	return b.String()
}
