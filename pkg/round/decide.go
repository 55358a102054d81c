package round

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Decide is one round. It takes the messages in the order in which they came and gives the turn;
// the instance is then ahead of the store by that turn.
func (in *Instance) Decide(inbox []Delivery, now time.Time) Turn {
	in.busy, in.continues = busyWith(Turn{Instance: in.id, Receipts: make([]Receipt, len(inbox)),
		Expected: in.expected()}), 0
	in.interrupt.Store(false) // an interrupt that came too late was for the round before
	in.rounds++
	in.thaw()
	in.now = events.Instant(now)
	if in.now.Before(in.ledger.lastAt) {
		in.now = in.ledger.lastAt // clocks differ between machines; history's never runs backwards
	}
	if blocked := in.prepare(); blocked.Verdict != 0 {
		in.turnAway(inbox, blocked)
	} else {
		in.takeAll(inbox)
		in.fireDue()
	}
	in.closeTurn()
	turn := *in.turn
	in.busy = nil
	return turn
}

// expected is the version of the instance's row: as the last turn left it, or as it was loaded.
func (in *Instance) expected() RowVersion {
	switch l := &in.ledger; {
	case in.row != nil:
		return in.row.RowVersion()
	case l.lastID > 0:
		return RowVersion{Incarnation: l.info.Incarnation, Execution: l.info.Execution, LastEvent: l.lastID,
			CustomStatusVersion: l.customVersion}
	}
	return RowVersion{}
}

// thaw looks at a cold history without running code: one that has ended never needs any.
func (in *Instance) thaw() {
	if in.cold == nil {
		return
	}
	last := in.cold[len(in.cold)-1]
	if events.Ends(last.Fact) {
		in.readLedger()
		return
	}
	in.ledger.lastAt = last.At
}

// readLedger reads a cold history into the ledger alone.
func (in *Instance) readLedger() {
	if in.cold == nil {
		return
	}
	l := ledger{info: coro.Info{Instance: in.id, Execution: in.ledger.info.Execution}}
	if err := l.load(in.cold); err != nil {
		in.unreadable = err
	} else {
		in.ledger = l
	}
	in.cold = nil
}

// prepare brings the code to where history ends. A verdict says that no message can be taken, and
// why.
func (in *Instance) prepare() Receipt {
	switch {
	case in.stored().Engine > events.Engine:
		return Receipt{Verdict: Returned, Reason: NewerEngine, Detail: newerEngine(in.stored().Engine)}
	case in.unreadable != nil:
		return Receipt{Verdict: Returned, Reason: CannotRead, Detail: in.unreadable.Error()}
	case in.cold != nil:
		return in.rehydrate()
	case in.pending:
		return in.runPending()
	}
	return Receipt{}
}

// rehydrate replays a cold history.
func (in *Instance) rehydrate() Receipt {
	started, ok := in.cold[0].Fact.(*events.Started)
	if ok {
		if _, registered := in.config.Code.Lookup(started.Name, started.Version); !registered {
			return Receipt{Verdict: Returned, Reason: NotKnownHere,
				Detail: in.unknownCode(started.Name, started.Version)}
		}
	}
	history := in.cold
	in.cold = nil
	in.replay(history)
	switch {
	case in.unreadable != nil:
		return Receipt{Verdict: Returned, Reason: CannotRead, Detail: in.unreadable.Error()}
	case in.fault != nil:
		in.misfit()
	case in.pending:
		return in.runPending()
	case in.ledger.halt != nil:
		in.happen(&events.Resumed{Healed: true, Reason: "the code fits its history again"})
	}
	return Receipt{}
}

// runPending runs the code of an execution for the first time, in a later round than the one that
// started it.
func (in *Instance) runPending() Receipt {
	code, ok := in.config.Code.Lookup(in.ledger.info.Name, in.ledger.info.Version)
	if !ok {
		return Receipt{Verdict: Returned, Reason: NotKnownHere,
			Detail: in.unknownCode(in.ledger.info.Name, in.ledger.info.Version)}
	}
	in.begin(code)
	return Receipt{}
}

// replay runs the code along its history. Afterwards the code is where it was, or fault says where
// it parted from history, or unreadable says where history contradicts itself.
func (in *Instance) replay(history []events.Event) {
	in.fault, in.waiting = nil, nil
	in.ledger = ledger{info: coro.Info{Instance: in.id, Execution: in.ledger.info.Execution}}
	in.rest = history
	in.replaying = true
	in.turn.Replayed = len(history)
	for len(in.rest) > 0 && in.fault == nil && in.unreadable == nil {
		in.replayNext()
	}
	for len(in.rest) > 0 && in.unreadable == nil { // beyond a misfit only the ledger goes on
		in.next()
	}
	if in.ledger.carried > 0 {
		in.unreadable = errors.New("history ends within what the execution inherited")
	}
	in.rest, in.replaying = nil, false
	if in.unreadable != nil {
		in.Evict()
		in.ledger = ledger{info: coro.Info{Instance: in.id, Execution: in.ledger.info.Execution}}
		return
	}
	if in.fault == nil && in.program != nil {
		for _, s := range in.program.OpenSteps() {
			in.turn.Steps = append(in.turn.Steps, in.step(s, true))
		}
	}
}

// next takes the next event of the history that is being replayed into the ledger.
func (in *Instance) next() (events.Event, effects) {
	e := in.rest[0]
	in.rest = in.rest[1:]
	err := in.ledger.follows(e)
	var eff effects
	if err == nil {
		eff, err = in.ledger.apply(e)
	}
	if err != nil {
		in.unreadable = err
	}
	return e, eff
}

// replayNext replays one fact from outside and what the code said because of it.
func (in *Instance) replayNext() {
	inherited := in.ledger.carried > 0
	if f := in.rest[0].Fact; !events.FromOutside(f) && !inherited {
		if _, ok := f.(*events.Patched); !ok { // the code may have stopped to ask about a change
			in.misfitAt(in.rest[0], nil)
			return
		}
	}
	e, eff := in.next()
	if in.unreadable != nil {
		return
	}
	_, started := e.Fact.(*events.Started)
	switch {
	case (started || inherited) && in.ledger.carried == 0:
		in.firstRun()
	case !started && !inherited && events.FromOutside(e.Fact):
		in.tell(delivered{e, eff.answers})
	}
}

// firstRun is the replay's begin.
func (in *Instance) firstRun() {
	if len(in.rest) == 0 && in.stored().Fresh {
		in.pending = true // it runs for real
		return
	}
	code, _ := in.config.Code.Lookup(in.ledger.info.Name, in.ledger.info.Version)
	in.begin(code)
}

// begin runs the code of the current execution for the first time.
func (in *Instance) begin(code coro.Func) {
	in.pending = false
	in.said = 0
	in.clock = in.ledger.started
	in.interrupt.Store(false)
	input := in.ledger.input
	in.ledger.input = nil
	in.program = coro.New(host{in}, code, input, &in.interrupt, in.config.Coroutines)
	in.run()
}

// happen appends a fact from outside and tells the code.
func (in *Instance) happen(f events.Fact) {
	e, eff := in.append(f)
	in.tell(delivered{e, eff.answers})
	if in.ledger.running() && in.overHistory() != nil && !in.pending {
		in.conclude(coro.Outcome{Err: in.overHistory(), Error: in.overHistory()})
	}
}

// tell brings a fact from outside to the code, or keeps it for when the code may go on.
func (in *Instance) tell(d delivered) {
	switch d.event.Fact.(type) {
	case *events.Suspended:
		return
	case *events.Resumed:
		if in.ledger.halted() {
			return
		}
		waiting, execution := in.waiting, in.ledger.info.Execution
		in.waiting = nil
		for _, w := range waiting {
			if in.ledger.info.Execution != execution {
				return // the code has continued as new; what else came was for the execution before
			}
			w.event.At = d.event.At // the code sees it now
			in.advance(w)
		}
		return
	case *events.Terminated:
		in.Evict()
		return
	}
	if in.ledger.halted() {
		in.waiting = append(in.waiting, d)
		return
	}
	in.advance(d)
}

// advance lets the code go on with what happened.
func (in *Instance) advance(d delivered) {
	if in.program == nil || in.fault != nil || !in.ledger.running() {
		return
	}
	in.clock = d.event.At
	in.said = 0
	switch f := d.event.Fact.(type) {
	case *events.CancelRequested:
		in.program.Cancel(&events.Error{Kind: events.CancelledError,
			Message: because("cancelled", f.Reason), Final: true})
	case *events.StepCompleted:
		in.stepped(d.event, in.program.ResolveStep(f.Step, f.Name, 0, f.Result, nil))
	case *events.StepFailed:
		in.stepped(d.event, in.program.ResolveStep(f.Step, f.Name, f.Attempt, nil, f.Error))
	default:
		for _, a := range d.answers {
			in.program.Resolve(a)
		}
	}
	in.run()
}

// stepped checks that the code knows of a step that history has a result of.
func (in *Instance) stepped(e events.Event, known bool) {
	if !known && in.fault == nil {
		in.misfitAt(e, nil)
	}
}

// run lets the code go on until it waits, and takes its end if that is where it got.
func (in *Instance) run() {
	if in.fault == nil {
		in.program.Run()
	}
	if in.fault != nil && in.fault.Kind == events.Nondeterminism {
		in.Evict()
		return
	}
	if in.fault != nil {
		fault := in.fault
		in.fault = nil
		in.conclude(coro.Outcome{Err: fault, Error: fault})
		return
	}
	if out, ended := in.program.Outcome(); ended {
		in.conclude(out)
	}
}

// conclude ends the execution as the code wants it.
func (in *Instance) conclude(out coro.Outcome) {
	fact, next := in.ending(out)
	if in.program != nil {
		in.program.Close()
		in.program = nil
	}
	if in.replaying {
		if in.interrupt.Load() {
			in.unreadable = errors.New("its replay took too long and was stopped")
			return
		}
		in.matchNext(fact)
		return
	}
	var letters []letter
	if next != nil {
		letters = in.ledger.unreadLetters()
	}
	if f, ok := fact.(*events.Failed); ok && brokeDown(f.Error) {
		in.turn.Fault = f.Error
	}
	in.append(fact)
	if next != nil {
		in.continueAsNew(next, letters)
	}
}

// ending picks the fact that ends the execution.
func (in *Instance) ending(out coro.Outcome) (events.Fact, *coro.ContinueAsNew) {
	next := out.Next
	if out.Err == nil {
		if err := events.CheckPayload("output of orchestration "+quote(in.ledger.info.Name), out.Output); err != nil {
			return &events.Failed{Error: err}, nil
		}
	}
	if c := in.ledger.cancel; c != nil && !brokeDown(out.Err) {
		f := &events.Cancelled{Reason: c.Reason, Output: out.Output}
		if out.Error != nil && !out.Cancelled {
			f.Error = out.Error.Bounded()
		}
		return f, nil
	}
	switch {
	case out.Err == nil:
		return &events.Completed{Output: out.Output}, nil
	case next != nil:
		if err := events.CheckPayload("input to continue orchestration "+quote(next.Name)+" with",
			next.Input); err != nil {
			return &events.Failed{Error: err}, nil
		}
		if next.Version == "" {
			version, ok := in.config.Code.Resolve(next.Name)
			if !ok {
				return &events.Failed{Error: &events.Error{Kind: events.Unregistered, Final: true,
					Message: in.unknownCode(next.Name, "")}}, nil
			}
			next.Version = version
		}
		return &events.ContinuedAsNew{Name: next.Name, Version: next.Version, Input: next.Input}, next
	}
	return &events.Failed{Error: out.Error.Bounded()}, nil
}

// brokeDown reports whether the engine stopped the code, whatever it was doing.
func brokeDown(err error) bool {
	e, ok := err.(*events.Error)
	if !ok || e == nil {
		return false
	}
	switch e.Kind {
	case events.Panicked, events.Runaway, events.Deadlock, events.LimitExceeded, events.Unregistered:
		return e.Source == ""
	}
	return false
}

// continueAsNew begins the next execution with what it inherits, and runs it unless this round has
// done enough of that.
func (in *Instance) continueAsNew(next *coro.ContinueAsNew, letters []letter) {
	old := in.ledger
	var inherited []events.Fact
	if len(old.custom) > 0 || old.customVersion > 0 {
		inherited = append(inherited, &events.StatusSet{Status: old.custom, Version: old.customVersion})
	}
	for _, k := range sortedKeys(old.values) {
		inherited = append(inherited, &events.ValueSet{Key: k, Value: old.values[k].data, Set: old.values[k].set})
	}
	for _, m := range letters {
		inherited = append(inherited, &events.MessageQueued{Queue: m.queue, Data: m.data, Message: m.message,
			Age: events.AgeOf(m.sent, in.now), Restart: m.restart})
	}
	in.turn.Former = append(in.turn.Former, in.describe())
	trace, follows := in.nextTrace(next.Name, &old)
	in.ledger = ledger{info: coro.Info{Instance: in.id, Execution: old.info.Execution + 1}}
	started := &events.Started{
		Name: next.Name, Version: next.Version, Input: next.Input, Incarnation: old.info.Incarnation,
		Engine:  events.Engine,
		Message: old.startID,
		Parent:  old.info.Parent, Attributes: old.info.Attributes, Trace: trace, TraceState: old.besides().state,
		Baggage: old.besides().baggage, Follows: follows, Previous: old.info.Execution, Begun: old.begun,
		Carried: len(inherited),
		Age:     events.AgeOf(old.startSent, in.now),
	}
	old.seen.carry(started, in.now, in.config.remembered())
	in.append(started)
	for _, f := range inherited {
		in.append(f)
	}
	in.pending = true
	in.continues++
	code, ok := in.config.Code.Lookup(next.Name, next.Version)
	switch {
	case !ok: // a replica that knows it will run it
	case in.continues > events.MaxTurnContinues, in.turn.events() >= events.MaxTurnEvents:
		in.turn.Again = true
	default:
		in.begin(code)
	}
}

// startIncarnation begins an instance.
func (in *Instance) startIncarnation(d Delivery, s *events.Start, version string, code coro.Func) {
	m, execution := d.Message, int64(1)
	if in.known() && in.ledger.running() {
		in.waiting = nil
		in.append(&events.Terminated{Reason: "replaced by a new start", Message: m.ID, Age: in.age(d)})
	}
	if in.known() {
		execution = in.ledger.info.Execution + 1
		former := in.stored()
		if in.ledger.lastID > 0 {
			former = in.describe()
		}
		in.turn.Former = append(in.turn.Former, former)
		in.turn.ClearValues = true
		in.turn.Values = nil
	}
	in.Evict()
	before := in.ledger.seen // what is old must not have an effect on the new incarnation when it comes again
	if in.known() && in.ledger.lastID == 0 {
		before.forget(in.now.UnixMicro()) // its history was not read
	}
	in.ledger = ledger{info: coro.Info{Instance: in.id, Execution: execution}}
	in.row, in.waiting = nil, nil
	incarnation := events.IncarnationOf(in.id, m.ID, in.now.UnixMicro())
	started := &events.Started{
		Name: s.Orchestration, Version: version, Input: s.Input, Incarnation: incarnation, Engine: events.Engine,
		Message: m.ID, Parent: s.Parent, Attributes: s.Attributes,
		Trace: in.beginTrace(m.Trace, s.Orchestration, incarnation,
			execution, m.ID), TraceState: m.TraceState, Baggage: m.Baggage,
		Age: in.age(d), Carried: len(s.Messages),
	}
	before.carry(started, in.now, in.config.remembered())
	in.append(started)
	for i, x := range s.Messages {
		in.append(&events.MessageQueued{Queue: x.Queue, Data: x.Data, Message: events.StartMessageID(m.ID, i+1),
			Age: in.age(d)})
	}
	in.pending = true
	if code != nil {
		in.begin(code)
	}
}

// stored is the row as the store had it, until the ledger takes over.
func (in *Instance) stored() Row {
	if in.row == nil {
		return Row{}
	}
	return *in.row
}

// known reports whether the instance exists, running or ended.
func (in *Instance) known() bool { return in.ledger.lastID > 0 || in.stored().Execution > 0 }

// append adds a fact to history.
func (in *Instance) append(f events.Fact) (events.Event, effects) {
	e := events.Event{ID: in.ledger.lastID + 1, At: in.now, Fact: f}
	inherited := in.ledger.carried > 0
	before := in.ledger.usage()
	eff, err := in.ledger.apply(e)
	if err != nil {
		panic("round: the engine contradicts its own history: " + err.Error())
	}
	in.turn.add(in.ledger.info.Execution, e)
	in.noteOver(e, eff)
	if !inherited {
		in.promise(e, eff)
		in.warnNear(before, in.ledger.usage())
	}
	return e, eff
}

func (t *Turn) events() (n int) {
	for _, x := range t.Executions {
		n += len(x.Events)
	}
	return n
}

func (t *Turn) add(execution int64, e events.Event) {
	if n := len(t.Executions); n == 0 || t.Executions[n-1].ID != execution {
		t.Executions = append(t.Executions, Execution{ID: execution})
	}
	x := &t.Executions[len(t.Executions)-1]
	x.Events = append(x.Events, e)
}

// fireDue fires what is due by now, whether or not the broker has said so.
func (in *Instance) fireDue() {
	for fired := 0; fired < events.MaxTurnEvents && in.ledger.running() && !in.pending; fired++ {
		next, ok := in.ledger.nextDue()
		if !ok || next.at.After(in.now) {
			return
		}
		in.fire(next.id)
	}
}

// fire answers a timer, or ends an attempt whose time is up.
func (in *Instance) fire(id int64) {
	o := in.ledger.open.Get(id)
	if o.kind == openTimer {
		in.happen(&events.TimerFired{Timer: id})
		return
	}
	err := &events.Error{Kind: events.Timeout, Type: events.TimeoutOverall,
		Message: "it was not done within its overall time limit"}
	if o.deadline.IsZero() || o.deadline.After(in.now) {
		err = &events.Error{Kind: events.Timeout, Type: events.TimeoutScheduleToStart,
			Message: "no worker took it up in time"}
		if o.tag != "" {
			err.Message += "; is a worker running with tag " + quote(o.tag) + "?"
		}
	}
	in.turn.send(in.withdraw(id, o)...)
	in.happen(&events.ActivityFailed{Schedule: id, Error: err})
}

// overHistory is the error of an execution that has grown too large.
func (in *Instance) overHistory() *events.Error {
	const cure = "continue as new from time to time (ctx.ShouldContinueAsNew tells when)"
	l := &in.ledger
	switch {
	case l.lastID >= events.MaxHistoryEvents:
		return events.Limit("events in the history of one execution", l.lastID, events.MaxHistoryEvents, cure)
	case l.bytes >= events.MaxHistoryBytes:
		return events.Limit("bytes in the history of one execution", l.bytes, events.MaxHistoryBytes, cure)
	}
	return nil
}

// closeTurn fills in what follows from where the instance now stands.
func (in *Instance) closeTurn() {
	t := in.turn
	in.said = 0
	in.former = nil
	in.keepOrder()
	in.noteUnread()
	t.Steps = slices.DeleteFunc(t.Steps, func(s Step) bool { return !in.stillWanted(s) })
	t.Messages = slices.DeleteFunc(t.Messages, func(m events.Message) bool { return m.Content == nil })
	if len(t.Executions) > 0 {
		t.Row = in.describe()
	}
	if in.ledger.lastID > 0 {
		in.row = nil // the ledger knows better
	}
	if in.program == nil && !t.Again {
		t.Evict = true
	}
}

// keepOrder gives back with one delay what cannot be taken yet, so that it comes again in the order
// in which it was sent. What is only early has a time of its own.
func (in *Instance) keepOrder() {
	var longest time.Duration
	returned := func(r Receipt) bool { return r.Verdict == Returned && r.Reason != TooEarly }
	for _, r := range in.turn.Receipts {
		if returned(r) {
			longest = max(longest, r.After)
		}
	}
	for i, r := range in.turn.Receipts {
		if returned(r) {
			in.turn.Receipts[i].After = longest
		}
	}
}

// noteUnread warns when an instance has ended in this turn with messages that nobody has read.
func (in *Instance) noteUnread() {
	if n := len(in.ledger.unreadLetters()); n > 0 && in.ledger.status != "" && len(in.turn.Executions) > 0 {
		in.turn.Warnings = append(in.turn.Warnings, fmt.Sprintf("it has ended with unread queue messages: %d", n))
	}
}

// stillWanted reports whether a step that this turn would hand out has no result yet: it may have
// got one in this very turn, or one that waits for the code to be resumed.
func (in *Instance) stillWanted(s Step) bool {
	return in.program != nil && s.Execution == in.ledger.info.Execution &&
		s.StepRef.Incarnation == in.ledger.info.Incarnation &&
		in.program.Waits(s.StepRef.Number, s.Attempt) && !in.ledger.stepAnswered(s.StepRef.Number, s.Attempt)
}

// describe writes the instance's row.
func (in *Instance) describe() Row {
	l := &in.ledger
	r := Row{
		Execution: l.info.Execution, Incarnation: l.info.Incarnation, Engine: l.engine, Name: l.info.Name,
		Version: l.info.Version,
		Parent:  l.info.Parent, Attributes: l.info.Attributes, Trace: l.trace, StartMessage: l.startID,
		Status: l.standing(), Output: l.output, Error: l.err,
		CustomStatus: l.custom, CustomStatusVersion: l.customVersion,
		StartedAt: l.started, UpdatedAt: l.lastAt, EndedAt: l.ended,
		Fresh: in.pending && l.running(), LastEvent: l.lastID, HistoryBytes: l.bytes, Unread: l.unread,
	}
	if r.Status.Ended() {
		return r
	}
	if next, ok := l.nextDue(); ok {
		r.WakeAt = next.at
	}
	sooner := func(d, otherwise time.Duration) {
		if d == 0 {
			d = otherwise
		}
		if at := in.now.Add(d); r.WakeAt.IsZero() || at.Before(r.WakeAt) {
			r.WakeAt = at
		}
	}
	switch {
	case in.pending && in.turn.Again:
		r.WakeAt = in.now
	case in.pending:
		sooner(in.config.HaltedFor, 5*time.Minute)
	case l.halt != nil:
		r.Error = l.halt
		sooner(in.config.HaltedFor, 5*time.Minute)
	case in.program != nil && in.program.Stepping():
		sooner(in.config.StepPatience, 10*time.Second)
	case l.awaited > 0:
		sooner(in.config.Patience, time.Minute)
	}
	return r
}

// standing is the status that history tells.
func (l *ledger) standing() Status {
	switch l.status {
	case events.KindCompleted:
		return Completed
	case events.KindFailed:
		return Failed
	case events.KindCancelled:
		return Cancelled
	case events.KindTerminated:
		return Terminated
	case events.KindContinuedAsNew:
		return ContinuedAsNew
	}
	switch {
	case l.halt != nil:
		return Halted
	case l.userSuspended:
		return Suspended
	}
	return Running
}

func (in *Instance) stepRef(number int64) StepRef {
	return StepRef{Incarnation: in.ledger.info.Incarnation, Execution: in.ledger.info.Execution, Number: number}
}
