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
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

const (
	// progressAfter is for how long nothing is shown: most commands are faster.
	progressAfter = time.Second
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
		all.Go(func() { p.sayIfUnknown(ctx) })
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

// sayIfUnknown prints once that the instance waited for does not exist, or that no orchestrator
// answers, where no line shows that.
func (p *progress) sayIfUnknown(ctx context.Context) {
	select {
	case <-time.After(progressAfter):
	case <-ctx.Done():
		return
	}
	switch p.look(ctx); {
	case p.known, ctx.Err() != nil:
	case p.silent:
		fmt.Fprintf(p.problems, "%s; waiting for one\n%s\n", unanswered(p.prefix), answersHint)
	default:
		fmt.Fprintf(p.problems, "no instance %s yet; waiting for its start\n", p.id)
	}
}

// look looks whether the instance is there, unless that is known.
func (p *progress) look(ctx context.Context) {
	if !p.known {
		_, err := p.client.Instances().Get(ctx, p.id)
		p.silent = errors.Is(err, broker.ErrNoResponders)
		p.known = !p.silent && !errors.Is(err, client.ErrNoInstance)
	}
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
		p.drawn = true
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
