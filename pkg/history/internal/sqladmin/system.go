package sqladmin

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Systems implements [history.Systems].
type Systems struct {
	dialect  dialect
	db       sqlrow.Transactor
	observer sqlrow.Observer
	now      func() time.Time
}

// NewSystems makes the Systems of a store, with what [New] gets.
func NewSystems(d sqlrow.Dialect, t sqlrow.Transactor, observer sqlrow.Observer, now func() time.Time) *Systems {
	return &Systems{dialect{d}, t, observer, now}
}

const readSystem = "SELECT system, beats, beat_at FROM rondo_system WHERE id = 1"

// Identity implements [history.Systems].
func (a *Systems) Identity(ctx context.Context) (system history.System, err error) {
	defer a.observer.Begin("identity").End(&err)
	err = a.db.ReadOften(ctx, "read the system", func(db sqlrow.DB) (err error) {
		system, err = querySystem(ctx, db)
		return err
	})
	system.Exclusive = a.dialect.Exclusive
	return system, err
}

// SetIdentity implements [history.Systems].
func (a *Systems) SetIdentity(ctx context.Context, from history.System, id string,
	beats int64) (now history.System, ok bool, err error) {
	defer a.observer.Begin("set_identity").End(&err)
	b := a.dialect.builder()
	set := "UPDATE rondo_system SET system = " + b.TextArg(id) + ", beats = " + b.Arg(beats) + ", beat_at = "
	if a.dialect.Clock != "" {
		set += a.dialect.Clock
	} else {
		set += b.TimeArg(a.now())
	}
	set += " WHERE id = 1 AND system = " + b.TextArg(from.ID) + " AND beats = " + b.Arg(from.Beats)
	err = a.db.Write(ctx, "set the system", func(db sqlrow.DB) error {
		n, err := db.Exec(ctx, set, b.Args...)
		if err != nil {
			return err
		}
		ok = n == 1
		now, err = querySystem(ctx, db)
		return err
	})
	now.Exclusive = a.dialect.Exclusive
	return now, ok, err
}

// errNoSystem tells a deleted row from the one of a new database, which has no identity yet.
var errNoSystem = errors.New("the table rondo_system has lost its row: restore it from a backup")

func querySystem(ctx context.Context, db sqlrow.DB) (system history.System, err error) {
	found := false
	err = db.Query(ctx, func(r sqlrow.Row) (err error) {
		found = true
		system, err = scanSystem(r)
		return err
	}, readSystem)
	if err == nil && !found {
		err = errNoSystem
	}
	return system, err
}

func scanSystem(r sqlrow.Row) (s history.System, err error) {
	var at sqlrow.Moment
	err = r.Scan(&s.ID, &s.Beats, &at)
	s.BeatAt = at.Time
	return s, err
}
