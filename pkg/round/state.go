package round

import (
	"fmt"
	"slices"

	"github.com/rondo-run/rondo/pkg/events"
)

// state is the knowledge of an instance: its row as stored, until its history is read, and then the
// ledger of its current execution.
type state struct {
	id         string
	row        *Row           // as stored, until the ledger has taken over
	cold       []events.Event // the history, until it is read
	own        int64          // see [Known.Own]
	unreadable error          // why the history cannot be read
	ledger     ledger
}

// newState makes the state of an instance of what the store knows.
func newState(known Known) state {
	s := state{id: known.Instance, unreadable: known.Unreadable, own: known.Own}
	if known.Row.Status.Ended() {
		s.unreadable = nil // it is read no more
	}
	if known.Row.Execution > 0 || known.Row.Engine > 0 || known.Row.Fresh {
		s.row = &known.Row
	}
	s.ledger.info.Instance = known.Instance
	s.ledger.info.Execution = max(1, known.Row.Execution)
	if !known.Row.Status.Ended() && known.Row.LastEvent > 0 && s.unreadable == nil {
		n := len(known.History)
		if int64(n) < known.Row.LastEvent || events.Ends(known.History[n-1].Fact) {
			s.unreadable = fmt.Errorf(
				"the row tells of %d events of a running execution, the history has %d and may have ended: they "+
					"were not read together", known.Row.LastEvent, n)
		}
	}
	if s.unreadable == nil && len(known.History) > 0 {
		s.cold = known.History
	}
	return s
}

// expected is the version of the instance's row: as the last turn left it, or as it was loaded.
func (s *state) expected() RowVersion {
	switch l := &s.ledger; {
	case s.row != nil:
		return s.row.RowVersion()
	case l.tail.lastID > 0:
		return RowVersion{Incarnation: l.info.Incarnation, Execution: l.info.Execution, LastEvent: l.tail.lastID,
			CustomStatusVersion: l.values.statusVersion}
	}
	return RowVersion{}
}

// peek reads the last event of a cold history without running code: an ended one needs no more.
func (s *state) peek() {
	if s.cold == nil {
		return
	}
	last := s.cold[len(s.cold)-1]
	if events.Ends(last.Fact) {
		s.readLedger()
		return
	}
	s.ledger.tail.lastAt = last.At
}

// readLedger reads a cold history into the ledger alone.
func (s *state) readLedger() {
	if s.cold == nil {
		return
	}
	l := newLedger(s.id, s.ledger.info.Execution)
	if err := l.load(s.cold); err != nil {
		s.unreadable = err
	} else {
		s.ledger = l
	}
	s.cold = nil
}

// stored is the row as the store had it, until the ledger takes over.
func (s *state) stored() Row {
	if s.row == nil {
		return Row{}
	}
	return *s.row
}

// known reports whether the instance exists, running or ended.
func (s *state) known() bool { return s.ledger.tail.lastID > 0 || s.stored().Execution > 0 }

// current is the row as it stands within the turn.
func (s *state) current() Row {
	if s.ledger.tail.lastID == 0 {
		return s.stored()
	}
	return s.ledger.current()
}

// joins reports whether the messages of a start are for the instance that runs.
func (s *state) joins(m events.Message, start *events.Start) bool {
	row := s.current()
	return len(start.Messages) > 0 && start.Parent == nil &&
		start.Conflict != events.RejectExisting && start.Conflict != events.ReplaceRunning &&
		row.Execution > 0 && !row.Status.Ended() && !s.isSameStart(m, start)
}

// mayReplace reports whether a start begins a new incarnation of an id that is in use.
func (s *state) mayReplace(m events.Message, start *events.Start) bool {
	if s.isSameStart(m, start) {
		return false
	}
	running := s.ledger.running() || s.ledger.tail.lastID == 0 && !s.stored().Status.Ended()
	return start.Conflict == events.ReplaceRunning || start.Conflict == events.RestartFinished && !running
}

// isSameStart reports whether the instance was started by this very start.
func (s *state) isSameStart(m events.Message, start *events.Start) bool {
	row := s.current()
	if start.Parent != nil {
		return row.Parent != nil && *row.Parent == *start.Parent
	}
	return m.ID != "" && (m.ID == row.StartMessage || slices.ContainsFunc(startIDs(m, start), s.ledger.seen.has))
}
