package cockroach

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// marks are remembered lower bounds: nothing that a sweep looks for is below them. They keep
// moments that are written from falling below.
type marks struct {
	db       *database
	now      func() time.Time
	wakeStep time.Duration // see Options.WakeStep
	log      *slog.Logger

	mu    sync.Mutex
	value map[string][]time.Time // by name and shard
}

func newMarks(db *database, options Options) *marks {
	return &marks{db: db, now: options.Now, wakeStep: options.WakeStep, log: options.Log, value: noMarks()}
}

// noMarks are the marks of a database without any.
func noMarks() map[string][]time.Time {
	return map[string][]time.Time{markOutbox: make([]time.Time, history.Shards),
		markWake: make([]time.Time, history.Shards)}
}

// The names of the marks.
const (
	markOutbox = "outbox"
	markWake   = "wake"
)

// markSlack is how far behind the clock a mark stays. It must be longer than a commit may take, and
// than clocks may differ.
const markSlack = 10 * time.Minute

// markStep is how far a mark must have moved to be written down.
const markStep = time.Minute

const (
	readMarks    = "SELECT name, shard, value FROM rondo_marks"
	advanceMarks = `INSERT INTO rondo_marks AS m (name, shard, value) SELECT $1::TEXT, shard, value FROM unnest($2::INT2[], $3::INT8[]) AS r(shard, value)
	ON CONFLICT (name, shard) DO UPDATE SET value = excluded.value WHERE m.value < excluded.value`
)

// read learns how far all processes have come.
func (m *marks) read(ctx context.Context) error {
	return m.db.ReadOften(ctx, "read marks", func(db sqlrow.DB) error {
		fresh := noMarks()
		err := db.Query(ctx, func(r sqlrow.Row) error {
			var (
				name         string
				shard, value int64
			)
			err := r.Scan(&name, &shard, &value)
			if at := fresh[name]; shard >= 0 && int(shard) < len(at) {
				at[shard] = time.UnixMicro(value)
			}
			return err
		}, readMarks)
		if err == nil {
			m.mu.Lock()
			m.value = fresh
			m.mu.Unlock()
		}
		return err
	})
}

// at is where a sweep of a shard begins.
func (m *marks) at(name string, shard int16) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value[name][shard]
}

// notBefore moves a time that lies below a mark to where the sweep finds it. Marks follow the
// clocks of all processes, so a clock that is far behind is noticed here.
func (m *marks) notBefore(name string, shard int16, at time.Time) time.Time {
	if low := m.at(name, shard); !low.IsZero() && at.Before(low.Add(markSlack)) {
		return low.Add(markSlack)
	}
	return at
}

// atMost keeps a mark behind the clock.
func (m *marks) atMost(to time.Time) time.Time {
	if limit := m.now().Add(-markSlack); to.After(limit) {
		return limit
	}
	return to
}

// worthAdvancing reports whether a mark would move far enough.
func (m *marks) worthAdvancing(name string, shard int16, to time.Time) bool {
	return m.atMost(to).Sub(m.at(name, shard)) >= markStep
}

// advance moves marks up to moments, where that is worth it, but not nearer to now than the slack.
func (m *marks) advance(ctx context.Context, name string, to map[int16]time.Time) error {
	var shards []int16
	var values []int64
	for shard := range int16(history.Shards) {
		if at, ok := to[shard]; ok && m.worthAdvancing(name, shard, at) {
			to[shard] = m.atMost(at)
			shards, values = append(shards, shard), append(values, to[shard].UnixMicro())
		}
	}
	if len(shards) == 0 {
		return nil
	}
	err := m.db.writeKept(ctx, "advance marks", func(db sqlrow.DB) error {
		_, err := db.Exec(ctx, advanceMarks, name, shards, values)
		return err
	})
	if err == nil {
		m.mu.Lock()
		for _, shard := range shards {
			if at := m.value[name]; at[shard].Before(to[shard]) {
				at[shard] = to[shard]
			}
		}
		m.mu.Unlock()
	}
	return err
}

// wakeAt rounds a wake-up time up, and moves one that has passed to where the sweep looks.
func (m *marks) wakeAt(shard int16, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	if step := m.wakeStep; step > 0 {
		at = at.Add(step - 1).Truncate(step)
	}
	// The mark may be further than this process knows, and move while the turn is in flight, but
	// not nearer to now than the slack.
	if low := m.now().Add(-markSlack / 2); at.Before(low) {
		at = low
	}
	return m.notBefore(markWake, shard, at)
}

// fromMark is the least id that a sweep of a shard looks at.
func (m *marks) fromMark(shard int16) int64 {
	if at := m.at(markOutbox, shard); !at.IsZero() {
		return history.OutboxID(at, 0)
	}
	return 0
}

// unlessTaken keeps an error of moving marks from the caller if the sweep has leased rows, which no
// other sweep would look at for a while.
func (m *marks) unlessTaken(ctx context.Context, n int, err error) error {
	if err != nil && n > 0 {
		m.log.WarnContext(ctx, "a sweep cannot store its position", "error", err)
		return nil
	}
	return err
}
