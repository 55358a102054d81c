package sqladmin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// maxAudited is the number of instances that are asked about with one statement.
const maxAudited = 200

// ValuesOf implements [history.Audit].
func (a *Admin) ValuesOf(ctx context.Context, instances []string) (all map[string]map[string]history.Value, err error) {
	defer a.observer.Begin("values_of").End(&err)
	all = make(map[string]map[string]history.Value)
	for part := range slices.Chunk(instances, maxAudited) {
		err := a.Read(ctx, "read values", func(db sqlrow.DB) error {
			for _, id := range part {
				delete(all, id)
			}
			b := a.builder()
			where := b.pairs("i", part)
			return db.Query(ctx, func(r sqlrow.Row) error {
				var id string
				key, v, err := scanValue(behind{r, &id})
				if all[id] == nil {
					all[id] = make(map[string]history.Value)
				}
				all[id][key] = v
				return err
			}, "SELECT i.instance, "+valueNames+" FROM rondo_instances i JOIN rondo_values v "+
				"ON v.shard = i.shard AND v.instance = i.instance WHERE "+
				where+" AND (i."+sqlrow.Alive+") IS TRUE", b.Args...)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// behind is a row without its first column, which goes elsewhere.
type behind struct {
	sqlrow.Row
	first any
}

// Scan implements [sqlrow.Row].
func (r behind) Scan(into ...any) error { return r.Row.Scan(append([]any{r.first}, into...)...) }

// Tombstones implements [history.Audit].
func (a *Admin) Tombstones(ctx context.Context, instances []string) (tombstones []string, err error) {
	defer a.observer.Begin("tombstones").End(&err)
	for part := range slices.Chunk(instances, maxAudited) {
		var found []string
		err := a.Read(ctx, "look for tombstones", func(db sqlrow.DB) error {
			found = nil
			b := a.builder()
			return db.Query(ctx, func(r sqlrow.Row) error {
				var id string
				err := r.Scan(&id)
				found = append(found, id)
				return err
				// IS TRUE keeps PostgreSQL from reading all tombstones
			}, "SELECT i.instance FROM rondo_instances i WHERE "+b.pairs("i",
				part)+" AND (i.status IN ('"+sqlrow.Deleting+"', '"+sqlrow.Deleted+"')) IS TRUE", b.Args...)
		})
		if err != nil {
			return nil, err
		}
		tombstones = append(tombstones, found...)
	}
	return tombstones, nil
}

// LastUpdate implements [history.Updates]. No index has the times, so it reads all rows. Each shard
// is a statement of its own, or a large table would exceed the time limit of a statement.
func (a *Admin) LastUpdate(ctx context.Context, before time.Time) (at time.Time, err error) {
	defer a.observer.Begin("last_update").End(&err)
	for shard := range a.Shards {
		b := a.builder()
		statement := "SELECT max(updated_at) FROM rondo_instances WHERE shard = " + b.Arg(int16(shard)) +
			" AND updated_at < " + b.TimeArg(before) + " AND " + sqlrow.Alive
		var last sqlrow.Moment
		err := a.Read(ctx, "look for the last update", func(db sqlrow.DB) error {
			return db.Query(ctx, func(r sqlrow.Row) error { return r.Scan(&last) }, statement, b.Args...)
		})
		if err != nil {
			return time.Time{}, err
		}
		if last.After(at) {
			at = last.Time
		}
	}
	return at, nil
}

// maxOldOutbox bounds the bytes of the messages that OldOutbox reads at once.
const maxOldOutbox = 8 << 20

// OldOutbox implements [history.Audit]. It reads the sizes before it reads messages, as much as
// fits.
func (a *Admin) OldOutbox(ctx context.Context, before time.Time, limit int) (entries []history.OutboxEntry, err error) {
	defer a.observer.Begin("old_outbox").End(&err)
	limit = history.Page{Limit: limit}.Size()
	err = a.Read(ctx, "look for old outbox entries", func(db sqlrow.DB) error {
		n, bytes, last := 0, int64(0), int64(0)
		if err := db.Query(ctx, func(r sqlrow.Row) error {
			var id, size int64
			err := r.Scan(&id, &size)
			if bytes += size; n == 0 || bytes <= maxOldOutbox {
				n, last = n+1, id
			}
			return err
		}, a.oldOutbox("id, length(messages)", "<", limit), history.OutboxID(before, 0)); err != nil {
			return err
		}
		if entries = nil; n == 0 {
			return nil
		}
		return db.Query(ctx, func(r sqlrow.Row) error {
			var key history.OutboxKey
			var messages []byte
			err := r.Scan(&key.Shard, &key.ID, &messages)
			entries = append(entries, sqlrow.OutboxEntry(key, messages))
			return err
		}, a.oldOutbox("shard, id, messages", "<=", n), last)
	})
	return entries, err
}

// oldOutbox selects columns of the oldest entries of all shards up to an id.
func (a *Admin) oldOutbox(columns, compare string, limit int) string {
	parts := make([]string, a.Shards)
	for shard := range parts {
		parts[shard] = fmt.Sprintf("SELECT * FROM (SELECT %s FROM rondo_outbox WHERE shard = %d AND id %s $1 "+
			"ORDER BY id LIMIT %d) b%[2]d", columns, shard, compare, limit)
	}
	return strings.Join(parts, "\nUNION ALL ") + fmt.Sprintf("\nORDER BY id LIMIT %d", limit)
}
