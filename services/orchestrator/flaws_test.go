package orchestrator

import (
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
)

// An orchestrator is not ready while the broker is damaged so that messages may be lost. Other
// damage is a warning only.
func TestHarmfulFlawsMakeItUnready(t *testing.T) {
	mild := broker.Flaw{Part: "stream RONDO_DEAD", Problem: "age is 1h", Remedy: "run setup"}
	if err := harmful([]broker.Flaw{mild}); err != nil {
		t.Errorf("%v", err)
	}
	bad := broker.Flaw{Part: "consumer RONDO/p-0", Problem: "it is missing", Remedy: "run setup", Harmful: true}
	err := harmful([]broker.Flaw{mild, bad})
	if err == nil || err.Error() != "consumer RONDO/p-0: it is missing; run setup" {
		t.Errorf("%v", err)
	}
}
