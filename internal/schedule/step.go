package schedule

import (
	"slices"
	"time"
)

// Status is the status of an instance.
type Status struct {
	Kind Kind
	// Word is the status of an instance that has ended, such as completed.
	Word string
}

// Kind is a kind of status.
type Kind uint8

// The kinds.
const (
	// Unknown says that the status could not be read: the instance may run.
	Unknown Kind = iota
	// None says that there is no such instance, and that none was deleted lately.
	None
	// Running is an instance that has not ended.
	Running
	// Ended is an instance that has ended.
	Ended
	// Gone is an instance that was deleted.
	Gone
	// Other is an instance that another start has begun.
	Other
)

// Effect is a part of a decision: [Start], [Cancel] and [Terminate] are messages to send, [Missed],
// [Skipped], [Occupied] and [Invalid] are for logs and metrics.
type Effect interface{ effect() }

type (
	// Start starts the instance of a run. Its message has the id [Run.Message], each time.
	Start struct{ Run Run }
	// Cancel cancels an instance.
	Cancel struct{ Instance string }
	// Terminate terminates an instance.
	Terminate struct{ Instance string }
	// Missed are occurrences that were found after the catch-up time. Occurrence is the last one,
	// Count their number. Beyond 10,000, there are more of them.
	Missed struct {
		Occurrence Occurrence
		Count      int64
	}
	// Skipped is an occurrence that is not started because of others. CaughtUp says that it was
	// found late.
	Skipped struct {
		Occurrence Occurrence
		Why        string
		CaughtUp   bool
	}
	// Occupied is a run that did not begin: another start has begun the instance of its id.
	Occupied struct{ Run Run }
	// Invalid says that the specification cannot be read here, such as without its time zone.
	Invalid struct{ Err error }
)

func (Start) effect()     {}
func (Cancel) effect()    {}
func (Terminate) effect() {}
func (Missed) effect()    {}
func (Skipped) effect()   {}
func (Occupied) effect()  {}
func (Invalid) effect()   {}

// StatusOccupied is the status of a run that did not begin, because its id was in use.
const StatusOccupied = "id_in_use"

// Why an occurrence is skipped.
const (
	whyRunning  = "the former run has not ended"
	whySame     = "a run of this occurrence has not ended"
	whyBuffered = "another occurrence is buffered"
	whyFull     = "the buffer is full"
	whyReplaced = "a later occurrence replaces it"
)

// The times of looks.
const (
	resendAfter = time.Minute      // a start that has not arrived is sent again, each minute
	pollFast    = time.Second      // a status that a wait depends on is read each second
	pollFastFor = time.Minute      // in this time,
	pollSlow    = 10 * time.Second // and then this often
	lateAfter   = time.Minute      // a later start counts as catching up
	invalidWait = time.Minute      // a specification that cannot be read is tried again
	longestLook = time.Minute
)

// Asks returns the instances whose status [State.Step] needs at this moment; none if nothing is
// due, or if no status matters.
func (s *State) Asks(now time.Time) (ids []string) {
	now = moment(now)
	all := s.needsStatus(now)
	for _, r := range s.Runs {
		if !r.Ended && (all || !r.Seen && isDue(now, r.lookAt(), r.Looked)) {
			ids = append(ids, r.Instance)
		}
	}
	return ids
}

// needsStatus tells whether a decision depends on the runs that have not ended.
func (s *State) needsStatus(now time.Time) bool {
	running := s.running()
	if running == 0 {
		return false
	}
	depends := func(o Overlap) bool { return o != Allow || running >= maxRunning }
	polls := isDue(now, s.pollAt(), s.Polled)
	if len(s.Triggers) > 0 && (polls || !s.full(s.Triggers[0].Overlap)) &&
		slices.ContainsFunc(s.Triggers, func(t Pending) bool { return depends(t.Overlap) && !t.At.After(now) }) {
		return true
	}
	if len(s.waiting()) > 0 && polls {
		return true
	}
	if len(s.Backfills) > 0 && depends(s.Backfills[0].Overlap) && isDue(now, s.backfillAt(), s.Polled) {
		return true
	}
	own := s.Spec.normal().Overlap
	if !s.active() || !depends(own) || s.full(own) && !polls {
		return false
	}
	p, err := s.Spec.compile(s.Created)
	if err != nil {
		return false
	}
	o, ok := p.next(s.Cursor)
	return ok && !s.due(o).After(now)
}

// isDue tells whether it is time to look again. A last look in the future is one before the clock
// went back.
func isDue(now, at, last time.Time) bool { return !at.After(now) || last.After(now) }

// lookAt is when a run that was not found is looked for: 1, 2, 4, … 60 s after its start, and then
// each minute.
func (r *Run) lookAt() time.Time {
	last := later(r.Looked, r.StartedAt)
	next := last.Sub(r.StartedAt).Truncate(longestLook) + longestLook
	for d := time.Second; d < longestLook; d *= 2 {
		if t := r.StartedAt.Add(d); t.After(last) {
			next = d
			break
		}
	}
	return earlier(r.StartedAt.Add(next), r.Looked.Add(longestLook), r.Looked)
}

// earlier returns a, or the fallback if it is earlier and the last look was at all.
func earlier(a, fallback, last time.Time) time.Time {
	if !last.IsZero() && fallback.Before(a) {
		return fallback
	}
	return a
}

// pollAt is when the statuses are read that a wait depends on.
func (s *State) pollAt() time.Time {
	if s.running() == 0 {
		return s.Since
	}
	last := later(s.Polled, s.Since)
	every, from := pollFast, time.Duration(0)
	if last.Sub(s.Since) >= pollFastFor {
		every, from = pollSlow, pollFastFor
	}
	next := from + (last.Sub(s.Since) - from).Truncate(every) + every
	return earlier(s.Since.Add(next), s.Polled.Add(pollSlow), s.Polled)
}

// backfillAt is when the first backfill goes on.
func (s *State) backfillAt() time.Time {
	if s.blocked(s.Backfills[0].Overlap) {
		return s.pollAt()
	}
	return s.Polled
}

// blocked tells whether a backfill has to wait.
func (s *State) blocked(o Overlap) bool {
	return s.full(o) || o == BufferAll && (s.running() > 0 || len(s.waiting()) > 0)
}

// full tells whether there is no room for an occurrence. It waits until there is, and is not
// skipped: as an occurrence of the schedule until it is missed, as a trigger for ever.
func (s *State) full(o Overlap) bool {
	switch o {
	case BufferAll:
		return len(s.Buffered) >= maxBuffered && (s.running() > 0 || len(s.waiting()) > 0)
	case Allow, TerminateOther:
		return s.running() >= maxRunning
	default:
		return false
	}
}

// WakeAt returns when to call [State.Step] next; zero for never. It may be in the past: then it is
// time at once. Calls of Step before that moment change nothing, and so do not defer it.
func (s *State) WakeAt(now time.Time) time.Time {
	now = moment(now)
	var wake time.Time
	add := func(at, last time.Time) {
		if last.After(now) { // the clock went back
			at = earlier(at, now, last)
		}
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	for _, r := range s.Runs {
		if !r.Seen && !r.Ended {
			add(r.lookAt(), r.Looked)
		}
	}
	if len(s.waiting()) > 0 {
		add(s.pollAt(), s.Polled)
	}
	offered := func(o Overlap, at time.Time) {
		if s.full(o) {
			add(later(at, s.pollAt()), s.Polled)
		} else {
			add(at, time.Time{})
		}
	}
	if len(s.Triggers) > 0 { // the others wait for the first one
		offered(s.Triggers[0].Overlap, s.Triggers[0].At)
	}
	p, err := s.Spec.compile(s.Created)
	if err != nil {
		if s.active() || len(s.Backfills) > 0 {
			add(later(s.Polled, s.Changed).Add(invalidWait), s.Polled)
		}
		return wake
	}
	if len(s.Backfills) > 0 {
		add(s.backfillAt(), s.Polled)
	}
	if s.active() {
		if o, ok := p.next(s.Cursor); ok {
			offered(s.Spec.normal().Overlap, s.due(o))
		}
	}
	return wake
}

// step is one decision.
type step struct {
	*State
	now     time.Time
	is      map[string]Status
	pattern *pattern
	fresh   map[string]bool // instances that this decision starts
	polls   bool            // it is time to read the statuses that a wait depends on
	effects []Effect
}

// Step decides about all that is due at a moment, and returns the effects. The statuses are those
// of the instances that [State.Asks] has returned for the same moment. If others are needed, Step
// leaves the rest to the next call. The caller stores the state and the messages of the effects in
// one transaction.
func (s *State) Step(id string, now time.Time, is map[string]Status) []Effect {
	s.ID = id
	d := &step{State: s, now: moment(now), is: is, fresh: make(map[string]bool)}
	d.polls = isDue(d.now, s.pollAt(), s.Polled)
	p, err := s.Spec.compile(s.Created)
	d.observe()
	d.startBuffered()
	if err == nil {
		d.pattern = p
		d.decideDue()
	}
	d.decideTriggers()
	if err == nil {
		d.decideBackfills()
	} else if at := later(s.Polled, s.Changed).Add(invalidWait); (s.active() || len(s.Backfills) > 0) &&
		isDue(d.now, at, s.Polled) {
		s.Polled = d.now
		d.add(Invalid{err})
	}
	d.stop()
	d.trim()
	return d.effects
}

func (d *step) add(e Effect) { d.effects = append(d.effects, e) }

// observe notes the statuses. A start that has not arrived is sent again.
func (d *step) observe() {
	for i := range d.Runs {
		r := &d.Runs[i]
		status, ok := d.is[r.Instance]
		if !ok || r.Ended {
			continue
		}
		if !r.Seen {
			r.Looked = d.now
		}
		switch status.Kind {
		case Unknown:
		case Running:
			r.Seen = true
		case Ended:
			r.Seen, r.Ended, r.Status = true, true, status.Word
		case Gone:
			r.Seen, r.Ended, r.Status = true, true, "deleted"
		case Other:
			r.Seen, r.Ended, r.Status = true, true, StatusOccupied
			d.add(Occupied{*r})
		case None:
			if r.Seen {
				r.Ended, r.Status = true, "deleted"
			} else {
				d.resend(r)
			}
		}
	}
}

func (d *step) resend(r *Run) {
	switch since := d.now.Sub(r.Sent); {
	case since < 0: // the clock went back
		r.Sent = d.now
	case since >= resendAfter:
		r.Sent = d.now
		d.add(Start{*r})
	}
}

// known tells whether the statuses of all runs are known that have not ended.
func (d *step) known() bool {
	return !slices.ContainsFunc(d.Runs, func(r Run) bool {
		_, known := d.is[r.Instance]
		return !r.Ended && !known && !d.fresh[r.Instance]
	})
}

// startBuffered starts the first buffered occurrence if nothing runs.
func (d *step) startBuffered() {
	waiting := d.waiting()
	if len(waiting) == 0 {
		return
	}
	if d.running() > 0 {
		d.polled()
		return
	}
	first := d.Buffered[waiting[0]]
	d.Buffered = slices.Delete(d.Buffered, waiting[0], waiting[0]+1)
	d.start(first.Occurrence, first.Reason)
	d.Since, d.Polled = d.now, d.now
}

// polled notes that a wait goes on.
func (d *step) polled() {
	if d.known() {
		d.Polled = d.now
	}
}

// decideDue decides the occurrences of the schedule that are due.
func (d *step) decideDue() {
	overlap := d.Spec.normal().Overlap
	if !d.active() || d.full(overlap) && !d.polls {
		return
	}
	d.miss()
	for range stepSize {
		o, ok := d.pattern.next(d.Cursor)
		if !ok || !d.active() {
			return
		}
		due := d.due(o)
		switch {
		case due.After(d.now):
			return
		case d.full(overlap):
			d.polled()
			return
		}
		reason := Scheduled
		if d.now.Sub(due) > lateAfter {
			reason = CaughtUp
		}
		if !d.offer(Pending{o, reason, overlap}) {
			return
		}
		d.Cursor = o
		d.fills(overlap)
	}
}

// miss leaves out the occurrences that are older than the catch-up time.
func (d *step) miss() {
	spec := d.Spec.normal()
	horizon := d.now.Add(-time.Duration(spec.CatchUp) - time.Duration(spec.Jitter))
	missed := Missed{Occurrence: d.Cursor}
	for missed.Count < maxCounted {
		o, ok := d.pattern.next(missed.Occurrence)
		if !ok || !o.At.Before(horizon) {
			break
		}
		missed.Occurrence = o
		missed.Count++
	}
	if missed.Count == 0 {
		return
	}
	d.Cursor = missed.Occurrence
	if missed.Count == maxCounted {
		d.Cursor = Occurrence{At: horizon.Add(-1)}
	}
	d.Missed += missed.Count
	d.add(missed)
}

// decideTriggers decides the triggers whose moment has come.
func (d *step) decideTriggers() {
	for len(d.Triggers) > 0 {
		t := d.Triggers[0]
		switch {
		case t.At.After(d.now):
			return
		case d.full(t.Overlap):
			d.polled()
			return
		case !d.offer(t):
			return
		}
		d.Triggers = slices.Delete(d.Triggers, 0, 1)
		d.fills(t.Overlap)
	}
}

// decideBackfills decides the next occurrences of the backfills.
func (d *step) decideBackfills() {
	for range backfillSize {
		if len(d.Backfills) == 0 {
			return
		}
		r := &d.Backfills[0]
		o, ok := d.pattern.next(r.Cursor)
		switch {
		case !ok || !o.At.Before(r.To):
			d.Backfills = slices.Delete(d.Backfills, 0, 1)
			continue
		case d.active() && !d.Cursor.covers(o): // the schedule decides it itself
		case d.blocked(r.Overlap):
			d.polled()
			return
		case !d.offer(Pending{o, Backfilled, r.Overlap}):
			return
		}
		r.Cursor = o
		d.Since, d.Polled = d.now, d.now
	}
}

// fills begins a wait if there is no room for a further occurrence.
func (d *step) fills(o Overlap) {
	if d.full(o) {
		d.Since, d.Polled = d.now, d.now
	}
}

// offer decides one occurrence by its policy, for which there is room. It returns false if it needs
// the status of another run for that.
func (d *step) offer(p Pending) bool {
	running, waiting := d.running(), d.waiting()
	switch {
	case p.Overlap == Allow && running < maxRunning || running == 0 && len(waiting) == 0:
	case !d.known():
		return false
	}
	switch same := func(b Pending) bool { return b.Nominal == p.Nominal }; {
	case slices.ContainsFunc(d.Runs, func(r Run) bool { return r.Nominal == p.Nominal && !r.Ended }) ||
		slices.ContainsFunc(d.Buffered, same):
		d.skip(p, whySame)
	case p.Overlap == Allow || p.Overlap == TerminateOther:
		if p.Overlap == TerminateOther {
			d.end(ByTerminate)
		}
		d.start(p.Occurrence, p.Reason)
	case running == 0 && len(waiting) == 0:
		d.start(p.Occurrence, p.Reason)
	case p.Overlap == BufferOne && len(waiting) > 0:
		d.skip(p, whyBuffered)
	case p.Overlap == BufferOne || p.Overlap == BufferAll || p.Overlap == CancelOther:
		d.buffer(p)
	default:
		d.skip(p, whyRunning)
	}
	return true
}

func (d *step) skip(p Pending, why string) {
	d.Skipped++
	d.add(Skipped{p.Occurrence, why, p.Reason == CaughtUp})
}

// buffer keeps an occurrence until the runs have ended.
func (d *step) buffer(p Pending) {
	if p.Overlap == CancelOther {
		d.end(ByCancel)
		for i := len(d.Buffered) - 1; i >= 0; i-- {
			if b := d.Buffered[i]; b.Overlap == CancelOther {
				d.skip(b, whyReplaced)
				d.Buffered = slices.Delete(d.Buffered, i, i+1)
			}
		}
	}
	if len(d.Buffered) >= maxBuffered {
		d.skip(p, whyFull)
		return
	}
	if len(d.waiting()) == 0 {
		d.Since, d.Polled = d.now, d.now
	}
	d.Buffered = append(d.Buffered, p)
}

// end has all runs ended that have not.
func (d *step) end(by Stop) {
	for i := range d.Runs {
		if r := &d.Runs[i]; !r.Ended && r.Stop != by && r.Stop != ByTerminate {
			r.Stop, r.Told = by, false
		}
	}
}

// stop returns the effects that end runs. A run that was not seen is ended when it is: its start
// message may be behind.
func (d *step) stop() {
	for i := range d.Runs {
		r := &d.Runs[i]
		if r.Ended || !r.Seen || r.Stop == "" || r.Told {
			continue
		}
		r.Told = true
		if r.Stop == ByTerminate {
			d.add(Terminate{r.Instance})
		} else {
			d.add(Cancel{r.Instance})
		}
	}
}

// start starts a run.
func (d *step) start(o Occurrence, reason Reason) {
	r := Run{Nominal: o.Nominal, Instance: Instance(d.ID, o.Nominal), Message: d.message(o.Nominal, reason),
		At: o.At, StartedAt: d.now, Sent: d.now, Reason: reason}
	d.Started++
	if reason.limited() {
		d.Limited++
	}
	d.fresh[r.Instance] = true
	d.Runs = append(d.Runs, r)
	d.add(Start{r})
}

// trim drops ended runs, except the last ones.
func (d *step) trim() {
	recent := len(d.Runs) - keptRuns
	kept := d.Runs[:0]
	for i, r := range d.Runs {
		if !r.Ended || i >= recent {
			kept = append(kept, r)
		}
	}
	d.Runs = kept
}
