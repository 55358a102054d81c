package telemetry

import (
	"strconv"
	"time"
)

// JobMetrics records the requests to job queues, and the changes of their jobs. A nil one
// records nothing.
type JobMetrics struct {
	names *first

	requests, items *counter
	duration        *histogram

	byRoute, byChange, byName *labelled
}

func (m *JobMetrics) make(i *instruments) {
	m.requests, m.duration, m.items = i.counter(MetricJobsRequests), i.histogram(MetricJobsDuration),
		i.counter(MetricJobs)
	m.byRoute, m.byName, m.byChange = newLabelled(LabelOperation, LabelStatus), newLabelled(LabelOperation),
		newLabelled(LabelChange)
}

// The changes of jobs.
const (
	JobsPushed       = "pushed"
	JobsPopped       = "popped"
	JobsAcknowledged = "acknowledged"
	JobsReturned     = "returned"
	JobsExpired      = "expired"
	JobsDied         = "died"
	JobsStarted      = "started"
)

// Request records a request to a job queue: its operation, and the status of the answer.
func (m *JobMetrics) Request(operation string, status int, d time.Duration) {
	if m == nil {
		return
	}
	add(m.requests, 1, m.byRoute.of(key{a: operation, b: strconv.Itoa(status)}))
	took(m.duration, d, m.byName.of(key{a: operation}))
}

// Jobs records a change of jobs.
func (m *JobMetrics) Changed(change string, n int) {
	if m != nil && n > 0 {
		add(m.items, n, m.byChange.of(key{a: change}))
	}
}

// Label is the label of a job queue.
func (m *JobMetrics) Label(name string) string {
	if m == nil {
		return name
	}
	return m.names.of(name)
}
