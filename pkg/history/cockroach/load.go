package cockroach

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
	"github.com/rondo-run/rondo/pkg/round"
)

// Load implements [history.Rounds].
func (s *Store) Load(ctx context.Context, instances []string,
	admit func(string, round.Row) bool) (known []round.Known, err error) {
	err = retry(ctx, func() error {
		known, err = s.load(ctx, instances, admit)
		return fail("load", class(err, false), err)
	})
	return known, err
}

func (s *Store) load(ctx context.Context, instances []string,
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
	missed := make(map[int]*relational.Columns)
	for len(unread) > 0 {
		var again []int
		ids := array(unread, func(i int) string { return instances[i] })
		found, err := s.rows(ctx, ids)
		if err != nil {
			return nil, err
		}
		histories, err := s.histories(ctx, found, admit)
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
			if admitted && !relational.Covered(rows, 0, c.LastEvent) {
				if before := missed[i]; before == nil || before.Incarnation != c.Incarnation ||
					before.Execution != c.Execution {
					missed[i], again = c, append(again, i)
					continue
				}
			}
			known[i] = relational.Loaded(c, rows, admitted)
		}
		unread = again
	}
	return known, nil
}

// rows reads the rows of instances, tombstones too.
func (s *Store) rows(ctx context.Context, instances []string) (map[string]*relational.Columns, error) {
	return s.rowsWith(ctx, s.pool, instances)
}

func (s *Store) rowsWith(ctx context.Context, q querier, instances []string) (map[string]*relational.Columns, error) {
	found := make(map[string]*relational.Columns, len(instances))
	rows, err := q.Query(ctx, s.statements.rows, array(instances, history.ShardOf), array(instances, relational.Key))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		c := new(relational.Columns)
		if err := rows.Scan(c.Targets()...); err != nil {
			return nil, err
		}
		found[c.Instance] = c
	}
	return found, rows.Err()
}

// histories reads the histories of the instances that are admitted, as far as their rows know them.
// An instance without an entry was not admitted.
func (s *Store) histories(ctx context.Context, found map[string]*relational.Columns,
	admit func(string, round.Row) bool) (map[string][]relational.EventRow, error) {
	var list []*relational.Columns
	out := make(map[string][]relational.EventRow)
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
	rows, err := s.pool.Query(ctx, s.statements.events, places,
		array(list, func(c *relational.Columns) int16 {
			return c.Shard
		}), array(list, func(c *relational.Columns) string { return c.Instance }),
		array(list, func(c *relational.Columns) int64 {
			return c.Execution
		}), array(list, func(c *relational.Columns) int64 { return c.LastEvent }),
		array(list, func(c *relational.Columns) string { return c.Incarnation }))
	if err != nil {
		return nil, err
	}
	var (
		place int64
		e     relational.EventRow
	)
	_, err = pgx.ForEachRow(rows, []any{&place, &e.Event, &e.Last, &e.Data}, func() error {
		if place < 0 || place >= int64(len(list)) {
			return fmt.Errorf("a history that was not asked for")
		}
		id := list[place].Instance
		out[id] = append(out[id], e)
		e.Data = nil
		return nil
	})
	return out, err
}
