package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The orchestrations of these tests.
var (
	echo   = orchestration.Define[string, string]("echo")
	keeper = orchestration.Define[string, string]("keeper") // takes words from a mailbox until one is "end"
	broken = orchestration.Define[string, string]("broken")

	words    = orchestration.DefineMailbox[string]("words")
	knock    = orchestration.DefineEvent[string]("knock")
	progress = orchestration.DefineStatus[string]()
	last     = orchestration.DefineValue[string]("last")
)

func code() []orchestration.Binding {
	return []orchestration.Binding{
		echo.Bind(func(_ *orchestration.Context, s string) (string, error) { return s, nil }),
		broken.Bind(func(_ *orchestration.Context, s string) (string, error) {
			return "", orchestration.Errorf("no_stock", "no %s", s)
		}),
		keeper.Bind(func(ctx *orchestration.Context, s string) (string, error) {
			progress.Set(ctx, "open")
			all := []string{s}
			for {
				w, err := words.Receive(ctx)
				if err != nil {
					return strings.Join(all, " "), err
				}
				if w == "end" {
					return strings.Join(all, " "), nil
				}
				all = append(all, w)
				last.Set(ctx, w[:min(len(w), 100)])
				progress.Set(ctx, w)
			}
		}),
	}
}

func TestStartAndWait(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	for name, store := range map[string]history.Reader{"asking": nil, "direct": s.store} {
		t.Run(name, func(t *testing.T) {
			c := c
			if store != nil {
				c = client.New(s.bus, client.Options{Store: store})
				defer c.Close()
			}
			out, err := echo.Run(soon(t), c, "hello "+name)
			if out != "hello "+name || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
			_, err = broken.Run(soon(t), c, "tea")
			if !errors.Is(err, orchestration.OfType("no_stock")) || err.Error() != "no tea" {
				t.Errorf("got %v", err)
			}
		})
	}
	if n := c.Following(); n != 0 {
		t.Errorf("%d instances are still followed", n)
	}
}

func TestWaitForWhatDoesNotExistYet(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	began := make(chan error)
	go func() {
		_, err := keeper.Handle(c, "late").Wait(soon(t))
		began <- err
	}()
	waitUntil(t, func() bool { return c.Following() == 1 && s.asked.Load() > 0 })
	_, err := keeper.Start(soon(t), c, "x", orchestration.ID("late"), orchestration.WithMessage(words, "end"))
	must(t, err)
	must(t, <-began)
}

func TestContextEndsWaiting(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(ctx, "nobody"); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), `waiting for instance "nobody"`) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Wait(t.Context(), "two\nlines"); err == nil {
		t.Error("an id that cannot be was waited for")
	}
	done := make(chan error)
	go func() {
		_, err := c.Wait(context.Background(), "nobody")
		done <- err
	}()
	waitUntil(t, func() bool { return c.Following() == 1 })
	must(t, c.Close())
	if err := <-done; !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := c.Publish(t.Context(), events.Message{ID: "x", Instance: "x",
		Content: &events.Wake{Reason: "x"}}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestDeletedWhileWaitedFor(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	h, err := keeper.Start(soon(t), c, "x")
	must(t, err)
	done := make(chan error)
	go func() {
		_, err := h.Wait(soon(t))
		done <- err
	}()
	exists(t, c, h.ID)
	waitUntil(t, func() bool { return c.Following() == 1 && s.asked.Load() > 1 })
	_, err = c.Instances().Delete(soon(t), []string{h.ID}, client.DeleteOptions{})
	if !errors.Is(err, client.ErrRunning) {
		t.Errorf("a running instance was deleted: %v", err)
	}
	d, err := c.Instances().Delete(soon(t), []string{h.ID}, client.DeleteOptions{Force: true})
	if d.Instances != 1 || err != nil {
		t.Errorf("got %+v, %v", d, err)
	}
	if err := <-done; !errors.Is(err, client.ErrNoInstance) || !strings.Contains(err.Error(), "during the wait") {
		t.Errorf("got %v", err)
	}
}

// TestLostNotices: no notification arrives, and the client finds everything out all the same.
func TestLostNotices(t *testing.T) {
	s := newSystem(t, code()...)
	s.mute.Store(true)
	c := s.client(quick)
	ctx := soon(t)
	if out, err := echo.Run(ctx, c, "a"); out != "a" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	h, err := keeper.Start(ctx, c, "a", orchestration.ID("k"), orchestration.RejectExisting())
	must(t, err)
	if _, err = keeper.Start(ctx, c, "b", orchestration.ID("k"), orchestration.RestartFinished()); err != nil {
		t.Fatal(err)
	}
	must(t, words.Send(ctx, c, h.ID, "b"))
	if v, err := last.WaitFor(ctx, c, h.ID); v != "b" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
	must(t, words.Send(ctx, c, h.ID, "end"))
	if out, err := h.Wait(ctx); out != "a b" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestJustStarted: a client that waits for an instance that it has just started gets a notification
// of its end, and asks nothing; if it has missed that, it asks a little later.
func TestJustStarted(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{}.HearWithin(time.Hour, time.Hour))
	h, err := keeper.Start(soon(t), c, "a")
	must(t, err)
	ended := make(chan error)
	go func() {
		_, err := h.Wait(soon(t))
		ended <- err
	}()
	waitUntil(t, func() bool { return c.Listening() == 1 })
	must(t, words.Send(soon(t), c, h.ID, "end"))
	must(t, <-ended)
	if n := s.asked.Load(); n != 0 {
		t.Errorf("%d questions were asked", n)
	}

	// Another client knows nothing of the start, and asks.
	if _, err := s.client(client.Options{}.HearWithin(time.Hour, time.Hour)).Wait(soon(t), h.ID); err != nil ||
		s.asked.Load() != 1 {
		t.Errorf("%v, after %d questions", err, s.asked.Load())
	}
	s.mute.Store(true)
	c = s.client(client.Options{}.HearWithin(time.Hour, 20*time.Millisecond))
	if out, err := echo.Run(soon(t), c, "missed"); out != "missed" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestBrokerRestartsWhileWaiting(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	h, err := keeper.Start(soon(t), c, "x")
	must(t, err)
	exists(t, c, h.ID)
	done := make(chan error)
	go func() {
		_, err := h.Wait(soon(t))
		done <- err
	}()
	waitUntil(t, func() bool { return c.Following() == 1 && s.asked.Load() > 1 })
	s.stopServer()
	s.startServer()
	must(t, words.Send(soon(t), c, h.ID, "end"))
	must(t, <-done)
}

// TestManyWaiters: a waiting client asks once and gets a notification; no client polls.
func TestManyWaiters(t *testing.T) {
	const n = 1000
	s := newSystem(t, code()...)
	var late atomic.Int64
	b := lateRequests{s.connect(natsbroker.Config{Setup: natsbroker.Use}), &late}
	c := client.New(b, client.Options{}.AskEvery(time.Hour, time.Hour))
	defer func() { must(t, errors.Join(c.Close(), b.Close())) }()
	var wait sync.WaitGroup
	ctx := t.Context()
	before := s.asked.Load()
	for i := range n {
		wait.Go(func() {
			out, err := echo.Handle(c, fmt.Sprint("many-", i)).Wait(ctx)
			if out != fmt.Sprint(i) || err != nil {
				t.Errorf("%d: got %q, %v", i, out, err)
			}
		})
	}
	waitUntil(t, func() bool { return s.asked.Load() >= before+n })
	for i := range n {
		wait.Go(func() {
			if _, err := echo.Start(ctx, c, fmt.Sprint(i), orchestration.ID(fmt.Sprint("many-", i))); err != nil {
				t.Error(err)
			}
		})
	}
	var over atomic.Bool
	go func() {
		wait.Wait()
		over.Store(true)
	}()
	if !slowtest.Until(10*time.Minute, over.Load) {
		t.Fatalf("%d of %d instances are still followed, after %d rounds; %d questions, %d of them answered late",
			c.Following(), n, s.rounds.Load(), s.asked.Load()-before, late.Load())
	}
	if asked, late := s.asked.Load()-before, late.Load(); asked < n || asked > n+3*late {
		t.Errorf("%d questions for %d waiters, and %d of them were answered late", asked, n, late)
	}
	if n := c.Following(); n != 0 {
		t.Errorf("%d instances are still followed", n)
	}
}

// lateRequests counts the requests whose responses are late, or do not come. They are repeated.
type lateRequests struct {
	*natsbroker.Bus
	late *atomic.Int64
}

func (b lateRequests) Request(ctx context.Context, method string, question []byte) ([]byte, error) {
	expired := time.AfterFunc(500*time.Millisecond, func() { b.late.Add(1) })
	data, err := b.Bus.Request(ctx, method, question)
	if expired.Stop() && err != nil {
		b.late.Add(1)
	}
	return data, err
}

// Listen counts failures: then the client asks once more.
func (b lateRequests) Listen(ctx context.Context, words []string,
	heard func(words []string, h events.Header, body []byte)) (func(), error) {
	stop, err := b.Bus.Listen(ctx, words, heard)
	if err != nil {
		b.late.Add(1)
	}
	return stop, err
}

// TestAWaitListensAgain: a client that could not listen to an instance tries that again soon.
func TestAWaitListensAgain(t *testing.T) {
	s := newSystem(t, code()...)
	b := &deafAtFirst{Bus: s.connect(natsbroker.Config{Setup: natsbroker.Use})}
	c := client.New(b, client.Options{}.AskEvery(time.Hour, time.Hour))
	defer func() { must(t, errors.Join(c.Close(), b.Close())) }()
	before := s.asked.Load()
	done := make(chan error, 1)
	go func() {
		_, err := echo.Handle(c, "x").Wait(t.Context())
		done <- err
	}()
	waitUntil(t, func() bool { return s.asked.Load() > before }) // it does not listen, and there is no instance
	_, err := echo.Start(soon(t), s.client(client.Options{}), "1", orchestration.ID("x"))
	must(t, err)
	select {
	case err := <-done:
		must(t, err)
	case <-soon(t).Done():
		t.Fatal("the client waits on, without a notification")
	}
}

// deafAtFirst fails to listen once.
type deafAtFirst struct {
	*natsbroker.Bus
	failed atomic.Bool
}

func (b *deafAtFirst) Listen(ctx context.Context, words []string,
	heard func(words []string, h events.Header, body []byte)) (func(), error) {
	if !b.failed.Swap(true) {
		return nil, errors.New("the server is slow")
	}
	return b.Bus.Listen(ctx, words, heard)
}

func TestManyWaitersForOne(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	h, err := keeper.Start(soon(t), c, "x")
	must(t, err)
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() {
			if out, err := h.Wait(soon(t)); out != "x" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
	waitUntil(t, func() bool { return c.Following() == 1 })
	must(t, words.Send(soon(t), c, h.ID, "end"))
	wait.Wait()
}

func TestLargeOutput(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	for _, in := range []string{strings.Repeat("x", events.MaxPayload-2), strings.Repeat("ü", 80_000)} {
		if out, err := echo.Run(soon(t), c, in); out != in || err != nil {
			t.Errorf("got %d bytes, %v", len(out), err)
		}
	}
}

// ---- Helpers.

// waitUntil polls for a condition without a notification.
func waitUntil(t testing.TB, ok func() bool) {
	t.Helper()
	if !slowtest.Until(10*time.Minute, ok) {
		t.Fatal("it does not happen")
	}
}

// exists waits until an instance is there.
func exists(t testing.TB, c *client.Client, id string) client.Instance {
	t.Helper()
	return stands(t, c, id, func(i client.Instance) bool { return i.Execution > 0 })
}

func stands(t testing.TB, c *client.Client, id string, ok func(client.Instance) bool) (info client.Instance) {
	t.Helper()
	waitUntil(t, func() bool {
		i, err := c.Instances().Get(soon(t), id)
		if err != nil && !errors.Is(err, client.ErrNoInstance) {
			t.Fatal(err)
		}
		info = i
		return err == nil && ok(i)
	})
	return info
}

func running(i client.Instance) bool { return i.Status == client.Running }
