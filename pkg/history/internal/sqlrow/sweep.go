package sqlrow

import (
	"fmt"

	"github.com/rondo-run/rondo/pkg/history"
)

// OutboxEntry unpacks an outbox entry. The entry has an error for a part that cannot be read.
func OutboxEntry(key history.OutboxKey, messages []byte) history.OutboxEntry {
	p := history.OutboxEntry{Key: key}
	if p.Messages, p.Err = history.Unpack(messages); p.Err != nil {
		p.Err = &history.Error{Class: history.Corrupt, Op: "lease outbox entries",
			Err: fmt.Errorf("row (%d, %d) of the outbox: %w", key.Shard, key.ID, p.Err)}
	}
	return p
}

// DueEntry is an outbox entry that may be leased, with the size of its messages.
type DueEntry struct {
	Key  history.OutboxKey
	Size int64
}

// Fitting is the first entries that fit into a number of bytes together, at least one; all if that
// is 0.
func Fitting(due []DueEntry, bytes int64) []DueEntry {
	sum := int64(0)
	for n, x := range due {
		if sum += x.Size; bytes > 0 && sum > bytes && n > 0 {
			return due[:n]
		}
	}
	return due
}

// OverdueColumns are those of instances that ScanOverdue reads.
var OverdueColumns = Instances.Only("instance", "incarnation", "execution", "last_event", "custom_status_version",
	"wake_at")

// ScanOverdue reads an overdue instance.
func ScanOverdue(r Row) (history.Overdue, error) {
	var c InstanceRow
	err := r.Scan(OverdueColumns.Targets(&c)...)
	return history.Overdue{Instance: c.Instance, RowVersion: c.RowVersion(), WakeAt: c.WakeAt.Time}, err
}
