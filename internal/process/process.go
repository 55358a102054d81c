// Package process tells which processes of a system are there, and what each is doing just now.
// Nobody keeps a list: who wants to know asks everybody, and each answers for itself.
//
//	nats req --replies 0 rondo.api.process ''
//
// So one that is stuck, or cut off, is missing; one that is busy may answer late, and be missing
// too. Nothing else relies on it.
package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// Method is the name of the question.
const Method = "process"

// The kinds of processes.
const (
	Orchestrator = "orchestrator"
	Worker       = "worker"
)

// Process is one that is there.
type Process struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Host string `json:"host,omitempty"`
	// Build says which binary it is.
	Build string `json:"build,omitempty"`
	// Began is when it began, and Now what its clock says.
	Began time.Time `json:"began"`
	Now   time.Time `json:"now"`
	// Problem says why it does not do what it is there for: that its database does not answer, say.
	Problem string `json:"problem,omitempty"`
	// Works is what a worker does.
	Works *Works `json:"works,omitempty"`
	// Unknown are instances whose messages wait with an orchestrator that cannot take them.
	Unknown []Unknown `json:"unknown,omitempty"`
}

// Works is what a worker does.
type Works struct {
	// Draining says that it takes nothing new.
	Draining bool `json:"draining,omitempty"`
	// Slots is how many activities it can run at once, Used how many of them are taken.
	Slots int `json:"slots"`
	Used  int `json:"used"`
	// Tags says for people which work it takes, Activities lists those that it knows, and Queues
	// where it takes from.
	Tags       string   `json:"tags,omitempty"`
	Activities []string `json:"activities"`
	Queues     []Queue  `json:"queues"`
	// Sessions are those it has.
	Sessions []string `json:"sessions,omitempty"`
	// Holds is what it has taken, the oldest first; More counts what is not listed.
	Holds []Held `json:"holds"`
	More  int    `json:"more,omitempty"`
}

// Queue is where work waits.
type Queue struct {
	Tag      string `json:"tag,omitempty"`
	Activity string `json:"activity"`
}

// Held is a piece of work that a worker has taken.
type Held struct {
	Instance string    `json:"instance"`
	Activity string    `json:"activity"`
	Tag      string    `json:"tag,omitempty"`
	Session  string    `json:"session,omitempty"`
	Attempt  int       `json:"attempt"`
	Since    time.Time `json:"since"`
	// Stopping is why its context has ended. GivenUp says that it was not waited for any longer,
	// and still runs.
	Stopping string `json:"stopping,omitempty"`
	GivenUp  bool   `json:"given_up,omitempty"`
}

// String says it for people.
func (h Held) String() string {
	return fmt.Sprintf("%q of instance %q (since %s)", h.Activity, h.Instance, h.Since.Format(time.RFC3339))
}

// Unknown is an instance whose messages wait for an orchestrator that can take them.
type Unknown struct {
	Instance string    `json:"instance"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	Since    time.Time `json:"since"`
}

// maxListed bounds what one process lists, so that its answer fits into a message.
const maxListed = 200

// Answer answers for this process, until stop is called. Host and the clock are filled in; tell
// gives the rest. It may be called concurrently.
func Answer(b broker.RollCalls, tell func(ctx context.Context) Process) (stop func(), err error) {
	host, _ := os.Hostname() // only for people
	return b.AnswerToo(Method, func(ctx context.Context, _ []byte) ([]byte, error) {
		p := tell(ctx)
		p.Host, p.Now = cmp.Or(p.Host, host), time.Now().UTC()
		if w := p.Works; w != nil && len(w.Holds) > maxListed {
			w.More = len(w.Holds) - maxListed
			w.Holds = w.Holds[:maxListed]
		}
		p.Unknown = p.Unknown[:min(len(p.Unknown), maxListed)]
		return json.Marshal(p)
	})
}

// quiet is for how long nobody must answer until all are taken to have answered.
const quiet = 500 * time.Millisecond

// All asks all processes who they are, and lists those that answer, by kind and id. It is not an
// error that there are none.
func All(ctx context.Context, b broker.RollCalls) ([]Process, error) {
	answers, err := b.AskAll(ctx, Method, nil, quiet)
	if errors.Is(err, broker.ErrNobody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, a := range answers {
		var p Process
		if err := json.Unmarshal(a, &p); err != nil || p.ID == "" {
			continue // anybody may answer; who cannot say who he is does not count
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}
