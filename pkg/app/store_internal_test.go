package app

import (
	"log/slog"
	"testing"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// TestPartsOfOwnStores: a store that embeds one of Rondo's has its job queues and its connections,
// and one with nothing but the contract has neither.
func TestPartsOfOwnStores(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	whole, bare := partial{struct{ *sqlite.Store }{s}}, partial{struct{ history.Store }{s}}
	if whole.Queues() == nil || whole.Pool() != s.Pool() {
		t.Error("it has lost its queues or its connections")
	}
	if bare.Queues() != nil || bare.Pool() != (history.Pool{}) {
		t.Error("it has queues or connections")
	}
}
