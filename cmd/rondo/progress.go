package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

const (
	// progressAfter is for how long nothing is shown: most commands are faster.
	progressAfter = time.Second
	// lookEvery is how often a known instance is looked at that is waited for.
	lookEvery = 10 * time.Second
	// maxProgress bounds the custom status in the line, so that it fits into one.
	maxProgress = 60
	clearLine   = "\r\x1b[K"
)

// showing does something, and on a terminal shows meanwhile how an instance stands, in a line that
// is gone afterwards.
func (c waitCommands) showing(ctx context.Context, id string, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	p := c.progressOf(id)
	var all sync.WaitGroup
	if !c.terminal {
		all.Go(func() { p.sayWhyNot(ctx) })
		err := do()
		cancel()
		all.Wait()
		return err
	}
	all.Go(func() { p.follow(ctx) })
	all.Go(func() { p.draw(ctx) })
	err := do()
	cancel()
	all.Wait()
	if p.drawn {
		fmt.Fprint(c.screen, clearLine)
	}
	return err
}

// progress is the line that shows how an instance stands.
type progress struct {
	*printer
	client *client.Client
	id     string
	prefix string
	began  time.Time
	drawn  bool
	known  bool // there is such an instance
	silent bool // when this was last looked at, no orchestrator answered
	looked time.Time
	info   client.Instance // as it was last read
	said   client.Status   // why it does not run, as it was last printed

	mu     sync.Mutex
	status string
}

func (c *cli) progressOf(id string) *progress {
	return &progress{printer: &c.printer, client: c.client, id: id, prefix: c.settings.prefix, began: c.now()}
}

// follow hears of changes of the custom status.
func (p *progress) follow(ctx context.Context) {
	for s, err := range p.client.WatchStatus(ctx, p.id) {
		if err != nil {
			return // the wait for the end returns the error
		}
		p.mu.Lock()
		p.status = s.Data.String()
		p.mu.Unlock()
	}
}

// sayWhyNot prints that the instance waited for does not exist, that no orchestrator answers, or
// that it is suspended or halted, where no line shows that.
func (p *progress) sayWhyNot(ctx context.Context) {
	said := false
	for wait := progressAfter; ; wait = lookEvery {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		p.look(ctx)
		stopped := p.stopped(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case stopped != "":
			fmt.Fprintln(p.problems, stopped)
		case p.known || said:
		case p.silent:
			said = true
			fmt.Fprintf(p.problems, "%s; waiting for one\n%s\n", unanswered(p.prefix), answersHint)
		default:
			said = true
			fmt.Fprintf(p.problems, "no instance %s yet; waiting for its start\n", p.id)
		}
	}
}

// look looks how the instance stands: seldom, once it is known to be there.
func (p *progress) look(ctx context.Context) {
	if p.known && p.now().Sub(p.looked) < lookEvery {
		return
	}
	info, err := p.client.Instances().Get(ctx, p.id)
	p.silent = errors.Is(err, broker.ErrNoResponders)
	p.known = p.known || !p.silent && !errors.Is(err, client.ErrNoInstance)
	if p.looked = p.now(); err == nil {
		p.info = info
	}
}

// stopped says once that the instance is suspended or halted, since when, and what resumes it.
// Otherwise, it is empty.
func (p *progress) stopped(ctx context.Context) string {
	if p.said == p.info.Status {
		return ""
	}
	p.said = p.info.Status
	if p.said != client.Suspended && p.said != client.Halted {
		return ""
	}
	return stoppedText(p.info, p.stoppedSince(ctx))
}

// maxStopEvents is how many events since the suspension are read to find it.
const maxStopEvents = 100

// stoppedSince returns when the instance was suspended or halted; zero if it has taken in much
// since then, or that cannot be read.
func (p *progress) stoppedSince(ctx context.Context) (at time.Time) {
	n := 0
	after := max(0, p.info.LastEvent-maxStopEvents)
	for e, err := range p.client.Instances().Events(ctx, p.id, p.info.Execution, after) {
		if n++; err != nil || n > maxStopEvents {
			break
		}
		if e.Fact.Kind() == events.KindSuspended {
			at = e.At
		}
	}
	return at
}

// stoppedText says what a suspended or halted instance waits for.
func stoppedText(i client.Instance, since time.Time) string {
	text := fmt.Sprintf("%s is %s", printable.Line(i.ID), i.Status)
	if !since.IsZero() {
		text += " since " + since.UTC().Format(time.RFC3339)
	}
	if i.Status == client.Suspended {
		return text + "; waiting for `rondo resume " + positional(i.ID) + "`"
	}
	return text + "; waiting until code that fits its history is deployed: `rondo show " + positional(i.ID) +
		"` tells why"
}

// unanswered says that no orchestrator answers. NATS knows that at once, and tells all users.
func unanswered(prefix string) string {
	return fmt.Sprintf("no orchestrator answers with the prefix %q", prefix)
}

// answersHint tells what makes an orchestrator answer.
const answersHint = "is one running, and is --prefix that of the system? `rondo dev` runs one, and so does your " +
	"program with `orchestrator`"

// draw draws the line anew from time to time.
func (p *progress) draw(ctx context.Context) {
	tick := time.NewTicker(progressAfter)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		status := p.status
		p.mu.Unlock()
		if utf8.RuneCountInString(status) > maxProgress {
			status = string([]rune(status)[:maxProgress-1]) + "…"
		}
		if p.look(ctx); ctx.Err() != nil {
			return
		}
		stopped := p.stopped(ctx)
		if p.drawn = true; stopped != "" {
			fmt.Fprintf(p.screen, "%s%s\n", clearLine, stopped)
		}
		since, id := span(p.now().Sub(p.began)), printable.Line(p.id)
		switch {
		case p.known:
		case p.silent:
			fmt.Fprintf(p.screen, "%s%s; waiting %s for one", clearLine, unanswered(p.prefix), since)
			continue
		default:
			fmt.Fprintf(p.screen, "%sno instance %s yet; waiting %s for its start", clearLine, id, since)
			continue
		}
		fmt.Fprintf(p.screen, "%swaiting %s for %s  %s", clearLine, since, id, printable.Line(status))
	}
}
