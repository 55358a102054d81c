package check

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has the rules about parents and children. The check reads the parent first and the
// child after it, so whatever the parent recorded about the child must hold by then.

// child is one that an execution has started.
type child struct {
	parent   events.Parent // the event that started it
	event    int64
	at       time.Time
	instance string
	answer   events.Event // the zero value if there is none
	dropped  bool         // the parent's code no longer waits for it
}

// startedBy lists the children of an execution.
func (x *execution) startedBy(instance string) []child {
	if x.started == nil {
		return nil
	}
	for i := range x.children {
		x.children[i].parent = events.Parent{Instance: instance, Incarnation: x.started.Incarnation,
			Execution: x.number,
			Event:     x.children[i].event}
	}
	return x.children
}

// family judges some instances with their parents and children.
type family struct {
	*system
	count    bool
	children []child
	orphans  []reading        // those that have parents
	running  map[string]int64 // the execution of an instance that goes on
	findings []Finding
}

// add adds the relations of an instance's current execution to other instances.
func (f *family) add(r reading) error {
	if r.row.Parent != nil {
		f.orphans = append(f.orphans, r)
	}
	if r.running() {
		f.running[r.lineage.id] = r.row.Execution
	}
	x := r.lineage.now
	if x == nil {
		return nil
	}
	f.children = append(f.children, x.startedBy(r.lineage.id)...)
	return f.said(x)
}

// maxChildren bounds the children of former executions that wait to be judged: an instance that
// continues as new forever may have any number.
const maxChildren = 1000

// former adds the relations of a former execution to other instances. It skips children without an
// answer: when the execution ended, it stopped waiting for them.
func (f *family) former(ctx context.Context, x *execution) error {
	for _, c := range x.startedBy(x.lineage.id) {
		if c.answer.Fact != nil {
			f.children = append(f.children, c)
		}
	}
	if err := f.said(x); err != nil || len(f.children) < maxChildren {
		return err
	}
	return f.judgeChildren(ctx)
}

// said keeps the starts and messages that an execution sent, the first time that it is read.
func (f *family) said(x *execution) error {
	if !f.count {
		return nil
	}
	return f.sortSaid(x.saidBy(x.lineage.id))
}

// waitedFor reports whether the execution that has started a child goes on.
func (f *family) waitedFor(c child) bool {
	return !c.dropped && f.running[c.parent.Instance] == c.parent.Execution
}

func (f *family) bad(rule Rule, p events.Parent, expected, found string) {
	f.findings = append(f.findings, Finding{Rule: rule, Instance: p.Instance, Execution: p.Execution, Event: p.Event,
		Expected: expected, Found: found})
}

func (f *family) not(why Reason) {
	if f.count {
		f.notJudged(why)
	}
}

func (f *family) judge(ctx context.Context) ([]Finding, error) {
	if err := f.judgeChildren(ctx); err != nil {
		return nil, err
	}
	var ids []string
	for _, o := range f.orphans {
		ids = append(ids, o.row.Parent.Instance)
	}
	rows, err := f.rows(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, o := range f.orphans {
		if err := f.parentOf(ctx, o, rows); err != nil {
			return nil, err
		}
	}
	return f.findings, nil
}

// judgeChildren judges the children that were added so far.
func (f *family) judgeChildren(ctx context.Context) error {
	var ids []string
	for _, c := range f.children {
		ids = append(ids, c.instance)
	}
	rows, err := f.rows(ctx, ids)
	if err != nil {
		return err
	}
	for _, c := range f.children {
		row, there := rows[c.instance]
		if there {
			err = f.childThere(ctx, c, row)
		} else {
			err = f.childGone(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	f.children = nil
	return nil
}

// refused reports whether a child was never started, because its id was another's.
func (c child) refused() bool {
	failed, ok := c.answer.Fact.(*events.ChildFailed)
	return ok && failed.Error != nil && failed.Error.Kind == failure.Conflict
}

// childThere compares the answer that the parent recorded with the child.
func (f *family) childThere(ctx context.Context, c child, row round.Row) error {
	switch {
	case !sameParent(row.Parent, &c.parent):
		return f.childElsewhere(ctx, c)
	case c.answer.Fact == nil:
		return f.childUnanswered(ctx, c, row)
	case c.refused():
		f.bad(ChildOutcome, c.parent, fmt.Sprintf("child %q, which was started here", c.instance),
			"its start was refused")
	case !row.Status.Ended():
		f.bad(ChildEarly, c.parent, fmt.Sprintf("child %q to have ended, as event %d says", c.instance, c.answer.ID),
			string(row.Status))
	default:
		f.sameOutcome(c, row.Execution, row.Status, row.Output, row.Error)
	}
	return nil
}

// sameOutcome: the parent's code goes on with the outcome that its history has.
func (f *family) sameOutcome(c child, execution int64, status round.Status, output codec.Payload,
	failure *failure.Error) {
	said, shown := "completed with "+clip(output), ""
	if failure != nil || status != round.Completed {
		said = string(status) + ": " + errorText(failure)
	}
	switch a := c.answer.Fact.(type) {
	case *events.ChildCompleted:
		if status == round.Completed && bytes.Equal(a.Output, output) {
			return
		}
		shown = "completed with " + clip(a.Output)
	case *events.ChildFailed:
		if status != round.Completed && errorText(a.Error) == errorText(failure) {
			return
		}
		shown = "failed: " + errorText(a.Error)
	default:
	}
	f.bad(ChildOutcome, c.parent, fmt.Sprintf("what execution %d of child %q ended with: %s", execution, c.instance,
		said), fmt.Sprintf("%s (event %d)", shown, c.answer.ID))
}

// childElsewhere looks for a child under an id that another instance has now: the id may have been
// started again, also after a deletion.
func (f *family) childElsewhere(ctx context.Context, c child) error {
	if c.answer.Fact == nil || c.refused() {
		return nil
	}
	first := int64(0)
	var begun time.Time
	for after := int64(0); ; {
		list, err := f.store.Executions(ctx, c.instance, after, 100)
		if gone(err) || err == nil && len(list) == 0 {
			break
		}
		if err != nil {
			return fmt.Errorf("list the executions of %q: %w", c.instance, err)
		}
		for _, info := range list {
			if after = info.Execution; first == 0 {
				first, begun = info.Execution, info.StartedAt
			}
			if info.Status == round.ContinuedAsNew || !info.Status.Ended() {
				continue
			}
			start, err := f.store.Events(ctx, c.instance, info.Execution, 0, 1)
			if gone(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read execution %d of %q: %w", info.Execution, c.instance, err)
			}
			if s, ok := firstFact(start).(*events.Started); ok && sameParent(s.Parent, &c.parent) {
				f.sameOutcome(c, info.Execution, info.Status, info.Output, info.Error)
				return nil
			}
		}
	}
	if first == 1 && begun.Before(c.at) || f.o.NothingRemoved {
		f.bad(ChildForeign, c.parent, fmt.Sprintf("child %q, which has answered at event %d", c.instance, c.answer.ID),
			"an instance of that id that others have started")
	} else {
		f.not(NotKept)
	}
	return nil
}

func firstFact(list []events.Event) events.Fact {
	if len(list) == 0 {
		return nil
	}
	return list[0].Fact
}

// childGone judges a child of which there is no instance.
func (f *family) childGone(ctx context.Context, c child) error {
	switch {
	case c.refused():
		return nil
	case c.answer.Fact == nil:
		return f.childToCome(ctx, c)
	}
	tombstones, err := f.tombstones(ctx, []string{c.instance})
	switch {
	case err != nil:
		return err
	case !f.o.NothingRemoved && (tombstones[c.instance] || !f.leavesTombstone(c.answer.At)):
		f.not(NotKept)
	default:
		f.bad(ChildMissing, c.parent, fmt.Sprintf("child %q, which has answered at event %d", c.instance, c.answer.ID),
			"no such instance, and it was not deleted")
	}
	return nil
}

// parentOf: a child without its parent shows a loss, because the deletion of a parent deletes its
// children with it.
func (f *family) parentOf(ctx context.Context, r reading, rows map[string]round.Row) error {
	p, id := r.row.Parent, r.lineage.id
	bad := func(rule Rule, expected, found string) {
		f.findings = append(f.findings,
			Finding{Rule: rule, Instance: id, Execution: r.row.Execution, Expected: expected, Found: found})
	}
	row, there := rows[p.Instance]
	switch {
	case !there && f.exported && !f.o.NothingRemoved:
		f.not(NotKept)
		return nil
	case !there:
		bad(Orphan, fmt.Sprintf("its parent %q", p.Instance), "no such instance")
		return nil
	case row.Incarnation != p.Incarnation:
		f.not(NotKept) // the parent's id has a newer incarnation
		return nil
	case p.Execution > row.Execution:
		bad(ChildUnknown, fmt.Sprintf("execution %d of its parent %q", p.Execution, p.Instance),
			plural.Count(row.Execution, "execution"))
		return nil
	}
	list, err := f.store.Events(ctx, p.Instance, p.Execution, p.Event-1, 1)
	if gone(err) {
		f.not(NotKept)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read execution %d of %q: %w", p.Execution, p.Instance, err)
	}
	s, ok := firstFact(list).(*events.ChildStarted)
	switch {
	case !ok || s.Instance != id:
		bad(ChildUnknown, fmt.Sprintf("that its parent %q has started it at event %d of execution %d", p.Instance,
			p.Event, p.Execution), string(kindOf(firstFact(list))))
	case !maps.Equal(s.Attributes, r.row.Attributes):
		bad(ChildUnknown, fmt.Sprintf("the attributes %v that its parent %q has given it", s.Attributes, p.Instance),
			fmt.Sprint(r.row.Attributes))
	}
	return nil
}
