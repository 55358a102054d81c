package queues

import (
	"errors"
	"net/http"
)

// Right is something that a caller may do with a queue.
type Right string

// The rights.
const (
	Push   Right = "push"
	Pop    Right = "pop" // and what follows: acknowledge, extend, nack
	Look   Right = "look"
	Manage Right = "manage"
)

// Access says who may do what.
type Access struct{}

// Caller is who has sent a request.
type Caller struct {
	Name string
	Rate float64
}

// Who finds out who has sent a request.
func (a *Access) Who(*http.Request) (*Caller, error) { return nil, errors.New("nobody is known") }

// May reports whether the caller has a right for a queue.
func (c *Caller) May(Right, string) bool { return false }

// fromHere refuses what browsers send for other sites.
func fromHere(*http.Request) error { return nil }
