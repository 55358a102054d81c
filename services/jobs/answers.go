package jobserver

import (
	"net/http"
	"sync"
	"time"
)

// answers bounds the bytes that answers hold until their clients have read them. The share of a
// caller is the same as that of [memory].
//
// The size of an answer is known only when the database has it, so a request asks for room before
// it reads, and holds what it has read. Requests that read at the same time see the same room.
// Hence the bound is exceeded by as much as those transactions read: see gatherJobs and
// listsAtOnce.
type answers struct {
	mu   sync.Mutex
	held share
}

const (
	answerBytes = 64 << 20
	leastRoom   = 4 << 10 // without it, nothing is read
)

func newAnswers() *answers { return &answers{held: share{answerBytes, make(map[string]int64)}} }

// heldAnswer is what the answer to a request holds.
type heldAnswer struct {
	all    *answers
	caller *Caller
	bytes  int64
	ended  bool
}

func (a *answers) of(c *Caller) *heldAnswer { return &heldAnswer{all: a, caller: c} }

// room returns how many bytes the answer may have, at most maxAnswer; an error if there is no room.
func (h *heldAnswer) room() (int, error) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	n := min(h.all.held.room(h.caller), maxAnswer)
	if n < leastRoom {
		return 0, newProblem(http.StatusServiceUnavailable, codeUnavailable,
			"many large answers wait for their clients to read them, and nothing was done: read the answers, and "+
				"try again").retry(time.Second)
	}
	return int(n), nil
}

// has sets how many bytes the answer has.
func (h *heldAnswer) has(n int) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if h.ended { // the client did not wait for the transaction
		return
	}
	h.all.held.take(h.caller, int64(n)-h.bytes)
	h.bytes = int64(n)
}

// release frees what the answer holds, for good.
func (h *heldAnswer) release() {
	h.has(0)
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	h.ended = true
}
