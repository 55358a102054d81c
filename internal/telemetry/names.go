package telemetry

// The names of everything that is told, in one place: what others build dashboards and queries on
// does not change by accident.

// Scope is the name under which spans and metrics are told.
const Scope = "github.com/rondo-run/rondo"

// What spans are called. What follows is the name of an orchestration, an activity or a step, which
// code has given: never what somebody sends.
const (
	spanOrchestration = "orchestration "
	spanRound         = "round "
	spanActivity      = "activity "
	spanExecute       = "execute "
	spanStep          = "step "
	spanChild         = "child "
	spanOwn           = "span " // of the author's own
	spanTimer         = "timer"
	spanEvent         = "event"
	spanQueue         = "queue"
)

// The attributes of spans. Those of metrics are a subset with few values.
const (
	attrInstance      = "rondo.instance"
	attrExecution     = "rondo.execution"
	attrOrchestration = "rondo.orchestration"
	attrVersion       = "rondo.version"
	attrActivity      = "rondo.activity"
	attrAttempt       = "rondo.attempt"
	attrTag           = "rondo.tag"
	attrWorker        = "rondo.worker"
	attrSession       = "rondo.session"
	attrStatus        = "rondo.status"
	attrEvent         = "rondo.event"      // the number of the event in history that opened it
	attrName          = "rondo.name"       // of what was waited for
	attrChild         = "rondo.child"      // the child's instance
	attrGivenUp       = "rondo.given_up"   // nobody waits for it any more
	attrDue           = "rondo.due"        // when it was due
	attrLateness      = "rondo.lateness"   // seconds after that
	attrDeliveries    = "rondo.deliveries" // how often a message was handed out
	attrPartition     = "rondo.partition"
	attrEvents        = "rondo.events"   // that it has appended
	attrSteps         = "rondo.steps"    // that it has begun
	attrHydrated      = "rondo.hydrated" // the code was in memory
	attrReplayed      = "rondo.replayed" // events that were replayed first
	attrHistory       = "rondo.history"  // events in the history afterwards
	attrSent          = "rondo.sent"     // messages that follow from it
	attrWait          = "rondo.wait"     // seconds, of the first message, for its turn
	attrDecide        = "rondo.decide"   // seconds, of the code
	attrCommit        = "rondo.commit"   // seconds, of the transaction, with those before it in line
	attrBatch         = "rondo.batch"    // turns in it
	attrFault         = "rondo.fault"    // why the engine stopped the instance
	attrPast          = "rondo.past"     // told by somebody else than the one who did it, who died
	attrErrorKind     = "rondo.error.kind"
)
