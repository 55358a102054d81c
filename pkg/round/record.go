package round

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// recorder appends facts to the history of an instance, and adds to the turn what follows from each
// of them: its messages, what it ends, and the row. It runs no code.
type recorder struct {
	config *Config
	state
	rounds int64 // counts them
	*busy        // nil while no round runs, which for most instances is nearly always
}

// busy is what an instance has while a round runs.
type busy struct {
	turn      *Turn
	now       time.Time
	watermark time.Time // see [Instance.SetWatermark]; zero: there is none
	starts    Starts    // see [Instance.SetStarts]
	written   int64     // bytes of the turn's events
}

// busyWith is one for a turn, in one piece of memory with it.
func busyWith(turn Turn) *busy {
	x := &struct {
		busy busy
		turn Turn
	}{turn: turn}
	x.busy.turn = &x.turn
	return &x.busy
}

// newReader makes a recorder that repeats what follows from a history, and decides nothing.
func newReader(instance string, execution int64) *recorder {
	r := &recorder{config: &Config{}, state: state{id: instance, ledger: newLedger(instance, execution)}}
	r.busy, r.rounds = busyWith(Turn{Instance: instance}), 1
	return r
}

// codeState is what the row says about the code of an execution.
type codeState struct {
	pending  bool // it has not run yet
	stepping bool // an inline step of it has no result yet
}

// append adds a fact to history.
func (r *recorder) append(f events.Fact) (events.Event, effects) {
	e := events.Event{ID: r.ledger.tail.lastID + 1, At: r.now, Fact: f}
	inherited := r.ledger.tail.inherited > 0
	before, bytes := r.ledger.usage(), r.ledger.tail.bytes
	eff, err := r.ledger.apply(e)
	if err != nil {
		panic("round: the engine contradicts its own history: " + err.Error())
	}
	r.turn.add(r.ledger.info.Execution, e)
	r.written += r.ledger.tail.bytes - bytes
	r.noteOver(e, eff)
	if !inherited {
		r.addEffects(e, eff)
		r.warnNear(before, r.ledger.usage())
	}
	return e, eff
}

// large reports whether the turn is as large as one commit should be.
func (r *recorder) large() bool {
	return r.written >= events.MaxTurnBytes || r.turn.events() >= events.MaxTurnEvents
}

// newRow writes the instance's row, given how its code stands.
func (r *recorder) newRow(code codeState) Row {
	l := &r.ledger
	row := Row{
		Execution: l.info.Execution, Incarnation: l.info.Incarnation, Engine: l.origin.engine, Name: l.info.Name,
		Version: l.info.Version,
		Parent:  l.info.Parent, Attributes: l.info.Attributes, Trace: l.trace.parent, StartMessage: l.origin.message,
		Status: l.standing(), Output: l.outcome.output, Error: l.outcome.err,
		CustomStatus: l.values.status, CustomStatusVersion: l.values.statusVersion,
		StartedAt: l.origin.started, UpdatedAt: l.tail.lastAt, EndedAt: l.outcome.at,
		Fresh: code.pending && l.running(), LastEvent: l.tail.lastID, HistoryBytes: l.tail.bytes, Unread: l.mail.unread,
	}
	if row.Status.Ended() {
		return row
	}
	if next, ok := l.calls.nextDue(); ok {
		row.WakeAt = next.at
	}
	sooner := func(d, otherwise time.Duration) {
		if d == 0 {
			d = otherwise
		}
		if at := r.now.Add(d); row.WakeAt.IsZero() || at.Before(row.WakeAt) {
			row.WakeAt = at
		}
	}
	switch {
	case code.pending && r.turn.Again:
		row.WakeAt = r.now
	case code.pending:
		sooner(r.config.HaltedFor, 5*time.Minute)
	case l.halt != nil:
		row.Error = l.halt
		sooner(r.config.HaltedFor, 5*time.Minute)
	case code.stepping:
		sooner(r.config.StepPatience, 10*time.Second)
	case l.calls.awaited > 0:
		sooner(r.config.Patience, time.Minute)
	}
	return row
}

// stepRef names an inline step of the current execution.
func (r *recorder) stepRef(number int64) StepRef {
	return StepRef{Incarnation: r.ledger.info.Incarnation, Execution: r.ledger.info.Execution, Number: number}
}

// step describes an inline step to run.
func (r *recorder) step(s coro.Step, repeated bool) Step {
	l := &r.ledger
	return Step{StepRef: r.stepRef(s.Number), Step: s, Trace: r.traceOf(OverExecution, l.ref(1)),
		TraceState: l.trace.besides().state, Baggage: l.trace.besides().baggage, Repeated: repeated}
}

// warn tells the operator something.
func (r *recorder) warn(text string) {
	if len(r.turn.Warnings) < maxWarnings {
		r.turn.Warnings = append(r.turn.Warnings, text)
	}
}

// maxWarnings bounds the warnings of a turn; the first ones tell enough.
const maxWarnings = 20

// sent is when a delivery counts as sent.
func (r *recorder) sent(d Delivery) time.Time {
	if d.Sent.IsZero() {
		return r.now
	}
	return events.Instant(d.Sent)
}

// age is how a fact of this round tells when the message was sent that it takes r.
func (r *recorder) age(d Delivery) int64 { return events.AgeOf(r.sent(d), r.now) }

// noteUnread warns when an instance has ended in this turn with unread messages, or kept events.
func (r *recorder) noteUnread() {
	if r.ledger.outcome.kind == "" || len(r.turn.Executions) == 0 {
		return
	}
	messages, kept := 0, 0
	for _, m := range r.ledger.mail.unreadMessages() {
		if m.mailbox.event {
			kept++
		} else {
			messages++
		}
	}
	if messages > 0 {
		r.turn.Warnings = append(r.turn.Warnings,
			fmt.Sprintf("it has ended with unread mailbox messages: %d", messages))
	}
	if kept > 0 {
		r.turn.Warnings = append(r.turn.Warnings,
			fmt.Sprintf("it has ended with kept events that nothing waited for: %d", kept))
	}
}

// complete fills in what only the instance knows.
func (r *recorder) complete(f events.Fact) {
	switch f := f.(type) {
	case *events.ChildStarted:
		if f.Instance == "" {
			f.Instance = events.ChildID(r.id, r.ledger.info.Execution, r.ledger.tail.lastID+1)
		}
	case *events.Launched:
		if f.Instance == "" {
			f.Instance = events.ChildID(r.id, r.ledger.info.Execution, r.ledger.tail.lastID+1)
		}
	case *events.MailboxRead:
		f.Message = r.ledger.mail.oldest(mailboxOf(f.Mailbox))
	case *events.EventAwaited:
		f.Kept = r.ledger.mail.oldest(keptOf(f.Name))
	case *events.StatusSet:
		f.Version = r.ledger.values.statusVersion + 1
	case *events.ValueSet:
		f.Set = r.now
	default:
	}
}
