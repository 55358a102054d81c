package natsbroker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// resources are the streams, consumers and buckets of the system: it creates, verifies and repairs
// them, and knows those that exist.
type resources struct {
	*conn
	plan      plan
	repairing func() // is called before a repair

	there      atomic.Pointer[there]
	partitions atomic.Int64 // the configured number of partitions; 0 if none is configured
	mending    mending
	mended     time.Time // while mending is held
	shares     shares
}

func newResources(c *conn, config Config) *resources {
	r := &resources{conn: c, plan: plan{names: &c.names, config: config}, mending: make(mending, 1)}
	r.partitions.Store(int64(config.Partitions))
	return r
}

// mending is held while streams, consumers and buckets are created, which takes many seconds if
// NATS does not respond. Unlike with a mutex, a caller waits for it no longer than its context.
type mending chan struct{}

// hold waits until nothing else holds it, or until ctx ends.
func (m mending) hold(ctx context.Context) (release func(), err error) {
	select {
	case m <- struct{}{}:
		return func() { <-m }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// there has the streams and buckets that exist. One that this connection has no permission to see
// is nil.
type there struct {
	inbox, later, work, dead, kv, progress jetstream.Stream
	members, sessions                      jetstream.KeyValue
}

// Repair implements broker.Repairer: it creates or verifies all streams, consumers and buckets once
// more, as [Connect] did, for a broker that has lost data. With [Make], a process that receives,
// takes tasks or publishes does so by itself when it finds one missing.
func (r *resources) Repair(ctx context.Context) error {
	release, err := r.mending.hold(ctx)
	if err != nil {
		return problem("repair", err)
	}
	defer release()
	return r.setUp(ctx)
}

const (
	// mendEvery is the minimum interval between two repairs.
	mendEvery = time.Second
	// mendAfter is how long a server gets to remove a deleted stream. It does so in the background,
	// and removes a stream of the same name that is created meanwhile, too.
	mendAfter = 500 * time.Millisecond
)

// mend is Repair for callers that have found something missing; many may find it at once.
func (r *resources) mend(ctx context.Context) error {
	found := time.Now()
	release, err := r.mending.hold(ctx)
	if err != nil {
		return problem("repair", err)
	}
	defer release()
	if r.plan.config.Setup != Make || r.mended.Add(mendEvery).After(found) {
		return nil
	}
	defer func() { r.mended = time.Now() }()
	r.log.Warn("NATS: something is missing in the broker; making it again")
	select {
	case <-time.After(mendAfter):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.repairing()
	return r.setUp(ctx)
}

// missing repairs the broker if one of the streams is missing.
func (r *resources) missing(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, name := range []string{r.names.inbox, r.names.later, r.names.work, r.names.dead} {
		if _, err := r.js.Stream(look, name); gone(err) {
			return r.mend(ctx)
		}
	}
	return nil
}

// streamOf finds the stream in which a message is stored until it is taken.
func (r *resources) streamOf(subject string) (st jetstream.Stream, isWork bool, err error) {
	is := r.there.Load()
	st = is.inbox
	if strings.HasPrefix(subject, r.subject("task.")) {
		st, isWork = is.work, true
	}
	if st == nil {
		return nil, isWork, fmt.Errorf(
			"nats: the stream of %s cannot be seen with these rights, or was not there when the connection was made",
			subject)
	}
	return st, isWork, nil
}

// laterStream returns the stream of delayed messages.
func (r *resources) laterStream() (jetstream.Stream, error) {
	if st := r.there.Load().later; st != nil {
		return st, nil
	}
	return nil, fmt.Errorf("nats: stream %s cannot be seen with these permissions, or was not there when the "+
		"connection was made", r.names.later)
}

// deadStream returns the stream of the dead letters.
func (r *resources) deadStream() (jetstream.Stream, error) {
	if st := r.there.Load().dead; st != nil {
		return st, nil
	}
	return nil, fmt.Errorf("nats: stream %s cannot be seen with these rights, or is not there", r.names.dead)
}
