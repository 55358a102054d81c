package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// fakeBroker is a broker in memory.
type fakeBroker struct {
	mu           sync.Mutex
	published    []string
	calls        int
	deadLettered []string
	has          map[string]bool
	gate         chan struct{} // if set, each call waits for it
	fail         func(events.Wire) error
}

func (b *fakeBroker) Publish(ctx context.Context, messages ...events.Wire) error {
	if b.gate != nil {
		select {
		case <-b.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	var refused broker.Refused
	for _, m := range messages {
		if b.fail != nil {
			if err := b.fail(m); err != nil {
				if !errors.Is(err, errRefused) && !errors.Is(err, broker.ErrMisconfigured) {
					return err
				}
				refused.Messages, refused.Reasons = append(refused.Messages, m), append(refused.Reasons, err)
				continue
			}
		}
		b.published = append(b.published, m.Subject)
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

var errRefused = errors.New("refused")

func (b *fakeBroker) Has(_ context.Context, m events.Wire) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.has[m.Subject], nil
}

func (b *fakeBroker) StoreDeadLetter(_ context.Context, d broker.Delivery, why broker.Cause) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadLettered = append(b.deadLettered, d.Subject+": "+why.Reason)
	return nil
}

func (b *fakeBroker) subjects() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published)
}

// store is an outbox in memory, and the instances that healing looks at.
type store struct {
	history.Store
	mu      sync.Mutex
	entries []history.OutboxEntry
	removed []int64
	known   map[string]round.Known
	former  map[string][]round.Known // the former executions, the first one first
	overdue []string
	err     error
}

func (s *store) LeaseOutbox(_ context.Context, take history.Lease) ([]history.OutboxEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(take.Limit, len(s.entries))
	taken := s.entries[:n]
	s.entries = s.entries[n:]
	return taken, s.err
}

func (s *store) RemoveOutbox(_ context.Context, keys []history.OutboxKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		s.removed = append(s.removed, k.ID)
	}
	return s.err
}

func (s *store) gone() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.removed)
}

func (s *store) LeaseOverdue(_ context.Context, take history.Lease) ([]history.Overdue, error) {
	var out []history.Overdue
	n := min(take.Limit, len(s.overdue))
	for _, id := range s.overdue[:n] {
		out = append(out, history.Overdue{Instance: id})
	}
	s.overdue = s.overdue[n:] // they are postponed
	return out, s.err
}

func (s *store) Load(_ context.Context, ids []string, admit func(string, round.Row) bool) ([]round.Known, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []round.Known
	for _, id := range ids {
		k := s.known[id]
		k.Instance = id
		if k.Row.Execution > 0 && admit != nil && !admit(id, k.Row) {
			k.History = nil
		}
		out = append(out, k)
	}
	return out, nil
}

func (s *store) List(_ context.Context, f history.Filter, _ history.Page) (list history.InstanceList, err error) {
	for id, k := range s.known {
		if slices.Contains(f.Statuses, k.Row.Status) && !k.Row.EndedAt.Before(f.EndedAfter) &&
			!k.Row.StartedAt.Before(f.CreatedAfter) {
			list.Instances = append(list.Instances, history.Info{Instance: id, Row: k.Row})
		}
	}
	return list, nil
}

func (s *store) Executions(_ context.Context, id string, after int64,
	limit int) (list []history.ExecutionInfo, _ error) {
	for _, k := range s.former[id] {
		if r := k.Row; r.Execution > after && len(list) < limit {
			list = append(list, history.ExecutionInfo{Execution: r.Execution, Incarnation: r.Incarnation, Name: r.Name,
				Version: r.Version, Engine: r.Engine, Status: r.Status, EndedAt: r.EndedAt, Events: r.LastEvent})
		}
	}
	return list, nil
}

func (s *store) Events(_ context.Context, id string, execution, after int64, limit int) ([]events.Event, error) {
	for _, k := range s.former[id] {
		if k.Row.Execution == execution {
			list := k.History[min(after, int64(len(k.History))):]
			return list[:min(limit, len(list))], nil
		}
	}
	return nil, history.ErrNoInstance
}

var silent = slog.New(slog.DiscardHandler)

func wires(subjects ...string) []events.Wire {
	var out []events.Wire
	for _, s := range subjects {
		out = append(out, events.Wire{Subject: s})
	}
	return out
}

func key(id int64) []history.OutboxKey { return []history.OutboxKey{{ID: id}} }

// run runs a publisher for a test, and gives how to end it.
func run(p *outbox.Publisher) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		p.Run(ctx, context.Background())
		close(done)
	}()
	return func() {
		stop()
		<-done
	}
}

func TestPublisherKeepsTheOrderOfTheCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{gate: make(chan struct{})}, &store{}
		p := outbox.NewPublisher(b, s, "rondo", silent)
		end := run(p)
		for i := range 10 {
			if err := p.Publish(t.Context(), outbox.Committed{Messages: wires(fmt.Sprint(i, "a"), fmt.Sprint(i, "b")),
				Keys: key(int64(i))}); err != nil {
				t.Fatal(err)
			}
		}
		if n, _ := p.Waiting(); n != 20 {
			t.Errorf("%d messages wait, want 20", n)
		}
		close(b.gate)
		synctest.Wait()
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
		}
		if got := b.subjects(); !slices.Equal(got, want) {
			t.Errorf("published %v", got)
		}
		if b.calls > 2 {
			t.Errorf("%d calls, want what waits to be published in one go", b.calls)
		}
		if kept := p.Kept(); len(kept) != 10 {
			t.Errorf("kept %v", kept)
		}
		if kept := p.Kept(); len(kept) != 0 {
			t.Errorf("kept again %v", kept)
		}
		end()
	})
}

// Delayed messages wait in a queue of their own, and an outbox entry can be removed when all of it
// is published.
func TestPublisherDoesNotLetTheLaterHoldUpTheSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{}, &store{}
		slow := make(chan struct{})
		p := outbox.NewPublisher(blockLater{b, slow}, s, "rondo", silent)
		end := run(p)
		later := events.Wire{Subject: "later", NotBefore: time.Now().Add(time.Hour)}
		withdrawn := events.Wire{Subject: "withdrawn", Purge: true}
		for i, messages := range [][]events.Wire{append(wires("now 1"), later, withdrawn), wires("now 2"), {later}} {
			if err := p.Publish(t.Context(), outbox.Committed{Messages: messages, Keys: key(int64(i))}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := b.subjects(); !slices.Equal(got, []string{"now 1", "now 2"}) {
			t.Errorf("published %v", got)
		}
		if kept := p.Kept(); len(kept) != 1 || kept[0].ID != 1 {
			t.Errorf("kept %v, want the one that has nothing for later", kept)
		}
		close(slow)
		synctest.Wait()
		if kept := p.Kept(); len(kept) != 2 {
			t.Errorf("kept %v", kept)
		}
		end()
	})
}

// A withdrawal that came first would withdraw nothing, and a worker would execute a task without a
// receiver. Other withdrawals do not wait.
func TestPublisherWithdrawsNothingBeforeItIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{}, &store{}
		slow := make(chan struct{})
		p := outbox.NewPublisher(blockTasks{b, slow}, s, "rondo", silent)
		end := run(p)
		publish := func(id int64, messages ...events.Wire) {
			t.Helper()
			if err := p.Publish(t.Context(), outbox.Committed{Messages: messages, Keys: key(id)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		withdraw := func(subject string) events.Wire { return events.Wire{Subject: subject, Purge: true} }
		publish(1, wires("rondo.task.a")...)
		publish(2, wires("rondo.task.b")...) // it waits for the one before
		publish(3, withdraw("rondo.task.a"), withdraw("rondo.task.elsewhere"))
		publish(4, append(wires("rondo.task.c"), withdraw("rondo.task.b"), withdraw("rondo.task.c"))...)
		if got := b.subjects(); !slices.Equal(got, []string{"rondo.task.elsewhere"}) {
			t.Errorf("published %v", got)
		}
		if n, _ := p.Waiting(); n != 6 {
			t.Errorf("%d messages wait, want three with their withdrawals", n)
		}
		if kept := p.Kept(); len(kept) != 0 {
			t.Errorf("kept %v", kept)
		}
		close(slow)
		synctest.Wait()
		got := b.subjects()
		for _, subject := range []string{"rondo.task.a", "rondo.task.b", "rondo.task.c"} {
			first := slices.Index(got, subject)
			if first < 0 || !slices.Contains(got[first+1:], subject) {
				t.Errorf("%s was not withdrawn after it was published: %v", subject, got)
			}
		}
		if kept := p.Kept(); len(kept) != 4 || len(got) != 7 {
			t.Errorf("kept %v, published %v", kept, got)
		}
		end()
	})
}

// The end does not come between work and its withdrawal.
func TestPublisherWithdrawsWhatItPublishesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{}, &store{}
		slow := make(chan struct{})
		p := outbox.NewPublisher(blockTasks{b, slow}, s, "rondo", silent)
		end := run(p)
		for i, m := range []events.Wire{{Subject: "rondo.task.a"}, {Subject: "rondo.task.a", Purge: true}} {
			if err := p.Publish(t.Context(),
				outbox.Committed{Messages: []events.Wire{m}, Keys: key(int64(i))}); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(time.Second, func() { close(slow) })
		end()
		if got := s.gone(); len(got) != 2 || len(b.subjects()) != 2 {
			t.Errorf("removed %v, published %v", got, b.subjects())
		}
	})
}

// blockTasks holds up work.
type blockTasks struct {
	*fakeBroker
	until chan struct{}
}

func (b blockTasks) Publish(ctx context.Context, messages ...events.Wire) error {
	if !messages[0].Purge {
		<-b.until
	}
	return b.fakeBroker.Publish(ctx, messages...)
}

// blockLater holds up delayed messages.
type blockLater struct {
	*fakeBroker
	until chan struct{}
}

func (b blockLater) Publish(ctx context.Context, messages ...events.Wire) error {
	if m := messages[0]; m.Purge || !m.NotBefore.IsZero() {
		<-b.until
	}
	return b.fakeBroker.Publish(ctx, messages...)
}

// slowly publishes each task when the test says so, and everything else at once.
type slowly struct {
	*fakeBroker
	done map[string]chan struct{} // by subject
}

func (b slowly) Publish(ctx context.Context, messages ...events.Wire) error {
	for _, m := range messages {
		if done := b.done[m.Subject]; done != nil && !m.Purge {
			if len(messages) > 1 || m.Direct != !strings.HasSuffix(m.Subject, "session") {
				return fmt.Errorf("%s is published with others, or may be passed on: %t", m.Subject, m.Direct)
			}
			<-done
		} else if m.Direct {
			return fmt.Errorf("%s may be passed on", m.Subject)
		}
	}
	return b.fakeBroker.Publish(ctx, messages...)
}

// A timer that is far off is withdrawn before it is published, most often; then neither is. One
// that is near, or stays, is published.
func TestPublisherTakesTimersBack(t *testing.T) {
	timer := func(name string, after time.Duration) events.Wire {
		return events.Wire{Subject: "rondo.timer-due." + name, NotBefore: time.Now().Add(after)}
	}
	withdraw := func(name string) events.Wire {
		return events.Wire{Subject: "rondo.timer-due." + name, NotBefore: time.Now().Add(time.Hour), Purge: true}
	}
	const near, far = 10 * time.Second, time.Hour
	cases := []struct {
		name      string
		do        func(publish func(id int64, messages ...events.Wire))
		at        time.Duration // when it is looked
		published []string      // the last words of their subjects
		kept      int
	}{
		{"near", func(publish func(int64, ...events.Wire)) { publish(1, timer("a", near)) }, 0, []string{"a"}, 1},
		{"far", func(publish func(int64, ...events.Wire)) { publish(1, timer("a", far)) }, 0, nil, 0},
		{"far, a while later", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far))
		}, time.Second, []string{"a"}, 1},
		{"withdrawn at once", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far))
			publish(2, withdraw("a"))
		}, time.Second, nil, 2},
		{"by the same commit", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far), withdraw("a"))
		}, time.Second, nil, 1},
		{"one of two", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far), timer("b", far))
			publish(2, withdraw("a"))
		}, time.Second, []string{"b"}, 2},
		{"one of two, before the other is published", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far), timer("b", far))
			publish(2, withdraw("a"))
		}, 0, nil, 1},
		{"both, one after the other", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far), timer("b", far))
			publish(2, withdraw("b"), withdraw("a"))
		}, 0, nil, 2},
		{"something else is withdrawn", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far))
			publish(2, withdraw("b"))
		}, time.Second, []string{"b", "a"}, 2},
		{"set again", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far))
			publish(2, withdraw("a"))
			publish(3, timer("a", far))
		}, time.Second, []string{"a"}, 3},
		{"withdrawn when it is published", func(publish func(int64, ...events.Wire)) {
			publish(1, timer("a", far))
			time.AfterFunc(time.Second/2, func() { publish(2, withdraw("a")) })
		}, time.Second, []string{"a", "a"}, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := &fakeBroker{}, &store{}
				p := outbox.NewPublisher(b, s, "rondo", silent)
				p.DeliverTasksDirectly()
				end := run(p)
				synctest.Wait()
				c.do(func(id int64, messages ...events.Wire) {
					if err := p.Publish(t.Context(), outbox.Committed{Messages: messages, Keys: key(id)}); err != nil {
						t.Error(err)
					}
				})
				<-time.After(c.at)
				synctest.Wait()
				var got []string
				for _, subject := range b.subjects() {
					got = append(got, strings.TrimPrefix(subject, "rondo.timer-due."))
				}
				kept := append(p.Kept(), removed(s)...)
				if !slices.Equal(got, c.published) || len(kept) != c.kept {
					t.Errorf("published %v, kept %v; want %v and %d", got, kept, c.published, c.kept)
				}
				end()
				if n, _ := p.Waiting(); n != 0 {
					t.Errorf("%d messages wait still", n)
				}
			})
		})
	}
}

func removed(s *store) (keys []history.OutboxKey) {
	for _, id := range s.gone() {
		keys = append(keys, history.OutboxKey{ID: id})
	}
	return keys
}

// Outbox entries that were published and could not be removed are removed later: a sweep would
// publish them again.
func TestPublisherRemovesWhatItCouldNotRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{}, &store{err: errors.New("the database is away")}
		p := outbox.NewPublisher(b, s, "rondo", silent)
		end := run(p)
		if err := p.Publish(t.Context(), outbox.Committed{Messages: wires("a"), Keys: key(7)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		kept := p.Kept() // for a commit, which fails
		p.Keep(kept)
		<-time.After(3 * time.Second)
		tries := len(s.gone())
		if tries < 2 {
			t.Errorf("it was tried to remove it %d times in three seconds", tries)
		}
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		<-time.After(3 * time.Second)
		if n := len(s.gone()); n != tries+1 {
			t.Errorf("it was tried to remove it %d more times, want once: then it is gone", n-tries)
		}
		end()
	})
}

// A timer that is in flight to the broker is withdrawn after it; a process that ends publishes the
// waiting messages.
func TestPublisherWithdrawsTimersAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{}, &store{}
		slow := make(chan struct{})
		p := outbox.NewPublisher(blockLater{b, slow}, s, "rondo", silent)
		end := run(p)
		publish := func(id int64, m events.Wire) {
			if err := p.Publish(t.Context(), outbox.Committed{Messages: []events.Wire{m}, Keys: key(id)}); err != nil {
				t.Fatal(err)
			}
		}
		a := events.Wire{Subject: "rondo.timer-due.a", NotBefore: time.Now().Add(time.Hour)}
		publish(1, a)
		<-time.After(time.Second) // it is in flight
		withdrawn := a
		withdrawn.Purge = true
		publish(2, withdrawn)
		publish(3, events.Wire{Subject: "rondo.timer-due.b", NotBefore: time.Now().Add(time.Hour)})
		if n, _ := p.Waiting(); n != 3 || len(b.subjects()) != 0 {
			t.Errorf("%d messages wait, and %v are published", n, b.subjects())
		}
		close(slow)
		end()
		if got := b.subjects(); !slices.Equal(got,
			[]string{"rondo.timer-due.a", "rondo.timer-due.a", "rondo.timer-due.b"}) || len(s.gone()) != 3 {
			t.Errorf("published %v, removed %v", got, s.gone())
		}
	})
}

// A task for direct delivery takes its time. Only its own outbox entry and its own withdrawal wait
// for it.
func TestPublisherPassesWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		const a, b, inSession = "rondo.task._.a.1-2.i", "rondo.task._.b.1-2.i", "rondo.task._.c.1-2.session"
		slow := slowly{&fakeBroker{},
			map[string]chan struct{}{a: make(chan struct{}), b: make(chan struct{}), inSession: make(chan struct{})}}
		p := outbox.NewPublisher(slow, s, "rondo", silent)
		p.DeliverTasksDirectly()
		end := run(p)
		publish := func(id int64, messages ...events.Wire) {
			t.Helper()
			if err := p.Publish(t.Context(), outbox.Committed{Messages: messages, Keys: key(id)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		kept := func(want ...int64) {
			t.Helper()
			synctest.Wait()
			var is []int64
			for _, k := range p.Kept() {
				is = append(is, k.ID)
			}
			if !slices.Equal(is, want) {
				t.Errorf("kept %v, want %v", is, want)
			}
		}
		publish(1, events.Wire{Subject: a}, events.Wire{Subject: "rondo.mailbox.q.x"})
		publish(2, events.Wire{Subject: b})
		publish(3, events.Wire{Subject: inSession, Header: events.Header{events.HeaderSession: {"s"}}})
		publish(4, events.Wire{Subject: a, Purge: true}, events.Wire{Subject: "rondo.task._.z.1-2.i", Purge: true})
		publish(5, events.Wire{Subject: "rondo.mailbox.q.y"})
		if got := slow.subjects(); !slices.Equal(got,
			[]string{"rondo.mailbox.q.x", "rondo.task._.z.1-2.i", "rondo.mailbox.q.y"}) {
			t.Errorf("published %v", got)
		}
		kept(5)
		if n, _ := p.Waiting(); n != 4 {
			t.Errorf("%d messages wait, want three and a withdrawal", n)
		}
		close(slow.done[b])
		kept(2)
		close(slow.done[a])
		kept(1, 4)
		if got := slow.subjects(); !slices.Equal(got[3:], []string{b, a, a}) {
			t.Errorf("published %v", got)
		}
		time.AfterFunc(time.Second, func() { close(slow.done[inSession]) })
		end() // waits for messages in flight
		if got := s.gone(); !slices.Equal(got, []int64{3}) {
			t.Errorf("removed %v", got)
		}
	})
}

func TestPublisherRemovesPublishedEntriesWhenNoCommitComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{}, &store{}
		p := outbox.NewPublisher(b, s, "rondo", silent)
		end := run(p)
		for i := range 3 {
			if err := p.Publish(t.Context(), outbox.Committed{Messages: wires("m"), Keys: key(int64(i))}); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(2 * time.Second) // in the bubble's time
		synctest.Wait()
		if got := s.gone(); len(got) != 3 {
			t.Errorf("removed %v", got)
		}
		end()
	})
}

// A failure leaves the outbox entry where it is, for a sweep.
func TestPublisherLeavesWhatItCouldNotPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{fail: func(w events.Wire) error {
			if strings.HasPrefix(w.Subject, "bad") {
				return errors.New("no broker")
			}
			return nil
		}}, &store{}
		p := outbox.NewPublisher(b, s, "rondo", silent)
		end := run(p)
		publish := func(id int64, subjects ...string) {
			if err := p.Publish(t.Context(), outbox.Committed{Messages: wires(subjects...),
				Keys: key(id)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		publish(1, "good")
		publish(2, "bad")
		publish(3, "good again")
		end()
		if got := s.gone(); !slices.Equal(got, []int64{1, 3}) {
			t.Errorf("removed %v, want 1 and 3", got)
		}
	})
}

// A commit with more messages than can be published waits, and gives up at its time limit.
func TestPublisherHoldsBackWhoSendsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &fakeBroker{gate: make(chan struct{})}, &store{}
		p := outbox.NewPublisher(b, s, "rondo", silent)
		end := run(p)
		many := make([]events.Wire, 15_000)
		if err := p.Publish(t.Context(), outbox.Committed{Messages: many}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Publish(ctx, outbox.Committed{Messages: many}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it did not wait: %v", err)
		}
		close(b.gate)
		if err := p.Publish(t.Context(), outbox.Committed{Messages: many}); err != nil {
			t.Errorf("there is room: %v", err)
		}
		end()
	})
}

// A message that the broker refuses is dead-lettered, and a waiting caller gets an answer.
func TestRefusedMessagesAreAnswered(t *testing.T) {
	ref := events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2}
	var all []events.Wire
	for _, m := range []events.Message{
		{ID: "w", Instance: "i", Content: &events.Task{Ref: ref, Activity: "a", Attempt: 1}},
		{ID: "c", Instance: "child", Internal: true, Content: &events.Start{Orchestration: "o",
			Parent: &events.Parent{Instance: "i", Incarnation: "incarnation", Execution: 1, Event: 3}}},
		{ID: "s", Instance: "i", Content: &events.MailboxMessage{Mailbox: "q"}},
		{ID: "l", Instance: "launched", Content: &events.Start{Orchestration: "o"}},
	} {
		w, err := events.Encode("rondo", m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	b := &fakeBroker{fail: func(w events.Wire) error {
		if slices.ContainsFunc(all, func(x events.Wire) bool { return x.Subject == w.Subject }) {
			return errRefused
		}
		return nil
	}}
	if err := outbox.Send(t.Context(), b, "rondo", all, silent, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"rondo.task-failed.1-2.i", "rondo.child-ended.1-3.i"}; !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
	if len(b.deadLettered) != len(all) {
		t.Errorf("dead-lettered: %v", b.deadLettered)
	}
}
