package natsbroker_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// While a worker is being offered a task, it is unknown whether the worker has it. If the worker
// then accepts it, its publisher learns that the execution takes long. Tasks that were not offered
// by then go through the stream, and are not offered any more.
func TestDirectDeliveryToAWorkerThatStandsStill(t *testing.T) {
	p := newDirect(t)
	asked := 0
	p.takes = func(broker.Delivery) bool {
		if asked++; asked == 1 {
			p.lasts()
			<-time.After(broker.LastsAfter / 2) // the worker answers overdue tasks meanwhile
		}
		return true
	}
	done := p.publish(taskOf("i1", "i2")...)
	first := p.next()
	p.returned(done)
	stored := p.stored(2)
	if by := stored[0].Header[events.HeaderHeld]; len(by) != 1 || by[0] != "w1" {
		t.Errorf("the first is held by %v", by)
	}
	if by := stored[1].Header[events.HeaderHeld]; len(by) != 0 {
		t.Errorf("the second is held by %v, which was not asked for it", by)
	}
	if asked != 1 {
		t.Errorf("the worker was asked %d times", asked)
	}
	if first.Hold.(broker.DirectHold).Finish() {
		t.Error("what was stored is final for the worker")
	}
}

// A task that has waited so long that its publisher may give it up must not begin, unless its
// publisher has learned that the worker has it.
func TestDirectTaskThatWaitsIsNotBegun(t *testing.T) {
	p := newDirect(t)
	begins := make(chan bool, 2)
	p.takes = func(d broker.Delivery) bool {
		begins <- d.Hold.(broker.DirectHold).Begin()
		p.lasts()
		<-time.After(broker.LastsAfter) // the publisher may give it up a little later
		begins <- d.Hold.(broker.DirectHold).Begin()
		return true
	}
	done := p.publish(taskOf("i1")...)
	p.returned(done)
	if now, late := <-begins, <-begins; !now || late {
		t.Errorf("it may begin at once: %v, and when it takes long: %v", now, late)
	}
	p.stored(1)
}

// A task that is done in time is final.
func TestDirectTaskThatIsDoneIsFinal(t *testing.T) {
	p := newDirect(t)
	done := p.publish(taskOf("i1")...)
	if !p.next().Hold.(broker.DirectHold).Finish() {
		t.Error("it is not final")
	}
	p.returned(done)
}
