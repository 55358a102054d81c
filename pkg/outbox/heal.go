package outbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// HealStore is what healing needs of the store.
type HealStore interface {
	history.Rounds
	history.Wakes
	List(ctx context.Context, filter history.Filter, page history.Page) (history.InstanceList, error)
	Executions(ctx context.Context, instance string, after int64, limit int) ([]history.ExecutionInfo, error)
	Events(ctx context.Context, instance string, execution, after int64, limit int) ([]events.Event, error)
}

// Healer publishes again what instances wait for and the broker has lost.
type Healer struct {
	Broker Broker
	Store  HealStore
	Prefix string
	// Grace is how long an instance may be overdue before it is looked after: its owner is most
	// often about to. Patience is when it is looked after again.
	Grace, Patience time.Duration
	// Settle is how long tasks wait that the broker does not have, before it is asked a second
	// time: a worker may have received them directly, or their results may be in an inbox that was
	// just taken over. By then they are stored, or done.
	Settle time.Duration
	// Runs tells whether an orchestrator that is running can run some code; nil: any. What waits
	// for code is not sent again each minute: what answers it may be waiting, too.
	Runs    func(name, version string) bool
	Clock   Clock // nil: that of this process
	Log     *slog.Logger
	Watcher Watcher // nil: none

	mu      sync.Mutex
	waiting []unsettled // that were overdue
}

const (
	healPage = 200
	// asking is how many questions about messages are put to the broker at once.
	asking = 32
)

// Healed counts the effects.
type Healed struct {
	Instances int // that were looked at
	Messages  int // that were missing
}

// Overdue looks after instances whose time to be looked at has passed, so many at a time, until
// there are no more. Several may do so at once. Tasks that the broker does not have are sent by a
// later call, when Settle has passed and the broker still does not have them.
func (h *Healer) Overdue(ctx context.Context, page int) (all Healed, err error) {
	for {
		settled, ok := h.settled()
		if !ok {
			break
		}
		healed, _, err := h.heal(ctx, settled.ids, time.Time{}, holdNothing)
		all.Instances += healed.Instances
		all.Messages += healed.Messages
		if err != nil {
			h.wait(settled)
			return all, err
		}
	}
	for {
		n, healed, err := h.overdue(ctx, page)
		all.Instances += healed.Instances
		all.Messages += healed.Messages
		if err != nil || n < page {
			return all, err
		}
	}
}

// overdue looks after one page of them, and tells how many it has taken over.
func (h *Healer) overdue(ctx context.Context, limit int) (int, Healed, error) {
	now, err := h.Clock.Now(ctx)
	if err != nil {
		return 0, Healed{}, fmt.Errorf("look for overdue instances: %w", err)
	}
	overdue, err := h.Store.LeaseOverdue(ctx,
		history.Lease{Before: now.Add(-h.Grace), Until: now.Add(h.Patience), Limit: limit})
	if err != nil {
		return 0, Healed{}, fmt.Errorf("look for overdue instances: %w", err)
	}
	ids := make([]string, len(overdue))
	for i, o := range overdue {
		ids[i] = o.Instance
	}
	hold := holdNothing
	if h.Settle > 0 {
		hold = holdTasks
	}
	healed, later, err := h.heal(ctx, ids, time.Time{}, hold)
	if len(later) > 0 {
		h.wait(unsettled{later, time.Now()})
	}
	return len(ids), healed, err
}

// wait keeps instances whose tasks the broker did not have. The store gives them out again after
// Patience, so a process that dies meanwhile leaves them to another one.
func (h *Healer) wait(u unsettled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = append(h.waiting, u)
}

// settled takes instances that have waited long enough, if there are any.
func (h *Healer) settled() (unsettled, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, u := range h.waiting {
		if time.Since(u.at) >= h.Settle {
			h.waiting = slices.Delete(h.waiting, i, i+1)
			return u, true
		}
	}
	return unsettled{}, false
}

// recent is how far back messages without an expected answer are sent again, after the broker has
// lost everything: a broker that keeps its files writes through to them more often than that.
const recent = 10 * time.Minute

// All looks after all instances that have not ended, and those that may have said something just
// before they did: after the broker has lost everything. The moment is the last one at which it had
// everything.
func (h *Healer) All(ctx context.Context, lost time.Time) (Healed, error) {
	since := lost.Add(-recent)
	running, err := h.each(ctx,
		history.Filter{Statuses: []round.Status{round.Running, round.Suspended, round.Halted}}, since)
	if err != nil {
		return running, err
	}
	ended, err := h.each(ctx, history.Filter{Statuses: []round.Status{round.Completed, round.Failed, round.Cancelled,
		round.Terminated}, EndedAfter: since}, since)
	running.Instances += ended.Instances
	running.Messages += ended.Messages
	return running, err
}

// unsettled are instances whose tasks the broker did not have at a moment.
type unsettled struct {
	ids []string
	at  time.Time
}

// each looks after all instances that fit a filter.
func (h *Healer) each(ctx context.Context, filter history.Filter, since time.Time) (all Healed, err error) {
	add := func(x Healed) {
		all.Instances += x.Instances
		all.Messages += x.Messages
	}
	var waiting []unsettled
	// settle looks after those that have waited long enough, or waits for all of them.
	settle := func(wait bool) error {
		for len(waiting) > 0 {
			left := h.Settle - time.Since(waiting[0].at)
			if left > 0 && !wait {
				return nil
			}
			select {
			case <-time.After(left):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			healed, _, err := h.heal(ctx, waiting[0].ids, since, holdNothing)
			add(healed)
			if err != nil {
				return err
			}
			waiting = waiting[1:]
		}
		return nil
	}
	hold := holdNothing
	if h.Settle > 0 {
		hold = holdInstances
	}
	page := history.Page{Limit: healPage}
	for {
		list, err := h.Store.List(ctx, filter, page)
		if err != nil {
			return all, fmt.Errorf("look for what the broker should have: %w", err)
		}
		ids := make([]string, len(list.Instances))
		for i, x := range list.Instances {
			ids[i] = x.Instance
		}
		healed, later, err := h.heal(ctx, ids, since, hold)
		add(healed)
		if err != nil {
			return all, err
		}
		if len(later) > 0 {
			waiting = append(waiting, unsettled{later, time.Now()})
		}
		last := list.Next == ""
		if err := settle(last); err != nil || last {
			return all, err
		}
		page.Cursor = list.Next
	}
}

// hold is a task that is not published at once where the broker does not have it.
type hold int

const (
	holdNothing hold = iota
	holdTasks
	holdInstances // nor is anything else that such an instance waits for
)

// heal looks after instances. If since is set, what they have said since then is said again. The
// instances for which something is held come back as later.
func (h *Healer) heal(ctx context.Context, ids []string, since time.Time, hold hold) (healed Healed,
	later []string, err error) {
	readable := func(_ string, row round.Row) bool {
		return round.CanRead(row) && (!row.Status.Ended() || !since.IsZero())
	}
	err = inPortions(ctx, h.Store, ids, readable, func(known []round.Known) error {
		var messages []events.Message
		var of []string // the instance that each is outstanding for
		for _, k := range known {
			if k.Row.Execution == 0 || k.Row.Status.Ended() && since.IsZero() {
				continue
			}
			if since.IsZero() && h.Runs != nil && !h.Runs(k.Row.Name, k.Row.Version) {
				continue
			}
			healed.Instances++
			list := h.outstanding(k, since)
			former, err := h.former(ctx, k, since)
			if err != nil {
				return err
			}
			list = append(list, former...)
			messages = append(messages, list...)
			of = append(of, slices.Repeat([]string{k.Instance}, len(list))...)
		}
		wires, wanted, err := h.missing(ctx, messages)
		if err != nil {
			return err
		}
		isTask := func(i int) bool { _, is := messages[i].Content.(*events.Task); return is }
		waits := make(map[string]bool)
		for i := range messages {
			if hold != holdNothing && wanted[i] && isTask(i) && !waits[of[i]] {
				waits[of[i]] = true
				later = append(later, of[i])
			}
		}
		if hold == holdInstances {
			healed.Instances -= len(waits) // they are counted the second time
		}
		missing := wires[:0]
		for i, w := range wires {
			if wanted[i] && !(waits[of[i]] && (hold == holdInstances || isTask(i))) {
				missing = append(missing, w)
			}
		}
		err = Send(ctx, h.Broker, h.Prefix, missing, h.Log, h.Watcher)
		if waits := new(broker.Refused); errors.As(err, &waits) { // the next look finds them again
			LogRefused(h.Log, waits)
			missing = slices.DeleteFunc(missing, func(w events.Wire) bool { return waits.ReasonFor(w) != nil })
		} else if err != nil {
			return err
		}
		healed.Messages += len(missing)
		orNone(h.Watcher).Healed(h.lost(missing))
		return nil
	})
	if err != nil {
		return healed, later, fmt.Errorf("look after instances: %w", err)
	}
	return healed, later, nil
}

// lost counts the messages that the broker should have had: no outbox entry wakes overdue
// instances.
func (h *Healer) lost(messages []events.Wire) (n int) {
	wake := subjectsOf(h.Prefix, events.VerbWake)
	for _, w := range messages {
		if !strings.HasPrefix(w.Subject, wake) {
			n++
		}
	}
	return n
}

// outstanding lists what an instance waits for, and a word to its owner to look at it: its timers
// may be due, its steps may have been lost, or its code may fit again.
func (h *Healer) outstanding(k round.Known, since time.Time) []events.Message {
	wake := events.Message{Instance: k.Instance, Trace: k.Row.Trace, Content: &events.Wake{Reason: "sweep"}}
	if k.Unreadable != nil || !round.CanRead(k.Row) {
		return []events.Message{wake} // its owner knows what to do
	}
	messages, err := round.Outstanding(k)
	if err != nil {
		h.Log.With(about(k)...).Error("messages that an instance waits for cannot be restored from its history",
			"error", err)
	}
	if !since.IsZero() {
		unanswered, err := round.Unanswered(k, since)
		if err != nil {
			h.Log.With(about(k)...).Error("messages that an instance sent cannot be restored from its history",
				"error", err)
		}
		messages = append(messages, unanswered...)
	}
	if k.Row.Status.Ended() {
		return messages
	}
	return append(messages, wake)
}

// former lists what the former executions of an instance have said since a moment. If the current
// one began before it, all others had ended by then.
func (h *Healer) former(ctx context.Context, k round.Known, since time.Time) (said []events.Message, err error) {
	if since.IsZero() || k.Row.StartedAt.Before(since) {
		return nil, nil
	}
	for to := k.Row.Execution - 1; to > 0; to -= healPage {
		list, err := h.Store.Executions(ctx, k.Instance, max(0, to-healPage), int(min(to, healPage)))
		if errors.Is(err, history.ErrNoInstance) {
			return said, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look after former executions: %w", err)
		}
		for _, x := range slices.Backward(list) {
			if x.Execution > to { // those before it were pruned
				continue
			}
			if x.EndedAt.Before(since) {
				return said, nil
			}
			former, err := h.saidBy(ctx, k, x, since)
			if err != nil {
				return nil, err
			}
			said = append(said, former...)
		}
	}
	return said, nil
}

// saidBy lists what a former execution has said since a moment.
func (h *Healer) saidBy(ctx context.Context, k round.Known, x history.ExecutionInfo,
	since time.Time) ([]events.Message, error) {
	former := round.Known{Instance: k.Instance, Row: round.Row{Execution: x.Execution, Incarnation: x.Incarnation,
		Engine: x.Engine, Name: x.Name, Version: x.Version, Status: x.Status}}
	if !round.CanRead(former.Row) {
		return nil, nil // of a newer engine, which heals it
	}
	for last := int64(0); ; last = former.History[len(former.History)-1].ID {
		page, err := h.Store.Events(ctx, k.Instance, x.Execution, last, history.Page{Limit: 1000}.Size())
		if err != nil && !errors.Is(err, history.ErrNoInstance) {
			return nil, fmt.Errorf("look after former executions: %w", err)
		}
		if len(page) == 0 {
			break
		}
		former.History = append(former.History, page...)
		if int64(len(former.History)) >= x.Events {
			break
		}
	}
	said, err := round.Unanswered(former, since)
	if err != nil {
		h.Log.With(about(former)...).Error("messages that an instance sent cannot be restored from its history",
			"error", err)
	}
	return said, nil
}

// about is what logs say of an instance.
func about(k round.Known) []any {
	about := []any{"instance", k.Instance, "execution", k.Row.Execution, "orchestration", k.Row.Name}
	return append(about, traceOf(k.Row.Trace)...)
}

// traceOf names the trace that a message or an instance belongs to, if it says one.
func traceOf(traceparent string) []any {
	t, ok := events.ParseTrace(traceparent)
	if !ok {
		return nil
	}
	return []any{"trace_id", hex.EncodeToString(t.ID[:])}
}

// missing encodes messages. It reports as wanted those that the broker does not have and their
// receivers still need. A child may be started, and its start be acknowledged, while the broker is
// asked, so the children are looked for once more AFTER that.
func (h *Healer) missing(ctx context.Context, messages []events.Message) (wires []events.Wire, wanted []bool, _ error) {
	needed, err := h.neededStarts(ctx, messages)
	if err != nil {
		return nil, nil, err
	}
	wires = make([]events.Wire, len(messages))
	wanted = make([]bool, len(messages))
	var asked []int
	now := time.Now()
	for i, m := range messages {
		w, err := events.Encode(h.Prefix, m)
		if err != nil {
			h.Log.With(traceOf(m.Trace)...).Error("message that an instance waits for cannot be published", "instance",
				m.Instance, "error", err)
			continue
		}
		wires[i] = w
		switch c := m.Content.(type) {
		case *events.Start:
			wanted[i] = c.Parent == nil // nothing tells whether it was taken
			if c.Parent != nil && needed(m.Instance) {
				asked = append(asked, i)
			}
		case *events.Task:
			asked = append(asked, i)
		case *events.TimerDue:
			if m.NotBefore.After(now) { // otherwise to be woken is enough
				asked = append(asked, i)
			}
		default:
			wanted[i] = true
		}
	}
	if err := h.ask(ctx, wires, asked, wanted); err != nil {
		return nil, nil, fmt.Errorf("ask the broker what it has: %w", err)
	}
	var lost []events.Message
	for i, m := range messages {
		if wanted[i] {
			lost = append(lost, m)
		}
	}
	if needed, err = h.neededStarts(ctx, lost); err != nil {
		return nil, nil, err
	}
	for i, m := range messages {
		if isChildStart(m) {
			wanted[i] = wanted[i] && needed(m.Instance)
		}
	}
	return wires, wanted, nil
}

// isChildStart reports whether a message starts a child that its parent waits for.
func isChildStart(m events.Message) bool {
	c, ok := m.Content.(*events.Start)
	return ok && c.Parent != nil
}

// neededStarts returns which of the children that messages start need the message: those that do
// not exist, and those that have ended, which tell their parents once more.
func (h *Healer) neededStarts(ctx context.Context, messages []events.Message) (func(child string) bool, error) {
	children, err := h.children(ctx, messages)
	return func(child string) bool {
		status, known := children[child]
		return !known || status.Ended()
	}, err
}

// ask asks the broker which messages it does not have: for many at once, if it can tell, and then
// for each of those that it does not seem to have.
func (h *Healer) ask(ctx context.Context, wires []events.Wire, asked []int, wanted []bool) error {
	if many, ok := h.Broker.(broker.Many); ok && len(asked) > 1 {
		all := make([]events.Wire, len(asked))
		for n, i := range asked {
			all[n] = wires[i]
		}
		there, err := many.HasMany(ctx, all)
		if err != nil {
			return err
		}
		n := -1
		asked = slices.DeleteFunc(asked, func(int) bool { n++; return there[n] })
	}
	errs := make([]error, len(asked))
	var wait sync.WaitGroup
	slots := make(chan struct{}, asking)
	for n, i := range asked {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			has, err := h.Broker.Has(ctx, wires[i])
			wanted[i], errs[n] = !has, err
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// children tells how the children that are waited for stand; those that do not exist are left out.
func (h *Healer) children(ctx context.Context, messages []events.Message) (map[string]round.Status, error) {
	var ids []string
	for _, m := range messages {
		if isChildStart(m) {
			ids = append(ids, m.Instance)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	status := make(map[string]round.Status, len(ids))
	for len(ids) > 0 {
		n := min(len(ids), healPage)
		known, err := h.Store.Load(ctx, ids[:n], func(string, round.Row) bool { return false })
		if err != nil {
			return nil, fmt.Errorf("look after children: %w", err)
		}
		for _, k := range known {
			if k.Row.Execution > 0 {
				status[k.Instance] = k.Row.Status
			}
		}
		ids = ids[n:]
	}
	return status, nil
}
