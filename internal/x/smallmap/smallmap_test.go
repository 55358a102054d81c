package smallmap_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-run/rondo/internal/x/smallmap"
)

// TestMapIsAMap does the same to a Map and to one of Go's.
func TestMapIsAMap(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var m smallmap.Map[int]
		want := make(map[int64]int)
		span := int64(1 + random.IntN(3*smallmap.Most)) // few at first, many at times
		for step := range 300 {
			number := random.Int64N(span)
			switch random.IntN(3) {
			case 0, 1:
				m.Set(number, step+1)
				want[number] = step + 1
			default:
				m.Delete(number)
				delete(want, number)
			}
			if random.IntN(50) == 0 { // down to none
				for _, n := range m.Numbers() {
					m.Delete(n)
				}
				clear(want)
			}
			if m.Len() != len(want) || m.Get(number) != want[number] ||
				!slices.Equal(m.Numbers(), slices.Sorted(maps.Keys(want))) {
				t.Fatalf("seed %d, step %d: %v with %d values, want %v", seed, step, m.Numbers(), m.Len(), want)
			}
		}
	}
}
