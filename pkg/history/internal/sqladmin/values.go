package sqladmin

import (
	"context"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Values implements [history.Reader].
func (a *Admin) Values(ctx context.Context, instance string) (values map[string]history.Value, err error) {
	defer a.observer.Begin("values").End(&err)
	err = a.Read(ctx, "read values", func(db sqlrow.DB) error {
		values = make(map[string]history.Value)
		return db.Query(ctx, func(r sqlrow.Row) error {
			key, v, err := scanValue(r)
			values[key] = v
			return err
		}, valueStatement, a.Shard(instance), sqlrow.Key(instance))
	})
	return values, err
}

// Value implements [history.Reader].
func (a *Admin) Value(ctx context.Context, instance, name string) (value history.Value, ok bool, err error) {
	defer a.observer.Begin("value").End(&err)
	err = a.Read(ctx, "read a value", func(db sqlrow.DB) error {
		ok = false
		return db.Query(ctx, func(r sqlrow.Row) error {
			var err error
			_, value, err = scanValue(r)
			ok = true
			return err
		}, valueStatement+" AND v.key = $3", a.Shard(instance), sqlrow.Key(instance), sqlrow.Key(name))
	})
	return value, ok, err
}

// valueStatement reads values of an instance that was not deleted.
var valueStatement = "SELECT " + valueNames + `
	FROM rondo_instances i JOIN rondo_values v ON v.shard = i.shard AND v.instance = i.instance
	WHERE i.shard = $1 AND i.instance = $2 AND i.` + sqlrow.Alive

// valueColumns are those that readers get.
var (
	valueColumns = sqlrow.Values.Without("shard", "instance")
	valueNames   = valueColumns.Of("v")
)

func scanValue(r sqlrow.Row) (string, history.Value, error) {
	var v sqlrow.ValueRow
	err := r.Scan(valueColumns.Targets(&v)...)
	return v.Key, history.Value{Data: sqlrow.Payload(v.Value), Execution: v.Execution, Set: v.Set.Time}, err
}
