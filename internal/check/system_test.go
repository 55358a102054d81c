package check_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file plants one violation of each rule that is about more than one instance, in a fake store
// and a fake broker.

// fake is a store of instances as a test has made them.
type fake struct {
	instances    map[string]*check.Instance
	deadLettered []string
	promised     []history.OutboxEntry
	clock        time.Time
	loaded       func(ids []string) // is called before instances are loaded
	loads        int
}

func storeOf(all ...check.Instance) *fake {
	f := &fake{instances: make(map[string]*check.Instance)}
	for _, in := range all {
		f.instances[in.ID] = &in
	}
	return f
}

func (f *fake) Load(_ context.Context, ids []string, admit func(string, round.Row) bool) ([]round.Known, error) {
	if f.loads++; f.loaded != nil {
		f.loaded(ids)
	}
	known := make([]round.Known, len(ids))
	for i, id := range ids {
		known[i].Instance = id
		if in := f.instances[id]; in != nil {
			known[i].Row = in.Row
			if admit(id, in.Row) {
				known[i].History = in.History[in.Row.Execution]
			}
		}
	}
	return known, nil
}

func (f *fake) List(_ context.Context, filter history.Filter, p history.Page) (list history.InstanceList, err error) {
	ids := make([]string, 0, len(f.instances))
	for id := range f.instances {
		if id > p.Cursor && strings.HasPrefix(id, filter.IDPrefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if n := min(len(ids), p.Size()); n < len(ids) {
		ids = ids[:n]
		list.Next = ids[n-1]
	}
	for _, id := range ids {
		list.Instances = append(list.Instances, history.Info{Instance: id, Row: f.instances[id].Row})
	}
	return list, nil
}

func (f *fake) Executions(_ context.Context, id string, after int64, _ int) (list []history.ExecutionInfo, err error) {
	in := f.instances[id]
	if in == nil {
		return nil, fmt.Errorf("%q: %w", id, history.ErrNoInstance)
	}
	for x := after + 1; x <= in.Row.Execution; x++ {
		if h, ok := in.History[x]; ok {
			info := history.ExecutionInfo{Execution: x, Status: round.Running, Events: int64(len(h)),
				StartedAt: h[0].At}
			switch e := h[len(h)-1].Fact.(type) {
			case *events.ContinuedAsNew:
				info.Status = round.ContinuedAsNew
			case *events.Completed:
				info.Status, info.Output = round.Completed, e.Output
			default:
			}
			list = append(list, info)
		}
	}
	return list, nil
}

func (f *fake) Events(_ context.Context, id string, execution, after int64, limit int) ([]events.Event, error) {
	in := f.instances[id]
	if in == nil || in.History[execution] == nil {
		return nil, fmt.Errorf("%q: %w", id, history.ErrNoExecution)
	}
	h := in.History[execution]
	from := min(int(after), len(h))
	return h[from:min(from+limit, len(h))], nil
}

func (f *fake) ValuesOf(_ context.Context, ids []string) (map[string]map[string]history.Value, error) {
	all := make(map[string]map[string]history.Value)
	for _, id := range ids {
		all[id] = make(map[string]history.Value)
		if in := f.instances[id]; in != nil {
			for k, v := range in.Values {
				all[id][k] = history.Value{Data: v}
			}
		}
	}
	return all, nil
}

func (f *fake) Tombstones(_ context.Context, ids []string) (found []string, err error) {
	for _, id := range ids {
		if slices.Contains(f.deadLettered, id) {
			found = append(found, id)
		}
	}
	return found, nil
}

func (f *fake) Clock(context.Context) (time.Time, error) { return f.clock, nil }

func (f *fake) OldOutbox(_ context.Context, before time.Time, _ int) (old []history.OutboxEntry, err error) {
	for _, p := range f.promised {
		if p.Key.Made().Before(before) {
			old = append(old, p)
		}
	}
	return old, nil
}

// fakeBroker has messages, each as its subject and its id, and dead letters: each as the id of a
// message to instance "i", or as a whole.
type fakeBroker struct {
	has     []string
	delayed []string // messages that are not due
	dead    []string
	letters []broker.DeadLetter
}

func (b *fakeBroker) Has(_ context.Context, w events.Wire) (bool, error) {
	return slices.ContainsFunc(b.has, func(m string) bool {
		subject, _, _ := strings.Cut(m, " ")
		return subject == w.Subject
	}), nil
}

func (b *fakeBroker) StoredUnder(_ context.Context, messages []events.Wire,
	limit int) (list []broker.StoredMessage, more bool, err error) {
	add := func(m string, at time.Time) {
		if subject, id, _ := strings.Cut(m, " "); subject == messages[0].Subject {
			list = append(list, broker.StoredMessage{ID: id, NotBefore: at})
		}
	}
	for _, m := range b.has {
		add(m, time.Time{})
	}
	for _, m := range b.delayed {
		add(m, now.Add(time.Hour))
	}
	return list[:min(limit, len(list))], len(list) > limit, nil
}

func (b *fakeBroker) DeadLetters(_ context.Context, after uint64, limit int) (list []broker.DeadLetter, err error) {
	all := slices.Clone(b.letters)
	for _, id := range b.dead {
		all = append(all, broker.DeadLetter{ID: id, Subject: "rondo.mailbox.mail.i"})
	}
	for i, l := range all {
		if l.Sequence = uint64(i) + 1; l.Sequence > after && len(list) < limit {
			list = append(list, l)
		}
	}
	return list, nil
}

// now is the time of the checks in this file: an hour after everything began.
var now = began.Add(time.Hour)

// look checks a store an hour after everything began.
func look(t *testing.T, s check.Store, change ...func(*check.Options)) check.Report {
	t.Helper()
	o := check.Options{Now: func() time.Time { return now }, Dir: t.TempDir()}
	for _, f := range change {
		f(&o)
	}
	r, err := check.System(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wants(t *testing.T, r check.Report, rules ...check.Rule) {
	t.Helper()
	if got := rulesOf(r.Findings); !slices.Equal(got, rules) {
		t.Errorf("found are %v, want %v:\n%v", got, rules, r.Err())
	}
}

// ---- Options.

func asking(b *fakeBroker) func(*check.Options) {
	return func(o *check.Options) { o.Broker, o.Dead = b, b }
}

func quiescent(o *check.Options) { o.Quiescent = true }

func nothingRemoved(o *check.Options) { o.NothingRemoved = true }

func acked(list ...check.Acknowledged) func(*check.Options) {
	return func(o *check.Options) {
		o.Acknowledgements = append(o.Acknowledgements,
			check.Acknowledgements{Name: "a log", Each: func(yield func(check.Acknowledged, error) bool) {
				for _, p := range list {
					if !yield(p, nil) {
						return
					}
				}
			}})
	}
}

// ---- Instances.

func named(id string, in check.Instance) check.Instance {
	in.ID = id
	return in
}

// lookedAt is an instance that was last updated long ago, and that has a wake time in the future.
func lookedAt(in check.Instance) check.Instance {
	if !in.Row.Status.Ended() {
		in.Row.WakeAt = now.Add(time.Minute)
	}
	return in
}

func childStarted(id string) *events.ChildStarted {
	return &events.ChildStarted{Name: "order", Instance: id}
}

func withParent(event int64) func(*events.Started) {
	return func(s *events.Started) {
		s.Parent = &events.Parent{Instance: "parent", Incarnation: "incarnation", Execution: 1, Event: event}
	}
}

func parent(facts ...events.Fact) check.Instance {
	return lookedAt(named("parent", of(story(append([]events.Fact{started(), childStarted("child")}, facts...)...))))
}

func childOf(event int64, facts ...events.Fact) check.Instance {
	return lookedAt(named("child", of(story(append([]events.Fact{started(withParent(event))}, facts...)...))))
}

var childDone = &events.ChildCompleted{Schedule: 2, Output: codec.Payload("1")}

func refused() *events.ChildFailed {
	return &events.ChildFailed{Schedule: 2, Error: &failure.Error{Kind: failure.Conflict, Message: "its id is in use"}}
}

var families = []struct {
	name string
	all  []check.Instance
	with func(*fake, *check.Options)
	want []check.Rule
}{
	{name: "both run", all: []check.Instance{parent(), childOf(2, call)}},
	{name: "the child has ended", all: []check.Instance{parent(childDone), childOf(2, completed)}},
	{name: "refused", all: []check.Instance{parent(refused()), named("child", of(story(started(), completed)))}},
	{name: "the child was deleted", all: []check.Instance{parent(childDone)}, with: func(f *fake, _ *check.Options) {
		f.deadLettered = []string{"child"}
	}},
	{name: "the child was deleted long ago", all: []check.Instance{parent(childDone)},
		with: func(_ *fake, o *check.Options) {
			o.Now = func() time.Time { return now.Add(25 * time.Hour) }
			o.Overdue = -1
		}},
	{name: "the child was deleted, they say it was not", all: []check.Instance{parent(childDone)},
		want: []check.Rule{check.ChildMissing}, with: func(f *fake, o *check.Options) {
			f.deadLettered, o.NothingRemoved = []string{"child"}, true
		}},
	{name: "the child has a new incarnation", all: []check.Instance{parent(childDone),
		named("child", of(story(started(withParent(2)), completed), story(started(func(s *events.Started) {
			s.Incarnation = "other"
		}), completed)))}},
	{name: "the parent has a new incarnation", all: []check.Instance{named("parent",
		of(story(started(), childStarted("child"), completed), story(started(func(s *events.Started) {
			s.Incarnation = "other"
		}), completed))), childOf(2, call)}},
	{name: "the parent was pruned", all: []check.Instance{changed(named("parent",
		of(story(started(), continued), story(next(0), completed))), func(in *check.Instance) {
		delete(in.History, 1)
	}), childOf(2, call)}},

	{name: "no child", all: []check.Instance{parent(childDone)}, want: []check.Rule{check.ChildMissing}},
	{name: "somebody else", all: []check.Instance{parent(childDone),
		changed(named("child", of(story(started(), completed))), func(in *check.Instance) {
			in.History[1][0].At = began.Add(-time.Second)
		})}, want: []check.Rule{check.ChildForeign}},
	{name: "the child still runs", all: []check.Instance{parent(childDone), childOf(2, call)},
		want: []check.Rule{check.ChildEarly}},
	{name: "another output", all: []check.Instance{parent(childDone),
		childOf(2, &events.Completed{Output: codec.Payload("2")})}, want: []check.Rule{check.ChildOutcome}},
	{name: "told that it failed", all: []check.Instance{parent(&events.ChildFailed{Schedule: 2,
		Error: &failure.Error{Kind: failure.Application, Message: "x"}}), childOf(2, completed)},
		want: []check.Rule{check.ChildOutcome}},
	{name: "told that it completed", all: []check.Instance{parent(childDone),
		childOf(2, &events.Failed{Error: &failure.Error{Kind: failure.Application, Message: "x"}})},
		want: []check.Rule{check.ChildOutcome}},
	{name: "no parent", all: []check.Instance{childOf(2, call)}, want: []check.Rule{check.Orphan}},
	{name: "the parent does not know", all: []check.Instance{parent(call), childOf(3, call)},
		want: []check.Rule{check.ChildUnknown}},
	{name: "other attributes than its parent gave",
		all: []check.Instance{parent(call), changed(childOf(2, call), func(in *check.Instance) {
			in.Row.Attributes = map[string]string{"region": "eu"}
		})}, want: []check.Rule{check.ChildUnknown}},
	{name: "the parent has not come so far",
		all: []check.Instance{parent(), changed(childOf(2, call), func(in *check.Instance) {
			p := &events.Parent{Instance: "parent", Incarnation: "incarnation", Execution: 7, Event: 2}
			in.Row.Parent, in.History[1][0].Fact.(*events.Started).Parent = p, p
		})}, want: []check.Rule{check.ChildUnknown}},
}

func TestFamilies(t *testing.T) {
	for _, c := range families {
		t.Run(c.name, func(t *testing.T) {
			s := storeOf(c.all...)
			wants(t, look(t, s, func(o *check.Options) {
				if c.with != nil {
					c.with(s, o)
				}
			}), c.want...)
		})
	}
}

// ---- Messages in flight.

var childID = events.MessageID(events.VerbStart, "parent",
	events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2})

func taskSubject() string { return "rondo.task._.charge.1-2-incarnation.i" }

var inFlight = []struct {
	name string
	in   []check.Instance
	with []func(*check.Options)
	want []check.Rule
}{
	{name: "the work is there", in: []check.Instance{lookedAt(of(story(started(), call)))},
		with: []func(*check.Options){asking(&fakeBroker{has: []string{taskSubject()}})}},
	{name: "its answer is there", in: []check.Instance{lookedAt(of(story(started(), call)))},
		with: []func(*check.Options){asking(&fakeBroker{has: []string{"rondo.task-done.1-2.i"}})}},
	{name: "its failure is there", in: []check.Instance{lookedAt(of(story(started(), call)))},
		with: []func(*check.Options){asking(&fakeBroker{has: []string{"rondo.task-failed.1-2.i"}})}},
	{name: "work is lost", in: []check.Instance{lookedAt(of(story(started(), call)))},
		with: []func(*check.Options){asking(&fakeBroker{})}, want: []check.Rule{check.TaskLost}},
	{name: "nobody is asked", in: []check.Instance{lookedAt(of(story(started(), call)))}},
	{name: "it is passed on", in: []check.Instance{lookedAt(of(story(started(), call,
		&events.ActivityBegun{Schedule: 2, Pending: true})))},
		with: []func(*check.Options){asking(&fakeBroker{}), quiescent}},
	{name: "a timer to come", in: []check.Instance{lookedAt(of(story(started(), timer(2*time.Hour))))},
		with: []func(*check.Options){asking(&fakeBroker{}), quiescent}},
	{name: "a timer that is due is there", in: []check.Instance{lookedAt(of(story(started(), timer(time.Minute))))},
		with: []func(*check.Options){asking(&fakeBroker{has: []string{"rondo.timer-due.1-2-incarnation.i"}})}},
	{name: "a timer is lost", in: []check.Instance{lookedAt(of(story(started(), timer(time.Minute))))},
		with: []func(*check.Options){asking(&fakeBroker{})}, want: []check.Rule{check.TimerLost}},
	{name: "nobody looks", in: []check.Instance{changed(of(story(started(), call)), func(in *check.Instance) {
		in.Row.WakeAt = began.Add(time.Minute)
	})}, want: []check.Rule{check.WakeOverdue}},
	{name: "the start of a child is there", in: []check.Instance{parent()},
		with: []func(*check.Options){asking(&fakeBroker{
			has: []string{"rondo.internal_start.order.child " + childID}})}},
	{name: "a child is lost, and the start of another one with its id is there", in: []check.Instance{parent()},
		with: []func(*check.Options){asking(&fakeBroker{has: []string{"rondo.internal_start.order.child other"}})},
		want: []check.Rule{check.ChildLost}},
	{name: "a child is lost", in: []check.Instance{parent()}, with: []func(*check.Options){asking(&fakeBroker{})},
		want: []check.Rule{check.ChildLost}},
	{name: "the answer of a child is there", in: []check.Instance{parent(), childOf(2, completed)},
		with: []func(*check.Options){asking(&fakeBroker{has: []string{"rondo.child-ended.1-2.parent"}})}},
	{name: "the answer of a child is lost", in: []check.Instance{parent(), childOf(2, completed)},
		with: []func(*check.Options){asking(&fakeBroker{})}, want: []check.Rule{check.AnswerLost}},
	{name: "work, and nothing may be in flight", in: []check.Instance{lookedAt(of(story(started(), call)))},
		with: []func(*check.Options){quiescent}, want: []check.Rule{check.Outstanding}},
	{name: "a due timer, and nothing may be in flight", in: []check.Instance{lookedAt(of(story(started(),
		timer(time.Minute))))}, with: []func(*check.Options){quiescent}, want: []check.Rule{check.Outstanding}},
	{name: "a child to come, and nothing may be in flight", in: []check.Instance{parent()},
		with: []func(*check.Options){quiescent}, want: []check.Rule{check.Outstanding}},
	{name: "an answer to come, and nothing may be in flight", in: []check.Instance{parent(), childOf(2, completed)},
		with: []func(*check.Options){quiescent}, want: []check.Rule{check.Outstanding}},
	{name: "a child that nobody waits for since its parent continued as new",
		in: []check.Instance{lookedAt(named("parent", of(story(started(), childStarted("child"), childStarted("lost"),
			continued), story(next(0), &events.EventAwaited{Name: "go"})))), childOf(2, completed)},
		with: []func(*check.Options){quiescent, asking(&fakeBroker{})}},
	{name: "a wait, and nothing may be in flight", in: []check.Instance{lookedAt(of(story(started(),
		&events.EventAwaited{Name: "go"})))}, with: []func(*check.Options){quiescent}},
}

func TestInFlight(t *testing.T) {
	for _, c := range inFlight {
		t.Run(c.name, func(t *testing.T) { wants(t, look(t, storeOf(c.in...), c.with...), c.want...) })
	}
}

func TestOldOutboxEntriesAreFound(t *testing.T) {
	s := storeOf()
	s.promised = []history.OutboxEntry{{Key: history.OutboxKey{ID: history.OutboxID(now.Add(-time.Minute), 0)},
		Messages: []events.Wire{{Subject: "rondo.event.go.i"}}}}
	wants(t, look(t, s))
	wants(t, look(t, s, func(o *check.Options) { o.Overdue = 30 * time.Second }), check.OutboxOverdue)
	wants(t, look(t, s, quiescent), check.OutboxOverdue)
	wants(t, look(t, s, quiescent, func(o *check.Options) { o.Overdue = -1 }), check.OutboxOverdue)
}

// TestAClockThatIsWrong: the clock of the database counts, and the report has the difference.
func TestAClockThatIsWrong(t *testing.T) {
	const hour = 3600
	for _, c := range []struct {
		name    string
		ahead   time.Duration
		options func(*check.Options)
		age     time.Duration // of the outbox entry
		want    []check.Rule
		reports float64
	}{
		{"right", 0, quiet, time.Minute, nil, 0},
		{"almost right", time.Second, quiet, time.Minute, nil, 0},
		{"fast", time.Hour, quiet, time.Minute, nil, hour},
		{"slow", -time.Hour, quiet, 3 * time.Minute, []check.Rule{check.OutboxOverdue}, -hour},
		{"slow, and nothing may be in flight", -time.Hour, quiescent, time.Minute,
			[]check.Rule{check.OutboxOverdue}, -hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := storeOf()
			s.clock = now.Add(-c.ahead)
			s.promised = []history.OutboxEntry{{Key: history.OutboxKey{ID: history.OutboxID(s.clock.Add(-c.age),
				0)}}}
			r := look(t, s, c.options)
			if wants(t, r, c.want...); r.ClockAhead != c.reports {
				t.Errorf("the clock is %v s ahead, want %v", r.ClockAhead, c.reports)
			}
		})
	}
}

func quiet(*check.Options) {}

// ---- While the store is written to.

// TestWhatMovesIsReadAgain shows a violation that is only seen because two things were read one
// after the other: it is not there any more when they are read again.
func TestWhatMovesIsReadAgain(t *testing.T) {
	s := storeOf(parent(childDone), childOf(2, call))
	s.loaded = func([]string) {
		if s.loads == 4 { // the child ends, a moment after it was read
			in := childOf(2, completed)
			s.instances["child"] = &in
		}
	}
	wants(t, look(t, s))
	if s.loads < 5 {
		t.Errorf("nothing was read again")
	}
}

// TestValuesAreOfTheMomentOfTheHistory lets an instance go on between the reading of its history
// and that of its values.
func TestValuesAreOfTheMomentOfTheHistory(t *testing.T) {
	before := lookedAt(of(story(started(), value("k", "1"))))
	after := lookedAt(of(story(started(), value("k", "1"), value("k", "2"))))
	s := storeOf(before)
	s.loaded = func([]string) {
		if s.loads == 2 {
			s.instances["i"] = &after
		}
	}
	r := look(t, valuesOf{s, func() {
		if s.loads == 1 {
			s.instances["i"].Values["k"] = codec.Payload("2")
		}
	}})
	wants(t, r)
	if r.Events != 3 || r.Instances != 1 {
		t.Errorf("%+v", r)
	}
}

// valuesOf does something before values are read.
type valuesOf struct {
	*fake
	before func()
}

func (v valuesOf) ValuesOf(ctx context.Context, ids []string) (map[string]map[string]history.Value, error) {
	v.before()
	return v.fake.ValuesOf(ctx, ids)
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	broken := errors.New("the database is away")
	_, err := check.System(t.Context(), failing{storeOf(of(story(started(), call))), broken}, check.Options{})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct {
	*fake
	err error
}

func (f failing) Tombstones(context.Context, []string) ([]string, error) { return nil, f.err }
func (f failing) ValuesOf(context.Context, []string) (map[string]map[string]history.Value, error) {
	return nil, f.err
}

func TestFindingsAreBounded(t *testing.T) {
	var all []check.Instance
	for i := range 30 {
		all = append(all, named(fmt.Sprint("i-", i), of(story(started(), completed, completed))))
	}
	r := look(t, storeOf(all...), func(o *check.Options) { o.Most = 7 })
	if len(r.Findings) != 7 || r.Total() != 30 || r.Found[check.TwoOutcomes] != 30 || r.Instances != 30 {
		t.Errorf("%d findings of %d, %v", len(r.Findings), r.Total(), r.Found)
	}
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "and 23 others") {
		t.Errorf("got %v", r.Err())
	}
}
