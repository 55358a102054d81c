package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// left names the remaining work; "" if there is none.
func (w *world) left() string {
	for _, j := range w.jobs {
		if !w.hasEnded(j) {
			return j.id + " has not ended"
		}
	}
	for _, p := range w.plans {
		if left := w.leftOf(p); left != "" {
			return left
		}
	}
	for _, h := range w.hosts {
		if r, _, _ := h.now(); r != nil && !r.isBack() {
			return r.name + " stands still"
		}
	}
	w.mu.Lock()
	called := w.called
	w.mu.Unlock()
	if w.weather.startsOrSends && !called {
		return "not everything was said to the drop-in"
	}
	n, err := w.store.Count(w.context,
		history.Filter{Statuses: []round.Status{round.Running, round.Suspended, round.Halted}}, 1)
	if err != nil || n > 0 {
		return fmt.Sprint(n, " instances have not ended (", err, ")")
	}
	if n := w.broker.Stored(); n > 0 {
		return fmt.Sprint(n, " messages are left in the broker: ", w.broker.What())
	}
	if n, err := w.store.CountOutbox(w.context, 10); n > 0 || err != nil {
		return fmt.Sprint(n, " entries are left in the outbox (", err, ")")
	}
	return ""
}

// verdict lists the faults of a world after its end.
func (w *world) verdict() (faults []string) {
	w.context = context.Background() // that of the world has ended
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	faults = append(faults, w.faults...)
	faults = append(faults, w.unexplained()...)
	w.countFar()
	if w.undone != "" {
		w.found = w.check()
		bad("it did not come to its end: %s", w.undone)
		if i := slices.IndexFunc(w.jobs, func(j *job) bool { return !w.hasEnded(j) }); i >= 0 {
			bad("the history of %s ends with%s", w.jobs[i].id, tail(w.context, w.store, w.jobs[i].id))
		}
	}
	for _, d := range w.broker.Dead() {
		if d.Header["Rondo-Dead-Reason"][0] == "has_ended" && w.mayEndEarly(d.Subject) || isGarbage(d.Subject) {
			continue
		}
		bad("a dead letter: %s %v", d.Subject, d.Header)
	}
	faults = append(faults, w.judgePlans()...)
	steered := w.endsOf()
	for _, j := range w.jobs {
		if j.steers == events.Cancel || j.steers == events.Terminate {
			tree, err := w.store.Tree(w.context, j.id)
			if err != nil && !errors.Is(err, history.ErrNoInstance) {
				bad("the tree of %s: %v", j.id, err)
			}
			for _, n := range tree {
				steered[n.Instance] = j.steers
			}
		}
	}
	for _, f := range w.found {
		bad("%v", f)
	}
	if err := w.judgeDropIn(); err != nil {
		bad("%v", err)
	}
	page := history.Page{Limit: 1000}
	for {
		list, err := w.store.List(w.context, history.Filter{}, page)
		if err != nil {
			bad("the list: %v", err)
		}
		for _, info := range list.Instances {
			if info.UpdatedAt.After(time.Now().Add(time.Minute)) {
				bad("%s was changed at %v, by a clock that was wrong", info.Instance, info.UpdatedAt)
			}
			if info.Instance == dropInID || isGarbage(info.Instance) && info.Status == round.Failed {
				continue
			}
			if err := w.judge(info, steered[info.Instance]); err != nil {
				bad("%v", err)
			}
		}
		if page.Cursor = list.Next; list.Next == "" {
			return faults
		}
	}
}

// mayEndEarly reports whether the job of a message may end before it has read all of its mailbox:
// because a client steers it, or because clients send everything again after the broker has lost
// messages.
func (w *world) mayEndEarly(subject string) bool {
	instance := subject[strings.LastIndexByte(subject, '.')+1:]
	root, _, isChild := strings.Cut(instance, "~")
	if isPlanned(instance) {
		return true // it ends at the moment at which a later run ends it
	}
	for _, j := range w.jobs {
		if j.id == root {
			if isChild {
				return j.steers == events.Cancel || j.steers == events.Terminate
			}
			return j.steers != "" || w.upset > 0
		}
	}
	return false
}

// check runs the checker over all instances, as `rondo check` does.
func (w *world) check() (found []check.Finding) {
	c := brokersim.Connect(w.broker, nil)
	defer c.Close()
	report, err := check.System(w.context, w.store, check.Options{
		NothingRemoved: w.weather.reborn == 0, Quiescent: true, Broker: c, Dead: c, Prefix: c.Prefix(),
		Acknowledgements: []check.Acknowledgements{{Name: "clients", Each: func(yield func(check.Acknowledged,
			error) bool) {
			for _, p := range w.said {
				if w.upset > 0 && isGarbage(p.Instance) {
					continue // clients do not send it again
				}
				if p.What == check.AcknowledgedMailbox && (w.upset > 0 || w.counts["partitions"] > 0) {
					continue // clients send it again, or it may come in another order
				}
				if !yield(p, nil) {
					return
				}
			}
		}}},
	})
	if err != nil {
		w.t.Error(err)
	}
	return slices.DeleteFunc(report.Findings, func(f check.Finding) bool {
		return w.upset > 0 && f.Rule == check.LaunchLost // the broker has lost the start, and no instance waits for it
	})
}

// judge judges the result of one instance.
func (w *world) judge(info history.Info, steered events.How) error {
	if isPatient(info.Instance) {
		return w.judgePatient(info)
	}
	begins := int64(1)
	if strings.HasPrefix(info.Instance, "reborn-") { // each start begins an execution, and none continues as new
		begins = info.Execution
	}
	first, err := history.Export(w.context, w.store, info.Instance, begins)
	if err != nil {
		return err
	}
	started, ok := first.Events[0].Fact.(*events.Started)
	if !ok {
		return fmt.Errorf("%s begins with %v", info.Instance, first.Events[0].Fact.Kind())
	}
	if strings.Contains(info.Instance, "~") && info.Incarnation != started.Incarnation {
		return fmt.Errorf("%s was started twice", info.Instance)
	}
	if !w.isLast(info.Instance, started) {
		return fmt.Errorf("%s was started by %s, which was not the last start", info.Instance, started.Message)
	}
	var s script
	if err := (codec.JSON{}).Decode(started.Input, &s); err != nil {
		return err
	}
	switch {
	case info.Status == round.Completed:
		if wanted := payload(want(s)); string(info.Output) != string(wanted) {
			return fmt.Errorf("%s gave %s, want %s, for %+v", info.Instance, info.Output, wanted, s)
		}
	case steered == events.Cancel && (info.Status == round.Cancelled || info.Status == round.Terminated),
		steered == events.Terminate && (info.Status == round.Terminated || info.Status == round.Cancelled):
	case !info.Status.Ended():
		return fmt.Errorf("%s is %s: %s", info.Instance, info.Status, tail(w.context, w.store, info.Instance))
	default:
		return fmt.Errorf("%s is %s (%v), for %+v", info.Instance, info.Status, info.Error, s)
	}
	return nil
}

// tail lists the last events.
func tail(ctx context.Context, r history.Reader, instance string) (s string) {
	x, err := history.Export(ctx, r, instance, 0)
	if err != nil {
		return err.Error()
	}
	for _, e := range x.Events[max(0, len(x.Events)-6):] {
		s += fmt.Sprintf(" %d %s %+v", e.ID, e.Fact.Kind(), e.Fact)
	}
	return s
}
