package telemetry

import "time"

// ScheduleMetrics records the runs of schedules. A nil one records nothing.
type ScheduleMetrics struct {
	runs, missed, skipped *counter
	delay                 *histogram

	none, byReason *labelled
}

func (m *ScheduleMetrics) make(i *instruments) {
	m.runs, m.missed, m.skipped = i.counter(MetricScheduleRuns), i.counter(MetricScheduleMissed),
		i.counter(MetricScheduleSkipped)
	m.delay = i.histogram(MetricScheduleDelay)
	m.none, m.byReason = newLabelled(), newLabelled(LabelReason)
}

// Run records a run that was started.
func (m *ScheduleMetrics) Run(reason string) {
	if m != nil {
		add(m.runs, 1, m.byReason.of(key{a: reason}))
	}
}

// Delay records how long after its time a run was started.
func (m *ScheduleMetrics) Delay(d time.Duration) {
	if m != nil {
		took(m.delay, d, m.none.of(key{}))
	}
}

// Missed records runs that were not started in time.
func (m *ScheduleMetrics) Missed(n int64) {
	if m != nil && n > 0 {
		add(m.missed, int(n), m.none.of(key{}))
	}
}

// Skipped records runs that were left out.
func (m *ScheduleMetrics) Skipped(n int) {
	if m != nil && n > 0 {
		add(m.skipped, n, m.none.of(key{}))
	}
}
