package sqladmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

// member is an instance that is to be deleted, as far as that needs to know it.
type member struct {
	instance, parent, name string
	status                 round.Status
	created, ended         time.Time
	events                 int64
	attributes             []byte
	depth                  int
}

var memberColumns = sqlrow.Instances.Only("instance", "parent_instance", "name", "status", "created_at", "ended_at",
	"last_event", "attributes")

var memberNames = memberColumns.Of("i")

func scanMember(r sqlrow.Row) (member, error) {
	var c sqlrow.InstanceRow
	err := r.Scan(memberColumns.Targets(&c)...)
	m := member{
		instance: c.Instance, parent: c.Parent.Instance.String, name: c.Name, status: round.Status(c.Status),
		created: c.CreatedAt.Time, ended: c.EndedAt.Time, events: c.LastEvent, attributes: c.Attributes,
	}
	return m, err
}

func memberIDs(members []member) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.instance
	}
	return ids
}

// members reads the rows that a condition finds.
func (d dialect) members(ctx context.Context, db sqlrow.DB, b *builder, where string) ([]member, error) {
	statement := "SELECT " + memberNames + " FROM rondo_instances i WHERE " + where + " AND i." + sqlrow.Alive +
		" ORDER BY i.shard, i.instance"
	var out []member
	err := db.Query(ctx, func(r sqlrow.Row) error {
		m, err := scanMember(r)
		out = append(out, m)
		return err
	}, statement, b.Args...)
	return out, err
}

// lock locks the rows of instances that a condition holds for, in the order of their keys, and
// returns these instances. Every transaction that locks several rows does it in that order, so that
// no two deadlock. clause is how: d.Lock waits.
func (d dialect) lock(ctx context.Context, db sqlrow.DB, instances []string, condition,
	clause string) (locked []string, err error) {
	instances = slices.Clone(instances)
	slices.SortFunc(instances, func(a, b string) int {
		return cmp.Or(cmp.Compare(d.Shard(a), d.Shard(b)), cmp.Compare(a, b))
	})
	for part := range slices.Chunk(instances, lockInstances) {
		b := d.builder()
		err := db.Query(ctx, func(r sqlrow.Row) error {
			var id string
			err := r.Scan(&id)
			locked = append(locked, id)
			return err
		}, "SELECT i.instance FROM rondo_instances i WHERE "+b.pairs("i",
			part)+" AND "+condition+" ORDER BY i.shard, i.instance"+clause, b.Args...)
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
// cannot get another member, because a turn that starts a child locks the parent.
func (d dialect) lockedFamily(ctx context.Context, db sqlrow.DB, instances []string) ([]member, error) {
	locked := make(map[string]bool)
	clause := d.Lock
	for {
		all, err := d.family(ctx, db, instances)
		if err != nil || d.Lock == "" {
			return all, err
		}
		// Children that were born between the reading and the locking come in another round. They
		// are not in order, so the transaction does not wait for their locks: if another one holds
		// a lock, everything begins again.
		more := slices.DeleteFunc(memberIDs(all), func(id string) bool { return locked[id] })
		if len(more) == 0 {
			return all, nil
		}
		more, err = d.lock(ctx, db, more, "i."+sqlrow.Alive, clause)
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
func (d dialect) family(ctx context.Context, db sqlrow.DB, instances []string) ([]member, error) {
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
		b := d.builder()
		found, err := d.members(ctx, db, b, b.pairs("i", part))
		if err != nil {
			return nil, err
		}
		generation = append(generation, add(0, found)...)
	}
	for depth := 1; len(generation) > 0; depth++ {
		var children []string
		for part := range slices.Chunk(generation, lockInstances) {
			b := d.builder()
			found, err := d.members(ctx, db, b, b.in("i.parent_instance", part))
			if err != nil {
				return nil, err
			}
			children = append(children, add(depth, found)...)
		}
		generation = children
	}
	return all, nil
}

// hasParent reports whether an instance is the child of one that is there.
func (d dialect) hasParent(ctx context.Context, db sqlrow.DB, m member, family map[string]member) (bool, error) {
	if m.parent == "" {
		return false, nil
	}
	if _, ok := family[m.parent]; ok {
		return true, nil
	}
	_, err := d.find(ctx, db, m.parent)
	if errors.Is(err, history.ErrNoInstance) {
		return false, nil
	}
	return err == nil, err
}

// Family implements [history.Families].
func (a *Admin) Family(ctx context.Context, instances []string, how history.Deletion) (nodes []history.Node,
	err error) {
	defer a.observer.Begin("family").End(&err)
	instances = slices.Compact(slices.Sorted(slices.Values(instances)))
	err = a.Read(ctx, "read what a deletion would remove", func(db sqlrow.DB) error {
		family, err := a.family(ctx, db, instances)
		if err != nil {
			return err
		}
		nodes = nodesOf(family)
		return a.mayDelete(ctx, db, instances, family, how)
	})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

func nodesOf(family []member) []history.Node {
	nodes := make([]history.Node, 0, len(family))
	for _, m := range family {
		nodes = append(nodes, history.Node{Instance: m.instance, Parent: m.parent, Name: m.name, Status: m.status,
			Depth: m.depth})
	}
	return nodes
}

// Tree implements [history.Reader].
func (a *Admin) Tree(ctx context.Context, instance string) (tree []history.Node, err error) {
	defer a.observer.Begin("tree").End(&err)
	err = a.Read(ctx, "read a tree", func(db sqlrow.DB) error {
		family, err := a.family(ctx, db, []string{instance})
		if err == nil && len(family) == 0 {
			err = fmt.Errorf("instance %q: %w", instance, history.ErrNoInstance)
		}
		tree = nodesOf(family)
		return err
	})
	return tree, err
}
