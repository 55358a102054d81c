package orchestrator

import "fmt"

// stage is the stage of the pipeline that an instance is in.
type stage uint8

const (
	idle       stage = iota // it waits for messages
	queued                  // it waits for a read
	loading                 // the store reads it
	ready                   // it waits for a decider, with the messages of its round
	deciding                // a decider has it
	committing              // its turn waits for a commit, or is being committed
	checking                // its turn appends nothing, and is compared with the store
	pausing                 // it waits for a while after a failure
	asking                  // its former executions are read
	stages                  // counts the stages
)

func (s stage) String() string {
	return [...]string{"idle", "queued", "loading", "ready", "deciding", "committing", "checking", "pausing",
		"asking"}[s]
}

// move is a step from one stage to another.
type move uint8

const (
	needLoad   move = iota // idle → queued: it is not in memory
	startLoad              // queued → loading
	unqueue                // queued → idle: its partition has moved, or the service ends
	takeRound              // idle → ready: it takes messages for a round
	startRound             // ready → deciding
	needCommit             // deciding → committing: the turn appends events
	needCheck              // deciding → checking: the turn appends nothing, which may be wrong
	needPause              // idle → pausing
	needFormer             // idle → asking: the turn has a question
	rest                   // loading, deciding, committing, checking, pausing, asking → idle
	moves                  // counts the moves
)

// transition returns the stage after a move. It reports false if the move does not begin there.
//
//	            unqueue
//	 ┌────────────────────────────┐
//	 ▼  needLoad        startLoad │
//	idle ──────► queued ──────────┴─► loading ── rest ──► idle
//	 │ takeRound       startRound             needCommit
//	 ├──────────► ready ─────────► deciding ─────────────► committing ── rest ──► idle
//	 │                             │  │       needCheck
//	 │                             │  └──────────────────► checking ──── rest ──► idle
//	 │                             └ rest ► idle
//	 │ needPause
//	 ├──────────► pausing ── rest ──► idle
//	 │ needFormer
//	 └──────────► asking ─── rest ──► idle
func transition(from stage, m move) (to stage, ok bool) {
	switch {
	case from == idle && m == needLoad:
		return queued, true
	case from == queued && m == startLoad:
		return loading, true
	case from == queued && m == unqueue:
		return idle, true
	case from == idle && m == takeRound:
		return ready, true
	case from == ready && m == startRound:
		return deciding, true
	case from == deciding && m == needCommit:
		return committing, true
	case from == deciding && m == needCheck:
		return checking, true
	case from == idle && m == needPause:
		return pausing, true
	case from == idle && m == needFormer:
		return asking, true
	case m == rest && from != idle && from != queued && from != ready:
		return idle, true
	default:
		return from, false
	}
}

// move changes the stage of an instance. It panics if the move does not begin there: two operations
// would have the instance at the same time.
func (e *entry) move(m move) {
	to, ok := transition(e.stage, m)
	if !ok {
		panic(fmt.Sprintf("orchestrator: move %d of instance %q in stage %v", m, e.id, e.stage))
	}
	e.stage = to
}
