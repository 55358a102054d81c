package cockroach

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

// loader reads instances.
type loader struct {
	db                       *database
	selectRows, selectEvents string
}

// Load implements [history.Rounds].
func (l *loader) Load(ctx context.Context, instances []string,
	admit func(string, round.Row) bool) (known []round.Known, err error) {
	defer l.db.observer.Begin("load").End(&err)
	err = retry(ctx, func() error {
		known, err = l.load(ctx, instances, admit)
		return fail("load", class(err, noCommit), err)
	})
	return known, err
}

func (l *loader) load(ctx context.Context, instances []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	known := make([]round.Known, len(instances))
	for i, id := range instances {
		known[i].Instance = id
	}
	// An instance that is deleted or goes on to the next execution between the two reads is read
	// again. One that stands where it stood, and whose history is still not there, is unreadable:
	// no execution comes back once it was left.
	unread := make([]int, len(instances))
	for i := range unread {
		unread[i] = i
	}
	missed := make(map[int]*sqlrow.InstanceRow)
	for len(unread) > 0 {
		var again []int
		ids := array(unread, func(i int) string { return instances[i] })
		found, err := l.rows(ctx, ids)
		if err != nil {
			return nil, err
		}
		histories, err := l.histories(ctx, found, admit)
		if err != nil {
			return nil, err
		}
		for _, i := range unread {
			c := found[instances[i]]
			if c == nil || c.Tombstone() {
				known[i] = round.Known{Instance: instances[i]}
				continue
			}
			rows, admitted := histories[c.Instance]
			if admitted && !sqlrow.Covered(rows, 0, c.LastEvent) {
				if before := missed[i]; before == nil || before.Incarnation != c.Incarnation ||
					before.Execution != c.Execution {
					missed[i], again = c, append(again, i)
					continue
				}
			}
			known[i] = sqlrow.Loaded(c, rows, admitted)
		}
		unread = again
	}
	return known, nil
}

// rows reads the rows of instances, tombstones too.
func (l *loader) rows(ctx context.Context, instances []string) (map[string]*sqlrow.InstanceRow, error) {
	return l.rowsWith(ctx, l.db.pool, instances)
}

func (l *loader) rowsWith(ctx context.Context, q querier,
	instances []string) (map[string]*sqlrow.InstanceRow, error) {
	found := make(map[string]*sqlrow.InstanceRow, len(instances))
	rows, err := q.Query(ctx, l.selectRows, array(instances, history.ShardOf), array(instances, sqlrow.Key))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		c := new(sqlrow.InstanceRow)
		if err := rows.Scan(sqlrow.Instances.Targets(c)...); err != nil {
			return nil, err
		}
		found[c.Instance] = c
	}
	return found, rows.Err()
}

// histories reads the histories of the instances that are admitted, as far as their rows know them.
// An instance without an entry was not admitted.
func (l *loader) histories(ctx context.Context, found map[string]*sqlrow.InstanceRow,
	admit func(string, round.Row) bool) (map[string][]sqlrow.EventRow, error) {
	var list []*sqlrow.InstanceRow
	out := make(map[string][]sqlrow.EventRow)
	for _, c := range found {
		if c.Tombstone() {
			continue
		}
		row, _ := c.Row()
		if admit == nil || admit(c.Instance, row) {
			list = append(list, c)
			out[c.Instance] = nil
		}
	}
	if len(list) == 0 {
		return out, nil
	}
	places := make([]int64, len(list))
	for i := range places {
		places[i] = int64(i)
	}
	rows, err := l.db.pool.Query(ctx, l.selectEvents, places,
		array(list, func(c *sqlrow.InstanceRow) int16 {
			return c.Shard
		}), array(list, func(c *sqlrow.InstanceRow) string { return c.Instance }),
		array(list, func(c *sqlrow.InstanceRow) int64 {
			return c.Execution
		}), array(list, func(c *sqlrow.InstanceRow) int64 { return c.LastEvent }),
		array(list, func(c *sqlrow.InstanceRow) string { return c.Incarnation }))
	if err != nil {
		return nil, err
	}
	var (
		place int64
		e     sqlrow.HistoryRow
	)
	_, err = pgx.ForEachRow(rows, append([]any{&place}, sqlrow.EventColumns.Targets(&e)...), func() error {
		if place < 0 || place >= int64(len(list)) {
			return fmt.Errorf("a history that was not asked for")
		}
		id := list[place].Instance
		out[id] = append(out[id], e.EventRow)
		e.Data = nil
		return nil
	})
	// CockroachDB ignores the ORDER BY of a subquery that has no LIMIT
	// (https://github.com/cockroachdb/cockroach/issues/57163).
	for _, rows := range out {
		slices.SortFunc(rows, func(a, b sqlrow.EventRow) int { return cmp.Compare(a.Event, b.Event) })
	}
	return out, err
}
