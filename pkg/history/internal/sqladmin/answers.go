package sqladmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

const insertEntry = "INSERT INTO rondo_outbox (shard, id, messages) VALUES ($1, $2, $3)"

// answerParents stores the answers of children that are deleted without their parents. Otherwise
// such a parent waits for ever, or until the tombstone is gone and it starts the child once more.
func (d dialect) answerParents(ctx context.Context, db sqlrow.DB, family []member, prefix string,
	entry func() history.OutboxKey) error {
	together := make(map[string]bool, len(family))
	for _, m := range family {
		together[m.instance] = true
	}
	var answers []events.Wire
	for _, m := range family {
		if m.parent == "" || together[m.parent] {
			continue
		}
		answer, waits, err := d.answer(ctx, db, m)
		if err != nil {
			return err
		}
		if waits {
			w, err := events.Encode(cmp.Or(prefix, events.DefaultPrefix), answer)
			if err != nil {
				return fmt.Errorf("the answer of instance %q to its parent: %w", m.instance, err)
			}
			answers = append(answers, w)
		}
	}
	for _, messages := range sqlrow.Pack(answers) {
		k := entry()
		if _, err := db.Exec(ctx, insertEntry, k.Shard, k.ID, messages); err != nil {
			return err
		}
	}
	return nil
}

// answer is what a child says to its parent when it is deleted. It returns false if the parent does
// not wait for it.
func (d dialect) answer(ctx context.Context, db sqlrow.DB, m member) (answer events.Message, waits bool, err error) {
	parent, err := d.find(ctx, db, m.parent)
	if errors.Is(err, history.ErrNoInstance) {
		return answer, false, nil
	}
	if err != nil {
		return answer, false, err
	}
	child, err := d.find(ctx, db, m.instance)
	if err != nil {
		return answer, false, err
	}
	row, err := child.Row()
	if row.Parent == nil || row.Parent.Incarnation != parent.Incarnation || round.Status(parent.Status).Ended() {
		return answer, false, nil
	}
	if err != nil { // its outcome cannot be read: then it has none
		row.Status = round.Running
	}
	return round.AnswerOfDeleted(m.instance, row), true, nil
}
