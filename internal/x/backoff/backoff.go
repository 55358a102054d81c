// Package backoff computes the delays between attempts that fail.
package backoff

import "time"

// Backoff doubles a delay with each failure, from First up to Most.
type Backoff struct{ First, Most time.Duration }

// After returns the delay after the first failure, or after some more.
func (b Backoff) After(more int) time.Duration {
	d := b.Next(0)
	for ; more > 0 && d < b.Most; more-- {
		d = b.Next(d)
	}
	return d
}

// Next returns the delay that follows the delay d; 0 stands for none.
func (b Backoff) Next(d time.Duration) time.Duration { return min(max(b.First, 2*d), b.Most) }
