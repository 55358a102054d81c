package telemetry

import (
	"strconv"
	"time"
)

type queueMetrics struct {
	requests, items *counter
	duration        *histogram

	byRoute, byChange, byName *labelled
}

func (m *queueMetrics) make(i *instruments) {
	m.requests, m.duration, m.items = i.counter(MetricQueueRequests), i.histogram(MetricQueueDuration),
		i.counter(MetricQueueItems)
	m.byRoute, m.byName, m.byChange = newLabelled(LabelOperation, LabelStatus), newLabelled(LabelOperation),
		newLabelled(LabelChange)
}

// What becomes of items of queues.
const (
	ItemsPushed       = "pushed"
	ItemsPopped       = "popped"
	ItemsAcknowledged = "acknowledged"
	ItemsReturned     = "returned"
	ItemsExpired      = "expired"
	ItemsDied         = "died"
	ItemsStarted      = "started"
)

// QueueRequest records a request to a queue: what was asked for, and the status of the answer.
func (m *Metrics) QueueRequest(operation string, status int, d time.Duration) {
	if m == nil {
		return
	}
	add(m.queues.requests, 1, m.queues.byRoute.of(key{a: operation, b: strconv.Itoa(status)}))
	took(m.queues.duration, d, m.queues.byName.of(key{a: operation}))
}

// QueueItems records what has become of items of queues.
func (m *Metrics) QueueItems(change string, n int) {
	if m != nil && n > 0 {
		add(m.queues.items, n, m.queues.byChange.of(key{a: change}))
	}
}

// Queue is the label of a queue.
func (m *Metrics) Queue(name string) string {
	if m == nil {
		return name
	}
	return m.queueNames.of(name)
}
