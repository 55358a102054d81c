package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// asJSON tells whether the output is for programs.
func (c *cli) asJSON() bool { return c.output == "json" }

// json prints a value on one line, with payloads as they are.
func (c *cli) json(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := c.out.Write(b.Bytes())
	return err
}

func (c *cli) print(format string, args ...any) error {
	_, err := fmt.Fprintf(c.out, format+"\n", args...)
	return err
}

// done prints what was done: a sentence for people, a value for programs.
func (c *cli) done(v any, format string, args ...any) error {
	if c.asJSON() {
		return c.json(v)
	}
	return c.print(format, args...)
}

// table prints rows under a head.
func (c *cli) table(head []string, rows [][]string) error {
	t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// ago tells how long ago something was.
func (c *cli) ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return span(c.now().Sub(at)) + " ago"
}

// span is a time as people say it: two units at most.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// maxArgument bounds what is read from a file or the standard input: no payload may be larger.
const maxArgument = events.MaxPayload

// payload reads JSON from an argument: itself, @file for a file, or - for the standard input.
func (c *cli) payload(what string, args []string, at int) (events.Payload, error) {
	if at >= len(args) {
		return nil, nil
	}
	data, from := []byte(args[at]), "the "+what
	var err error
	switch name, isFile := strings.CutPrefix(args[at], "@"); {
	case args[at] == "-":
		from = "the standard input"
		data, err = io.ReadAll(io.LimitReader(c.in, maxArgument+1))
	case isFile:
		from = name
		data, err = os.ReadFile(name)
	}
	switch {
	case err != nil:
		return nil, usageError{fmt.Errorf("the %s: %w", what, err)}
	case len(data) > maxArgument:
		return nil, misuse("%s has more than %d bytes", from, maxArgument)
	case !json.Valid(data):
		return nil, misuse("%s is no JSON: %s%s", from, clip(string(data)), jsonHint(data))
	}
	return events.Payload(bytes.TrimSpace(data)), nil
}

// jsonHint says how somebody may have meant it.
func jsonHint(data []byte) string {
	text := strings.TrimSpace(string(data))
	if text == "" {
		return ""
	}
	if !strings.ContainsAny(text[:1], `{["`) {
		quoted, _ := json.Marshal(text) // a text always has a form
		return fmt.Sprintf("; a text is written as '%s'", quoted)
	}
	var v any
	return fmt.Sprintf(" (%v)", json.Unmarshal(data, &v))
}

// clip shortens a text for an error.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%.*q…", most, s)
	}
	return fmt.Sprintf("%q", s)
}
