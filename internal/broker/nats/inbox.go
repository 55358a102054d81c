package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/last"
)

const (
	// prefetch is the number of messages that a receiver requests at once. prefetchBytes bounds the
	// size of a request, and of all messages that it holds when it requests more. sharedBytes is
	// what all receivers of a process may hold beyond that: after the loss of an orchestrator under
	// load, many messages are behind lost ones, and those of other instances must go on.
	prefetch      = 1024
	prefetchBytes = 8 << 20
	sharedBytes   = 64 << 20
	// maxProbes is how often during an ack wait a full receiver requests one message more, which
	// may be a lost one. It does so at least each busyAfter.
	maxProbes = 32
	// busyAfter is after how long without a request a receiver is busy, and the maximum interval
	// between requests for one message. It is shorter than the slack of the wait for lost messages.
	busyAfter = time.Second
	// pullFor is how long a pull request for messages of a partition waits in the broker.
	pullFor = 30 * time.Second
	// tend is the interval at which a receiver tends its messages.
	tend = 250 * time.Millisecond
	// maxLooks is how often a receiver looks in vain for lost messages, each time for the time of
	// silence. Then it continues without them.
	maxLooks = 3
	// otherWait is how long a receiver waits for the end of another one that gives the partition
	// up.
	otherWait = time.Second
)

// inbox is the stream of messages for instances, with its partitions.
type inbox struct {
	*resources
	reader  reader
	results *directResults
	due     *forwarder
	later   *laterStore
	anchors *anchors

	receivers  receivers
	shared     sharedRoom
	reconciler *reconciler

	lookedForAbandoned last.Time
}

func newInbox(r *resources, reader reader, p *publisher, dead *deadLetters, results *directResults) *inbox {
	in := &inbox{resources: r, reader: reader, results: results, shared: sharedRoom{most: sharedBytes},
		due:     &forwarder{resources: r, publisher: p, dead: dead},
		later:   &laterStore{resources: r, reader: reader, dead: dead},
		anchors: &anchors{conn: r.conn}}
	in.reconciler = &reconciler{resources: r, every: reconcileEvery, leaps: newLeaps(),
		strays: &strays{resources: r, reader: reader, dead: dead}}
	return in
}

// Receive implements broker.Inbox. If the partition is gone from the broker, Receive creates it
// again if it may, and fails.
func (in *inbox) Receive(ctx context.Context, partition int, take func(broker.Delivery)) error {
	defer in.reconciler.receiving(partition)()
	defer in.due.start()()
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	for _, l := range lanes {
		go func() { ended <- in.receive(both, l, partition, take) }()
	}
	err := <-ended
	cancel()
	err = errors.Join(err, <-ended)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if gone(err) {
		select {
		case <-time.After(mendAfter):
		case <-ctx.Done():
			return nil
		}
		if _, again := in.Partitions(ctx); again != nil {
			err = errors.Join(err, again)
		}
	}
	return problem(fmt.Sprintf("receive from partition %d", partition), err)
}

func (in *inbox) receive(ctx context.Context, l lane, partition int, take func(broker.Delivery)) error {
	r := in.receiver(l, partition)
	if err := r.begin(ctx); err != nil {
		return err
	}
	status := in.nc.StatusChanged(nats.CONNECTED)
	defer in.nc.RemoveStatusListener(status)
	r.mu.Lock()
	err := r.renew()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	var tending sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	tending.Go(func() { r.tend(stop, status) })
	tending.Go(func() { r.takeOver(stop) })
	tending.Go(func() { r.marks.lookAhead(stop) })
	tending.Go(func() { r.marks.tell(stop) })
	remove := in.receivers.add(r)
	if l == ahead {
		defer in.results.offer(partition, r.arriveDirect)()
	}
	err = r.run(ctx, take)
	remove()
	cancel()
	tending.Wait()
	r.end()
	r.marks.end(ctx)
	return err
}

// sharedRoom counts what the receivers of a process hold beyond the bound of each.
type sharedRoom struct {
	most  int64
	taken atomic.Int64
}

// take changes what a receiver has taken.
func (s *sharedRoom) take(has *int, want int) {
	if want != *has {
		s.taken.Add(int64(want - *has))
		*has = want
	}
}

func (s *sharedRoom) isTaken() bool { return s.taken.Load() > s.most }

// receiver makes the receiver of a lane of a partition.
func (in *inbox) receiver(l lane, partition int) *receiver {
	r := newReceiver(in.conn, l, partition, in.plan.config.InboxAckWait, in.reader, in.later)
	r.shared = &in.shared
	if partition == 0 && l == fromClients { // so that one of all receivers does it
		r.eachTick = in.anchors.drop
	}
	return r
}
