package outbox

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// entry is the outbox entry of one commit, of which some messages are open: neither published nor
// withdrawn. It is safe for concurrent use.
type entry struct {
	keys   []history.OutboxKey
	open   atomic.Int64
	failed atomic.Bool // a message could not be published: a sweep needs the entry
}

func newEntry(keys []history.OutboxKey, messages int) *entry {
	e := &entry{keys: keys}
	e.open.Store(int64(messages))
	return e
}

// settle closes some messages of the entry, published or not. It reports true once: when all
// messages were published, and the entry can be removed.
func (e *entry) settle(messages int, err error) (removable bool) {
	if messages == 0 {
		return false
	}
	if err != nil {
		e.failed.Store(true)
	}
	return e.open.Add(-int64(messages)) <= 0 && !e.failed.Load()
}

const (
	// keptFor is how long a published outbox entry waits for a commit that removes it.
	keptFor = 500 * time.Millisecond
	// maxRemoved bounds how many rows are removed at once.
	maxRemoved = 1000
)

// removable is the published outbox entries that are still stored. It is safe for concurrent use.
type removable struct {
	store history.Outbox
	log   *slog.Logger

	mu     sync.Mutex
	keys   []history.OutboxKey
	oldest time.Time // since when there is something in keys
}

func (r *removable) add(keys []history.OutboxKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) == 0 {
		r.oldest = time.Now()
	}
	r.keys = append(r.keys, keys...)
}

// take returns the entries for a commit that removes them.
func (r *removable) take() []history.OutboxKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys
	r.keys = nil
	return keys
}

// putBack takes back entries that could not be removed.
func (r *removable) putBack(keys []history.OutboxKey) {
	if len(keys) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, keys...)
	r.oldest = time.Now()
}

// removeOld removes the entries if no commit has taken them in time.
func (r *removable) removeOld(ctx context.Context) {
	r.mu.Lock()
	due := len(r.keys) > 0 && time.Since(r.oldest) >= keptFor
	r.mu.Unlock()
	if due {
		r.removeAll(ctx)
	}
}

func (r *removable) removeAll(ctx context.Context) {
	keys := r.take()
	for len(keys) > 0 && ctx.Err() == nil {
		n := min(len(keys), maxRemoved)
		if err := r.store.RemoveOutbox(ctx, keys[:n]); err != nil {
			r.log.Warn("outbox entries could not be removed; trying again", "entries", len(keys), "error", err)
			r.putBack(keys)
			return
		}
		keys = keys[n:]
	}
}
