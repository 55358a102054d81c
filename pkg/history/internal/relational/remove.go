package relational

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// The bounds of one transaction.
const (
	eraseRows       = 300  // rows of history
	eraseEvents     = 5000 // events of instances that are erased together
	eraseExecutions = 1000 // former executions
	eraseInstances  = 100  // instances at once
	lockInstances   = 500  // rows locked by one statement
)

// shortTombstoneTTL is how long every tombstone stays. It must outlast each statement that is under
// way: one that has seen the instance before it was deleted must still find its tombstone, or it
// could take the instance further as if nothing had happened.
const shortTombstoneTTL = time.Hour

// tidySteps is how many transactions one call of Tidy takes for erasing.
const tidySteps = 10

// member is an instance that is to be deleted, as far as that needs to know it.
type member struct {
	instance, parent, name string
	status                 round.Status
	created, ended         time.Time
	events                 int64
	attributes             []byte
	depth                  int
}

const memberColumns = `i.instance, i.parent_instance, i.name, i.status, i.created_at, i.ended_at, i.last_event, i.attributes`

func scanMember(r Row) (member, error) {
	var (
		c Columns
		m member
	)
	err := r.Scan(&c.Instance, &c.ParentInstance, &c.Name, &c.Status, &c.CreatedAt, &c.EndedAt, &c.LastEvent,
		&c.Attributes)
	m = member{
		instance: c.Instance, parent: c.ParentInstance.String, name: c.Name, status: round.Status(c.Status),
		created: c.CreatedAt.Time, ended: c.EndedAt.Time, events: c.LastEvent, attributes: c.Attributes,
	}
	return m, err
}

// members reads the rows that a condition finds.
func (d Dialect) members(ctx context.Context, db DB, b *builder, where string) ([]member, error) {
	statement := "SELECT " + memberColumns + " FROM rondo_instances i WHERE " + where + " AND i." + Alive +
		" ORDER BY i.shard, i.instance"
	var out []member
	err := db.Query(ctx, func(r Row) error {
		m, err := scanMember(r)
		out = append(out, m)
		return err
	}, statement, b.args...)
	return out, err
}

// lock locks the rows of instances that a condition holds for, in the order of their keys, and
// tells which these are. Everybody who locks several rows does it in that order, so that no two
// wait for each other. clause is how: d.Lock waits.
func (d Dialect) lock(ctx context.Context, db DB, instances []string, condition,
	clause string) (locked []string, err error) {
	instances = slices.Clone(instances)
	slices.SortFunc(instances, func(a, b string) int {
		return cmp.Or(cmp.Compare(d.Shard(a), d.Shard(b)), cmp.Compare(a, b))
	})
	for part := range slices.Chunk(instances, lockInstances) {
		b := builder{Dialect: d}
		err := db.Query(ctx, func(r Row) error {
			var id string
			err := r.Scan(&id)
			locked = append(locked, id)
			return err
		}, "SELECT i.instance FROM rondo_instances i WHERE "+b.pairs("i",
			part)+" AND "+condition+" ORDER BY i.shard, i.instance"+clause, b.args...)
		if err != nil {
			return nil, err
		}
	}
	return locked, nil
}

// isStatus is a condition on rows that are found by their keys: it keeps PostgreSQL from reading
// all that have the status instead.
func isStatus(status string) string { return "(i.status = '" + status + "') IS TRUE" }

// lockedFamily reads instances with all their descendants, parents first, and locks them. It then
// cannot get another member, because whoever starts a child locks the parent.
func (d Dialect) lockedFamily(ctx context.Context, db DB, instances []string) ([]member, error) {
	locked := make(map[string]bool)
	clause := d.Lock
	for {
		all, err := d.family(ctx, db, instances)
		if err != nil || d.Lock == "" {
			return all, err
		}
		// Those that were born between the reading and the locking come in another round. They are
		// not in order, so nobody waits for them: if somebody else holds one, everything begins
		// again.
		more := slices.DeleteFunc(memberIDs(all), func(id string) bool { return locked[id] })
		if len(more) == 0 {
			return all, nil
		}
		more, err = d.lock(ctx, db, more, "i."+Alive, clause)
		if err != nil {
			return nil, err
		}
		clause = d.Lock + " NOWAIT"
		for _, id := range more {
			locked[id] = true
		}
	}
}

// family reads instances with all their descendants, parents first.
func (d Dialect) family(ctx context.Context, db DB, instances []string) ([]member, error) {
	var all []member
	seen := make(map[string]bool)
	add := func(depth int, found []member) (added []string) {
		for _, m := range found {
			if !seen[m.instance] {
				seen[m.instance] = true
				m.depth = depth
				all = append(all, m)
				added = append(added, m.instance)
			}
		}
		return added
	}
	var generation []string
	for part := range slices.Chunk(instances, lockInstances) {
		b := builder{Dialect: d}
		found, err := d.members(ctx, db, &b, b.pairs("i", part))
		if err != nil {
			return nil, err
		}
		generation = append(generation, add(0, found)...)
	}
	for depth := 1; len(generation) > 0; depth++ {
		var children []string
		for part := range slices.Chunk(generation, lockInstances) {
			b := builder{Dialect: d}
			found, err := d.members(ctx, db, &b, b.in("i.parent_instance", part))
			if err != nil {
				return nil, err
			}
			children = append(children, add(depth, found)...)
		}
		generation = children
	}
	return all, nil
}

// Tree implements [history.Reader].
func (a *Admin) Tree(ctx context.Context, instance string) (tree []history.Node, err error) {
	err = a.Read(ctx, "read a tree", func(db DB) error {
		tree = nil
		family, err := a.family(ctx, db, []string{instance})
		if err == nil && len(family) == 0 {
			err = fmt.Errorf("instance %q: %w", instance, history.ErrNoInstance)
		}
		for _, m := range family {
			tree = append(tree, history.Node{Instance: m.instance, Parent: m.parent, Name: m.name, Status: m.status,
				Depth: m.depth})
		}
		return err
	})
	return tree, err
}

// Delete implements [history.Remover].
func (a *Admin) Delete(ctx context.Context, instances []string,
	how history.Deletion) (deleted history.DeleteResult, err error) {
	instances = slices.Compact(slices.Sorted(slices.Values(instances)))
	if len(instances) == 0 {
		return deleted, nil
	}
	var gone []member
	err = a.Write(ctx, "delete instances", func(db DB) error {
		family, err := a.lockedFamily(ctx, db, instances)
		if err != nil || len(gone) > 0 && !anySame(family, gone) {
			return err // the try before has deleted them, only its answer was lost; what is there now has begun since
		}
		if err := a.mayDelete(ctx, db, instances, family, how); err != nil {
			return err
		}
		gone = family
		return a.leaveTombstones(ctx, db, gone)
	})
	if err != nil {
		return deleted, err
	}
	return a.erase(ctx, gone)
}

// anySame reports whether one of the members is still there, in the same incarnation.
func anySame(now, before []member) bool {
	created := make(map[string]time.Time, len(before))
	for _, m := range before {
		created[m.instance] = m.created
	}
	return slices.ContainsFunc(now, func(m member) bool {
		at, ok := created[m.instance]
		return ok && at.Equal(m.created)
	})
}

// mayDelete tells why a family must not be deleted, if there is a reason.
func (a *Admin) mayDelete(ctx context.Context, db DB, instances []string, family []member, how history.Deletion) error {
	found := make(map[string]member, len(family))
	for _, m := range family {
		found[m.instance] = m
	}
	var bad []error
	for _, id := range instances {
		m, ok := found[id]
		if !ok {
			bad = append(bad, fmt.Errorf("instance %q: %w", id, history.ErrNoInstance))
			continue
		}
		if _, together := found[m.parent]; m.parent == "" || together || how.Children {
			continue
		}
		_, err := a.find(ctx, db, m.parent)
		switch {
		case err == nil:
			bad = append(bad, fmt.Errorf("instance %q is the child of %q: %w", id, m.parent, history.ErrHasParent))
		case !errors.Is(err, history.ErrNoInstance):
			return err
		}
	}
	for _, m := range family {
		switch {
		case how.Alone && !slices.Contains(instances, m.instance):
			bad = append(bad, fmt.Errorf("instance %q has the child %q: %w", m.parent, m.instance,
				history.ErrHasChildren))
		case !how.Force && !m.status.Ended():
			bad = append(bad, fmt.Errorf("instance %q is %s: %w", m.instance, m.status, history.ErrRunning))
		}
		if len(bad) >= 10 {
			break
		}
	}
	return errors.Join(bad...)
}

// leaveTombstones empties rows, so that nothing can be committed to them, and makes them invisible.
func (a *Admin) leaveTombstones(ctx context.Context, db DB, family []member) error {
	now := a.Now()
	for part := range slices.Chunk(family, lockInstances) {
		for _, m := range part {
			if err := a.DropAttributes(ctx, db, m.instance, m.created, m.attributes); err != nil {
				return err
			}
		}
		b := builder{Dialect: a.Dialect}
		at := b.time(now)
		// Messages for what had ended long before have all come, and its tombstone may go sooner.
		old, soon := b.time(now.Add(-history.TombstoneTTL)), b.time(now.Add(shortTombstoneTTL-history.TombstoneTTL))
		// (coalesce tells the database the type of the parameter)
		age := fmt.Sprintf("CASE WHEN ended_at < %s AND updated_at < %s THEN coalesce(%s, updated_at) ELSE %s END", old,
			old, soon, at)
		_, err := db.Exec(ctx, "UPDATE rondo_instances SET status = '"+Deleting+`', incarnation = '', execution = 0, last_event = -1,
			name = '', version = '', engine = 0, fresh = false,
			parent_instance = NULL, parent_incarnation = NULL, parent_execution = NULL, parent_event = NULL, attributes = NULL, trace = NULL,
			output = NULL, error = NULL, custom_status = NULL, custom_status_version = 0, history_bytes = 0, unread = 0,
			wake_at = NULL, ended_at = NULL, created_at = `+age+", updated_at = "+at+" WHERE "+b.pairs("", memberIDs(part)), b.args...)
		if err != nil {
			return err
		}
	}
	return nil
}

func memberIDs(members []member) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.instance
	}
	return ids
}

// DropAttributes removes the attributes of an instance.
func (d Dialect) DropAttributes(ctx context.Context, db DB, instance string, created time.Time,
	attributes []byte) error {
	var parsed map[string]string
	if json.Unmarshal(attributes, &parsed) != nil || len(parsed) == 0 {
		return nil // what cannot be read cannot be found by it: the rows stay, and point to nobody
	}
	b := builder{Dialect: d}
	names, values := AttributePairs(parsed)
	pairs := make([]string, len(names))
	for i := range names {
		pairs[i] = "(" + b.text(names[i]) + ", " + b.text(values[i]) + ")"
	}
	_, err := db.Exec(ctx,
		fmt.Sprintf("DELETE FROM rondo_attributes WHERE (name, value) IN (VALUES %s) AND shard = %d AND created_at "+
			"= %s AND instance = %s",
			strings.Join(pairs, ", "), d.Shard(instance), b.time(created), b.arg(instance)), b.args...)
	return err
}

// erase removes what deleted instances have left behind, in transactions of bounded size, and
// counts it.
func (a *Admin) erase(ctx context.Context, gone []member) (deleted history.DeleteResult, err error) {
	for len(gone) > 0 {
		// Small ones go together, a large one alone.
		n, events := 0, int64(0)
		for n < len(gone) && n < eraseInstances && (n == 0 || events+gone[n].events <= eraseEvents) {
			events += gone[n].events
			n++
		}
		part, err := a.eraseTogether(ctx, memberIDs(gone[:n]))
		deleted.Add(part)
		if err != nil {
			return deleted, err
		}
		gone = gone[n:]
	}
	return deleted, nil
}

// eraseTogether erases tombstones, some after the other.
func (a *Admin) eraseTogether(ctx context.Context, instances []string) (deleted history.DeleteResult, err error) {
	for more := true; more && err == nil; {
		var step history.DeleteResult
		step, more, err = a.eraseStep(ctx, instances)
		deleted.Add(step)
	}
	return deleted, err
}

// eraseStep does one transaction's worth.
func (a *Admin) eraseStep(ctx context.Context, instances []string) (step history.DeleteResult, more bool, err error) {
	err = a.Write(ctx, "erase deleted instances", func(db DB) error {
		var err error
		step, more, err = a.eraseSome(ctx, db, instances)
		return err
	})
	if err != nil {
		return history.DeleteResult{}, false, err
	}
	return step, more, nil
}

func (a *Admin) eraseSome(ctx context.Context, db DB, instances []string) (step history.DeleteResult,
	more bool, err error) {
	// Only what is a tombstone, and stays the same tombstone until the end: one that somebody else
	// has erased may live again, and may be deleted again.
	tombstones, err := a.lock(ctx, db, instances, isStatus(Deleting), a.Lock)
	if err != nil || len(tombstones) == 0 {
		return step, false, err
	}
	count := func(into *int64, statement string, args []any) {
		if err == nil {
			*into, err = db.Exec(ctx, statement, args...)
		}
	}
	one, all := builder{Dialect: a.Dialect}, builder{Dialect: a.Dialect}
	each := make([]string, len(tombstones))
	for i, id := range tombstones {
		each[i] = fmt.Sprintf("shard = %d AND instance = %s", a.Shard(id), one.arg(id))
	}
	rows, err := removeEvents(ctx, db, &step, "shard, instance, execution, event", each, one.args)
	if err != nil || rows == eraseRows {
		return step, true, err
	}
	count(&step.Executions, limited("rondo_executions", "shard, instance, execution", each, eraseExecutions), one.args)
	if err != nil || step.Executions == eraseExecutions {
		return step, true, err
	}
	where := all.pairs("", tombstones)
	count(&step.Values, "DELETE FROM rondo_values WHERE "+where, all.args)
	count(&step.Instances, "UPDATE rondo_instances SET status = '"+Deleted+"', last_event = 0 WHERE "+where, all.args)
	step.Executions += step.Instances // the current ones
	return step, false, err
}

// removeEvents deletes as many rows of history as one transaction may. It counts their events, and
// gives the number of rows.
func removeEvents(ctx context.Context, db DB, step *history.DeleteResult, key string, conditions []string,
	args []any) (rows int, err error) {
	err = db.Query(ctx, func(r Row) error {
		var n int64
		err := r.Scan(&n)
		step.Events += n
		rows++
		return err
	}, limited("rondo_history", key, conditions, eraseRows)+" RETURNING last_event - event + 1", args...)
	return rows, err
}

// limited deletes the first rows of a table that fit one condition after the other. Asked for all
// together, in order, a database may read the whole table in that order.
func limited(table, key string, conditions []string, limit int) string {
	parts := make([]string, len(conditions))
	for i, where := range conditions {
		parts[i] = fmt.Sprintf("SELECT * FROM (SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %d) b%d", key, table, where,
			key, limit, i)
	}
	return fmt.Sprintf("DELETE FROM %s WHERE (%s) IN (SELECT %s FROM (%s) k LIMIT %d)", table, key, key,
		strings.Join(parts, "\nUNION ALL "), limit)
}

// DeleteEnded implements [history.Remover].
func (a *Admin) DeleteEnded(ctx context.Context, f history.Filter,
	p history.Page) (page history.DeleteResultPage, err error) {
	if err := f.Check(); err != nil {
		return page, err
	}
	if len(f.Statuses) == 0 {
		f.Statuses = round.Statuses()
	}
	f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s round.Status) bool { return !s.Ended() })
	if len(f.Statuses) == 0 {
		return page, nil // only such as have not ended are meant, and those stay
	}
	list, err := a.List(ctx, f, p)
	if err != nil {
		return page, err
	}
	page.Next = list.Next
	left := make(map[string]bool) // what fits the filter and was left alone so far
	for part := range slices.Chunk(list.Instances, eraseInstances) {
		var gone []member
		var stay []string
		err := a.Write(ctx, "delete ended instances", func(db DB) error {
			ids := make([]string, len(part))
			for i, info := range part {
				ids[i] = info.Instance
			}
			family, err := a.lockedFamily(ctx, db, ids)
			if err != nil || len(family) == 0 && len(gone) > 0 {
				return err
			}
			if gone, stay, err = a.ended(ctx, db, part, family, f); err != nil {
				return err
			}
			return a.leaveTombstones(ctx, db, gone)
		})
		if err != nil {
			return page, err
		}
		for _, id := range stay {
			left[id] = true
		}
		for _, m := range gone {
			delete(left, m.instance) // a child that was to stay as long as its parent
		}
		page.Skipped = int64(len(left))
		deleted, err := a.erase(ctx, gone)
		page.Add(deleted)
		if err != nil {
			return page, err
		}
	}
	return page, nil
}

// ended picks the instances of a list that may go with all their descendants: they are nobody's
// children, and none of them is running or ended too late. The others stay.
func (a *Admin) ended(ctx context.Context, db DB, list []history.Info, family []member,
	f history.Filter) (picked []member, stay []string, err error) {
	children := make(map[string][]member)
	byID := make(map[string]member)
	for _, m := range family {
		byID[m.instance] = m
		children[m.parent] = append(children[m.parent], m)
	}
	may := func(m member) bool {
		return m.status.Ended() && (f.EndedBefore.IsZero() || m.ended.Before(f.EndedBefore))
	}
	for _, info := range list {
		root, ok := byID[info.Instance]
		if !ok || !root.created.Equal(info.CreatedAt) {
			continue // somebody else has deleted it, or begun it anew
		}
		owned, err := a.hasParent(ctx, db, root, byID)
		if err != nil {
			return nil, nil, err
		}
		whole := []member{root}
		seen := map[string]bool{root.instance: true}
		all := !owned && may(root)
		for i := 0; i < len(whole) && all; i++ {
			for _, m := range children[whole[i].instance] {
				if !seen[m.instance] {
					seen[m.instance] = true
					all = all && may(m)
					whole = append(whole, m)
				}
			}
		}
		if all {
			picked = append(picked, whole...)
		} else {
			stay = append(stay, root.instance)
		}
	}
	slices.SortStableFunc(picked, func(x, y member) int { return strings.Compare(x.instance, y.instance) })
	picked = slices.CompactFunc(picked, func(x, y member) bool { return x.instance == y.instance })
	return picked, slices.DeleteFunc(stay, func(id string) bool {
		return slices.ContainsFunc(picked, func(m member) bool { return m.instance == id })
	}), nil
}

// hasParent reports whether an instance is the child of one that is there.
func (a *Admin) hasParent(ctx context.Context, db DB, m member, family map[string]member) (bool, error) {
	if m.parent == "" {
		return false, nil
	}
	if _, ok := family[m.parent]; ok {
		return true, nil
	}
	_, err := a.find(ctx, db, m.parent)
	if errors.Is(err, history.ErrNoInstance) {
		return false, nil
	}
	return err == nil, err
}

// Prune implements [history.Remover].
func (a *Admin) Prune(ctx context.Context, instance string,
	keep history.Keep) (deleted history.DeleteResult, err error) {
	for more := true; more; {
		var step history.DeleteResult
		err := a.Write(ctx, "prune executions", func(db DB) error {
			var err error
			step, more, err = a.pruneSome(ctx, db, instance, keep)
			return err
		})
		if err != nil {
			return deleted, err
		}
		deleted.Add(step)
	}
	return deleted, nil
}

// pruneSome removes a bounded part of what is to be pruned. It marks executions before it removes
// their histories, and their rows go last: so nobody reads half a history, and an interrupted
// pruning is taken up by the next. What it removes belongs to a row of a former execution as of
// that very statement, so it can never be the current one's, not even after the instance was
// deleted and began again.
func (a *Admin) pruneSome(ctx context.Context, db DB, instance string, keep history.Keep) (step history.DeleteResult,
	more bool, err error) {
	if _, err := a.find(ctx, db, instance); err != nil {
		return step, false, err
	}
	b := builder{Dialect: a.Dialect}
	mine := "shard = " + b.arg(a.Shard(instance)) + " AND instance = " + b.arg(instance)
	old := mine + " AND " + Alive
	if keep.Last > 1 {
		old += fmt.Sprintf(" AND execution <= (SELECT execution FROM rondo_instances WHERE %s) - %d", mine, keep.Last)
	}
	args := b.args
	if !keep.EndedBefore.IsZero() {
		old += " AND ended_at < " + b.time(keep.EndedBefore)
	}
	const key = "shard, instance, execution"
	marked, err := db.Exec(ctx, fmt.Sprintf("UPDATE rondo_executions SET status = '%s' WHERE (%s) IN "+
		"(SELECT %s FROM rondo_executions WHERE %s ORDER BY %s LIMIT %d)", Deleting, key, key, old, key,
		eraseExecutions), b.args...)
	if err != nil {
		return step, false, err
	}
	marks := mine + " AND status = '" + Deleting + "'"
	rows, err := removeEvents(ctx, db, &step, key+", event",
		[]string{mine + " AND execution IN (SELECT execution FROM rondo_executions WHERE " + marks + ")"}, args)
	if err != nil || rows == eraseRows {
		return step, true, err
	}
	step.Executions, err = db.Exec(ctx, "DELETE FROM rondo_executions WHERE "+marks, args...)
	return step, marked == eraseExecutions, err
}

// PruneAll implements [history.Remover].
func (a *Admin) PruneAll(ctx context.Context, f history.Filter, keep history.Keep,
	p history.Page) (page history.DeleteResultPage, err error) {
	list, err := a.List(ctx, f, p)
	if err != nil {
		return page, err
	}
	page.Next = list.Next
	for _, i := range list.Instances {
		deleted, err := a.Prune(ctx, i.Instance, keep)
		page.Add(deleted)
		switch {
		case errors.Is(err, history.ErrNoInstance): // it was deleted meanwhile
		case err != nil:
			return page, err
		case deleted.Executions > 0:
			page.Instances++
		}
	}
	return page, nil
}

// Tidy implements [history.Remover].
func (a *Admin) Tidy(ctx context.Context) (more bool, err error) {
	var unfinished []string
	err = a.Read(ctx, "look for tombstones", func(db DB) error {
		unfinished = nil
		return db.Query(ctx, func(r Row) error {
			var id string
			err := r.Scan(&id)
			unfinished = append(unfinished, id)
			return err
		}, a.shardwise("SELECT i.instance FROM rondo_instances i WHERE i.status = '"+Deleting+"'", eraseInstances))
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
	b := builder{Dialect: a.Dialect}
	old := a.shardwise("SELECT i.instance FROM rondo_instances i WHERE i.status = '"+Deleted+"' AND i.created_at < "+
		b.time(a.Now().Add(-history.TombstoneTTL)), lockInstances)
	var tombstones []string
	err = a.Read(ctx, "look for old tombstones", func(db DB) error {
		tombstones = nil
		return db.Query(ctx, func(r Row) error {
			var id string
			err := r.Scan(&id)
			tombstones = append(tombstones, id)
			return err
		}, old, b.args...)
	})
	if err != nil || len(tombstones) == 0 {
		return 0, err
	}
	err = a.Write(ctx, "remove old tombstones", func(db DB) error {
		removed = 0
		locked, err := a.lock(ctx, db, tombstones, isStatus(Deleted), a.Lock)
		if err != nil || len(locked) == 0 {
			return err
		}
		b := builder{Dialect: a.Dialect}
		removed, err = db.Exec(ctx, "DELETE FROM rondo_instances WHERE "+b.pairs("",
			locked)+" AND created_at < "+b.time(a.Now().Add(-history.TombstoneTTL)), b.args...)
		return err
	})
	return removed, err
}

// shardwise asks each shard in turn, so that the index is used, for no more than a limit.
func (d Dialect) shardwise(statement string, limit int) string {
	parts := make([]string, d.Shards)
	for shard := range parts {
		parts[shard] = fmt.Sprintf("SELECT * FROM (%s AND i.shard = %d ORDER BY i.created_at LIMIT %d) b%d", statement,
			shard, limit, shard)
	}
	return "SELECT * FROM (" + strings.Join(parts, "\nUNION ALL ") + fmt.Sprintf(") b LIMIT %d", limit)
}
