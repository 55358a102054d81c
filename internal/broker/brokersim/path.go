package brokersim

import (
	"context"
	"runtime"
)

// Path is the way between a process and the outside. It decides the fate of each message there.
//
// A path may let one thing happen at a time. Therefore the effect of a message may happen a moment
// after Say, Send or Hear has returned.
type Path interface {
	// Name is the name of the process, or "".
	Name() string
	// Go blocks until it is time for a call, and reports whether the call happens and whether its
	// response comes back. After an error the call does not happen.
	Go(ctx context.Context, what string) (answered bool, err error)
	// Say is Go for a message without a response. It does not block: the effect happens at this
	// moment, or later if the process is paused, or never.
	Say(what string, happens func())
	// Send is Say for a message that takes its time, and that others may overtake. When the message
	// leaves the process, leaves returns the effect that it has on arrival.
	Send(what string, leaves func() (arrives func()))
	// Hear lets a message reach the process: at this moment, or later if the process is paused, or
	// never.
	Hear(what string, happens func())
	// Stand blocks while the process is paused, and reports whether it was. Afterwards the caller
	// takes its turn by its name. Quiet reports whether the process is paused.
	Stand(ctx context.Context, what string) bool
	Quiet() bool
	// Pause blocks for the duration of an operation that neither fails nor is lost.
	Pause(what string)
	// Note reports an event to a path that counts events.
	Note(kind, what string)
}

// straight is a path on which each message arrives at once.
type straight struct{}

func (straight) Name() string                                   { return "" }
func (straight) Go(ctx context.Context, _ string) (bool, error) { return true, context.Cause(ctx) }
func (straight) Say(_ string, happens func())                   { happens() }
func (straight) Send(_ string, leaves func() func())            { leaves()() }
func (straight) Hear(_ string, happens func())                  { happens() }
func (straight) Stand(context.Context, string) bool             { return false }
func (straight) Quiet() bool                                    { return false }
func (straight) Pause(string)                                   { runtime.Gosched() }
func (straight) Note(string, string)                            {}
