package jobserver

import "sync"

// memory bounds the bytes that bodies of requests hold at once. It counts bytes that were read, and
// not the length that a client names. The first smallBody bytes of each body are taken from a
// reserve, so that large bodies leave room for small ones, such as an acknowledgement.
//
// A caller may hold as much of each part as all callers have left of it: alone, half of it. However
// many callers hold all that they may, the next one finds room.
type memory struct {
	mu    sync.Mutex
	small share
	large share
}

const (
	smallBody   = 64 << 10
	smallBodies = 16 << 20             // for the first 64 KiB of each body
	largeBodies = 64<<20 - smallBodies // for the rest of larger ones
	firstRead   = 4 << 10              // is held before the first byte of a body is read
)

// share is a part of the memory, and what each caller holds of it.
type share struct {
	free int64
	of   map[string]int64
}

func newMemory(largest int64) *memory {
	// A caller may hold half, and the largest body must fit into that.
	return &memory{small: share{smallBodies, make(map[string]int64)},
		large: share{max(largeBodies, 2*largest), make(map[string]int64)}}
}

// grow has a body hold more, if there is room: size bytes instead of held. Without access control
// there is one caller, nil, which may hold everything.
func (m *memory) grow(c *Caller, held, size int64) bool {
	small := min(size, smallBody) - min(held, smallBody)
	large := max(size, smallBody) - max(held, smallBody)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.small.has(c, small) || !m.large.has(c, large) {
		return false
	}
	m.small.take(c, small)
	m.large.take(c, large)
	return true
}

// release frees what a body holds.
func (m *memory) release(c *Caller, held int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.small.take(c, -min(held, smallBody))
	m.large.take(c, -(max(held, smallBody) - smallBody))
}

func (s *share) has(c *Caller, n int64) bool { return n == 0 || n <= s.room(c) }

// room is how many bytes more a caller may hold: then it holds as much as is left.
func (s *share) room(c *Caller) int64 {
	if c == nil {
		return s.free
	}
	return (s.free - s.of[c.Name]) / 2
}

func (s *share) take(c *Caller, n int64) {
	s.free -= n
	if c == nil || n == 0 {
		return
	}
	if s.of[c.Name] += n; s.of[c.Name] == 0 {
		delete(s.of, c.Name)
	}
}
