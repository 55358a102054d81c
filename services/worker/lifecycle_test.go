package worker

import (
	"slices"
	"testing"
)

var (
	allStates  = []state{waiting, cancelled, running, ending, decided, settled, acknowledged}
	allChanges = []change{onCall, onStop, onReturn, onGiveUp, onDecline, onSettle, onAck}
)

func TestTransitions(t *testing.T) {
	t.Parallel()
	const none state = -1
	table := map[state][]state{ // in the order of allChanges
		waiting:      {running, cancelled, decided, decided, decided, none, none},
		cancelled:    {none, none, decided, decided, decided, none, none},
		running:      {none, ending, decided, decided, none, none, none},
		ending:       {none, none, decided, decided, none, none, none},
		decided:      {none, none, none, none, none, settled, acknowledged},
		settled:      {none, none, none, none, none, none, none},
		acknowledged: {none, none, none, none, none, none, none},
	}
	for _, s := range allStates {
		for i, c := range allChanges {
			want, ok := table[s][i], table[s][i] != none
			if !ok {
				want = s
			}
			if got, moved := transition(s, c); got != want || moved != ok {
				t.Errorf("state %d, change %d: got %d, %t, want %d, %t", s, c, got, moved, want, ok)
			}
		}
	}
}

func TestLifecycleAnswers(t *testing.T) {
	t.Parallel()
	for _, s := range allStates {
		l := lifecycle{state: s}
		got := []bool{l.inCall(), l.open(), l.over(), l.wanted()}
		want := []bool{
			slices.Contains([]state{running, ending}, s),
			slices.Contains([]state{waiting, cancelled, running, ending}, s),
			slices.Contains([]state{settled, acknowledged}, s),
			slices.Contains([]state{waiting, running}, s),
		}
		if !slices.Equal(got, want) {
			t.Errorf("state %d: got %v, want %v", s, got, want)
		}
	}
}

// Only a function that runs can be given up, and it stays given up.
func TestGivenUpFunctions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		changes []change
		want    bool
	}{
		{[]change{onGiveUp}, false},
		{[]change{onStop, onGiveUp}, false},
		{[]change{onCall, onGiveUp}, true},
		{[]change{onCall, onStop, onGiveUp}, true},
		{[]change{onCall, onReturn, onGiveUp}, false},
		{[]change{onCall, onStop, onGiveUp, onSettle, onReturn, onGiveUp}, true},
		{[]change{onCall, onGiveUp, onAck}, true},
		{[]change{onDecline, onGiveUp}, false},
	}
	for _, tt := range tests {
		var l lifecycle
		for _, c := range tt.changes {
			l.move(c)
		}
		if l.givenUp != tt.want {
			t.Errorf("after %v: given up: %t", tt.changes, l.givenUp)
		}
	}
}
