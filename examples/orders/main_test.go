package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/pkg/app"
)

// TestDemo runs `orders dev --demo` until it has printed what there is to see.
func TestDemo(t *testing.T) {
	c := app.Defaults(app.Dev)
	out := &watched{want: "Ctrl-C ends it.\n", seen: make(chan struct{}), times: 2}
	c.Dir, c.NATSListen, c.Listen, c.Demo, c.Stdout, c.Stderr = t.TempDir(), "127.0.0.1:0", "off", true, out, io.Discard
	a, err := app.New(c, shop.Parts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case <-out.seen:
		cancel()
		err = <-done
	case err = <-done:
	}
	if err != nil {
		t.Fatal(err, out)
	}
	for _, want := range []string{
		"the event approve comes", "has failed: the bank does not answer", "charge is to be tried again, attempt 2",
		"it is completed with",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing: %s\nin: %s", want, out)
		}
	}
}

// watched closes seen when the wanted text was written so many times.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	want  string
	times int
	seen  chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.count()
	n, err := w.text.Write(p)
	if after := w.count(); before < w.times && after >= w.times {
		close(w.seen)
	}
	return n, err
}

func (w *watched) count() int { return strings.Count(w.text.String(), strings.TrimSpace(w.want)) }

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
