package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestWatchStatus(t *testing.T) {
	for name, mute := range map[string]bool{"told": false, "not told": true} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, code()...)
			s.mute.Store(mute)
			c, o := s.client(client.Options{}), s.client(quick)
			if mute {
				c = o
			}
			ctx := soon(t)
			seen, ended := make(chan string), make(chan error)
			go func() {
				defer close(ended)
				for st, err := range c.WatchStatus(ctx, "x") { // it does not exist yet
					if err != nil {
						ended <- err
						return
					}
					seen <- fmt.Sprint(st.Data, st.Version)
				}
			}()
			waitUntil(t, func() bool { return c.Following() == 1 && s.asked.Load() > 0 })
			_, err := keeper.Start(ctx, o, "", orchestration.ID("x"))
			must(t, err)
			for i, w := range []string{"open", "a", "b"} {
				if got, want := <-seen, fmt.Sprintf("%q%d", w, i+1); strings.ReplaceAll(got, " ", "") != want {
					t.Errorf("got %s, want %s", got, want)
				}
				next := []string{"a", "b", "end"}[i]
				must(t, words.Send(ctx, o, "x", next))
			}
			if err := <-ended; err != nil {
				t.Errorf("it ended with %v", err)
			}
			if v, ok, err := progress.Read(ctx, c, "x"); v != "b" || !ok || err != nil {
				t.Errorf("got %q, %t, %v", v, ok, err)
			}
		})
	}
}

func TestLeaveWatching(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	ctx := soon(t)
	_, err := keeper.Start(ctx, c, "", orchestration.ID("x"))
	must(t, err)
	for st, err := range c.WatchStatus(ctx, "x") {
		must(t, err)
		if st.Version == 1 {
			must(t, words.Send(ctx, c, "x", strings.Repeat("x", 100<<10))) // too large for a notification
			continue
		}
		if len(st.Data) != 100<<10+2 {
			t.Errorf("%d bytes", len(st.Data))
		}
		break
	}
	stopped, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, err := range c.WatchStatus(stopped, "x") {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	for _, err := range c.WatchStatus(ctx, "") {
		if err == nil {
			t.Error("nobody was watched")
		}
	}
	done, seen := make(chan error), make(chan bool, 1)
	go func() {
		for _, err := range c.WatchStatus(ctx, "x") {
			if err != nil {
				done <- err
			} else {
				seen <- true
			}
		}
	}()
	<-seen // otherwise the instance may be gone before it was there for this client
	_, err = c.Instances().Delete(ctx, []string{"x"}, client.DeleteOptions{Force: true})
	must(t, err)
	if err := <-done; !errors.Is(err, client.ErrNoInstance) {
		t.Errorf("got %v", err)
	}
	if n := c.Following(); n != 0 {
		t.Errorf("%d instances are still followed", n)
	}
}

func TestWaitForValue(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	ctx := soon(t)
	got := make(chan string)
	wait := func() {
		v, err := last.WaitFor(ctx, c, "x")
		got <- fmt.Sprint(v, err)
	}
	go wait()
	waitUntil(t, func() bool { return c.Following() == 1 && s.asked.Load() > 0 })
	_, err := keeper.Start(ctx, c, "", orchestration.ID("x"), orchestration.WithMessage(words, "a"))
	must(t, err)
	if v := <-got; v != "a<nil>" {
		t.Errorf("got %s", v)
	}
	go wait()
	if v := <-got; v != "a<nil>" {
		t.Errorf("what is there already: got %s", v)
	}
	go func() {
		_, err := c.WaitForValue(ctx, "x", "other")
		got <- fmt.Sprint(errors.Is(err, orchestration.ErrNoValue))
	}()
	waitUntil(t, func() bool { return c.Following() == 1 })
	must(t, words.Send(ctx, c, "x", "end"))
	if v := <-got; v != "true" {
		t.Error("an instance that has ended without the value was waited for")
	}
	if _, err := c.WaitForValue(ctx, "x", ""); err == nil {
		t.Error("a value without a name was waited for")
	}
	if v, ok, err := last.Read(ctx, c, "x"); v != "a" || !ok || err != nil {
		t.Errorf("got %q, %t, %v", v, ok, err)
	}
	if _, ok, err := last.Read(ctx, c, "nobody"); ok || err != nil {
		t.Errorf("got %t, %v", ok, err)
	}
}

// TestWhatCanBeAsked: what a client tells of an instance is what the store has.
func TestWhatCanBeAsked(t *testing.T) {
	s := newSystem(t, code()...)
	asking, direct := s.client(client.Options{}), client.New(s.bus, client.Options{Store: s.store})
	defer direct.Close()
	ctx := soon(t)
	_, err := keeper.Start(ctx, asking, "a", orchestration.ID("x"), orchestration.WithMessage(words, "b"))
	must(t, err)
	stands(t, asking, "x", func(i client.Instance) bool { return i.CustomStatusVersion == 2 })
	for name, c := range map[string]*client.Client{"asking": asking, "direct": direct} {
		w, err := c.Instances().Waiting(ctx, "x")
		if err != nil || len(w.Waits) != 1 || w.Waits[0].Kind != client.WaitsForMailbox || w.Waits[0].Name != "words" ||
			w.Waits[0].Since.IsZero() {
			t.Errorf("%s: it waits for %+v, %v", name, w, err)
		}
		h, err := c.Instances().History(ctx, "x", 0)
		if err != nil || h.Execution != 1 || len(h.Events) < 5 || h.Events[0].Fact.Kind() != events.KindStarted {
			t.Errorf("%s: history %+v, %v", name, h, err)
		}
		tree, err := c.Instances().Tree(ctx, "x")
		if err != nil || len(tree) != 1 {
			t.Errorf("%s: tree %+v, %v", name, tree, err)
		}
		if _, err := c.Instances().Get(ctx, "nobody"); !errors.Is(err, client.ErrNoInstance) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := c.Instances().Waiting(ctx, "nobody"); !errors.Is(err, client.ErrNoInstance) {
			t.Errorf("%s: got %v", name, err)
		}
		if d, err := c.Instances().Prune(ctx, "x", client.Keep{}); d.Executions != 0 || err != nil {
			t.Errorf("%s: got %+v, %v", name, d, err)
		}
		if d, err := client.Collect(c.Instances().PruneAll(ctx, client.Filter{}, client.Keep{})); len(d) != 1 ||
			d[0].Executions != 0 || err != nil {
			t.Errorf("%s: got %+v, %v", name, d, err)
		}
		if d, err := client.Collect(c.Instances().DeleteEnded(ctx, client.Filter{})); len(d) != 1 ||
			d[0].Instances != 0 || err != nil {
			t.Errorf("%s: got %+v, %v", name, d, err)
		}
	}
	must(t, asking.Terminate(ctx, "x", ""))
	_, err = asking.Wait(ctx, "x")
	must(t, err)
	w, err := asking.Instances().Waiting(ctx, "x")
	if err != nil || len(w.Waits) != 0 || !slices.ContainsFunc(w.Notes, func(n string) bool {
		return strings.HasPrefix(n, "it has ended (terminated)")
	}) {
		t.Errorf("it waits for %+v, %v", w, err)
	}
	if d, err := direct.Instances().Delete(ctx, []string{"x"}, client.DeleteOptions{}); d.Instances != 1 || err != nil {
		t.Errorf("got %+v, %v", d, err)
	}
}

// TestCompleteByToken: the token is all that is needed to complete an activity from elsewhere.
func TestCompleteByToken(t *testing.T) {
	ask := activity.Define[string, string]("ask")
	judge := orchestration.Define[string, string]("judge")
	s := newSystem(t, judge.Bind(func(ctx *orchestration.Context, q string) (string, error) {
		return ask.Call(ctx, q)
	}))
	c := s.client(client.Options{Name: "ann"})
	ctx := soon(t)
	for i, answer := range []func(token string) error{
		func(token string) error { return c.Complete(ctx, token, "yes") },
		func(token string) error { return c.Fail(ctx, token, activity.Errorf("rude", "no answer")) },
	} {
		h, err := judge.Start(ctx, c, "why?", orchestration.ID(fmt.Sprint("a/b ", i)))
		must(t, err)
		info := stands(t, c, h.ID, func(i client.Instance) bool { return i.LastEvent >= 2 })
		must(t, answer(fmt.Sprintf("%s/%s/1-2", h.ID, info.Incarnation)))
		out, err := h.Wait(ctx)
		if i == 0 && (out != "yes" || err != nil) || i == 1 && !errors.Is(err, orchestration.OfType("rude")) {
			t.Errorf("%d: got %q, %v", i, out, err)
		}
	}
}

// TestNobodyAnswers: where no orchestrator runs, waiting says so when its time is over.
func TestNobodyAnswers(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(quick)
	for _, stop := range s.stop {
		stop()
	}
	s.stop = nil
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := c.Wait(ctx, "x")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is an orchestrator running?") {
		t.Errorf("got %v", err)
	}
}
