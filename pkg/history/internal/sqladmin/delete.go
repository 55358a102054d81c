package sqladmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

// Delete implements [history.Remover].
func (a *Admin) Delete(ctx context.Context, instances []string,
	how history.Deletion) (deleted history.DeleteResult, err error) {
	defer a.observer.Begin("delete").End(&err)
	instances = slices.Compact(slices.Sorted(slices.Values(instances)))
	if len(instances) == 0 {
		return deleted, nil
	}
	var gone []member
	err = a.Write(ctx, "delete instances", func(db sqlrow.DB) error {
		family, err := a.lockedFamily(ctx, db, instances)
		if err != nil || len(gone) > 0 && !anySame(family, gone) {
			return err // the try before has deleted them, only its answer was lost; newer instances have begun since
		}
		if err := a.mayDelete(ctx, db, instances, family, how); err != nil {
			return err
		}
		if err := a.answerParents(ctx, db, family, how.Prefix, a.entry); err != nil {
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

// mayDelete returns the reason, as an error, why a family must not be deleted; nil if it may be.
func (d dialect) mayDelete(ctx context.Context, db sqlrow.DB, instances []string, family []member,
	how history.Deletion) error {
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
		_, err := d.find(ctx, db, m.parent)
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

// DeleteEnded implements [history.Remover].
func (a *Admin) DeleteEnded(ctx context.Context, f history.Filter,
	p history.Page) (page history.DeleteResultPage, err error) {
	defer a.observer.Begin("delete_ended").End(&err)
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
	list, err := a.list(ctx, f, p)
	if err != nil {
		return page, err
	}
	page.Next = list.Next
	left := make(map[string]bool) // instances that fit the filter and were skipped so far
	for part := range slices.Chunk(list.Instances, eraseInstances) {
		var gone []member
		var stay []string
		err := a.Write(ctx, "delete ended instances", func(db sqlrow.DB) error {
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

// ended picks the instances of a list that may go with all their descendants: they have no parent,
// and none of them is running or ended too late. The others stay.
func (a *Admin) ended(ctx context.Context, db sqlrow.DB, list []history.Info, family []member,
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
			continue // another process has deleted it, or begun it anew
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
