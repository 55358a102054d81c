package ownership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
)

func members(n int) []broker.Member {
	var out []broker.Member
	for i := range n {
		out = append(out, broker.Member{ID: fmt.Sprint("orchestrator-", i), Engine: 1})
	}
	return out
}

func numbers(n int) []int {
	var out []int
	for i := range n {
		out = append(out, i)
	}
	return out
}

// TestAssignIsFairCompleteAndTheSameForAll checks every combination of up to 12 members and 40
// partitions.
func TestAssignIsFairCompleteAndTheSameForAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for m := 1; m <= 12; m++ {
		for p := 1; p <= 40; p++ {
			all := members(m)
			owners := assign(all, numbers(p))
			load := make(map[string]int)
			for i := range p {
				if owners[i] == "" {
					t.Fatalf("%d members, %d partitions: nobody has partition %d", m, p, i)
				}
				load[owners[i]]++
			}
			for id, n := range load {
				if most := (p + m - 1) / m; n > most {
					t.Fatalf("%d members, %d partitions: %s has %d, more than %d", m, p, id, n, most)
				}
			}
			if least := p / m; slices.Min(append(slices.Collect(maps.Values(load)), p)) < least || least > 0 &&
				len(load) < m {
				t.Fatalf("%d members, %d partitions: %v; want at least %d for each", m, p, load, least)
			}
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			shuffled := numbers(p)
			random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			again := assign(all, shuffled)
			for i := range p {
				if again[i] != owners[i] {
					t.Fatalf("%d members, %d partitions: it depends on the order", m, p)
				}
			}
		}
	}
}

// TestAssignMovesLittle checks that most partitions stay where they are when one of many members
// goes.
func TestAssignMovesLittle(t *testing.T) {
	all, partitions := members(8), numbers(256)
	before := assign(all, partitions)
	moved := 0
	after := assign(slices.Delete(slices.Clone(all), 3, 4), partitions)
	for p, owner := range before {
		if owner != all[3].ID && after[p] != owner {
			moved++
		}
	}
	if most := len(partitions) / 4; moved > most {
		t.Errorf("%d partitions of members that stayed have moved, want at most %d", moved, most)
	}
}

func TestAssignPrefersTheNewestEngineAndLeavesOutWhoLeaves(t *testing.T) {
	all := members(4)
	all[1].Engine, all[2].Engine = 2, 2
	all[2].Leaving = true
	for p, owner := range assign(all, numbers(8)) {
		if owner != all[1].ID {
			t.Errorf("partition %d goes to %s, want the only one that stays with the newest engine", p, owner)
		}
	}
	if owners := assign([]broker.Member{{ID: "a", Leaving: true}}, numbers(3)); len(owners) != 0 {
		t.Errorf("somebody who leaves is given %v", owners)
	}
	if owners := assign(nil, numbers(3)); len(owners) != 0 {
		t.Errorf("nobody is given %v", owners)
	}
}
