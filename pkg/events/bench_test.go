package events_test

import (
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
)

// hundred is JSON of 100 bytes, as a small order may be.
var hundred = payload(`{"order":"order-7","customer":"c-1029","items":[{"sku":"a1","n":2},{"sku":"b2","n":1}],"total":14.5}`)

// typical are the events that most histories are made of.
var typical = []eventExample{
	{"activity_scheduled", &events.ActivityScheduled{
		Name: "charge", Input: hundred, Attempt: 1, StartToClose: 60 * sec,
		Retry: &events.RetryPolicy{Attempts: 5, First: sec, Factor: 2, Most: 60 * sec, Jitter: 0.2},
	}},
	{"activity_completed", &events.ActivityCompleted{Schedule: 4, Result: hundred, Worker: "worker-1"}},
}

func BenchmarkEncodeEvent(b *testing.B) {
	for _, x := range typical {
		b.Run(x.name, func(b *testing.B) {
			e := x.event()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := events.EncodeEvent(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	for _, x := range typical {
		b.Run(x.name, func(b *testing.B) {
			data := encodeEvent(b, x.event())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := events.DecodeEvent(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
