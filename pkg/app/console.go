package app

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/pkg/events"
)

// console prints what a developer reads while dev runs.
type console struct {
	out       io.Writer
	name, dir string
	code      code
	try       func(dir string) []string // nil: commands of nats
	token     bool                      // clients of queues need one
}

func (c *console) print(format string, args ...any) {
	fmt.Fprintf(c.out, format+"\n", args...)
}

// welcome says where everything is, and how to begin.
func (c *console) welcome(at Addresses, recovered int) {
	c.print("%s runs: %s", c.name, c.code)
	if recovered > 0 {
		c.print("The process before was killed; NATS has recovered %d of its streams, and instances resume.", recovered)
	}
	c.print("")
	c.print("  NATS       %s, streams in %s", at.NATS, filepath.Join(c.dir, natsDir))
	c.print("  database   %s", at.Database)
	if at.Health != "" {
		c.print("  health     %s/readyz", at.Health)
	}
	if at.JobQueues != "" {
		c.print("  queues     %s", at.JobQueues)
	}
	names := c.code.orchestrations.Names()
	switch {
	case c.try != nil:
		c.print("")
		c.print("Try, in another terminal:")
		c.print("")
		for _, command := range c.try(c.dir) {
			c.print("  %s", command)
		}
	case len(names) > 0:
		c.tryStart(names[0], at)
	}
	if at.JobQueues != "" {
		c.tryQueues(at.JobQueues)
	}
	c.print("")
	c.print("Ctrl-C ends it. Everything is kept in %s, and the next start goes on from there.", c.dir)
	c.print("")
}

// tryStart says how to start an instance, with an input that the orchestration takes.
func (c *console) tryStart(name string, at Addresses) {
	input := "'<JSON>'"
	if example := c.code.orchestrations.ExampleInput(name); len(example) > 0 {
		input = quoted(string(example))
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		dir = c.dir
	}
	server := ""
	if at.NATS != defaultNATS {
		server = "--server " + at.NATS + " "
	}
	c.print("")
	c.print("Start an instance in another terminal, with the command rondo or any NATS client. " +
		"How it ends is told here.")
	c.print("")
	c.print("  rondo start %s %s --id my-1 --dir %s", quoted(name), input, quoted(dir))
	c.print("  nats %spub %s.start.%s.my-2 %s", server, at.Prefix, quoted(events.EncodeToken(name)), input)
}

// tryQueues says how to begin with queues.
func (c *console) tryQueues(at string) {
	token := ""
	if c.token {
		token = ` -H "Authorization: Bearer $TOKEN"`
	}
	c.print("")
	c.print("Anything that speaks HTTP can use queues:")
	c.print("")
	c.print(`  curl%s -d '{"item": {"task": 1}}' %s/queue/my-queue/push`, token, at)
	c.print(`  curl%s -X POST '%s/queue/my-queue/pop?require_ack=true'`, token, at)
}

// quoted writes a word as a shell takes it.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// ends tells how instances end. While the demonstration prints, that waits, so that no line comes
// into the middle of it.
type ends struct {
	tellEnd func(query.Notification)

	mu      sync.Mutex
	held    bool
	waiting []query.Notification
}

func (e *ends) note(n query.Notification) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held {
		e.waiting = append(e.waiting, n)
		return
	}
	e.tellEnd(n)
}

func (e *ends) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.waiting {
		e.tellEnd(n)
	}
	e.held, e.waiting = false, nil
}

// tellEnd prints the end of an instance that a developer has started by hand.
func (c *console) tellEnd(n query.Notification) {
	e, ok := n.Ended()
	switch {
	case !ok:
	case e.Large:
		c.print("%s: %s is %s", e.Instance, e.Name, e.Status)
	case e.Error != nil:
		c.print("%s: %s is %s: %s", e.Instance, e.Name, e.Status, printable.Below(e.Error.Error(), "  "))
	default:
		c.print("%s: %s is %s with %s", e.Instance, e.Name, e.Status, e.Output)
	}
}
