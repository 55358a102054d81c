package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// policies are the systems in which starts must do the same: notices are heard, receipts are lost,
// all notices are lost.
func policies(t *testing.T, test func(t *testing.T, s *system, c *client.Client)) {
	for name, set := range map[string]func(*system){
		"told":             func(*system) {},
		"without receipts": func(s *system) { s.noReceipts.Store(true) },
		"probes only":      func(s *system) { s.noStarts.Store(true) },
		"not told":         func(s *system) { s.mute.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, code()...)
			set(s)
			test(t, s, s.client(quick))
		})
	}
}

func TestUseExisting(t *testing.T) {
	policies(t, func(t *testing.T, s *system, c *client.Client) {
		for range 2 {
			h, err := echo.Start(soon(t), c, "a", orchestration.ID("x"), orchestration.UseExisting())
			must(t, err)
			if out, err := h.Wait(soon(t)); out != "a" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
		}
		if out, err := echo.Run(soon(t), c, "b", orchestration.ID("x")); out != "a" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

// A start finds an instance of another orchestration: the result of that one is not its result.
func TestStartFindsAnotherOrchestration(t *testing.T) {
	policies(t, func(t *testing.T, s *system, c *client.Client) {
		_, err := echo.Run(soon(t), c, "a", orchestration.ID("x"))
		must(t, err)
		if out, err := keeper.Run(soon(t), c, "b", orchestration.ID("x")); out != "" ||
			!errors.Is(err, orchestration.ErrOtherOrchestration) {
			t.Errorf("got %q, %v", out, err)
		}
		by, err := c.Start(soon(t), keeper.Name(), codec.Payload(`"b"`), orchestration.ID("x"))
		must(t, err)
		if _, err := by.Wait(soon(t)); !errors.Is(err, orchestration.ErrOtherOrchestration) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRejectExisting(t *testing.T) {
	policies(t, func(t *testing.T, s *system, c *client.Client) {
		if s.mute.Load() || s.noReceipts.Load() {
			t.Skip("without any receipt, it cannot be known whether a start that changed nothing was looked at")
		}
		ctx := soon(t)
		h, err := keeper.Start(ctx, c, "a", orchestration.ID("x"), orchestration.RejectExisting(),
			orchestration.RequestID("r"), orchestration.WithMessage(words, "b"))
		must(t, err)
		_, err = keeper.Start(ctx, c, "c", orchestration.ID("x"), orchestration.RejectExisting(),
			orchestration.WithMessage(words, "end"))
		var exists *orchestration.ExistsError
		if !errors.Is(err, orchestration.ErrExists) || !errors.As(err, &exists) || exists.Instance != "x" ||
			exists.Status != string(client.Running) {
			t.Fatalf("got %v", err)
		}
		if _, err := keeper.Start(ctx, c, "a", orchestration.ID("x"), orchestration.RejectExisting(),
			orchestration.RequestID("r")); err != nil {
			t.Errorf("the same start again: %v", err)
		}
		must(t, words.Send(ctx, c, "x", "end"))
		if out, err := h.Wait(ctx); out != "a b" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		_, err = echo.Start(ctx, c, "c", orchestration.ID("x"), orchestration.RejectExisting())
		if !errors.As(err, &exists) || exists.Status != string(client.Completed) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRestartFinished: what an earlier incarnation gave does not count.
func TestRestartFinished(t *testing.T) {
	policies(t, func(t *testing.T, s *system, c *client.Client) {
		for i := range 3 {
			in := fmt.Sprint(i)
			if out, err := echo.Run(soon(t), c, in, orchestration.ID("x"),
				orchestration.RestartFinished()); out != in || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
		}
	})
}

// TestRestartKeepsRunning: a start that changed nothing counts the one that is there.
func TestRestartKeepsRunning(t *testing.T) {
	policies(t, func(t *testing.T, s *system, c *client.Client) {
		if s.mute.Load() || s.noReceipts.Load() {
			t.Skip("without any receipt, it cannot be known whether a start that changed nothing was looked at")
		}
		ctx := soon(t)
		_, err := keeper.Start(ctx, c, "a", orchestration.ID("x"))
		must(t, err)
		h, err := keeper.Start(ctx, c, "b", orchestration.ID("x"), orchestration.RestartFinished())
		must(t, err)
		must(t, words.Send(ctx, c, "x", "end"))
		if out, err := h.Wait(ctx); out != "a" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

func TestReplaceRunning(t *testing.T) {
	policies(t, func(t *testing.T, s *system, c *client.Client) {
		ctx := soon(t)
		first, err := keeper.Start(ctx, c, "a", orchestration.ID("x"))
		must(t, err)
		stands(t, c, "x", running)
		done := make(chan string)
		go func() {
			out, _ := first.Wait(ctx)
			done <- out
		}()
		h, err := keeper.Start(ctx, c, "b", orchestration.ID("x"), orchestration.ReplaceRunning(),
			orchestration.WithMessage(words, "end"))
		must(t, err)
		if out, err := h.Wait(ctx); out != "b" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		if out := <-done; out != "b" {
			t.Errorf("who waited for the id got %q", out)
		}
	})
}

// TestPendingRestart: a start that no orchestrator has taken yet does not give the outcome of the
// incarnation before.
func TestPendingRestart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newSystem(t, code()...)
	o := quick
	o.Now = func() time.Time { return now }
	c := s.client(o)
	ctx := soon(t)
	if out, err := echo.Run(ctx, c, "a", orchestration.ID("x")); out != "a" || err != nil {
		t.Fatalf("got %q, %v", out, err)
	}
	now = now.Add(time.Hour) // as if the first had ended long ago
	s.deaf.Store(true)
	h, err := echo.Start(ctx, c, "b", orchestration.ID("x"), orchestration.RestartFinished())
	must(t, err)
	done := make(chan string)
	go func() {
		out, err := h.Wait(ctx)
		done <- fmt.Sprint(out, err)
	}()
	before := s.asked.Load()
	waitUntil(t, func() bool { return s.asked.Load() > before+5 })
	select {
	case out := <-done:
		t.Fatalf("got %s", out)
	default:
	}
	s.deaf.Store(false)
	if out := <-done; out != "b<nil>" {
		t.Errorf("got %s", out)
	}
}

func TestStartWithMessage(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	ctx := soon(t)
	for range 3 { // again and again the same: started once, each message taken once
		_, err := keeper.Start(ctx, c, "a", orchestration.ID("x"), orchestration.RequestID("r"),
			orchestration.WithMessage(words, "b"), orchestration.WithMessage(words, "c"))
		must(t, err)
	}
	_, err := keeper.Start(ctx, c, "other", orchestration.ID("x"), orchestration.WithMessage(words, "end"))
	must(t, err)
	out, err := c.Wait(ctx, "x")
	if string(out.Output) != `"a b c"` || err != nil {
		t.Errorf("got %s, %v", out.Output, err)
	}
}

func TestDelayedStart(t *testing.T) {
	t.Parallel()
	s := newSystem(t, code()...)
	c := s.client(quick)
	ctx := soon(t)
	before := time.Now()
	h, err := keeper.Start(ctx, c, "a", orchestration.Delay(300*time.Millisecond),
		orchestration.WithMessage(words, "end"))
	must(t, err)
	if out, err := h.Wait(ctx); out != "a" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	if info := exists(t, c, h.ID); info.CreatedAt.Before(before.Add(299 * time.Millisecond)) {
		t.Errorf("it began after %v", info.CreatedAt.Sub(before))
	}
	out, err := echo.Run(ctx, c, "b", orchestration.ID(h.ID), orchestration.At(time.Now().Add(1800*time.Millisecond)),
		orchestration.RestartFinished())
	if out != "b" || err != nil {
		t.Errorf("a restart that is delayed: got %q, %v", out, err)
	}
	if out, err := echo.Run(ctx, c, "c", orchestration.At(before)); out != "c" || err != nil {
		t.Errorf("a start that is late: got %q, %v", out, err)
	}
}

func TestStartByName(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	ctx := soon(t)
	x, err := c.Start(ctx, "keeper", codec.Payload(` "a" `), orchestration.ID("x"),
		orchestration.Attributes(map[string]string{"k": "v"}))
	must(t, err)
	must(t, c.Send(ctx, "x", "words", codec.Payload(`"b"`)))
	must(t, c.Suspend(ctx, "x", "audit"))
	stands(t, c, "x", func(i client.Instance) bool { return i.Status == client.Suspended })
	must(t, c.Resume(ctx, "x", ""))
	stands(t, c, "x", running)
	must(t, c.Cancel(ctx, "x", "enough"))
	out, err := x.Wait(ctx)
	if err != nil || out.Error == nil || out.Error.Kind != failure.Cancelled {
		t.Errorf("got %+v, %v", out, err)
	}
	y, err := c.Start(ctx, "keeper", codec.Payload(`""`))
	must(t, err)
	must(t, c.Terminate(ctx, y.ID, "now"))
	out, err = y.Wait(ctx)
	if err != nil || out.Error == nil || out.Error.Kind != failure.Terminated {
		t.Errorf("got %+v, %v", out, err)
	}
	list, err := c.Instances().List(ctx, client.Filter{Attributes: map[string]string{"k": "v"}}, client.Page{})
	if err != nil || len(list.Instances) != 1 || list.Instances[0].ID != "x" {
		t.Errorf("got %+v, %v", list, err)
	}
}

// TestReceiptOfAStart starts the same ID twice: the receipt of the second start reports that it
// changed nothing, and the state of the instance.
func TestReceiptOfAStart(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	ctx := soon(t)
	var first, second orchestration.Receipt
	h, err := echo.Start(ctx, c, "a", orchestration.ID("x"), orchestration.ReceiptTo(&first))
	must(t, err)
	_, err = h.Wait(ctx)
	must(t, err)
	h, err = echo.Start(ctx, c, "b", orchestration.ID("x"), orchestration.ReceiptTo(&second))
	must(t, err)
	if !first.Taken || second.Taken || second.Reason != string(round.Exists) ||
		second.Status != string(client.Completed) {
		t.Errorf("%+v, then %+v", first, second)
	}
	if out, err := h.Wait(ctx); out != "a" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	_, err = c.Start(ctx, "echo", codec.Payload(`{"wrong":1}`), orchestration.ReceiptTo(&first))
	if !errors.Is(err, orchestration.OfType(orchestration.TypeMismatch)) || first.Reason != string(round.WrongInput) {
		t.Errorf("%v, %+v", err, first)
	}
}

func TestWhatIsRefused(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	ctx := soon(t)
	large := make(codec.Payload, events.MaxPayload+1)
	for what, err := range map[string]error{
		"RejectExisting cannot wait": startErr(c.Start(ctx, "echo", nil, orchestration.RejectExisting(),
			orchestration.Delay(time.Hour))),
		"Durable cannot wait": startErr(c.Start(ctx, "echo", nil, orchestration.Durable(),
			orchestration.Delay(time.Hour))),
		"delay of a start":   startErr(c.Start(ctx, "echo", nil, orchestration.Delay(events.MaxDelay+1))),
		"orchestration name": startErr(c.Start(ctx, "", nil)),
		"mailbox name": startErr(c.Start(ctx, "echo", nil,
			orchestration.WithMessage(orchestration.DefineMailbox[int](""), 1))),
		"encode chan int": startErr(c.Start(ctx, "echo", nil,
			orchestration.WithMessage(orchestration.DefineMailbox[chan int]("q"), nil))),
		"event name":          c.Raise(ctx, "x", "rondo.x", nil),
		"instance id":         c.Send(ctx, "", "q", nil),
		"over the limit":      c.Raise(ctx, "x", "e", large),
		"token":               c.Complete(ctx, "x", 1),
		"fails with an error": c.Fail(ctx, "x/l/1-1", nil),
		"encode":              c.Complete(ctx, "x/l/1-1", make(chan int)),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %q", err, what)
		}
	}
	if _, err := c.Deliver(ctx, events.Message{Content: &events.Wake{}}); err == nil {
		t.Error("a message to nobody was delivered")
	}
}

func startErr(_ client.Started, err error) error { return err }

// TestDeliver: the sender of an event can know whether an instance has waited for it.
func TestDeliver(t *testing.T) {
	s := newSystem(t, append(code(), orchestration.Define[string,
		string]("waiter").Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		return knock.Wait(ctx)
	}))...)
	c := s.client(client.Options{})
	ctx := soon(t)
	x, err := c.Start(ctx, "waiter", codec.Payload(`""`))
	must(t, err)
	stands(t, c, x.ID, func(i client.Instance) bool { return i.LastEvent > 1 })
	event := func(id, name string) events.Message {
		return events.Message{ID: id, Instance: x.ID,
			Content: &events.EventRaised{Name: name, Data: codec.Payload(`"hi"`)}}
	}
	for _, d := range []struct {
		m      events.Message
		taken  bool
		reason round.Reason
	}{
		{event("", "bell"), false, round.NoWaiter},
		{event("k", "knock"), true, round.Taken},
		{event("l", "knock"), false, round.HasEnded},
		{events.Message{Instance: "nobody", Content: &events.EventRaised{Name: "knock"}}, false, round.UnknownInstance},
	} {
		r, err := c.Deliver(ctx, d.m)
		if err != nil || r.Taken != d.taken || r.Reason != string(d.reason) {
			t.Errorf("%v: got %+v, %v", d.m, r, err)
		}
	}
	if out, err := x.Wait(ctx); string(out.Output) != `"hi"` || err != nil {
		t.Errorf("got %s, %v", out.Output, err)
	}
	y, err := keeper.Start(ctx, c, "a", orchestration.ID("y"))
	must(t, err)
	for _, d := range []struct {
		deliver func() (orchestration.Receipt, error)
		taken   bool
		reason  round.Reason
	}{
		{func() (orchestration.Receipt, error) { return words.Deliver(ctx, c, y.ID, "end") }, true, round.Taken},
		{func() (orchestration.Receipt, error) {
			_, err := y.Wait(ctx)
			must(t, err)
			return words.Deliver(ctx, c, y.ID, "too late")
		}, false, round.HasEnded},
		{func() (orchestration.Receipt, error) { return knock.Deliver(ctx, c, y.ID, "who?") }, false, round.HasEnded},
	} {
		r, err := d.deliver()
		if err != nil || r.Taken != d.taken || r.Reason != string(d.reason) {
			t.Errorf("%s: got %+v, %v", d.reason, r, err)
		}
	}
	if _, err := words.Deliver(ctx, c, "", "x"); err == nil {
		t.Error("a message without an instance was delivered")
	}
}

// TestEarlyEventsAreKept: an instance keeps events that come before it waits for them. The receipt
// of each says so, and Waiting tells how many there are.
func TestEarlyEventsAreKept(t *testing.T) {
	bell := orchestration.DefineEvent[string]("bell")
	s := newSystem(t, append(code(), orchestration.Define[string,
		string]("buffered").Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		first, err := bell.Wait(ctx)
		if err != nil {
			return "", err
		}
		second, err := knock.Wait(ctx)
		if err != nil {
			return "", err
		}
		third, err := knock.Wait(ctx)
		return first + second + third, err
	}, orchestration.Buffered(2, knock)))...)
	c := s.client(client.Options{})
	ctx := soon(t)
	x, err := c.Start(ctx, "buffered", codec.Payload(`""`))
	must(t, err)
	stands(t, c, x.ID, func(i client.Instance) bool { return i.LastEvent > 1 })
	for _, d := range []struct {
		data   string
		taken  bool
		reason round.Reason
		detail string
	}{
		{"a", true, round.Taken, "the instance keeps it"},
		{"b", true, round.Taken, "the instance keeps it"},
		{"c", false, round.EventsFull, `the instance keeps 2 events "knock" already`},
	} {
		r, err := knock.Deliver(ctx, c, x.ID, d.data)
		if err != nil || r.Taken != d.taken || r.Reason != string(d.reason) || !strings.Contains(r.Detail, d.detail) {
			t.Errorf("%s: got %+v, %v", d.data, r, err)
		}
	}
	w, err := c.Instances().Waiting(ctx, x.ID)
	const note = `it keeps 2 events "knock" for which it does not wait yet`
	if err != nil || !slices.Equal(w.Notes, []string{note}) {
		t.Errorf("the notes are %q, %v", w.Notes, err)
	}
	must(t, bell.Raise(ctx, c, x.ID, "0"))
	if out, err := x.Wait(ctx); string(out.Output) != `"0ab"` || err != nil {
		t.Errorf("got %s, %v", out.Output, err)
	}
}

// TestDurableStart: a durable start returns when the database has the instance. NATS loses the
// start before an orchestrator takes it, so the client publishes it again. A start that waits is
// not published again.
func TestDurableStart(t *testing.T) {
	t.Parallel()
	s := newSystem(t, code()...)
	c := s.client(client.Options{}.AskEvery(500*time.Millisecond, 500*time.Millisecond))
	ctx := soon(t)
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(time.Minute))
	must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must(t, err)
	inbox, err := js.Stream(ctx, "RONDO")
	must(t, err)
	s.deaf.Store(true)
	started := make(chan error)
	go func() {
		_, err := echo.Start(ctx, c, "a", orchestration.ID("x"), orchestration.Durable())
		started <- err
	}()
	pending := func() (n int) {
		for start, err := range c.Instances().Pending(ctx, client.PendingFilter{Instance: "x"}) {
			must(t, err)
			if start.Instance == "x" {
				n++
			}
		}
		return n
	}
	waitUntil(t, func() bool { return pending() == 1 })
	looked := s.asked.Load()
	waitUntil(t, func() bool { return s.asked.Load() > looked+16 }) // two a second, for over 6 s
	if n := pending(); n != 1 {
		t.Errorf("%d starts wait", n)
	}
	must(t, inbox.Purge(ctx))
	waitUntil(t, func() bool { return pending() == 1 })
	s.deaf.Store(false)
	must(t, <-started)
	if _, err := s.store.Instance(ctx, "x"); err != nil {
		t.Errorf("after a durable start: %v", err)
	}
	_, err = echo.Start(ctx, c, "b", orchestration.ID("x"), orchestration.Durable())
	must(t, err) // it is there already
}

// TestReceiptOfAnotherMessage: the receipt of an event with the id of a start is not that of the
// start.
func TestReceiptOfAnotherMessage(t *testing.T) {
	t.Parallel()
	s := newSystem(t, code()...)
	c := s.client(client.Options{}.AskEvery(500*time.Millisecond, 500*time.Millisecond))
	ctx := soon(t)
	_, err := echo.Run(ctx, c, "first", orchestration.ID("y"))
	must(t, err)
	s.deaf.Store(true)
	settleEvent := func(instance string) {
		must(t, query.NotifyReceipt(s.bus, round.Row{}, events.Message{ID: "m", Instance: instance,
			Content: &events.EventRaised{Name: "knock"}},
			round.Receipt{Verdict: round.Ignored, Reason: round.NoWaiter}))
	}
	var receipt orchestration.Receipt
	started := make(chan error, 1)
	go func() {
		_, err := echo.Start(ctx, c, "a", orchestration.ID("x"), orchestration.RequestID("m"),
			orchestration.ReceiptTo(&receipt))
		started <- err
	}()
	waitUntil(t, func() bool { // then the client listens
		for start, err := range c.Instances().Pending(ctx, client.PendingFilter{Instance: "x"}) {
			must(t, err)
			return start.Instance == "x"
		}
		return false
	})
	settleEvent("x")

	h, err := echo.Start(ctx, c, "second", orchestration.ID("y"), orchestration.RequestID("m"),
		orchestration.RestartFinished())
	must(t, err)
	ended, asked := make(chan string, 1), s.asked.Load()
	go func() {
		out, err := h.Wait(ctx)
		ended <- fmt.Sprint(out, err)
	}()
	waitUntil(t, func() bool { return s.asked.Load() > asked+4 }) // x and y twice a second
	settleEvent("y")
	s.deaf.Store(false)
	if err := <-started; err != nil || !receipt.Taken || receipt.Reason != string(round.Taken) {
		t.Errorf("the start has %+v, %v", receipt, err)
	}
	if got := <-ended; got != "second<nil>" {
		t.Errorf("the result is %s", got)
	}
}

// TestReceiptThatIsLost: the message is published again, and history knows that it was taken.
func TestReceiptThatIsLost(t *testing.T) {
	t.Parallel()
	s := newSystem(t, code()...)
	c := s.client(client.Options{}.AskEvery(500*time.Millisecond, 500*time.Millisecond))
	ctx := soon(t)
	_, err := keeper.Start(ctx, c, "a", orchestration.ID("x"))
	must(t, err)
	s.noReceipts.Store(true)
	got := make(chan string)
	go func() {
		r, err := c.Deliver(ctx, events.Message{ID: "m", Instance: "x",
			Content: &events.MailboxMessage{Mailbox: "words", Data: codec.Payload(`"b"`)}})
		got <- fmt.Sprint(r.Taken, r.Reason, err)
	}()
	stands(t, c, "x", func(i client.Instance) bool { return i.CustomStatusVersion == 2 })
	s.noReceipts.Store(false)
	if r := <-got; r != "true"+string(round.Duplicate)+"<nil>" {
		t.Errorf("got %s", r)
	}
}

func TestActivityTokens(t *testing.T) {
	c := newSystem(t, code()...).client(client.Options{Name: "ann"})
	for _, bad := range []string{"", "/", "a", "a/b", "a/b/c", "/l/1-1", "a/l/0-1", "a/l/1-99999999999999999999",
		"a\n/l/1-1"} {
		if err := c.Complete(soon(t), bad, "x"); err == nil || !strings.Contains(err.Error(), "token") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestIDs(t *testing.T) {
	c := newSystem(t).client(client.Options{})
	seen, before := make(map[string]bool), ""
	for range 1000 {
		id := c.NewID()
		if seen[id] || len(id) != 36 || id[14] != '7' || events.CheckChosenInstance(id) != nil || id[:13] < before {
			t.Fatalf("id %s after %s", id, before)
		}
		seen[id], before = true, id[:13]
	}
}
