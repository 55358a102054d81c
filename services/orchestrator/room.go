package orchestrator

import "sync"

// maxUndecided bounds the bytes of the histories that are being read, or wait for a decider after
// that. A larger history is read alone.
const maxUndecided = 64 << 20

// historyRoom bounds histories in memory by their sizes, as the rows of their instances tell them.
// A decider replays the history, so it is not counted from then on. It is safe for concurrent use;
// a nil one has no bound.
type historyRoom struct {
	mu   sync.Mutex
	held int64
	by   map[*entry]int64
}

func newHistoryRoom() *historyRoom { return &historyRoom{by: make(map[*entry]int64)} }

// take takes room for the history of an instance, unless it has some. It reports false if there is
// not enough.
func (r *historyRoom) take(e *entry, bytes int64) bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, has := r.by[e]; has || bytes <= 0 {
		return true
	}
	if r.held > 0 && r.held+bytes > maxUndecided {
		return false
	}
	r.by[e] = bytes
	r.held += bytes
	return true
}

// release gives the room of an instance back, if it has some.
func (r *historyRoom) release(e *entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= r.by[e]
	delete(r.by, e)
}
