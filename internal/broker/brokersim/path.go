package brokersim

import (
	"context"
	"time"
)

// Path is the way between a process and the outside. It decides the fate of each message there.
type Path interface {
	// Go blocks until it is time for a call, and reports whether the call happens and whether its
	// response comes back. After an error the call does not happen.
	Go(ctx context.Context, what string) (answered bool, err error)
	// Say is Go for a message without a response. It does not block: the effect happens at once, or
	// later if the process is paused, or never.
	Say(what string, happens func())
	// Send is Say for a message that takes its time, and that others may overtake.
	Send(what string, happens func())
	// Hear lets a message reach the process: at once, or later if the process is paused, or never.
	Hear(what string, happens func())
	// Stand blocks while the process is paused, and reports whether it was. Afterwards the caller
	// takes its turn by its name. Quiet reports whether the process is paused.
	Stand(ctx context.Context, what string) bool
	Quiet() bool
	// Moment is the duration of an operation that neither fails nor is lost.
	Moment(what string) time.Duration
	// Note reports an event to a path that counts events.
	Note(kind, what string)
}

// straight is a path on which each message arrives at once.
type straight struct{}

func (straight) Go(ctx context.Context, _ string) (bool, error) { return true, context.Cause(ctx) }
func (straight) Say(_ string, happens func())                   { happens() }
func (straight) Send(_ string, happens func())                  { happens() }
func (straight) Hear(_ string, happens func())                  { happens() }
func (straight) Stand(context.Context, string) bool             { return false }
func (straight) Quiet() bool                                    { return false }
func (straight) Moment(string) time.Duration                    { return 0 }
func (straight) Note(string, string)                            {}
