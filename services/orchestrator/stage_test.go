package orchestrator

import "testing"

// TestTransitions checks every move in every stage.
func TestTransitions(t *testing.T) {
	want := map[stage]map[move]stage{
		idle:       {needLoad: queued, takeRound: ready, needPause: pausing, needFormer: asking},
		queued:     {startLoad: loading, unqueue: idle},
		loading:    {rest: idle},
		ready:      {startRound: deciding},
		deciding:   {needCommit: committing, needCheck: checking, rest: idle},
		committing: {rest: idle},
		checking:   {rest: idle},
		pausing:    {rest: idle},
		asking:     {rest: idle},
	}
	if len(want) != int(stages) {
		t.Fatalf("%d stages are checked, want %d", len(want), stages)
	}
	for from := range stages {
		for m := range moves {
			to, ok := transition(from, m)
			expected, allowed := want[from][m]
			if !allowed {
				expected = from
			}
			if ok != allowed || to != expected {
				t.Errorf("move %d in stage %v leads to %v, %t; want %v, %t", m, from, to, ok, expected, allowed)
			}
		}
	}
}
