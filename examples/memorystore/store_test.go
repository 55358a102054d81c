package main

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// TestConformance runs the suite that every store must pass.
func TestConformance(t *testing.T) {
	historytest.Run(t, func(testing.TB) *historytest.Database {
		tables := newTables()
		return &historytest.Database{
			Shared: true, // all stores of a process can open the same tables
			AtOnce: true,
			Shard:  func(string) int16 { return 0 },
			Open: func(_ testing.TB, o historytest.Options) history.Store {
				now := o.Now
				if now == nil {
					now = time.Now
				}
				return newStore(tables, now, o.Observer)
			},
		}
	})
}
