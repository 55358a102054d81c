package brokersim

import (
	"context"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// Bus is the connection of one process to a [Broker]. Each of its parts implements one contract of
// package broker, or a few, and knows the parts below it only:
//
//	link           the connection: calls to the broker, and their fate
//	directResults  the results that arrive directly
//	writer         stores messages, and withdraws them
//	directSender   direct delivery: tasks to workers, and results to orchestrators
//	publisher      publishes messages directly, or through the writer
//	puller         waits for messages of the broker
//	inbox          the partitions, and receiving from them
//	taskQueues     the task queues of the workers
//	deadLetters    the dead-letter queue
//	pendingStarts  the starts that no orchestrator has taken
//	members, handovers, leases, keyValue          coordination
//	notifications, requests                       control
type Bus struct {
	*link
	*publisher
	*inbox
	*taskQueues
	*deadLetters
	*pendingStarts
	*members
	*handovers
	*leases
	*keyValue
	*notifications
	*requests
}

var (
	_ broker.Publisher       = (*Bus)(nil)
	_ broker.Inbox           = (*Bus)(nil)
	_ broker.DeadLetters     = (*Bus)(nil)
	_ broker.DeadLetterStore = (*Bus)(nil)
	_ broker.PendingStarts   = (*Bus)(nil)
	_ broker.AwaitedStarts   = (*Bus)(nil)
	_ broker.TaskQueues      = (*Bus)(nil)
	_ broker.Members         = (*Bus)(nil)
	_ broker.Handovers       = (*Bus)(nil)
	_ broker.Leases          = (*Bus)(nil)
	_ broker.KV              = (*Bus)(nil)
	_ broker.Repairer        = (*Bus)(nil)
	_ broker.Notifications   = (*Bus)(nil)
	_ broker.Requests        = (*Bus)(nil)
	_ broker.Discovery       = (*Bus)(nil)
	_ broker.Connection      = (*Bus)(nil)
)

// Connect connects to a broker. Without a path, each call happens at once.
func Connect(b *Broker, p Path) *Bus {
	if p == nil {
		p = straight{}
	}
	c := &link{b: b, path: p, reconnected: make(map[*func()]bool)}
	c.ctx, c.end = context.WithCancel(context.Background())
	results := &directResults{link: c, receiving: make(map[int]*receiver)}
	b.mu.Lock()
	b.connections++
	if c.name = p.Name(); c.name == "" {
		c.name = "connection-" + strconv.FormatUint(b.connections, 10)
	}
	b.named[c.name] = results
	b.mu.Unlock()
	w, pull, control := &writer{c, results}, &puller{c}, &notifications{c}
	direct := &directSender{writer: w, avoid: make(map[string]time.Time)}
	return &Bus{
		link: c, publisher: &publisher{w, direct}, inbox: newInbox(pull, results),
		taskQueues:  &taskQueues{pull, control},
		deadLetters: &deadLetters{c}, pendingStarts: &pendingStarts{c},
		members: &members{c}, handovers: &handovers{c},
		leases: &leases{c}, keyValue: &keyValue{c}, notifications: control, requests: &requests{c},
	}
}
