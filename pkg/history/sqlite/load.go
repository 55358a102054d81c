package sqlite

import (
	"context"
	"math/bits"
	"strings"

	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

// loader reads instances.
type loader struct{ db *database }

// Load implements [history.Rounds]. admit must not call the store.
func (l *loader) Load(ctx context.Context, instances []string,
	admit func(string, round.Row) bool) (known []round.Known, err error) {
	defer l.db.observer.Begin("load").End(&err)
	err = l.db.read(ctx, "load", func(r *session) error {
		known, err = load(ctx, r, instances, admit)
		return err
	})
	return known, err
}

// The columns and the statement of a load.
var (
	instanceNames = sqlrow.Instances.String()
	selectHistory = "SELECT " + sqlrow.EventColumns.String() + " FROM rondo_history WHERE shard = 0 AND " +
		"instance = ? AND execution = ? AND event <= ? ORDER BY event"
)

func load(ctx context.Context, r *session, instances []string,
	admit func(string, round.Row) bool) ([]round.Known, error) {
	found := make(map[string]*sqlrow.InstanceRow, len(instances))
	err := selectInstances(ctx, r, instanceNames, instances, func(row sqlrow.Row) error {
		c := new(sqlrow.InstanceRow)
		err := row.Scan(sqlrow.Instances.Targets(c)...)
		found[c.Instance] = c
		return err
	})
	if err != nil {
		return nil, err
	}
	known := make([]round.Known, len(instances))
	for i, id := range instances {
		c := found[id]
		if c == nil || c.Tombstone() {
			known[i].Instance = id
			continue
		}
		row, _ := c.Row()
		if admit != nil && !admit(id, row) {
			known[i] = sqlrow.Loaded(c, nil, false)
			continue
		}
		rows, err := historyOf(ctx, r, c)
		if err != nil {
			return nil, err
		}
		known[i] = sqlrow.Loaded(c, rows, true)
	}
	return known, nil
}

// historyOf reads the history of the current execution, as far as the row knows it.
func historyOf(ctx context.Context, r *session, c *sqlrow.InstanceRow) ([]sqlrow.EventRow, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rows := make([]sqlrow.EventRow, 0, max(0, min(c.LastEvent, 10_000)))
	var e sqlrow.HistoryRow
	into := sqlrow.EventColumns.Targets(&e)
	err := r.query(context.WithoutCancel(ctx), func(row sqlrow.Row) error {
		e.Data = nil
		err := row.Scan(into...)
		rows = append(rows, e.EventRow)
		return err
	}, selectHistory, c.Instance, c.Execution, c.LastEvent)
	return rows, err
}

// maxSelected is the number of instances that are read with one statement.
const maxSelected = 256

// selectInstances reads columns of the rows of instances, in any order.
func selectInstances(ctx context.Context, s *session, columns string, instances []string,
	scan func(sqlrow.Row) error) error {
	for len(instances) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(instances), maxSelected)
		// The list is filled up to a power of two with NULLs, which find nothing, so that few
		// different statements are needed.
		args := make([]any, 1<<bits.Len(uint(n-1)))
		for i, id := range instances[:n] {
			args[i] = id
		}
		instances = instances[n:]
		statement := "SELECT " + columns + " FROM rondo_instances WHERE shard = 0 AND instance IN (?" +
			strings.Repeat(", ?", len(args)-1) + ")"
		if err := s.query(context.WithoutCancel(ctx), scan, statement, args...); err != nil {
			return err
		}
	}
	return nil
}
