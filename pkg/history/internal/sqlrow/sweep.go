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

// OverdueColumns are those of instances that ScanOverdue reads.
var OverdueColumns = Instances.Only("instance", "incarnation", "execution", "last_event", "custom_status_version",
	"wake_at")

// ScanOverdue reads an overdue instance.
func ScanOverdue(r Row) (history.Overdue, error) {
	var c InstanceRow
	err := r.Scan(OverdueColumns.Targets(&c)...)
	return history.Overdue{Instance: c.Instance, RowVersion: c.RowVersion(), WakeAt: c.WakeAt.Time}, err
}
