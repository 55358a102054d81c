package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/last"
)

// Connection is a connection to the broker whose state can be observed.
type Connection interface {
	Traffic() broker.Traffic
	// RoundTrip sends a request to the broker and waits for its answer.
	RoundTrip(ctx context.Context) (time.Duration, error)
}

const (
	// askEvery is the shortest interval of requests to the broker, and askFor bounds one of them.
	askEvery, askFor = 15 * time.Second, 5 * time.Second
)

// Bus exports metrics of a connection to the broker, until stop is called.
func (m *Metrics) Bus(c Connection) (stop func()) {
	var asked last.Time
	var answered atomic.Int64 // the duration; 0: none
	ask := func() {
		ctx, cancel := context.WithTimeout(context.Background(), askFor)
		defer cancel()
		d, err := c.RoundTrip(ctx)
		if err != nil {
			d = 0
		}
		answered.Store(int64(d))
	}
	return m.Watch(func(record Record) {
		is := c.Traffic()
		connected := 0.0
		if is.Connected {
			connected = 1
			// An export of metrics does not wait for the answer: it has the one before.
			if asked.Due(time.Now(), askEvery) {
				go ask()
			}
			if d := answered.Load(); d > 0 {
				record(MetricNATSRoundTrip, time.Duration(d).Seconds())
			}
		}
		record(MetricNATSConnected, connected)
		record(MetricNATSReconnects, float64(is.Reconnects))
		record(MetricNATSDisconnects, float64(is.Disconnects))
		record(MetricNATSErrors, float64(is.SlowConsumers), "slow_consumer")
		record(MetricNATSErrors, float64(is.Errors), "other")
		record(MetricNATSMessages, float64(is.In), "in")
		record(MetricNATSMessages, float64(is.Out), "out")
		record(MetricNATSBytes, float64(is.InBytes), "in")
		record(MetricNATSBytes, float64(is.OutBytes), "out")
		record(MetricNATSDirect, float64(is.Direct), "delivered")
		record(MetricNATSDirect, float64(is.DirectRefused), "stored")
	})
}

// readyEvery is the shortest interval between two checks of readiness.
const readyEvery = 10 * time.Second

// Ready exports whether a process is ready, until stop is called. A check may take a while, so an
// export has the result of the one before.
func (m *Metrics) Ready(ready func() error) (stop func()) {
	var asked last.Time
	var answer atomic.Pointer[float64]
	return m.Watch(func(record Record) {
		if asked.Due(time.Now(), readyEvery) {
			go func() {
				is := 0.0
				if ready() == nil {
					is = 1
				}
				answer.Store(&is)
			}()
		}
		if is := answer.Load(); is != nil {
			record(MetricReady, *is)
		}
	})
}
