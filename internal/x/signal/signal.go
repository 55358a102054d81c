// Package signal has a channel that wakes one goroutine, for work that another one has left.
package signal

// Signal is set or not. Setting it again changes nothing, so a goroutine that receives from it
// looks for everything that has come since the last time. Make it with [New]. It is safe for
// concurrent use, and Set never blocks.
type Signal chan struct{}

// New returns a signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set sets the signal, until the next receive.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
