package relational

import (
	"fmt"

	"github.com/rondo-run/rondo/pkg/history"
)

// Promised is a row of the outbox. What cannot be read of it, it says.
func Promised(key history.PromiseKey, messages []byte) history.Promise {
	p := history.Promise{Key: key}
	if p.Messages, p.Err = history.Unpack(messages); p.Err != nil {
		p.Err = &history.Error{Class: history.Corrupt, Op: "take over promises",
			Err: fmt.Errorf("row (%d, %d) of the outbox: %w", key.Shard, key.ID, p.Err)}
	}
	return p
}

// ScanOverdue reads the columns instance, incarnation, execution, last_event, custom_status_version
// and wake_at.
func ScanOverdue(r Row) (o history.Overdue, err error) {
	var at Moment
	err = r.Scan(&o.Instance, &o.RowVersion.Incarnation, &o.RowVersion.Execution, &o.RowVersion.LastEvent,
		&o.RowVersion.CustomStatusVersion, &at)
	o.WakeAt = at.Time
	return o, err
}
