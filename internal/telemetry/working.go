package telemetry

import (
	"time"

	"github.com/rondo-run/rondo/pkg/failure"
)

// TaskMetrics records the work of workers: their tasks, and the publishing of completions. A nil
// one records nothing.
type TaskMetrics struct {
	tags *first

	executions, deliveries, heartbeats, limited *counter
	duration, queue, publishing                 *histogram

	done, took, from, waited, byName, outcome *labelled
}

func (m *TaskMetrics) make(i *instruments) {
	m.executions, m.deliveries = i.counter(MetricActivityExecutions), i.counter(MetricActivityDeliveries)
	m.heartbeats, m.limited = i.counter(MetricActivityHeartbeats), i.counter(MetricActivityLimited)
	m.duration, m.queue, m.publishing = i.histogram(MetricActivityDuration), i.histogram(MetricActivityQueue),
		i.histogram(MetricWorkerPublish)
	m.done = newLabelled(LabelActivity, LabelTag, LabelOutcome, LabelAttempt)
	m.took, m.from = newLabelled(LabelActivity, LabelTag, LabelOutcome),
		newLabelled(LabelActivity, LabelTag, LabelSource)
	m.waited, m.byName, m.outcome = newLabelled(LabelActivity, LabelTag), newLabelled(LabelActivity),
		newLabelled(LabelOutcome)
}

// Task describes an activity task. The activity must be a registered one.
type Task struct {
	Activity, Tag string
	Attempt       int
}

// The outcomes of a task other than that of the function.
const (
	TaskPending    = "pending"    // another program completes it
	TaskReturned   = "returned"   // nacked, for another worker
	TaskCancelled  = "cancelled"  // the instance does not wait for it any more
	TaskUnreadable = "unreadable" // it was dead-lettered
)

// Finished records that a worker has finished a task. The outcome is one of the above, or "": then
// failed decides. d is how long the function has taken; negative if it was not called.
func (m *TaskMetrics) Finished(w Task, outcome string, failed *failure.Error, d time.Duration) {
	if m == nil {
		return
	}
	if outcome == "" {
		outcome = outcomeOf(failed)
	}
	tag := m.tags.of(w.Tag)
	add(m.executions, 1, m.done.of(key{w.Activity, tag, outcome, attemptLabel(w.Attempt)}))
	if d >= 0 {
		took(m.duration, d, m.took.of(key{a: w.Activity, b: tag, c: outcome}))
	}
}

// Begun records how long a task has waited.
func (m *TaskMetrics) Begun(w Task, waited time.Duration) {
	if m != nil {
		took(m.queue, waited, m.waited.of(key{a: w.Activity, b: m.tags.of(w.Tag)}))
	}
}

// Delivered records the delivery of a task, and whether it is a redelivery or comes from another
// worker.
func (m *TaskMetrics) Delivered(w Task, again, handed bool) {
	if m == nil {
		return
	}
	source := said(again, "again", "new")
	if handed {
		source = "worker"
	}
	add(m.deliveries, 1, m.from.of(key{a: w.Activity, b: m.tags.of(w.Tag), c: source}))
}

// Heartbeat records one.
func (m *TaskMetrics) Heartbeat(activity string) {
	if m != nil {
		add(m.heartbeats, 1, m.byName.of(key{a: activity}))
	}
}

// RateLimited records that a task was nacked because of the rate limit.
func (m *TaskMetrics) RateLimited(activity string) {
	if m != nil {
		add(m.limited, 1, m.byName.of(key{a: activity}))
	}
}

// Completed records that one batch of completions was published.
func (m *TaskMetrics) Completed(d time.Duration, err error) {
	if m != nil {
		took(m.publishing, d, m.outcome.of(key{a: said(err == nil, "published", "failed")}))
	}
}
