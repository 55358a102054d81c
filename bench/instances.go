package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file is the client's memory of all instances that it has started. In five minutes that is a
// million; with a few objects for each, the client's garbage collector would take both processors
// for half a second again and again, and the figures would be those of the client. So the memory
// has no pointers that a collector has to follow.

// instance is one that was started. Times are those since the client began, 0 for never.
type instance struct {
	number        int32 // of all that were planned, from 1 on; 0: it was not started
	count         int32 // of activities or steps that have answered when it ends
	orchestration uint8 // which of those that were started here
	open          bool  // it need not have ended when the measurement has
	flood         uint8 // whose slot it frees when it ends, if that still runs; 0: none
	started       time.Duration
	acked         time.Duration // when its start was acknowledged
	ended         time.Duration
}

// data is its input, and want the output that it must have.
func (i *instance) data() string { return hundredBytes(int(i.number)) }
func (i *instance) want() echoed { return echoed{int(i.count), i.data()} }

func (i *instance) took() time.Duration { return i.ended - i.started }

// instances are all of them, by number.
type instances struct {
	prefix string // of their ids
	began  time.Time
	n      int // how many were started
	// how many schedules have started, which are not here
	scheduled int
	most      int // the highest number
	names     []string
	chunks    [][]instance
}

const chunk = 4096

func newInstances(workload string) *instances {
	return &instances{prefix: strings.ToLower(workload) + "-", began: time.Now()}
}

// id is that of an instance with a number.
func (x *instances) id(number int) string { return fmt.Sprintf("%s%08d", x.prefix, number) }

// of finds an instance by its id; nil if it was not started.
func (x *instances) of(id string) *instance {
	digits, ok := strings.CutPrefix(id, x.prefix)
	number, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return nil
	}
	return x.at(number)
}

func (x *instances) at(number int) *instance {
	if number < 1 || number > x.most {
		return nil
	}
	if i := &x.chunks[number/chunk][number%chunk]; i.number > 0 {
		return i
	}
	return nil
}

// add notes a new one. It stays where it is.
func (x *instances) add(p plan) *instance {
	for len(x.chunks) <= p.number/chunk {
		x.chunks = append(x.chunks, make([]instance, chunk))
	}
	x.n, x.most = x.n+1, max(x.most, p.number)
	i := &x.chunks[p.number/chunk][p.number%chunk]
	*i = instance{number: int32(p.number), count: int32(p.count), orchestration: x.name(p.orchestration), open: p.open}
	return i
}

func (x *instances) name(orchestration string) uint8 {
	for n, name := range x.names {
		if name == orchestration {
			return uint8(n)
		}
	}
	x.names = append(x.names, orchestration)
	return uint8(len(x.names) - 1)
}

func (x *instances) orchestrationOf(i *instance) string { return x.names[i.orchestration] }

// each shows all from a number on, in their order, until see says that it is enough.
func (x *instances) each(from int, see func(*instance) bool) {
	for number := from; number <= x.most; number++ {
		if i := x.at(number); i != nil && !see(i) {
			return
		}
	}
}

// start is the message that starts an instance.
func start(p plan, input codec.Payload) events.Message {
	return events.Message{ID: "start-" + p.instance, Instance: p.instance,
		Content: &events.Start{Orchestration: p.orchestration, Input: input}}
}

// [instances.promised] yields the acknowledged starts, which the checker expects to find.
func (x *instances) promised(yield func(check.Acknowledged, error) bool) {
	x.each(1, func(i *instance) bool {
		if i.acked == 0 {
			return true
		}
		p, ok := check.AcknowledgedBy(start(plan{instance: x.id(int(i.number)), orchestration: x.orchestrationOf(i)},
			nil),
			x.began.Add(i.acked))
		return !ok || yield(p, nil)
	})
}
