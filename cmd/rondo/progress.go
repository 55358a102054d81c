package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// isTerminal tells whether a person reads what is written there as it comes.
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

// showing does something, and on a terminal shows meanwhile how an instance stands, in a line that is gone afterwards.
func (c *cli) showing(ctx context.Context, id string, do func() error) error {
	if !c.terminal {
		return do()
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &progress{c: c, id: id, began: c.now()}
	var all sync.WaitGroup
	all.Go(func() { p.follow(ctx) })
	all.Go(func() { p.draw(ctx) })
	err := do()
	cancel()
	all.Wait()
	if p.drawn {
		fmt.Fprint(c.problems, clearLine)
	}
	return err
}

// progress is the line that shows how an instance stands.
type progress struct {
	c     *cli
	id    string
	began time.Time
	drawn bool

	mu     sync.Mutex
	status string
}

// follow hears of changes of the custom status.
func (p *progress) follow(ctx context.Context) {
	for s, err := range p.c.client.WatchStatus(ctx, p.id) {
		if err != nil {
			return // whoever waits for the end tells what is the matter
		}
		p.mu.Lock()
		p.status = s.Data.String()
		p.mu.Unlock()
	}
}

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
		p.drawn = true
		fmt.Fprintf(p.c.problems, "%swaiting for %s since %s  %s", clearLine, p.id, span(p.c.now().Sub(p.began)), status)
	}
}
