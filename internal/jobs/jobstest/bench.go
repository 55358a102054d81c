package jobstest

import (
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Bench measures a store: pushes, pops without a lock, and pops with a lock that is acknowledged,
// of several sizes. One iteration is one transaction, or two with the lock. Nothing else is in the
// queue but what the iterations need, a thousand transactions of it at a time.
func Bench(b *testing.B, fresh func(testing.TB) *Database) {
	s, _ := fresh(b).Open(b, nil)
	for _, size := range []int{1, 10, 100} {
		items := make([]jobs.NewJob, size)
		for n := range items {
			items[n] = jobs.NewJob{Data: quoted(fmt.Sprintf("%0100d", n)), Priority: n % 3}
		}
		do := func(b *testing.B, name string, o jobs.Operation, want int) {
			b.Helper()
			r, err := s.Do(b.Context(), name, o)
			if err != nil || r[0].Refused != nil || r[0].Count != want {
				b.Fatalf("%+v, %v", r, err)
			}
		}
		fill := func(b *testing.B, name string, n int) {
			b.Helper()
			b.StopTimer()
			defer b.StartTimer()
			for left := size * n; left > 0; {
				batch := make([]jobs.NewJob, min(left, jobs.MaxCount))
				for i := range batch {
					batch[i] = items[i%size]
				}
				do(b, name, jobs.Push{Jobs: batch}, len(batch))
				left -= len(batch)
			}
		}
		perSecond := func(b *testing.B) { b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "items/s") }
		b.Run(fmt.Sprintf("push/items=%d", size), func(b *testing.B) {
			name := fmt.Sprint("push-", size, "-", b.N)
			for range b.N {
				do(b, name, jobs.Push{Jobs: items}, size)
			}
			perSecond(b)
		})
		b.Run(fmt.Sprintf("pop/items=%d", size), func(b *testing.B) {
			name := fmt.Sprint("pop-", size, "-", b.N)
			for n := range b.N {
				if n%1000 == 0 {
					fill(b, name, min(1000, b.N-n))
				}
				do(b, name, jobs.Pop{Count: size}, size)
			}
			perSecond(b)
		})
		b.Run(fmt.Sprintf("lock and acknowledge/items=%d", size), func(b *testing.B) {
			name := fmt.Sprint("lock-", size, "-", b.N)
			for n := range b.N {
				if n%1000 == 0 {
					fill(b, name, min(1000, b.N-n))
				}
				do(b, name, jobs.Pop{Count: size, LockID: "lock"}, size)
				do(b, name, jobs.Acknowledge{LockID: "lock"}, size)
			}
			perSecond(b)
		})
	}
}
