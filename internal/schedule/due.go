package schedule

import "time"

// Due returns when a run was to start: at its moment, or after the delay of its jitter.
func (s *State) Due(r Run) time.Time { return s.due(Occurrence{Nominal: r.Nominal, At: r.At}) }
