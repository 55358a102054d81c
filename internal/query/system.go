package query

import (
	"context"
	"time"
)

// System is who is there, what they take care of, and what waits where.
type System struct {
	// AnsweredBy is the orchestrator that says so.
	AnsweredBy    string         `json:"answered_by"`
	Now           time.Time      `json:"now"` // by its clock
	Prefix        string         `json:"prefix"`
	Orchestrators []Orchestrator `json:"orchestrators"`
	Partitions    []Partition    `json:"partitions"`
	// Queues are those of work, by activity; MoreQueues counts others that are not listed.
	Queues     []WorkQueue `json:"queues"`
	MoreQueues int         `json:"more_queues,omitempty"`
}

// Orchestrator is one that is alive, with the partitions that are its own.
type Orchestrator struct {
	ID         string              `json:"id"`
	Host       string              `json:"host,omitempty"`
	Build      string              `json:"build,omitempty"`
	Engine     int                 `json:"engine"`
	Leaving    bool                `json:"leaving,omitempty"`
	Code       map[string][]string `json:"code"`
	Partitions []int               `json:"partitions"`
}

// Backlog is a [broker.Backlog] as JSON.
type Backlog struct {
	Waiting   int64 `json:"waiting"`
	Held      int64 `json:"held"`
	Receivers int   `json:"receivers"`
}

// Partition is a part of what is sent to instances. Owner takes it; one that is draining gets
// nothing new.
type Partition struct {
	Partition int    `json:"partition"`
	Owner     string `json:"owner,omitempty"`
	Draining  bool   `json:"draining,omitempty"`
	Backlog
}

// WorkQueue is the work of an activity with a tag.
type WorkQueue struct {
	Activity string `json:"activity"`
	Tag      string `json:"tag,omitempty"`
	Backlog
}

// Recovery says when the orchestrators will have begun to look.
type Recovery struct {
	Within string `json:"within"`
}

// Recover lets the orchestrators look whether the broker has all that it should have.
func (r *Reader) Recover(ctx context.Context) (Recovery, error) {
	var a Recovery
	err := r.ask(ctx, MethodRecover, Question{}, &a)
	return a, err
}

// System asks who is there, what they take care of, and what waits where.
func (r *Reader) System(ctx context.Context) (System, error) {
	var a System
	err := r.ask(ctx, MethodSystem, Question{}, &a)
	return a, err
}
