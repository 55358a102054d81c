package ownership

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/rondo-run/rondo/internal/broker"
)

// assign returns the owner of each partition. All members that see the same members compute the
// same result, without messages between them.
//
// Only members with the newest engine own partitions. Each partition goes to the member that ranks
// highest for it, by a hash of both, so that few partitions move when a member joins or leaves. A
// member with its fair share gets no more: the shares of two members differ by at most one.
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
	// each member gets share partitions, and one more is left for each of more members
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

// liking is the rank of a member for a partition.
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
