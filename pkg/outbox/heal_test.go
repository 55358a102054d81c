package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/outbox"
	"github.com/rondo-run/rondo/pkg/round"
)

// parked is an instance with a history, as the store gives it.
func parked(status round.Status, facts ...events.Fact) round.Known {
	at := time.Now()
	all := append([]events.Fact{&events.Started{Name: "o", Version: "1.0.0", Incarnation: "incarnation",
		Engine: events.Engine}},
		facts...)
	var list []events.Event
	for i, f := range all {
		list = append(list, events.Event{ID: int64(i + 1), At: at, Fact: f})
	}
	return round.Known{Row: round.Row{Execution: 1, Incarnation: "incarnation", Engine: events.Engine, Name: "o",
		Version: "1.0.0",
		Status:  status, StartedAt: at, EndedAt: endOf(status, at), LastEvent: int64(len(list))}, History: list}
}

func endOf(status round.Status, at time.Time) time.Time {
	if status.Ended() {
		return at
	}
	return time.Time{}
}

func healer(b *fakeBroker, s *store) *outbox.Healer {
	return &outbox.Healer{Broker: b, Store: s, Prefix: "rondo", Grace: time.Second, Patience: time.Minute, Log: silent}
}

func TestHealPublishesOnlyWhatIsMissing(t *testing.T) {
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	s := &store{overdue: []string{"a"}, known: map[string]round.Known{
		"a": parked(round.Running,
			&events.ActivityScheduled{Name: "lost", Attempt: 1},
			&events.ActivityScheduled{Name: "kept", Attempt: 1},
			&events.ActivityScheduled{Name: "answered", Attempt: 1},
			&events.ActivityCompleted{Schedule: 4},
			&events.TimerCreated{FireAt: soon},
			&events.TimerCreated{FireAt: soon.Add(1)},
			&events.TimerCreated{FireAt: past},
			&events.ChildStarted{Name: "o", Instance: "missing"},
			&events.ChildStarted{Name: "o", Instance: "running"},
			&events.ChildStarted{Name: "o", Instance: "ended"},
		),
		"running": parked(round.Running),
		"ended":   parked(round.Completed, &events.Completed{}),
	}}
	b := &fakeBroker{has: map[string]bool{"rondo.task._.kept.1-3-incarnation.a": true,
		"rondo.timer-due.1-7-incarnation.a": true}}
	healed, err := healer(b, s).Overdue(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(b.published)
	want := []string{"rondo.internal_start.o.ended", "rondo.internal_start.o.missing",
		"rondo.task._.lost.1-2-incarnation.a", "rondo.timer-due.1-6-incarnation.a", "rondo.wake.sweep.a"}
	if !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
	if healed.Instances != 1 || healed.Messages != len(want) {
		t.Errorf("healed %+v", healed)
	}
}

// TestHealLeavesStartsOfChildrenThatWait: the start of a child waits in the broker, for code or
// behind others. It is not lost.
func TestHealLeavesStartsOfChildrenThatWait(t *testing.T) {
	s := &store{overdue: []string{"a"}, known: map[string]round.Known{
		"a": parked(round.Running,
			&events.ChildStarted{Name: "o", Instance: "lost"},
			&events.ChildStarted{Name: "o", Instance: "waits"},
			&events.ChildStarted{Name: "o", Instance: "ended-waits"},
			&events.ChildStarted{Name: "o", Instance: "starts"},
		),
		"ended-waits": parked(round.Completed, &events.Completed{}),
	}}
	b := &asking{fakeBroker: &fakeBroker{has: map[string]bool{"rondo.internal_start.o.waits": true,
		"rondo.internal_start.o.ended-waits": true}}}
	b.asked = func(w events.Wire) {
		if strings.HasSuffix(w.Subject, ".starts") { // its start is committed and acknowledged meanwhile
			s.mu.Lock()
			defer s.mu.Unlock()
			s.known["starts"] = parked(round.Running)
		}
	}
	h := healer(b.fakeBroker, s)
	h.Broker = b
	if _, err := h.Overdue(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	slices.Sort(b.published)
	if want := []string{"rondo.internal_start.o.lost", "rondo.wake.sweep.a"}; !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
}

// asking is a broker that tells what it is asked for.
type asking struct {
	*fakeBroker
	asked func(events.Wire)
}

func (b *asking) Has(ctx context.Context, w events.Wire) (bool, error) {
	b.asked(w)
	return b.fakeBroker.Has(ctx, w)
}

func TestHealWakesWhatItCannotRead(t *testing.T) {
	newer := parked(round.Running)
	newer.Row.Engine = events.Engine + 1
	s := &store{overdue: []string{"newer", "gone"}, known: map[string]round.Known{"newer": newer}}
	b := &fakeBroker{}
	if _, err := healer(b, s).Overdue(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if want := []string{"rondo.wake.sweep.newer"}; !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
}

// After the broker has lost everything, recent messages are sent again, also by instances that have
// ended.
func TestHealAllRepeatsWhatWasSaidLately(t *testing.T) {
	long := parked(round.Running, &events.Sent{To: events.ToMailbox, Instance: "z", Name: "old"})
	long.History[1].At = time.Now().Add(-24 * time.Hour)
	// The broker keeps a delayed start until it is due.
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	delayed := parked(round.Running, &events.Launched{Name: "o", Instance: "past", NotBefore: in(-23 * time.Hour)},
		&events.Launched{Name: "o", Instance: "tomorrow", NotBefore: in(24 * time.Hour)})
	for i := range delayed.History[1:] {
		delayed.History[1+i].At = in(-24 * time.Hour)
	}
	s := &store{known: map[string]round.Known{
		"delayed": delayed,
		"running": parked(round.Running, &events.Sent{To: events.ToMailbox, Instance: "x", Name: "q"}),
		"ended":   parked(round.Completed, &events.Launched{Name: "o", Instance: "y"}, &events.Completed{}),
		"long":    long,
	}}
	b := &fakeBroker{}
	if _, err := healer(b, s).All(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(b.published)
	want := []string{"rondo.internal_mailbox.q.x", "rondo.internal_start.o.tomorrow",
		"rondo.internal_start.o.y", "rondo.wake.sweep.delayed", "rondo.wake.sweep.long", "rondo.wake.sweep.running"}
	if !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
}

// What counts is when something was said, and how long that was before the broker was lost: not
// when its instance began, whether its execution has gone on as another one since, or when the
// recovery begins.
func TestHealAllCountsFromTheLoss(t *testing.T) {
	lost := time.Now().Add(-time.Hour)
	said := func(status round.Status, to string, before time.Duration) round.Known {
		facts := []events.Fact{&events.Launched{Name: "o", Instance: to}}
		if status.Ended() {
			facts = append(facts, &events.Completed{})
		}
		k := parked(status, facts...)
		for i := range k.History {
			k.History[i].At = lost.Add(-before)
		}
		k.History[0].At = lost.Add(-24 * time.Hour)
		k.Row.StartedAt, k.Row.EndedAt = k.History[0].At, endOf(status, lost.Add(-before))
		return k
	}
	execution := func(n int64, k round.Known) round.Known {
		k.Row.Execution = n
		k.Row.StartedAt = k.History[1].At
		return k
	}
	former := func(n int64, to string, before time.Duration) round.Known {
		k := execution(n, said(round.Running, to, before))
		k.History = append(k.History, events.Event{ID: 3, At: k.History[1].At, Fact: &events.ContinuedAsNew{}})
		k.Row.LastEvent, k.Row.EndedAt = 3, k.History[1].At
		return k
	}
	s := &store{known: map[string]round.Known{
		"ended":      said(round.Completed, "of-ended", 9*time.Minute),
		"ended-long": said(round.Completed, "of-ended-long", 11*time.Minute),
		"runs":       said(round.Running, "of-runs", 9*time.Minute),
		"runs-long":  said(round.Running, "of-runs-long", 11*time.Minute),
		"rolls":      execution(250, said(round.Running, "of-rolls-250", time.Minute)),
		"rolled":     execution(2, said(round.Completed, "of-rolled-2", time.Minute)),
	}, former: map[string][]round.Known{"rolled": {former(1, "of-rolled-1", 9*time.Minute)}}}
	for n := range int64(249) { // it was pruned, but for every fifth one
		if at := 30 * time.Minute; n%5 == 4 {
			if n == 4 || n > 239 {
				at = 2 * time.Minute
			}
			s.former["rolls"] = append(s.former["rolls"], former(n, fmt.Sprint("of-rolls-", n), at))
		}
	}
	b := &fakeBroker{}
	if _, err := healer(b, s).All(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	b.published = slices.DeleteFunc(b.published, func(s string) bool { return strings.HasPrefix(s, "rondo.wake.") })
	slices.Sort(b.published)
	var want []string
	for _, id := range []string{"ended", "rolled-1", "rolled-2", "rolls-244", "rolls-250", "runs"} {
		want = append(want, "rondo.internal_start.o.of-"+id)
	}
	if !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
}

// A task that the broker does not have may be with a worker that received it directly. It is sent
// only if the broker does not have it later, either, and its instance still waits for it.
func TestHealAllWaitsForTasksThatWerePassedDirectly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{known: make(map[string]round.Known)}
		for _, id := range []string{"done", "lost", "stored"} {
			s.known[id] = parked(round.Running, &events.ActivityScheduled{Name: "a", Attempt: 1})
		}
		b := &fakeBroker{has: make(map[string]bool)}
		h := healer(b, s)
		h.Settle = 5 * time.Second
		type outcome struct {
			healed outbox.Healed
			err    error
		}
		ended := make(chan outcome, 1)
		go func() {
			healed, err := h.All(t.Context(), time.Now())
			ended <- outcome{healed, err}
		}()
		synctest.Wait()
		if got := b.subjects(); len(got) > 0 {
			t.Errorf("published %v before the tasks were stored or done", got)
		}
		b.mu.Lock()
		b.has["rondo.task._.a.1-2-incarnation.stored"] = true
		b.mu.Unlock()
		s.mu.Lock()
		s.known["done"] = parked(round.Running, &events.ActivityScheduled{Name: "a", Attempt: 1},
			&events.ActivityCompleted{Schedule: 2})
		s.mu.Unlock()
		got := <-ended
		if got.err != nil {
			t.Fatal(got.err)
		}
		slices.Sort(b.published)
		want := []string{"rondo.task._.a.1-2-incarnation.lost", "rondo.wake.sweep.done", "rondo.wake.sweep.lost",
			"rondo.wake.sweep.stored"}
		if !slices.Equal(b.published, want) {
			t.Errorf("published %v, want %v", b.published, want)
		}
		if got.healed.Instances != 3 || got.healed.Messages != len(want) {
			t.Errorf("healed %+v", got.healed)
		}
	})
}

// It ends when it is told to, also while it waits.
func TestHealAllEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{known: map[string]round.Known{"a": parked(round.Running,
			&events.ActivityScheduled{Name: "a", Attempt: 1})}}
		b := &fakeBroker{}
		h := healer(b, s)
		h.Settle = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.All(ctx, time.Now()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		if len(b.published) > 0 {
			t.Errorf("published %v", b.published)
		}
	})
}

// The result of a task may be in an inbox that was just taken over when its instance is overdue.
// What wakes the instance is sent at once; the task, by a later call, and only if it is still
// wanted.
func TestHealOverdueWaitsForTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{known: make(map[string]round.Known)}
		for _, id := range []string{"done", "lost"} {
			s.overdue = append(s.overdue, id)
			s.known[id] = parked(round.Running, &events.ActivityScheduled{Name: "a", Attempt: 1})
		}
		b := &fakeBroker{}
		h := healer(b, s)
		h.Settle = 5 * time.Second
		overdue := func(want ...string) {
			t.Helper()
			b.published = nil
			if _, err := h.Overdue(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			if slices.Sort(b.published); !slices.Equal(b.published, want) {
				t.Errorf("published %v, want %v", b.published, want)
			}
		}
		overdue("rondo.wake.sweep.done", "rondo.wake.sweep.lost")
		s.overdue = nil
		s.known["done"] = parked(round.Running, &events.ActivityScheduled{Name: "a", Attempt: 1},
			&events.ActivityCompleted{Schedule: 2})
		<-time.After(4 * time.Second)
		overdue()
		<-time.After(time.Second)
		overdue("rondo.task._.a.1-2-incarnation.lost", "rondo.wake.sweep.done", "rondo.wake.sweep.lost")
		<-time.After(time.Minute)
		overdue()
	})
}

// bulk is a broker that can be asked for many messages at once, and does not know of all that it
// has.
type bulk struct {
	*fakeBroker
	knows map[string]bool
	asked int
}

func (b *bulk) HasMany(_ context.Context, messages []events.Wire) ([]bool, error) {
	b.asked++
	has := make([]bool, len(messages))
	for i, w := range messages {
		has[i] = b.knows[w.Subject]
	}
	return has, nil
}

// All that are overdue are looked after, page after page, and the broker is asked once for each
// page. What it does not seem to have is looked for once more.
func TestHealGoesOnWhileThereIsMore(t *testing.T) {
	const n, page = 25, 10
	s := &store{known: make(map[string]round.Known)}
	b := &bulk{fakeBroker: &fakeBroker{has: make(map[string]bool)}, knows: make(map[string]bool)}
	for i := range n {
		id := fmt.Sprint("i", i)
		s.overdue = append(s.overdue, id)
		s.known[id] = parked(round.Running, &events.ActivityScheduled{Name: "a", Attempt: 1})
		subject := "rondo.task._.a.1-2-incarnation." + id
		switch {
		case i == 7: // it is lost
		case i == 8:
			b.has[subject] = true
		default:
			b.knows[subject], b.has[subject] = true, true
		}
	}
	h := healer(b.fakeBroker, s)
	h.Broker = b
	healed, err := h.Overdue(t.Context(), page)
	if err != nil || healed.Instances != n || b.asked != 3 {
		t.Errorf("healed %+v with %d questions, error %v; want %d instances and 3 questions", healed, b.asked, err, n)
	}
	work := slices.DeleteFunc(b.published, func(s string) bool { return strings.Contains(s, ".wake.") })
	if want := []string{"rondo.task._.a.1-2-incarnation.i7"}; !slices.Equal(work, want) {
		t.Errorf("published %v, want %v", work, want)
	}
}

// What no orchestrator can run is left alone: what answers it may be waiting, too, and would be
// asked for again and again.
func TestHealLeavesAloneWhatNobodyRuns(t *testing.T) {
	s := &store{overdue: []string{"a"},
		known: map[string]round.Known{"a": parked(round.Running, &events.ActivityScheduled{Name: "lost", Attempt: 1})}}
	b := &fakeBroker{}
	h := healer(b, s)
	h.Runs = func(name, version string) bool { return name != "o" || version != "1.0.0" }
	if healed, err := h.Overdue(t.Context(), 10); err != nil || healed.Instances != 0 || len(b.published) > 0 {
		t.Errorf("healed %+v, published %v, error %v", healed, b.published, err)
	}
}

// After the broker has lost everything, an instance that has ended sends its messages once more. A
// message that a read has taken is not unread: the start that brought it begins no instance again.
// One that no read has taken does.
func TestHealAllStartsNothingForMessagesThatWereTaken(t *testing.T) {
	restart := &events.Restart{Name: "o", Version: "1.0.0"}
	brought := func(data string) *events.MessageReceived {
		return &events.MessageReceived{Mailbox: "q", Data: codec.Payload(data), Message: "m" + data, Restart: restart}
	}
	s := &store{known: map[string]round.Known{
		"taken": parked(round.Completed, &events.MailboxRead{Mailbox: "q"}, brought("1"), &events.Completed{}),
		"unread": parked(round.Completed, &events.MailboxRead{Mailbox: "q"}, brought("1"), brought("2"),
			&events.Completed{}),
	}}
	b := &fakeBroker{}
	if _, err := healer(b, s).All(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"rondo.internal_start.o.unread"}; !slices.Equal(b.published, want) {
		t.Errorf("published %v, want %v", b.published, want)
	}
}
