package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// orderAfterLateNak nacks messages of a receiver that has ended, with a delay. The next receiver
// gets newer messages of their instance after them.
func orderAfterLateNak(t *T) {
	b := t.bus()
	t.publish(b, event(b, "i", "1"), event(b, "i", "2"))
	r := t.receive(b)
	before := r.expect("1", "2")
	r.stop()
	for _, g := range before {
		g.Hold.Nak(2 * time.Second)
	}
	t.publish(b, event(b, "i", "3"), event(b, "other", "4"))
	r = t.receive(b)
	var came []string
	for _, g := range r.take(4) {
		if id := id(g.Delivery); id != "4" {
			came = append(came, id)
		}
	}
	if got := fmt.Sprint(came); got != "[1 2 3]" {
		t.Errorf("%s came, want 1 to 3 in this order", got)
	}
	t.empty()
}

// afterLeap nacks messages with a delay that ends long after the test, as if the broker's clock had
// been ahead. A newer one of the instance waits unsettled.
func afterLeap(t *T) {
	b := t.bus()
	r := t.receive(b)
	t.publish(b, event(b, "i", "1"), event(b, "i", "2"))
	for _, g := range r.expect("1", "2") {
		g.Hold.Nak(long)
	}
	t.publish(b, event(b, "i", "3"))
	held := r.expect("3")[0]
	b.RedeliverAfterLeap(time.Now(), time.Hour)
	for _, g := range r.expect("1", "2", "3") {
		g.Hold.Ack()
	}
	held.Hold.Ack()
	t.empty()
}

func orderAfterDeath(t *T) {
	// A server that has not noticed the death may deliver y1 to the dead receiver, too, and a busy
	// machine may publish y1 only when x1 is redelivered. Then y1 proves nothing, and another try
	// may.
	const tries = 10
	for try := range tries {
		if afterDeath(t, fmt.Sprint(try, "/")) {
			return
		}
	}
	t.Errorf("y1 did not come at once in %d tries", tries)
}

// afterDeath publishes to two instances when the receiver of one of them has died. It reports
// whether the other's message arrived at once.
func afterDeath(t *T, try string) bool {
	a, b := t.bus(), t.bus()
	names, p := t.instancesOf(b, 2)
	x, y := names[0], names[1]
	dead := t.receive(a, p)
	t.publish(b, event(b, x, try+"x1"), event(b, x, try+"x2"))
	dead.expect(try+"x1", try+"x2")
	t.must(a.Close())
	dead.stop()
	t.publish(b, event(b, x, try+"x3"), event(b, y, try+"y1"), event(b, x, try+"x4"))
	r := t.receive(b, p)
	defer r.stop()
	var order []string
	for _, g := range r.takeEach(5) {
		if id := strings.TrimPrefix(id(g.Delivery), try); !slices.Contains(order, id) {
			order = append(order, id)
		}
	}
	first := order[0] == "y1"
	order = slices.DeleteFunc(order, func(id string) bool { return id == "y1" })
	if got := fmt.Sprint(order); got != "[x1 x2 x3 x4]" {
		t.Errorf("%s, want x1 to x4 in this order", got)
	}
	t.empty()
	return first
}

func orderAfterDeathOfMany(t *T) {
	a, b := t.bus(), t.bus()
	const instances, each = 50, 20
	publish := func(from, to int) {
		var messages []events.Wire
		for n := from; n < to; n++ {
			for i := range instances {
				w := event(b, fmt.Sprint("x", i), fmt.Sprintf("x%d/%d", i, n))
				w.Subject = strings.Replace(w.Subject, ".event.e.", ".task-done.1-2.", 1)
				messages = append(messages, w)
			}
		}
		t.publish(b, messages...)
	}
	publish(0, each/2)
	dead := t.receive(a)
	for i := range instances * each / 2 {
		if g := dead.next(); i%7 == 0 {
			g.Hold.InProgress()
		}
	}
	t.must(a.Close())
	r := t.receive(b)
	publish(each/2, each)
	t.must(perInstance(r.takeEach(instances * each)))
}

func settledLate(t *T) {
	a, b := t.bus(), t.bus()
	p := t.partitionOf(b, "x")
	before := t.receive(a, p)
	t.publish(b, event(b, "x", "x1"))
	held := before.expect("x1")[0]
	before.stop() // it still holds its delivery
	r := t.receive(b, p)
	t.publish(b, event(b, "x", "x2"))
	r.nothing(2 * short)
	held.Hold.Ack()
	r.expect("x2")[0].Hold.Ack() // before the ack wait expires, which is longer than the patience of the test
	t.empty()
}
