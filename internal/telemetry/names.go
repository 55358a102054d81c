package telemetry

// The names in all telemetry, in one place: users build dashboards and queries on them, so they
// must not change by accident.

// Scope is the instrumentation scope of spans and metrics.
const Scope = "github.com/rondo-run/rondo"

// The names of spans. The name of an orchestration, an activity or a step follows, which code has
// given: never a text from a message.
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
	spanMailbox       = "mailbox"
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
	attrEvent         = "rondo.event"      // the number in history of the event that opened it
	attrName          = "rondo.name"       // of the awaited event, mailbox and so on
	attrChild         = "rondo.child"      // the child's instance
	attrGivenUp       = "rondo.given_up"   // the code does not wait for it any more
	attrDue           = "rondo.due"        // when it was due
	attrLateness      = "rondo.lateness"   // seconds after that
	attrDeliveries    = "rondo.deliveries" // deliveries of a message
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
	attrPast          = "rondo.past"     // exported for another process, which had died
	attrErrorKind     = "rondo.error.kind"
)
