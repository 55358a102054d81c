package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-run/rondo/pkg/check"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// left tells what there still is to do, if anything.
func (w *world) left() string {
	for _, j := range w.jobs {
		if !w.hasEnded(j) {
			return j.id + " has not ended"
		}
	}
	n, err := w.store.Count(w.context, history.Filter{Statuses: []round.Status{round.Running, round.Suspended, round.Halted}}, 1)
	if err != nil || n > 0 {
		return fmt.Sprint(n, " instances have not ended (", err, ")")
	}
	if n := w.broker.Stored(); n > 0 {
		return fmt.Sprint(n, " messages are left in the broker: ", w.broker.What())
	}
	if n, err := w.store.CountPromises(w.context, 10); n > 0 || err != nil {
		return fmt.Sprint(n, " promises are left in the outbox (", err, ")")
	}
	return ""
}

// verdict lists what is wrong with a world after its end.
func (w *world) verdict() (faults []string) {
	w.context = context.Background() // that of the world has ended
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if w.undone != "" {
		bad("it did not come to its end: %s", w.undone)
	}
	for _, d := range w.broker.Dead() {
		if d.Header["Rondo-Dead-Reason"][0] == "has_ended" && w.mayEndEarly(d.Subject) {
			continue
		}
		bad("a dead letter: %s %v", d.Subject, d.Header)
	}
	steered := make(map[string]events.How)
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
	page := history.Page{Limit: 1000}
	for {
		list, err := w.store.List(w.context, history.Filter{}, page)
		if err != nil {
			bad("the list: %v", err)
		}
		for _, info := range list.Instances {
			if err := w.judge(info, steered[info.Instance]); err != nil {
				bad("%v", err)
			}
		}
		if page.Cursor = list.Next; list.Next == "" {
			return faults
		}
	}
}

// mayEndEarly tells whether the job that a message is for may end before it has read all of its letters: because somebody steers it, or because clients
// say everything again when the broker has lost something.
func (w *world) mayEndEarly(subject string) bool {
	instance := subject[strings.LastIndexByte(subject, '.')+1:]
	root, _, isChild := strings.Cut(instance, "~")
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

// judge looks at one instance.
func (w *world) judge(info history.Info, steered events.How) error {
	in := check.Instance{ID: info.Instance, Row: info.Row, History: make(map[int64][]events.Event), Values: make(map[string]events.Payload)}
	for x := int64(1); x <= info.Execution; x++ {
		e, err := history.Export(w.context, w.store, info.Instance, x)
		if err != nil {
			return err
		}
		in.History[x] = e.Events
	}
	values, err := w.store.Values(w.context, info.Instance)
	if err != nil {
		return err
	}
	for k, v := range values {
		in.Values[k] = v.Data
	}
	if err := in.Check(); err != nil {
		return err
	}
	if err := w.promised(in); err != nil {
		return err
	}
	started, ok := in.History[1][0].Fact.(*events.Started)
	if !ok {
		return fmt.Errorf("%s begins with %v", info.Instance, in.History[1][0].Fact.Kind())
	}
	var s script
	if err := (events.JSON{}).Decode(started.Input, &s); err != nil {
		return err
	}
	switch {
	case info.Status == round.Completed:
		if wanted := payload(want(s)); string(info.Output) != string(wanted) {
			return fmt.Errorf("%s gave %s, want %s, for %+v", info.Instance, info.Output, wanted, s)
		}
	case steered == events.Cancel && (info.Status == round.Cancelled || info.Status == round.Terminated), steered == events.Terminate && (info.Status == round.Terminated || info.Status == round.Cancelled):
	case !info.Status.Ended():
		return fmt.Errorf("%s is %s: %s", info.Instance, info.Status, tail(in.History[info.Execution]))
	default:
		return fmt.Errorf("%s is %s (%v), for %+v", info.Instance, info.Status, info.Error, s)
	}
	return nil
}

// promised checks what holds as long as the broker has lost nothing: what was launched is there, and letters are taken in the order in which they were sent, but for those
// that are on their way while the number of partitions changes.
func (w *world) promised(in check.Instance) error {
	if w.upset > 0 {
		return nil
	}
	last := 0
	for x := int64(1); x <= in.Row.Execution; x++ {
		before := 0 // an execution begins with the letters that the one before it has left unread
		for _, e := range in.History[x] {
			switch f := e.Fact.(type) {
			case *events.MessageQueued:
				var n int
				if _, err := fmt.Sscanf(f.Message, in.ID+"-letter-%d", &n); err != nil {
					continue
				}
				if w.counts["partitions"] == 0 && (n > last+1 || before > 0 && n != before+1) {
					return fmt.Errorf("%s took letter %d after %d", in.ID, n, max(before, last))
				}
				before, last = n, max(last, n)
			case *events.Launched:
				if _, err := w.store.Instance(w.context, f.Instance); err != nil {
					return fmt.Errorf("%s launched %s: %w", in.ID, f.Instance, err)
				}
			}
		}
	}
	return nil
}

func tail(list []events.Event) string {
	s := ""
	for _, e := range list[max(0, len(list)-6):] {
		s += fmt.Sprintf(" %d %s %+v", e.ID, e.Fact.Kind(), e.Fact)
	}
	return s
}
