package telemetry

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// workMetrics are those of workers.
type workMetrics struct {
	executions, deliveries, heartbeats, limited *counter
	duration, queue, publishing                 *histogram

	done, took, from, waited, byName, outcome *labelled
}

func (m *workMetrics) make(i *instruments) {
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

// Work says which work something is about. The activity must be a registered one.
type Work struct {
	Activity, Tag string
	Attempt       int
}

// What becomes of work without the function having said so.
const (
	WorkPending    = "pending"    // somebody else completes it
	WorkReturned   = "returned"   // it went back, for another worker
	WorkCancelled  = "cancelled"  // nobody waits for it any more
	WorkUnreadable = "unreadable" // it was dead-lettered
)

// Finished records that a worker is done with work. The outcome is one of the above, or "": then
// failed says it. Took is how long the function has taken; negative if it was not called.
func (m *Metrics) Finished(w Work, outcome string, failed *events.Error, d time.Duration) {
	if m == nil {
		return
	}
	if outcome == "" {
		outcome = outcomeOf(failed)
	}
	tag := m.tags.of(w.Tag)
	add(m.work.executions, 1, m.work.done.of(key{w.Activity, tag, outcome, attemptLabel(w.Attempt)}))
	if d >= 0 {
		took(m.work.duration, d, m.work.took.of(key{a: w.Activity, b: tag, c: outcome}))
	}
}

// Begun records how long work has waited.
func (m *Metrics) Begun(w Work, waited time.Duration) {
	if m != nil {
		took(m.work.queue, waited, m.work.waited.of(key{a: w.Activity, b: m.tags.of(w.Tag)}))
	}
}

// Delivered records that work came, and whether it was handed out before or comes from another
// worker.
func (m *Metrics) Delivered(w Work, again, handed bool) {
	if m == nil {
		return
	}
	source := said(again, "again", "new")
	if handed {
		source = "worker"
	}
	add(m.work.deliveries, 1, m.work.from.of(key{a: w.Activity, b: m.tags.of(w.Tag), c: source}))
}

// Heartbeat records one.
func (m *Metrics) Heartbeat(activity string) {
	if m != nil {
		add(m.work.heartbeats, 1, m.work.byName.of(key{a: activity}))
	}
}

// RateLimited records that work went back because of the rate.
func (m *Metrics) RateLimited(activity string) {
	if m != nil {
		add(m.work.limited, 1, m.work.byName.of(key{a: activity}))
	}
}

// Completed records that completions were published in one go.
func (m *Metrics) Completed(d time.Duration, err error) {
	if m != nil {
		took(m.work.publishing, d, m.work.outcome.of(key{a: said(err == nil, "published", "failed")}))
	}
}
