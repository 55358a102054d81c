package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// driver is the client: like a gateway, it has one connection, over which it starts orchestrations
// and hears of the end of all of them.
type driver struct {
	bus   *natsbroker.Bus
	store history.Reader // asked only when nothing was heard for long
	stop  func()

	mu      sync.Mutex
	all     *instances
	waiting int           // the first of them that has not ended
	slots   chan struct{} // of the flood that goes on
	floods  uint8         // how many there were
	due     int           // instances that have to end
	lastEnd time.Time
	ended   chan struct{} // has something in it when an instance has ended
}

// plan is an instance to be started.
type plan struct {
	instance, orchestration string
	in                      job
	number, count           int // see instance
	open                    bool
	wake                    bool      // the event that it waits for is raised at once
	at                      time.Time // when it should be started; zero is now
}

func connect(ctx context.Context, url, prefix, workload string, store history.Reader) (*driver, error) {
	b, err := natsbroker.Connect(ctx,
		natsbroker.Config{URLs: url, Prefix: prefix, Name: "bench", Setup: natsbroker.Use, Logger: quiet()})
	if err != nil {
		return nil, err
	}
	d := &driver{bus: b, store: store, all: newInstances(workload), waiting: 1, ended: make(chan struct{}, 1)}
	d.stop, err = query.Listen(ctx, b, broker.Any, func(n query.Notification) {
		d.end(n.Instance, time.Now())
	}, query.TopicEnded)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return d, nil
}

func (d *driver) close() {
	d.stop()
	_ = d.bus.Close() // nothing is in flight any more
}

// start publishes starts in one go. If slots is not nil, each instance frees a slot when it ends.
func (d *driver) start(ctx context.Context, slots chan struct{}, plans ...plan) error {
	wires := make([]events.Wire, 0, len(plans))
	for _, p := range plans {
		input, err := json.Marshal(p.in)
		if err != nil {
			return err
		}
		w, err := events.Encode(d.bus.Prefix(), start(p, input))
		if err != nil {
			return err
		}
		wires = append(wires, w)
		if !p.wake {
			continue
		}
		if w, err = wakingUp(d.bus.Prefix(), p.instance, p.in.Data); err != nil {
			return err
		}
		wires = append(wires, w)
	}
	d.note(slots, plans...)
	if err := d.bus.Publish(ctx, wires...); err != nil {
		return err
	}
	d.acknowledged(plans)
	return nil
}

// expect notes instances that another client starts.
func (d *driver) expect(plans ...plan) { d.note(nil, plans...) }

func (d *driver) note(slots chan struct{}, plans ...plan) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range plans {
		i := d.all.add(p)
		d.waiting = min(d.waiting, p.number)
		i.started = now.Sub(d.all.began)
		if slots != nil {
			i.flood = d.floods
		}
		if !p.at.IsZero() {
			i.started = p.at.Sub(d.all.began)
		}
		if !p.open {
			d.due++
		}
	}
	d.lastEnd = now // quiet time counts from the last start, too
}

// acknowledged remembers that starts were acknowledged.
func (d *driver) acknowledged(plans []plan) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range plans {
		d.all.at(p.number).acked = now.Sub(d.all.began)
	}
}

// end notes that an instance has ended.
func (d *driver) end(id string, now time.Time) {
	d.mu.Lock()
	i := d.all.of(id)
	if i == nil || i.ended > 0 {
		d.mu.Unlock()
		return
	}
	i.ended = now.Sub(d.all.began)
	if !i.open {
		d.due--
	}
	d.lastEnd = now
	var slots chan struct{}
	if i.flood > 0 && i.flood == d.floods {
		slots = d.slots
	}
	d.mu.Unlock()
	if slots != nil {
		<-slots
	}
	select {
	case d.ended <- struct{}{}:
	default:
	}
}

// flood keeps so many instances going until there is no plan any more, and returns when all have
// ended.
func (d *driver) flood(ctx context.Context, inFlight int, next func() (plan, bool)) error {
	ctx, cancel := d.watched(ctx)
	defer cancel()
	// So many publish at once. Each takes as many starts as there is room for just then, like a
	// service that forwards requests.
	const publishers, most = 8, 64
	slots := make(chan struct{}, inFlight)
	d.mu.Lock()
	d.slots, d.floods = slots, d.floods+1
	d.mu.Unlock()
	errs := make(chan error, publishers)
	from := &plans{next: next}
	for range publishers {
		go func() {
			for {
				list, err := from.take(ctx, slots, most)
				if err == nil && len(list) > 0 {
					err = d.start(ctx, slots, list...)
				}
				if err != nil || len(list) == 0 {
					errs <- err
					return
				}
			}
		}()
	}
	var failed error
	for range publishers {
		if err := <-errs; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	if failed != nil {
		return failed
	}
	return d.allEnd(ctx)
}

// plans is the source of plans that several publishers share.
type plans struct {
	mu   sync.Mutex
	next func() (plan, bool)
}

func (x *plans) one() (plan, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.next()
}

// take takes a plan and waits for room for it, and takes more for as much room as there is then,
// but not more than most; none if there is no plan any more.
func (x *plans) take(ctx context.Context, slots chan struct{}, most int) (list []plan, err error) {
	p, ok := x.one()
	if !ok {
		return nil, nil
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for list = append(list, p); len(list) < most; list = append(list, p) {
		select {
		case slots <- struct{}{}:
		default:
			return list, nil
		}
		if p, ok = x.one(); !ok {
			<-slots // it was for one that there is not
			break
		}
	}
	return list, nil
}

// allEnd waits until all instances have ended that have to.
func (d *driver) allEnd(ctx context.Context) error {
	ctx, cancel := d.watched(ctx)
	defer cancel()
	for {
		d.mu.Lock()
		due := d.due
		d.mu.Unlock()
		if due == 0 {
			return nil
		}
		select {
		case <-d.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// NATS does not store notifications, so one can be lost with a connection. After quietFor without
// any, the driver asks the store; after patience, the run fails.
const (
	quietFor = 3 * time.Second
	patience = time.Minute
)

// watched gives a context that is canceled when no instance has ended for too long.
func (d *driver) watched(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			open, last := d.missing()
			silent := time.Since(last)
			if len(open) > 0 && silent > quietFor {
				d.ask(ctx, open)
			}
			if len(open) > 0 && silent > patience {
				cancel(fmt.Errorf("%d instances have not ended, and none has for %v; one is %s", len(open),
					patience, open[0]))
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// missing lists the instances that have to end and have not, and when the last one ended.
func (d *driver) missing() (ids []string, last time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := 0
	d.all.each(d.waiting, func(i *instance) bool {
		if i.ended > 0 {
			return true
		}
		if first == 0 {
			first = int(i.number)
		}
		if !i.open {
			ids = append(ids, d.all.id(int(i.number)))
		}
		return true
	})
	d.waiting = max(d.waiting, first)
	return ids, d.lastEnd
}

// ask looks in the store which of some instances have ended.
func (d *driver) ask(ctx context.Context, ids []string) {
	for _, id := range ids[:min(len(ids), 1000)] {
		info, err := d.store.Instance(ctx, id)
		if err != nil && !errors.Is(err, history.ErrNoInstance) {
			return // the database is away; it is asked again
		}
		if err == nil && info.Status.Ended() {
			d.end(id, time.Now())
		}
	}
}

// endedSince lists the instances that have ended, in the order of their ends, without the first
// ones.
func (d *driver) endedSince(first int) (list []*instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all.each(first+1, func(i *instance) bool {
		if i.ended > 0 {
			list = append(list, i)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *instance) int { return cmp.Compare(a.ended, b.ended) })
	return list
}
