package main

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// TestHello runs the orchestration in virtual time, and replays it before every round, as a restart
// would.
func TestHello(t *testing.T) {
	env := rondotest.New(t, Hello.Bind(hello), Greet.Bind(greet), rondotest.Cold())
	began := env.Now()
	h, err := Hello.Start(t.Context(), env, "Ann", orchestration.ID("h-1"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Wait(t.Context())
	if err != nil || got != "hello Ann! hello again Ann!" {
		t.Errorf("%q, %v", got, err)
	}
	if took := env.Now().Sub(began); took < pause || took > pause+time.Second {
		t.Errorf("it took %v", took)
	}
}
