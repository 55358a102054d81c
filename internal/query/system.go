package query

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// System describes a running system: its orchestrators, partitions and backlogs.
type System struct {
	// AnsweredBy is the orchestrator that has answered.
	AnsweredBy    string         `json:"answered_by"`
	Now           time.Time      `json:"now"` // by its clock
	Prefix        string         `json:"prefix"`
	Orchestrators []Orchestrator `json:"orchestrators"`
	Partitions    []Partition    `json:"partitions"`
	// Queues are the task queues, by activity; MoreTaskQueues counts others that are not listed.
	TaskQueues     []TaskQueue `json:"task_queues"`
	MoreTaskQueues int         `json:"more_task_queues,omitempty"`
}

// Orchestrator is a running orchestrator, with the partitions that it owns.
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

// Partition is a part of the inbox. Its owner receives it; a draining one gets no new messages.
type Partition struct {
	Partition int    `json:"partition"`
	Owner     string `json:"owner,omitempty"`
	Draining  bool   `json:"draining,omitempty"`
	Backlog
}

// TaskQueue is the task queue of an activity with a tag.
type TaskQueue struct {
	Activity string `json:"activity"`
	Tag      string `json:"tag,omitempty"`
	Backlog
}

// Recovery says within which time the orchestrators begin to check.
type Recovery struct {
	Within string `json:"within"`
}

// Recover lets the orchestrators check whether the broker has everything that it should have.
func (r *Reader) Recover(ctx context.Context) (Recovery, error) {
	var a Recovery
	err := r.ask(ctx, MethodRecover, Question{}, &a)
	return a, err
}

// Checked says what an orchestrator would make of a start. Known is false if it does not have the
// code: another one may.
type Checked struct {
	Known   bool   `json:"known"`
	Problem string `json:"problem,omitempty"`
}

// CheckStart asks an orchestrator what it would make of a start.
func (r *Reader) CheckStart(ctx context.Context, s Start) (Checked, error) {
	var a Checked
	err := r.ask(ctx, MethodCheckStart, Question{Start: &s}, &a)
	return a, err
}

func (a *answerer) checkStart(q Question) (out Checked, err error) {
	if q.Start == nil {
		return out, badQuestion("question for %s: which start? It is a JSON object like %s", MethodCheckStart,
			exampleOf(MethodCheckStart))
	}
	known, bad := a.o.CheckStart(&events.Start{Orchestration: q.Start.Orchestration, Version: q.Start.Version,
		Input: codec.Canonical(q.Start.Input)})
	if out.Known = known; bad != nil {
		out.Problem = bad.Message
	}
	return out, nil
}

// System requests a description of the running system.
func (r *Reader) System(ctx context.Context) (System, error) {
	var a System
	err := r.ask(ctx, MethodSystem, Question{}, &a)
	return a, err
}
