package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// remover implements [history.Remover] and [history.Families].
type remover struct{ *session }

// Delete implements [history.Remover].
func (s remover) Delete(ctx context.Context, ids []string, how history.Deletion) (history.DeleteResult, error) {
	return call(ctx, s.session, "delete", func() (deleted history.DeleteResult, err error) {
		ids = slices.Compact(slices.Sorted(slices.Values(ids)))
		family := s.family(ids)
		if err := s.mayDelete(ids, family, how); err != nil {
			return deleted, err
		}
		answers, err := s.answers(family, cmp.Or(how.Prefix, events.DefaultPrefix))
		if err != nil {
			return deleted, err
		}
		s.addToOutbox(answers)
		return s.leaveTombstones(family), nil
	})
}

// mayDelete returns the reasons why a family must not be deleted.
func (t *tables) mayDelete(ids []string, family []history.Node, how history.Deletion) error {
	var bad []error
	for _, id := range ids {
		in, err := t.find(id)
		if err != nil {
			bad = append(bad, err)
		} else if p := in.parent(); !how.Children && t.instances[p].exists() && !has(family, p) {
			bad = append(bad, fmt.Errorf("instance %q is the child of %q: %w", id, p, history.ErrHasParent))
		}
	}
	for _, m := range family {
		if how.Alone && !slices.Contains(ids, m.Instance) {
			bad = append(bad, fmt.Errorf("instance %q has the child %q: %w", m.Parent, m.Instance,
				history.ErrHasChildren))
		} else if !how.Force && !m.Status.Ended() {
			bad = append(bad, fmt.Errorf("instance %q is %s: %w", m.Instance, m.Status, history.ErrRunning))
		}
	}
	return errors.Join(bad[:min(len(bad), 10)]...)
}

func has(family []history.Node, id string) bool {
	return slices.ContainsFunc(family, func(m history.Node) bool { return m.Instance == id })
}

// answers are those of children to parents that stay and wait for them.
func (t *tables) answers(family []history.Node, prefix string) (answers []events.Wire, err error) {
	for _, m := range family {
		row, parent := t.instances[m.Instance].row, t.instances[m.Parent]
		if has(family, m.Parent) || !parent.exists() || parent.row.Status.Ended() ||
			parent.row.Incarnation != row.Parent.Incarnation {
			continue
		}
		w, err := events.Encode(prefix, round.AnswerOfDeleted(m.Instance, row))
		if err != nil {
			return nil, err
		}
		answers = append(answers, w)
	}
	return answers, nil
}

// shortTTL is how long the tombstone of an instance stays that ended long ago.
const shortTTL = time.Hour

// leaveTombstones makes tombstones of instances. A tombstone remembers the start of its instance,
// and when it was made.
func (s *session) leaveTombstones(family []history.Node) (deleted history.DeleteResult) {
	now := s.now()
	for _, m := range family {
		in := s.instances[m.Instance]
		deleted.Add(history.DeleteResult{Instances: 1, Executions: int64(len(in.former)) + 1,
			Values: int64(len(in.values))})
		for _, list := range in.events {
			deleted.Events += int64(len(list))
		}
		made, old := now, now.Add(-history.TombstoneTTL)
		if in.row.Status.Ended() && in.row.EndedAt.Before(old) && in.row.UpdatedAt.Before(old) {
			made = old.Add(shortTTL)
		}
		s.instances[m.Instance] = &instance{row: round.Row{StartMessage: in.row.StartMessage}, created: made}
	}
	return deleted
}

// DeleteEnded implements [history.Remover].
func (s remover) DeleteEnded(ctx context.Context, f history.Filter,
	p history.Page) (history.DeleteResultPage, error) {
	return call(ctx, s.session, "delete_ended", func() (result history.DeleteResultPage, err error) {
		if err := f.Check(); err != nil {
			return result, err
		}
		if len(f.Statuses) == 0 {
			f.Statuses = round.Statuses()
		}
		f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s round.Status) bool { return !s.Ended() })
		if len(f.Statuses) == 0 {
			return result, nil // only such as have not ended are meant, and those stay
		}
		list, err := s.list(f, p)
		if err != nil {
			return result, err
		}
		result.Next = list.Next
		late := func(m history.Node) bool {
			ended := s.instances[m.Instance].row.EndedAt
			return !m.Status.Ended() || !f.EndedBefore.IsZero() && !ended.Before(f.EndedBefore)
		}
		for _, info := range list.Instances {
			family := s.family([]string{info.Instance})
			if len(family) > 0 && !s.instances[family[0].Parent].exists() && !slices.ContainsFunc(family, late) {
				result.Add(s.leaveTombstones(family))
			}
		}
		for _, info := range list.Instances {
			if s.instances[info.Instance].exists() {
				result.Skipped++
			}
		}
		return result, nil
	})
}

// Prune implements [history.Remover].
func (s remover) Prune(ctx context.Context, id string, keep history.Keep) (history.DeleteResult, error) {
	return call(ctx, s.session, "prune", func() (history.DeleteResult, error) {
		in, err := s.find(id)
		if err != nil {
			return history.DeleteResult{}, err
		}
		return in.prune(keep), nil
	})
}

func (in *instance) prune(keep history.Keep) (pruned history.DeleteResult) {
	for x, row := range in.former {
		if x <= in.row.Execution-int64(max(keep.Last, 1)) &&
			(keep.EndedBefore.IsZero() || row.EndedAt.Before(keep.EndedBefore)) {
			pruned.Add(history.DeleteResult{Executions: 1, Events: int64(len(in.events[x]))})
			delete(in.former, x)
			delete(in.events, x)
		}
	}
	return pruned
}

// PruneAll implements [history.Remover].
func (s remover) PruneAll(ctx context.Context, f history.Filter, keep history.Keep,
	p history.Page) (history.DeleteResultPage, error) {
	return call(ctx, s.session, "prune_all", func() (result history.DeleteResultPage, err error) {
		list, err := s.list(f, p)
		result.Next = list.Next
		for _, info := range list.Instances {
			if pruned := s.instances[info.Instance].prune(keep); pruned.Executions > 0 {
				pruned.Instances = 1
				result.Add(pruned)
			}
		}
		return result, err
	})
}

// Tidy implements [history.Remover].
func (s remover) Tidy(ctx context.Context) (bool, error) {
	return call(ctx, s.session, "tidy", func() (more bool, err error) {
		old := s.now().Add(-history.TombstoneTTL)
		for id, in := range s.instances {
			if !in.exists() && in.created.Before(old) {
				delete(s.instances, id)
			}
		}
		return false, nil
	})
}

// Family implements [history.Families].
func (s remover) Family(ctx context.Context, ids []string, how history.Deletion) ([]history.Node, error) {
	return call(ctx, s.session, "family", func() ([]history.Node, error) {
		ids = slices.Compact(slices.Sorted(slices.Values(ids)))
		family := s.family(ids)
		if err := s.mayDelete(ids, family, how); err != nil {
			return nil, err
		}
		return family, nil
	})
}
