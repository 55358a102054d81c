package orchestrator

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/rondo-run/rondo/internal/broker"
)

// assign says which member takes which partition. All who see the same members come to the same
// result, without a word between them.
//
// Of the members with the newest engine, each partition takes the one that it likes best (by a hash
// of both, so that little moves when somebody comes or goes) and that does not have its fair share
// yet; nobody has two more than another.
func assign(members []broker.Member, partitions []int) map[int]string {
	newest := 0
	for _, m := range members {
		if !m.Leaving {
			newest = max(newest, m.Engine)
		}
	}
	var able []string
	for _, m := range members {
		if !m.Leaving && m.Engine == newest {
			able = append(able, m.ID)
		}
	}
	if len(able) == 0 {
		return nil
	}
	// so many for each, and one more for so many of them
	share, more := len(partitions)/len(able), len(partitions)%len(able)
	load := make(map[string]int, len(able))
	owner := make(map[int]string, len(partitions))
	for _, p := range slices.Sorted(slices.Values(partitions)) {
		ranked := slices.SortedFunc(slices.Values(able), func(a, b string) int {
			return cmp.Or(cmp.Compare(liking(p, b), liking(p, a)), cmp.Compare(a, b))
		})
		for _, id := range ranked {
			if load[id] < share || load[id] == share && more > 0 {
				if load[id] == share {
					more--
				}
				owner[p] = id
				load[id]++
				break
			}
		}
	}
	return owner
}

// liking is how much a partition likes a member.
func liking(partition int, member string) uint64 { return likingOf(strconv.Itoa(partition), member) }

func likingOf(what, member string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(member))
	h.Write([]byte{0})
	h.Write([]byte(what))
	x := h.Sum64() // FNV alone changes too little in its high bits for small changes at the end
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
