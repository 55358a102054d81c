package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// printer prints the results of commands: text for terminals, or JSON for programs.
type printer struct {
	out, problems io.Writer // what clients and code have said is printable on both
	screen        io.Writer // problems, for escape sequences of the program itself
	terminal      bool      // problems go to one
	output        string    // the format: text or json
	now           func() time.Time
}

// asJSON reports whether the output is JSON, for programs.
func (p *printer) asJSON() bool { return p.output == "json" }

// output keeps the first error of writing, for commands that print without checking it. It writes
// nothing after that.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(b []byte) (n int, err error) {
	if o.err == nil {
		n, o.err = o.to.Write(b)
	}
	return n, o.err
}

// helpOutput takes the help that cobra prints. Cobra would print an error of writing it, too.
type helpOutput struct{ *output }

func (o helpOutput) Write(b []byte) (int, error) {
	_, _ = o.output.Write(b) // output keeps the error
	return len(b), nil
}

// json prints a value on one line, with payloads as they are.
func (p *printer) json(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := p.out.Write(b.Bytes())
	return err
}

// print prints a sentence. Line breaks in its arguments begin no line of their own.
func (p *printer) print(format string, args ...any) error {
	_, err := fmt.Fprintln(p.out, printable.Below(fmt.Sprintf(format, args...), "  "))
	return err
}

// done prints the result of a command: a sentence, or a value as JSON for programs.
func (p *printer) done(v any, format string, args ...any) error {
	if p.asJSON() {
		return p.json(v)
	}
	return p.print(format, args...)
}

// maxPadded is the width up to which a cell widens its column: one long id must not push the other
// columns of all rows off the screen.
const maxPadded = 48

// table prints rows under a head. A cell that is wider than its column moves the rest of its row.
func (p *printer) table(head []string, rows [][]string) error {
	lines := [][]string{head}
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = printable.Line(cell)
		}
		lines = append(lines, cells)
	}
	width := make([]int, len(head))
	for _, l := range lines {
		for i, cell := range l[:len(l)-1] {
			if n := utf8.RuneCountInString(cell); n <= maxPadded {
				width[i] = max(width[i], n)
			}
		}
	}
	var b strings.Builder
	for _, l := range lines {
		for i, cell := range l[:len(l)-1] {
			fmt.Fprintf(&b, "%-*s  ", width[i], cell)
		}
		b.WriteString(l[len(l)-1] + "\n")
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

// row prints a value beside its name, which has a column of some width. Later lines of the value
// are indented.
func (p *printer) row(width int, name, format string, args ...any) {
	text := printable.Below(fmt.Sprintf(format, args...), strings.Repeat(" ", width+1))
	fmt.Fprintf(p.out, "%-*s %s\n", width, name, text)
}

// ago formats how long ago a moment was.
func (p *printer) ago(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return span(p.now().Sub(at)) + " ago"
}

// span formats a duration in short form: two units at most.
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

// maxArgument bounds the bytes read from a file or the standard input: no payload may be larger.
const maxArgument = events.MaxPayload

// payload reads JSON from an argument: itself, @file for a file, or - for the standard input.
func (c *cli) payload(what string, args []string, at int) (codec.Payload, error) {
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
	case !utf8.Valid(data): // the parser would replace these bytes without a word
		return nil, misuse("%s is not valid UTF-8: %s; encode it as UTF-8", from, clip(string(data)))
	case bytes.HasPrefix(data, []byte("\ufeff")):
		return nil, misuse("%s begins with a byte order mark: %s; save it as UTF-8 without one", from,
			clip(string(data)))
	case !json.Valid(data):
		return nil, misuse("%s is not valid JSON: %s%s", from, clip(string(data)), jsonHint(data))
	}
	return codec.Payload(bytes.TrimSpace(data)), nil
}

// jsonHint returns a hint for invalid JSON: the quoted text, or the parser's error.
func jsonHint(data []byte) string {
	text := strings.TrimSpace(string(data))
	if text == "" {
		return ""
	}
	inside, isObject := strings.CutPrefix(text, "{")
	inside = strings.TrimLeft(inside, " ")
	if text[0] == '\'' || isObject && inside != "" && (inside[0] == '\\' || unicode.IsLetter(rune(inside[0]))) {
		return "; the shell may have changed the quotes: put the JSON into a file, and give @FILE instead"
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
