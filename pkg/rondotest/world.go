package rondotest

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// instance is what the store and the orchestrator have of an instance.
type instance struct {
	id      string
	live    *round.Instance // nil: not in memory
	row     round.Row
	history map[int64][]events.Event
	values  map[string]events.Payload
	sweep   bool // it has crashed: look after it at its wake-up time
	former  *round.Former
}

func (in *instance) forget() {
	if in.live != nil {
		in.live.Evict()
		in.live = nil
	}
}

// known is what the store gives.
func (in *instance) known() round.Known {
	return round.Known{Instance: in.id, Row: in.row, History: slices.Clone(in.history[in.row.Execution])}
}

// recall reads what former executions have taken in.
func (in *instance) recall(q round.Question) {
	in.former = round.NewFormer(q.Execution)
	for x := in.former.Next(q.Sent); x > 0; x = in.former.Next(q.Sent) {
		in.former.Read(in.history[x])
	}
}

// envelope is a message on its way, or something else that is to happen.
type envelope struct {
	sequence             int
	subject              string
	message              events.Message
	due                  time.Time // zero: at once
	attempts, deliveries int
	sent                 time.Time
	// when a start is to happen, zero for at once; due is when it comes, which chaos may delay
	later time.Time
	run   func() // instead of a message: the end of an activity, an inline step
	owner string // whose memory it lives in: gone when that crashes
	why   string // it is parked
	name  string // what it is, for telling what is stuck
}

// envelopes is a heap, the earliest first.
type envelopes []*envelope

func (h envelopes) Len() int { return len(h) }
func (h envelopes) Less(i, j int) bool {
	return h[i].due.Before(h[j].due) || h[i].due.Equal(h[j].due) && h[i].sequence < h[j].sequence
}
func (h envelopes) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *envelopes) Push(x any)   { *h = append(*h, x.(*envelope)) }
func (h *envelopes) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// instanceOf finds or makes the record of an instance.
func (e *Env) instanceOf(id string) *instance {
	in := e.instances[id]
	if in == nil {
		in = &instance{id: id, history: make(map[int64][]events.Event), values: make(map[string]events.Payload)}
		e.instances[id] = in
		e.order = append(e.order, id)
	}
	return in
}

// publish puts a message on its way, through its wire form.
func (e *Env) publish(m events.Message) {
	w, err := events.Encode(events.DefaultPrefix, m)
	if err != nil {
		e.problem("message to %q cannot be sent: %v", m.Instance, err)
		return
	}
	if w.Purge {
		e.purged[w.Subject] = e.sequence
		return
	}
	said := w.Subject + " " + string(w.Body)
	if before, ok := e.published[m.ID]; ok && m.ID != "" && before != said {
		e.problem("two different messages have the id %s:\n  %s\n  %s", m.ID, before, said)
	}
	e.published[m.ID] = said
	e.sequence++
	back, err := events.Decode(events.DefaultPrefix, w.Subject, w.Header, w.Body, fmt.Sprintf("seq-%d", e.sequence))
	if err != nil {
		e.problem("message to %q cannot be read: %v", m.Instance, err)
		return
	}
	v := &envelope{sequence: e.sequence, subject: w.Subject, message: back, due: w.NotBefore,
		later: w.NotBefore, sent: e.now}
	if e.isDelayedStart(v) {
		e.replaceDelayed(v)
	}
	e.post(v)
}

// isDelayedStart reports whether an envelope is a start that is not due yet.
func (e *Env) isDelayedStart(v *envelope) bool {
	_, ok := v.message.Content.(*events.Start)
	return ok && v.later.After(e.now)
}

// replaceDelayed forgets the delayed starts of the same instance that are not due yet: the last one
// counts.
func (e *Env) replaceDelayed(by *envelope) {
	e.delayed = slices.DeleteFunc(e.delayed, func(v *envelope) bool {
		return v.run == nil && v.message.Instance == by.message.Instance && v.message.ID != by.message.ID &&
			e.isDelayedStart(v)
	})
	heap.Init(&e.delayed)
}

// post queues an envelope.
func (e *Env) post(v *envelope) {
	if e.chaos != nil {
		e.chaos.post(e, v)
		return
	}
	e.queue(v)
}

func (e *Env) queue(v *envelope) {
	if v.sequence == 0 {
		e.sequence++
		v.sequence = e.sequence
	}
	if v.due.After(e.now) {
		heap.Push(&e.delayed, v)
	} else {
		e.ready = append(e.ready, v)
	}
}

// step lets one thing happen, and reports whether there was one.
func (e *Env) step() bool {
	for len(e.ready) > 0 {
		v := e.next()
		switch {
		case v.run != nil:
			v.run()
		case v.sequence <= e.purged[v.subject]:
			continue
		case isWork(v):
			e.take(v)
		default:
			e.round(v)
		}
		return true
	}
	return false
}

func isWork(v *envelope) bool {
	_, ok := v.message.Content.(*events.Work)
	return ok
}

// next picks what happens next.
func (e *Env) next() *envelope {
	i := 0
	if e.chaos != nil {
		i = e.chaos.pick(e)
	}
	v := e.ready[i]
	e.ready = slices.Delete(e.ready, i, i+1)
	return v
}

// skip moves the clock to the next thing that is due, if that is not after the limit, and reports
// whether there was one.
func (e *Env) skip(limit time.Time) bool {
	for len(e.delayed) > 0 && e.delayed[0].run == nil && e.delayed[0].sequence <= e.purged[e.delayed[0].subject] {
		heap.Pop(&e.delayed)
	}
	var at time.Time
	if len(e.delayed) > 0 {
		at = e.delayed[0].due
	}
	swept := e.nextSweep()
	if swept != nil && (at.IsZero() || swept.row.WakeAt.Before(at)) {
		at = swept.row.WakeAt
	} else {
		swept = nil
	}
	if at.IsZero() || !limit.IsZero() && at.After(limit) {
		return false
	}
	if at.After(e.now) {
		e.now = at
	}
	if swept != nil {
		swept.sweep = false
		e.publish(events.Message{Instance: swept.id, Content: &events.Wake{Reason: "sweep"}})
		return true
	}
	for len(e.delayed) > 0 && !e.delayed[0].due.After(e.now) {
		e.ready = append(e.ready, heap.Pop(&e.delayed).(*envelope))
	}
	return true
}

// nextSweep finds the crashed instance that is to be looked after first.
func (e *Env) nextSweep() *instance {
	var first *instance
	for _, id := range e.order {
		in := e.instances[id]
		if in.sweep && !in.row.WakeAt.IsZero() && (first == nil || in.row.WakeAt.Before(first.row.WakeAt)) {
			first = in
		}
	}
	return first
}

// round is one round: it takes a message and, as a real orchestrator would, all others that wait
// for the same instance.
func (e *Env) round(v *envelope) {
	in := e.instanceOf(v.message.Instance)
	batch := append([]*envelope{v}, e.batch(in.id)...)
	for len(batch) > 0 {
		batch = e.decide(in, batch)
	}
}

// batch takes the other messages for an instance out of the queue.
func (e *Env) batch(id string) []*envelope {
	most := len(e.ready)
	if e.chaos != nil {
		most = e.chaos.batch()
	}
	var batch, rest []*envelope
	for _, v := range e.ready {
		if v.run == nil && v.message.Instance == id && !isWork(v) && len(batch) < most {
			if v.sequence > e.purged[v.subject] {
				batch = append(batch, v)
			}
			continue
		}
		rest = append(rest, v)
	}
	e.ready = rest
	return batch
}

// decide runs one round and does what its turn says. It gives the deliveries for a further round at
// once, if there must be one.
func (e *Env) decide(in *instance, batch []*envelope) (again []*envelope) {
	if e.cold {
		in.forget()
	}
	if in.live == nil {
		in.live = round.New(&e.config, in.known())
	}
	inbox := make([]round.Delivery, len(batch))
	for i, v := range batch {
		v.attempts++
		v.deliveries++
		inbox[i] = round.Delivery{Message: v.message, Attempts: v.attempts, NumDelivered: v.deliveries,
			Age:  e.now.Sub(v.sent),
			Sent: round.SentAt(v.message.Sent, v.sent, time.Time{})}
	}
	in.live.Remember(in.former)
	turn := in.live.Decide(inbox, e.now)
	e.rounds++
	e.note(batch, turn)
	if e.chaos != nil && e.chaos.crashBeforeCommit(e, in, batch) {
		return nil
	}
	e.commit(in, turn)
	lost := e.chaos != nil && e.chaos.crashAfterCommit(e, in, batch, turn)
	e.follow(in, turn, lost)
	again = e.settleReceipts(batch, turn, lost)
	if turn.Evict {
		in.forget()
	}
	if turn.Question != nil {
		in.recall(*turn.Question)
	}
	if turn.Again && len(again) == 0 {
		again = []*envelope{{message: events.Message{Instance: in.id, Content: &events.Wake{Reason: "again"}},
			sent: e.now}}
	}
	return again
}

// note writes a round down, for those who asked for it.
func (e *Env) note(batch []*envelope, turn round.Turn) {
	if e.trace == nil {
		return
	}
	fmt.Fprintf(e.trace, "--- round %d of %s at %s\n", e.rounds, turn.Instance, e.now.Format(time.RFC3339Nano))
	for _, v := range batch {
		fmt.Fprintf(e.trace, "came %s %s\n", v.message.Content.Verb(), v.subject)
	}
	fmt.Fprintf(e.trace, "%v", turn)
}

// commit stores what a turn appends, through the wire form.
func (e *Env) commit(in *instance, turn round.Turn) {
	if len(turn.Executions) > 0 && turn.Expected != in.row.RowVersion() {
		e.problem("instance %q: a turn was decided on %+v, the store has %+v", in.id, turn.Expected,
			in.row.RowVersion())
	}
	for _, x := range turn.Executions {
		for _, ev := range x.Events {
			data, err := events.EncodeEvent(ev)
			if err != nil {
				e.problem("instance %q: %v", in.id, err)
				continue
			}
			back, err := events.DecodeEvent(data)
			if err != nil {
				e.problem("instance %q: %v", in.id, err)
			}
			in.history[x.ID] = append(in.history[x.ID], back)
		}
	}
	if len(turn.Executions) > 0 {
		in.row = turn.Row
	}
	if turn.ClearValues {
		clear(in.values)
	}
	for _, v := range turn.Values {
		if v.Removed {
			delete(in.values, v.Key)
		} else {
			in.values[v.Key] = v.Value
		}
	}
}

// follow publishes what a turn promises and starts its steps.
func (e *Env) follow(in *instance, turn round.Turn, lost bool) {
	for _, m := range turn.Messages {
		e.publish(m)
	}
	if !lost {
		for _, s := range turn.Steps {
			e.runStep(in.id, s)
		}
	}
	for _, l := range turn.Logs {
		e.logs = append(e.logs, l.Record)
	}
	e.told = append(e.told, turn.Told...)
	for _, w := range turn.Warnings {
		e.warnings = append(e.warnings, in.id+": "+w)
	}
	if turn.Fault != nil {
		e.faults = append(e.faults, turn.Fault)
	}
}

// settleReceipts does what becomes of each delivery.
func (e *Env) settleReceipts(batch []*envelope, turn round.Turn, lost bool) (again []*envelope) {
	for i, r := range turn.Receipts {
		v := batch[i]
		switch r.Verdict {
		case round.Accepted, round.Ignored:
			e.decided[v.message.ID] = decided{r, e.instanceOf(v.message.Instance).row.Status}
			if r.Verdict == round.Ignored && r.Reason != round.Woken {
				e.ignored = append(e.ignored, DeadLetter{Message: v.message, Reason: r.Reason, Detail: r.Detail})
			}
			if lost {
				e.queue(v) // the acknowledgement was lost
			}
		case round.Returned:
			if r.Reason == round.NotKnownHere { // another orchestrator may know it, and here there is none
				v.attempts--
				v.why = r.Detail
				e.parked = append(e.parked, v)
				continue
			}
			v.due = e.now.Add(max(r.After, time.Microsecond))
			v.sequence = 0 // it is in nobody's way any more
			if r.Reason != round.CannotRead {
				v.attempts-- // to give it back on purpose is no attempt
			}
			e.queue(v)
		case round.Again:
			again = append(again, v)
		case round.Dead:
			e.decided[v.message.ID] = decided{r, e.instanceOf(v.message.Instance).row.Status}
			e.dead = append(e.dead, DeadLetter{Message: v.message, Reason: r.Reason, Detail: r.Detail})
		default:
			e.problem("delivery %d has no verdict", i)
		}
	}
	return again
}

// crash forgets an instance and what its process was doing for it.
func (e *Env) crash(in *instance) {
	in.forget()
	in.sweep = true
	ours := func(v *envelope) bool { return v.owner == in.id }
	e.ready = slices.DeleteFunc(e.ready, ours)
	e.delayed = slices.DeleteFunc(e.delayed, ours)
	heap.Init(&e.delayed)
}

// stuck says why nothing more happens.
func (e *Env) stuck(id string) error {
	in := e.instances[id]
	if why := e.parkedStart(id); why != "" {
		return fmt.Errorf("rondotest: the start of %q waits: %s", id, why)
	}
	if in == nil || in.row.Execution == 0 {
		return fmt.Errorf("rondotest: there is no instance %q; was it started?", id)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rondotest: instance %q is %s, and nothing more will happen", id, in.row.Status)
	if in.row.Error != nil {
		fmt.Fprintf(&b, ": %v", in.row.Error)
	}
	waiting, err := round.Waiting(in.known())
	if err != nil {
		return err
	}
	for _, w := range waiting {
		fmt.Fprintf(&b, "\n  it waits for %s (event %d)", w.What, w.Event)
		if _, ok := e.work[w.Name]; w.Kind == round.WaitsForActivity && !ok {
			fmt.Fprintf(&b, ", which is not registered in this test")
		}
		if why := e.parkedStart(w.Instance); why != "" && w.Kind == round.WaitsForChild {
			fmt.Fprintf(&b, ", whose start waits: %s", why)
		}
	}
	return fmt.Errorf("%s", b.String())
}

// parkedStart says why the start of an instance waits for a deployment, "" if it does not.
func (e *Env) parkedStart(id string) string {
	for _, v := range e.parked {
		if _, isStart := v.message.Content.(*events.Start); isStart && v.message.Instance == id {
			return v.why
		}
	}
	return ""
}

func (e *Env) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Errorf(format, args...))
}
