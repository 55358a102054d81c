package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// An intruder is an orchestrator with the address of another database. It must not take part.

// strange draws when the intruder comes, if there is one. After a loss of its files, a broker
// belongs to the first database that finds it, so that is for worlds with a better broker.
func (w *weather) strange(r *rand.Rand) {
	loses := slices.ContainsFunc(w.disasters, func(d disaster) bool {
		return d.what == "forget" || d.what == "powerloss" || d.what == "outage"
	})
	if at := duration(r, time.Millisecond, w.lasts); r.IntN(4) == 0 && !loses {
		w.intruder = at
	}
}

// otherStore is the database of the intruder. Nothing of the world may get there.
type otherStore struct {
	history.Store
	w *world
}

func (s otherStore) Load(_ context.Context, ids []string, _ func(string, round.Row) bool) ([]round.Known, error) {
	s.w.fault(fmt.Sprint("an orchestrator with another database has taken messages of ", ids))
	return nil, errors.New("this is another database")
}

// intrude runs the intruder, again and again until it was refused.
func (w *world) intrude() {
	select {
	case <-time.After(w.weather.intruder):
	case <-w.context.Done():
	}
	for n := 1; w.context.Err() == nil && w.refuses(w.road(fmt.Sprint("intruder/", n))) == nil; n++ {
	}
}

// refuses runs one process of the intruder. It returns nil if the process has died of something
// else.
func (w *world) refuses(r *road) error {
	c := brokersim.Connect(w.broker, r)
	defer c.Close()
	ctx, stop := context.WithCancel(w.context)
	defer stop()
	r.onDead = stop
	for { // a broker that nothing has used yet belongs to the first database
		r.rest(ctx, time.Second, "waits for the others")
		if ctx.Err() != nil {
			return w.context.Err()
		}
		if key, err := c.Get(ctx, broker.KeySystem); err == nil && key != nil {
			break
		}
	}
	store, err := sqlite.Open(ctx, sqlite.Memory, sqlite.Options{Log: quiet, Now: time.Now})
	if err != nil {
		return err
	}
	defer store.Close()
	code, err := orchestration.NewRegistry(player(r))
	if err != nil {
		return err
	}
	o, err := orchestrator.New(c, otherStore{store, w}, code, orchestrator.Config{ID: "intruder", Logger: quiet,
		Clocks: orchestrator.Clocks{Jitter: func(_ string, most time.Duration) time.Duration { return most / 2 }}})
	if err != nil {
		return err
	}
	err = o.Run(ctx)
	switch {
	case identity.IsMismatch(err):
		w.note(r.name, "is refused")
		w.count("intruder refused")
		return err
	case ctx.Err() == nil:
		w.fault(fmt.Sprint("an orchestrator with another database ends with ", err))
		return err
	}
	return nil
}
