package natsbroker_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// While a worker is asked for work, nobody knows whether it has it: what takes its time is told
// when it has answered. What it was not asked for by then goes through the stream, and it is not
// asked any more.
func TestPassingOnToAWorkerThatStandsStill(t *testing.T) {
	p := newPassing(t)
	asked := 0
	p.takes = func(broker.Delivery) bool {
		if asked++; asked == 1 {
			<-time.After(broker.LastsAfter + broker.LastsAfter/2)
		}
		return true
	}
	done := p.publish(workOf("i1", "i2")...)
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
	if first.Hold.(broker.PassedHold).Finish() {
		t.Error("what was stored is final for the worker")
	}
}

// Work that has waited for so long that whoever has passed it on may give it up must not be begun,
// unless it was told that it is here.
func TestPassedWorkThatWaitsIsNotBegun(t *testing.T) {
	p := newPassing(t)
	begins := make(chan bool, 2)
	p.takes = func(d broker.Delivery) bool {
		begins <- d.Hold.(broker.PassedHold).Begin()
		<-time.After(2 * broker.LastsAfter)
		begins <- d.Hold.(broker.PassedHold).Begin()
		return true
	}
	done := p.publish(workOf("i1")...)
	p.returned(done)
	if now, late := <-begins, <-begins; !now || late {
		t.Errorf("it may begin at once: %v, and two seconds later: %v", now, late)
	}
	p.stored(1)
}

// What is done in time is final.
func TestPassedWorkThatIsDoneIsFinal(t *testing.T) {
	p := newPassing(t)
	done := p.publish(workOf("i1")...)
	if !p.next().Hold.(broker.PassedHold).Finish() {
		t.Error("it is not final")
	}
	p.returned(done)
}
