// Package schedule decides when a schedule starts instances.
//
// It has no I/O, no clock and no randomness: the caller passes the time and the statuses of
// instances, stores the state, and sends the messages. It reads time zones from the database that
// package time finds; a program must import time/tzdata, or bring a database along.
//
// # Times
//
// A [Spec] has occurrences. The name of an occurrence is its nominal time. It is a part of the id
// of its instance: nightly@2027-03-28T02:30:00.
//
//	pattern              clocks go forward               clocks go back        nominal time
//	fixed hours          at the first moment after       in the first of       2027-03-28T02:30:00
//	                     the gap, each of them           the two hours
//	each hour of a day   times in the gap do not exist   in both hours         2027-10-31T02:30:00+01:00
//	@every               unaffected                      unaffected            2027-10-31T00:30:00Z
//	in UTC               –                               –                     2027-10-31T00:30:00Z
//	trigger              –                               –                     2027-10-31T00:30:00.000Z
//
// # State
//
// [State.Asks] returns the instances whose status the next decision needs, [State.Step] decides,
// [State.WakeAt] returns the time of the next decision. Between two such times, Step changes
// nothing. The cursor is the last decided occurrence: an occurrence is decided once, even if the
// clock goes back.
//
// An occurrence that is due, by its policy and by the runs that have not ended:
//
//	policy            no run      a run                                     100 runs
//	skip              started     skipped                                   skipped
//	buffer_one        started     buffered, or skipped if one is            as before
//	buffer_all        started     buffered; beyond 1,000, it waits          as before
//	allow             started     started                                   it waits
//	cancel_other      started     runs cancelled, buffered instead of one   as before
//	terminate_other   started     runs terminated, started                  it waits
//
// An occurrence that waits is not decided, nor are those behind it. A trigger that waits holds up
// later triggers alone. A pause holds back buffered occurrences of the schedule, which do not count
// as buffered for a trigger meanwhile.
//
// An occurrence by its place:
//
//	from       event                                     to
//	future     its time plus jitter has passed           decided, by the table above
//	future     it is found later than the catch-up time  missed
//	future     it comes due during a pause               left out, not counted
//	future     another specification is put              left out, or an occurrence of that
//	buffered   no run is left, no pause                  started
//	buffered   another specification is put              skipped, unless triggered
//	buffered   a later one with cancel_other             skipped
//
// A run by the status of its instance:
//
//	from       status                                    to
//	started    none, 60 s after the last start message   the start message again, with the same ids
//	started    running                                   seen; cancelled or terminated if it has to
//	started    ended, deleted                            ended
//	seen       ended, deleted, none                      ended
//	ended      20 later runs                             dropped
//
// An unseen run counts as running. It is looked for 1, 2, 4, … 60 s after its start, and then each
// minute. While an occurrence waits for the end of a run, the status is read each second for a
// minute, and then every 10 s.
//
// What a caller changes:
//
//	Put, the same               nothing
//	Put, another action         the next edition
//	Put, another specification  the next edition; counts from now
//	Pause                       occurrences of the schedule and buffered ones do not start
//	Resume                      counts from now; buffered ones start
//	Trigger                     one more occurrence, even during a pause, not counted for the limit
//	Backfill                    a range of the past, even during a pause, not counted for the limit
package schedule
