package sqladmin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// cursor is where a page of a list ends.
type cursor struct {
	Created  *int64 `json:"c,omitempty"` // microseconds; none where the list is in the order of ids
	Instance string `json:"i"`
}

// cursorBehind is the cursor behind an instance of a list.
func cursorBehind(last history.Info, f history.Filter) cursor {
	c := cursor{Instance: last.Instance}
	if f.IDPrefix == "" {
		at := last.CreatedAt.UnixMicro()
		c.Created = &at
	}
	return c
}

func (c cursor) String() string {
	data, _ := json.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(data)
}

// parseCursor reads a cursor of a list with a filter; nil if there is none.
func parseCursor(s string, f history.Filter) (*cursor, error) {
	if s == "" {
		return nil, nil
	}
	var c cursor
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || events.CheckInstance(c.Instance) != nil || (c.Created == nil) != (f.IDPrefix != "") {
		return nil, fmt.Errorf("history: cursor %q: %w", s, history.ErrBadCursor)
	}
	return &c, nil
}

// page is the statement that gives the keys of a page of a list, and the order it is in.
func (b *builder) page(f history.Filter, from *cursor, limit int) (statement, order string) {
	led, branches := b.branches(f)
	if led == "status" && f.Name != "" {
		f.Name = "" // it leads, too
	}
	conditions := b.conditions(f, led)
	order = "created_at DESC, instance DESC"
	if led == "prefix" {
		order = "instance"
	}
	if from != nil {
		if led == "prefix" {
			conditions = append(conditions, "i.instance > "+b.Arg(from.Instance))
		} else {
			created, instance := b.TimeArg(time.UnixMicro(*from.Created)), b.Arg(from.Instance)
			conditions = append(conditions,
				fmt.Sprintf("(%s.created_at, %[1]s.instance) < (%s, %s)", keyOf(led), created, instance))
		}
	}
	key := keyOf(led)
	parts := make([]string, len(branches))
	for i, branch := range branches {
		where := strings.Join(append([]string{branch}, conditions...), " AND ")
		parts[i] = fmt.Sprintf(
			"SELECT * FROM (SELECT %s.shard, %[1]s.instance, %[1]s.created_at FROM %s WHERE %s "+
				"ORDER BY %s LIMIT %d) b%d",
			key, sources[key], where, key+"."+strings.ReplaceAll(order, ", ", ", "+key+"."), limit, i)
	}
	return strings.Join(parts, "\nUNION ALL ") + fmt.Sprintf("\nORDER BY %s LIMIT %d", order, limit), order
}

// usual reports whether a filter is one of the few that dashboards ask for again and again.
func usual(f history.Filter) bool {
	statuses := f.Statuses
	f.Statuses, f.Name = nil, ""
	return len(statuses) <= 1 && reflect.ValueOf(f).IsZero()
}

// listedNames are the columns that a list reads.
var listedNames = sqlrow.Instances.Of("i")

// List implements [history.Reader].
func (a *pages) List(ctx context.Context, f history.Filter, p history.Page) (list history.InstanceList, err error) {
	defer a.observer.Begin("list").End(&err)
	return a.list(ctx, f, p)
}

func (a *pages) list(ctx context.Context, f history.Filter, p history.Page) (history.InstanceList, error) {
	q, err := a.listing(f, p)
	if q == nil || err != nil {
		return history.InstanceList{}, err
	}
	var list history.InstanceList
	err = q.read(ctx, "list instances", func(db sqlrow.DB) error {
		list = history.InstanceList{}
		return db.Query(ctx, func(r sqlrow.Row) error {
			var c sqlrow.InstanceRow
			if err := r.Scan(sqlrow.Instances.Targets(&c)...); err != nil {
				return err
			}
			if !c.Tombstone() { // it may have become one between the two reads
				list.Instances = append(list.Instances, c.Info())
			}
			return nil
		}, q.columns(listedNames), q.args...)
	})
	if err != nil {
		return history.InstanceList{}, err
	}
	if limit := p.Size(); len(list.Instances) > limit {
		list.Instances = list.Instances[:limit]
		list.Next = cursorBehind(list.Instances[limit-1], f).String()
	}
	return list, nil
}

// listing is how a page of a list is read.
type listing struct {
	keys, order string
	args        []any
	read        func(ctx context.Context, op string, f func(sqlrow.DB) error) error
}

// listing returns nil if no instance fits the filter.
func (a *pages) listing(f history.Filter, p history.Page) (*listing, error) {
	from, err := parseCursor(p.Cursor, f)
	if err == nil {
		err = f.Check()
	}
	f, possible := normal(f)
	if err != nil || !possible {
		return nil, err
	}
	b, q := a.builder(), &listing{read: a.Read}
	q.keys, q.order = b.page(f, from, p.Size()+1)
	if q.args = b.Args; usual(f) && p.Size() == (history.Page{}).Size() {
		q.read = a.ReadOften // planning takes longer than reading
	}
	return q, nil
}

// columns is the statement that reads columns of the page.
func (q *listing) columns(names string) string {
	return "SELECT " + names + " FROM (" + q.keys +
		") k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance\nORDER BY i." +
		strings.ReplaceAll(q.order, ", ", ", i.")
}

// Count implements [history.Reader].
func (a *Admin) Count(ctx context.Context, f history.Filter, limit int64) (n int64, err error) {
	defer a.observer.Begin("count").End(&err)
	if err := f.Check(); err != nil {
		return 0, err
	}
	f, possible := normal(f)
	if !possible {
		return 0, nil
	}
	b := a.builder()
	led, branches := b.branches(f)
	if led == "status" && f.Name != "" {
		f.Name = ""
	}
	where := strings.Join(b.conditions(f, led), " AND ")
	if where == "" {
		where = "true"
	}
	parts := make([]string, len(branches))
	for i, branch := range branches {
		parts[i] = "SELECT 1 FROM " + sources[keyOf(led)] + " WHERE " + branch + " AND " + where
	}
	statement := "SELECT count(*) FROM (" + strings.Join(parts, "\nUNION ALL ")
	if limit > 0 {
		statement += fmt.Sprintf("\nLIMIT %d", limit)
	}
	err = a.Read(ctx, "count instances", func(db sqlrow.DB) error {
		return db.Query(ctx, func(r sqlrow.Row) error { return r.Scan(&n) }, statement+") c", b.Args...)
	})
	return n, err
}
