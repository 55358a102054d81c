package events

import (
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
)

// This file has the facts about other instances: children, detached instances, and messages to
// them.

// ParentClose says what becomes of a child whose parent ends first.
type ParentClose string

// The choices.
const (
	CancelChild  ParentClose = ""        // the child is asked to stop
	AbandonChild ParentClose = "abandon" // the child goes on alone
)

// ChildStarted starts an instance and waits for its outcome.
type ChildStarted struct {
	Name        string        `json:"name"`
	Version     string        `json:"version,omitempty"`
	Instance    string        `json:"instance"`
	Input       codec.Payload `json:"input,omitempty"`
	ParentClose ParentClose   `json:"parent_close,omitempty"`
	// Attributes are those of the child.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// ChildCompleted answers a ChildStarted with the child's output.
type ChildCompleted struct {
	Schedule int64         `json:"schedule"`
	Output   codec.Payload `json:"output,omitempty"`
}

// ChildFailed answers a ChildStarted with the reason the child has no output.
type ChildFailed struct {
	Schedule int64          `json:"schedule"`
	Error    *failure.Error `json:"error"`
}

// Launched starts a detached instance.
type Launched struct {
	Name     string        `json:"name"`
	Version  string        `json:"version,omitempty"`
	Instance string        `json:"instance"`
	Input    codec.Payload `json:"input,omitempty"`
	// NotBefore delays the start; zero means at once.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Conflict says what becomes of the start when the id is already in use.
	Conflict   StartConflict     `json:"conflict,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Messages are mailbox messages that the start brings along.
	Messages []StartMessage `json:"messages,omitempty"`
}

// SentTo says where a message to another instance goes.
type SentTo string

// The places.
const (
	ToEvent   SentTo = "event"
	ToMailbox SentTo = "mailbox"
)

// Sent raises an event of, or sends a mailbox message to, another instance.
type Sent struct {
	Instance string        `json:"instance"`
	To       SentTo        `json:"to"`
	Name     string        `json:"name"`
	Data     codec.Payload `json:"data,omitempty"`
}

// Size implements Fact.
func (f *ChildStarted) Size() int { return len(f.Input) + sizeOfAttributes(f.Attributes) }
func (f *Launched) Size() int {
	n := len(f.Input) + sizeOfAttributes(f.Attributes)
	for _, m := range f.Messages {
		n += len(m.Mailbox) + len(m.Data)
	}
	return n
}

func sizeOfAttributes(attributes map[string]string) (n int) {
	for k, v := range attributes {
		n += len(k) + len(v)
	}
	return n
}

func (f *Launched) check() error {
	errs := []error{needName(f.Name), needName(f.Instance), checkConflict(f.Conflict)}
	for _, m := range f.Messages {
		errs = append(errs, needName(m.Mailbox))
	}
	return errors.Join(errs...)
}

func (f *ChildStarted) check() error {
	if f.ParentClose != CancelChild && f.ParentClose != AbandonChild {
		return fmt.Errorf("parent close %q", f.ParentClose)
	}
	return errors.Join(needName(f.Name), needName(f.Instance))
}

func (f *Sent) check() error {
	if f.To != ToEvent && f.To != ToMailbox {
		return fmt.Errorf("sent to %q", f.To)
	}
	return errors.Join(needName(f.Name), needName(f.Instance))
}
