// Package process finds the running processes of a system, and describes the current work of each.
// There is no stored list: a client sends a discovery request, and each process answers for itself.
//
//	nats req --replies 0 rondo.api.process ''
//
// So a process that is stuck, or cut off, is missing; a busy one may answer late, and be missing
// too. Nothing else relies on the answers.
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

// Method is the name of the discovery request.
const Method = "process"

// The kinds of processes.
const (
	Orchestrator = "orchestrator"
	Worker       = "worker"
)

// Process describes a running orchestrator or worker.
type Process struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Host string `json:"host,omitempty"`
	// Build names its binary.
	Build string `json:"build,omitempty"`
	// System is the system that its database and its broker are, if it has a database.
	System string `json:"system,omitempty"`
	// Began is when it began, and Now the time of its clock.
	Began time.Time `json:"began"`
	Now   time.Time `json:"now"`
	// OtherAccount says that NATS separates it from the process that asks.
	OtherAccount bool `json:"other_account,omitempty"`
	// Problem says why it does not do its job: that its database does not answer, say.
	Problem string `json:"problem,omitempty"`
	// Warnings are what operators should look at, although the process does its job.
	Warnings []string `json:"warnings,omitempty"`
	// Works describes the work of a worker.
	Works *Works `json:"works,omitempty"`
	// Unknown are instances whose messages wait with an orchestrator that cannot take them.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Rounds are those of an orchestrator that have been running for long.
	Rounds []Round `json:"rounds,omitempty"`
	// Quarantined are the instances whose messages an orchestrator has quarantined, those that it
	// tries now first. MoreQuarantined counts those that are not listed.
	Quarantined     []Quarantined `json:"quarantined,omitempty"`
	MoreQuarantined int           `json:"more_quarantined,omitempty"`
}

// Works describes the work of a worker.
type Works struct {
	// Draining means that it takes no new tasks.
	Draining bool `json:"draining,omitempty"`
	// Slots is how many activities it can run at once, Used how many it runs.
	Slots int `json:"slots"`
	Used  int `json:"used"`
	// Tags describes for operators which tasks it takes. Activities lists the activities that it
	// knows, and Queues its task queues.
	Tags       string   `json:"tags,omitempty"`
	Activities []string `json:"activities"`
	Queues     []Queue  `json:"queues"`
	// Sessions are the sessions of the worker.
	Sessions []string `json:"sessions,omitempty"`
	// Holds are the activity tasks that it has taken, the oldest first; More counts those that are
	// not listed.
	Holds []Held `json:"holds"`
	More  int    `json:"more,omitempty"`
}

// Queue is a task queue.
type Queue struct {
	Tag      string `json:"tag,omitempty"`
	Activity string `json:"activity"`
}

// Held is an activity task that a worker has taken.
type Held struct {
	Instance string    `json:"instance"`
	Activity string    `json:"activity"`
	Tag      string    `json:"tag,omitempty"`
	Session  string    `json:"session,omitempty"`
	Attempt  int       `json:"attempt"`
	Since    time.Time `json:"since"`
	// Stopping is why its context has ended. GivenUp means that the worker waits no longer for it,
	// and that it still runs.
	Stopping string `json:"stopping,omitempty"`
	GivenUp  bool   `json:"given_up,omitempty"`
}

// String describes the task for operators.
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

// Round is a round that has been running for long: the code of its instance does not return to the
// library.
type Round struct {
	Instance      string    `json:"instance"`
	Orchestration string    `json:"orchestration,omitempty"`
	Version       string    `json:"version,omitempty"`
	Since         time.Time `json:"since"`
	// Abandoned means that the orchestrator has given up its goroutine and uses another one.
	Abandoned bool `json:"abandoned,omitempty"`
}

// Quarantined is an instance with quarantined messages: NATS has redelivered them often, so that
// the orchestrator tries them one at a time.
type Quarantined struct {
	Instance string `json:"instance"`
	// Messages counts its quarantined messages. Start means that its start is one of them.
	Messages int  `json:"messages"`
	Start    bool `json:"start,omitempty"`
	// Since is when the orchestrator received the first of them.
	Since time.Time `json:"since"`
	// Attempt is the attempt that has begun; 0: the instance waits for its turn.
	Attempt int `json:"attempt,omitempty"`
}

// maxListed bounds what one process lists, so that its answer fits into a message.
const maxListed = 200

// Handle answers discovery requests for this process, until stop is called. It sets host and clock;
// tell returns the rest. The broker may call tell concurrently.
func Handle(b broker.Discovery, tell func(ctx context.Context) Process) (stop func(), err error) {
	host, _ := os.Hostname() // only for operators
	return b.HandleDiscovery(Method, func(ctx context.Context, _ []byte) ([]byte, error) {
		p := tell(ctx)
		p.Host, p.Now, p.OtherAccount = cmp.Or(p.Host, host), time.Now().UTC(), broker.IsFromOtherAccount(ctx)
		if w := p.Works; w != nil && len(w.Holds) > maxListed {
			w.More = len(w.Holds) - maxListed
			w.Holds = w.Holds[:maxListed]
		}
		p.Unknown = p.Unknown[:min(len(p.Unknown), maxListed)]
		p.Rounds = p.Rounds[:min(len(p.Rounds), maxListed)]
		if n := len(p.Quarantined); n > maxListed {
			p.Quarantined, p.MoreQuarantined = p.Quarantined[:maxListed], n-maxListed
		}
		return json.Marshal(p)
	})
}

// quiet is the time without a further answer after which discovery ends.
const quiet = 500 * time.Millisecond

// AnswerWithin is how long a process may take to answer a discovery request. It is less than quiet:
// the answers of other processes come at once, and discovery does not wait longer after them.
const AnswerWithin = quiet * 3 / 5

// All sends a discovery request to all processes, and lists those that answer, by kind and id. It
// is not an error if none answers.
func All(ctx context.Context, b broker.Discovery) ([]Process, error) {
	answers, err := b.Discover(ctx, Method, nil, quiet)
	if errors.Is(err, broker.ErrNoResponders) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, a := range answers {
		var p Process
		if err := json.Unmarshal(a, &p); err != nil || p.ID == "" {
			continue // any client may answer; an answer without an id does not count
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}
