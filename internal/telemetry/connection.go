package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// Connection is a connection to the broker that can tell about itself.
type Connection interface {
	Traffic() broker.Traffic
	// RoundTrip asks the broker for an answer.
	RoundTrip(ctx context.Context) (time.Duration, error)
}

const (
	// askEvery is how often the broker is asked for an answer, at most, and askFor how long it may
	// take.
	askEvery, askFor = 15 * time.Second, 5 * time.Second
)

// Bus has a connection to the broker tell about itself, until stop is called.
func (m *Metrics) Bus(c Connection) (stop func()) {
	var asked, answered atomic.Int64 // when it was asked last, and how long that took; 0 if it did not answer
	ask := func() {
		ctx, cancel := context.WithTimeout(context.Background(), askFor)
		defer cancel()
		d, err := c.RoundTrip(ctx)
		if err != nil {
			d = 0
		}
		answered.Store(int64(d))
	}
	return m.Watch(func(tell Tell) {
		is := c.Traffic()
		connected := 0.0
		if is.Connected {
			connected = 1
			// Whoever reads the metrics does not wait for the answer, and gets the last one.
			if last, now := asked.Load(), time.Now().UnixNano(); now-last >= int64(askEvery) &&
				asked.CompareAndSwap(last, now) {
				go ask()
			}
			if d := answered.Load(); d > 0 {
				tell(MetricNATSRoundTrip, time.Duration(d).Seconds())
			}
		}
		tell(MetricNATSConnected, connected)
		tell(MetricNATSReconnects, float64(is.Reconnects))
		tell(MetricNATSDisconnects, float64(is.Disconnects))
		tell(MetricNATSErrors, float64(is.SlowConsumers), "slow_consumer")
		tell(MetricNATSErrors, float64(is.Errors), "other")
		tell(MetricNATSMessages, float64(is.In), "in")
		tell(MetricNATSMessages, float64(is.Out), "out")
		tell(MetricNATSBytes, float64(is.InBytes), "in")
		tell(MetricNATSBytes, float64(is.OutBytes), "out")
		tell(MetricNATSShortWay, float64(is.ShortWay), "taken")
		tell(MetricNATSShortWay, float64(is.PassedOn), "passed_on")
	})
}

// readyEvery is how often a process is asked whether it is ready, at most.
const readyEvery = 10 * time.Second

// Ready has a process tell whether it is ready, until stop is called. Asking may take a while, so
// whoever reads the metrics gets the answer before.
func (m *Metrics) Ready(ready func() error) (stop func()) {
	var asked atomic.Int64 // when it was asked last
	var answer atomic.Pointer[float64]
	return m.Watch(func(tell Tell) {
		if last, now := asked.Load(), time.Now().UnixNano(); now-last >= int64(readyEvery) &&
			asked.CompareAndSwap(last, now) {
			go func() {
				is := 0.0
				if ready() == nil {
					is = 1
				}
				answer.Store(&is)
			}()
		}
		if is := answer.Load(); is != nil {
			tell(MetricReady, *is)
		}
	})
}
