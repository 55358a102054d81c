package sqladmin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// shortTombstoneTTL is how long every tombstone stays. It must outlast each statement that is under
// way: one that has seen the instance before it was deleted must still find its tombstone, or it
// could take the instance further as if nothing had happened.
const shortTombstoneTTL = time.Hour

// tidySteps is how many transactions one call of Tidy takes for erasing.
const tidySteps = 10

// leaveTombstones empties rows, so that nothing can be committed to them, and makes them invisible.
func (a *Admin) leaveTombstones(ctx context.Context, db sqlrow.DB, family []member) error {
	now := a.now()
	for part := range slices.Chunk(family, lockInstances) {
		for _, m := range part {
			if err := a.DropAttributes(ctx, db, m.instance, m.created, m.attributes); err != nil {
				return err
			}
		}
		b := a.builder()
		at := b.TimeArg(now)
		// All messages for an instance that ended long before have arrived, and its tombstone may
		// go sooner.
		old := b.TimeArg(now.Add(-history.TombstoneTTL))
		soon := b.TimeArg(now.Add(shortTombstoneTTL - history.TombstoneTTL))
		// (from coalesce, the database infers the type of the parameter)
		age := fmt.Sprintf("CASE WHEN ended_at < %s AND updated_at < %s THEN coalesce(%s, updated_at) ELSE %s END", old,
			old, soon, at)
		_, err := db.Exec(ctx, "UPDATE rondo_instances SET status = '"+sqlrow.Deleting+`', incarnation = '', execution = 0, last_event = -1,
			name = '', version = '', engine = 0, fresh = false,
			parent_instance = NULL, parent_incarnation = NULL, parent_execution = NULL, parent_event = NULL, attributes = NULL, trace = NULL,
			output = NULL, error = NULL, custom_status = NULL, custom_status_version = 0, history_bytes = 0, unread = 0,
			wake_at = NULL, ended_at = NULL, created_at = `+age+", updated_at = "+at+" WHERE "+b.pairs("", memberIDs(part)), b.Args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// Tidy implements [history.Remover].
func (a *Admin) Tidy(ctx context.Context) (more bool, err error) {
	defer a.observer.Begin("tidy").End(&err)
	var unfinished []string
	err = a.Read(ctx, "look for tombstones", func(db sqlrow.DB) error {
		unfinished = nil
		return db.Query(ctx, func(r sqlrow.Row) error {
			var id string
			err := r.Scan(&id)
			unfinished = append(unfinished, id)
			return err
		}, a.shardwise("SELECT i.instance FROM rondo_instances i WHERE i.status = '"+sqlrow.Deleting+"'",
			eraseInstances))
	})
	if err != nil {
		return false, err
	}
	more = len(unfinished) > 0
	for step := 0; step < tidySteps && more; step++ {
		if _, more, err = a.eraseStep(ctx, unfinished); err != nil {
			return false, err
		}
	}
	removed, err := a.removeTombstones(ctx)
	return more || len(unfinished) >= eraseInstances || removed >= lockInstances, err
}

// removeTombstones removes tombstones that are old, as many as one transaction may, and counts
// them.
func (a *Admin) removeTombstones(ctx context.Context) (removed int64, err error) {
	b := a.builder()
	old := a.shardwise("SELECT i.instance FROM rondo_instances i WHERE i.status = '"+sqlrow.Deleted+
		"' AND i.created_at < "+b.TimeArg(a.now().Add(-history.TombstoneTTL)), lockInstances)
	var tombstones []string
	err = a.Read(ctx, "look for old tombstones", func(db sqlrow.DB) error {
		tombstones = nil
		return db.Query(ctx, func(r sqlrow.Row) error {
			var id string
			err := r.Scan(&id)
			tombstones = append(tombstones, id)
			return err
		}, old, b.Args...)
	})
	if err != nil || len(tombstones) == 0 {
		return 0, err
	}
	err = a.Write(ctx, "remove old tombstones", func(db sqlrow.DB) error {
		removed = 0
		locked, err := a.lock(ctx, db, tombstones, isStatus(sqlrow.Deleted), a.Lock)
		if err != nil || len(locked) == 0 {
			return err
		}
		b := a.builder()
		removed, err = db.Exec(ctx, "DELETE FROM rondo_instances WHERE "+b.pairs("",
			locked)+" AND created_at < "+b.TimeArg(a.now().Add(-history.TombstoneTTL)), b.Args...)
		return err
	})
	return removed, err
}
