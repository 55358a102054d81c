package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// A drop-in is an instance that clients start or send to, without knowing whether it runs. It reads
// the messages of its mailbox when it begins, does something, and ends without looking again: so
// messages come in every moment of its incarnation, and just after. Each must be read once, by
// whichever incarnation.

const (
	dropInID = "drop-in"
	dropIns  = 8
)

var dropIn = orchestration.Define[int64, int64]("drop-in")

func playDropIn(ctx *orchestration.Context, _ int64) (sum int64, err error) {
	for more := true; more && err == nil; {
		var n int64
		n, more, err = letters.TryReceive(ctx)
		sum += n
	}
	if err == nil {
		_, err = double.Call(ctx, small(sum)) // this incarnation does not read messages that come meanwhile
	}
	return sum, err
}

// callDropIn starts or sends, at random times; and then everything again, as a client does that
// does not know how far it had got when it died.
func (w *world) callDropIn() {
	c := brokersim.Connect(w.broker, w.road("client of the drop-in"))
	defer c.Close()
	r := rand.New(rand.NewPCG(w.seed, 2))
	var said []events.Message
	for n := range int64(dropIns) {
		if !w.wait(duration(r, 0, w.weather.lasts/dropIns)) {
			return
		}
		content := &events.Start{
			Orchestration: dropIn.Name(), Input: payload(0), Conflict: events.RestartFinished,
			Messages: []events.StartMessage{{Mailbox: letters.Name(), Data: payload(n + 1)}},
		}
		said = append(said, events.Message{
			ID: fmt.Sprint("call-", n+1), Instance: dropInID, Sent: events.Instant(time.Now()), Content: content,
		})
		if !w.say(c, said[n]) {
			return
		}
	}
	if !w.wait(rested) {
		return
	}
	for _, m := range said {
		if !w.say(c, m) {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called = true
}

// judgeDropIn checks that each mailbox message was read once.
func (w *world) judgeDropIn() error {
	if !w.weather.startsOrSends {
		return nil
	}
	incarnations, err := w.store.Executions(w.context, dropInID, 0, 1000)
	if err != nil {
		return err
	}
	var sum int64
	for _, x := range incarnations {
		var n int64
		if err := (codec.JSON{}).Decode(x.Output, &n); err != nil {
			return fmt.Errorf("incarnation %d of the drop-in gave %q (%v): %w", x.Execution, x.Output, x.Error, err)
		}
		sum += n
	}
	if want := int64(dropIns * (dropIns + 1) / 2); sum != want {
		return fmt.Errorf("the %d incarnations of the drop-in have read %d, want %d", len(incarnations), sum, want)
	}
	return nil
}
