package natsbroker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestAHandoverIsReadFromTheStream forges handovers. The receiver takes only those that name a
// stored message, and takes it as it is stored.
func TestAHandoverIsReadFromTheStream(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	takes := make(chan broker.Delivery, 100)
	take := func(d broker.Delivery) error { takes <- d; return nil }
	for _, kind := range []broker.HandoverKind{broker.HandoverInbox, broker.HandoverTask, broker.HandoverSystem} {
		stop, err := b.ReceiveHandovers(kind, "o", take)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	h := func(id string) events.Header {
		return events.Header{events.HeaderMsgID: {id}, events.HeaderVersion: {"y"}}
	}
	wires := map[broker.HandoverKind]events.Wire{
		broker.HandoverInbox:  {Subject: "rondo.task-done.1-2.i", Header: h("m"), Body: []byte("stored")},
		broker.HandoverTask:   {Subject: "rondo.task.gpu.a.1-2.i", Header: h("t"), Body: []byte("stored")},
		broker.HandoverSystem: {Subject: "rondo.task.rondo%2Esystem.a.1-2.i", Header: h("s"), Body: []byte("stored")},
	}
	for _, w := range wires {
		if err := b.Publish(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	came := make(chan broker.Delivery, 100)
	go func() { _ = b.Receive(t.Context(), 0, func(d broker.Delivery) { came <- d }) }()
	stored := map[broker.HandoverKind]broker.Delivery{broker.HandoverInbox: <-came}
	for kind, tag := range map[broker.HandoverKind]string{broker.HandoverTask: "gpu",
		broker.HandoverSystem: "rondo.system"} {
		q, err := b.OpenTaskQueue(t.Context(), broker.TaskQueueName{Tag: tag, Activity: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := q.Take(t.Context(), 1, func(d broker.Delivery) { stored[kind] = d }); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}

	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	handOver := func(kind broker.HandoverKind, token string) string {
		t.Helper()
		m := nats.NewMsg("rondo.handover." + string(kind) + ".to.o")
		m.Header = nats.Header{"Rondo-Handed": {token}, events.HeaderVersion: {"forged"}, "Rondo-Id": {"forged"},
			"Nats-Subject": {"rondo.control.terminate.i"}}
		m.Data = []byte("forged")
		answer, err := nc.RequestMsg(m, longEnough)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer.Data)
	}
	for kind, d := range stored {
		token := d.Hold.AckSubject()
		words := strings.Split(token, ".")
		changed := func(n int, to string) string {
			other := slices.Clone(words)
			other[n] = to
			return strings.Join(other, ".")
		}
		odd := map[string]string{
			"no token":             "",
			"other text":           "rondo.event.e.i",
			"another system":       changed(2, "OTHER"),
			"another stream":       changed(2, "RONDO_LATER"),
			"another consumer":     changed(3, "p-1"),
			"the other lane":       changed(3, "p-0"),
			"another queue":        changed(3, "w_gpu_b"),
			"a message not there":  changed(5, "1000"),
			"no message":           changed(5, "0"),
			"another message":      changed(5, fmt.Sprint(d.Sequence-1)),
			"another time":         changed(7, "1704067200000000000"),
			"no number":            changed(4, "x"),
			"a delivery before it": changed(4, "0"),
			"too long": "$JS.ACK._.hash." + strings.TrimPrefix(token, "$JS.ACK.") + "." +
				strings.Repeat("x", 4000),
		}
		for other, d := range stored {
			if other != kind {
				odd["one of the kind "+string(other)] = d.Hold.AckSubject()
			}
		}
		for what, token := range odd {
			if said := handOver(kind, token); said == "+OK" {
				t.Errorf("%s, %s (%s) is taken", kind, what, token)
			}
		}
		if len(takes) > 0 {
			t.Fatalf("%s: %+v is taken", kind, <-takes)
		}
		if said := handOver(kind, token); said != "+OK" {
			t.Fatalf("%s: %s", kind, said)
		}
		is := <-takes
		if is.Subject != d.Subject || string(is.Body) != "stored" || is.Header[events.HeaderVersion][0] != "y" ||
			is.Header[events.HeaderMsgID][0] != d.Header[events.HeaderMsgID][0] || is.Sequence != d.Sequence ||
			is.Hold.AckSubject() != token {
			t.Errorf("%s: took %+v, want %+v", kind, is, d)
		}
		is.Hold.Ack()
		natstest.Eventually(t, "a message that is acknowledged cannot be handed over", func() bool {
			select {
			case <-takes: // the stream has not processed the acknowledgement yet
			default:
			}
			return strings.Contains(handOver(kind, token), "not stored any more")
		})
	}
}

// TestAHandoverWaitsForItsTime hands over a delayed task before its time.
func TestAHandoverWaitsForItsTime(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{})
	js := rawJetStream(t, s)
	m := &nats.Msg{Subject: "rondo.task._.a.1-2.i", Header: nats.Header{
		"Rondo-Not-Before": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)}}}
	ack, err := js.PublishMsg(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(t.Context(), "RONDO_TASKS")
	if err != nil {
		t.Fatal(err)
	}
	is, err := st.GetMsg(t.Context(), ack.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := b.ReceiveHandovers(broker.HandoverTask, "w", func(broker.Delivery) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	d := broker.Delivery{Subject: m.Subject, Hold: token(fmt.Sprintf("$JS.ACK.RONDO_TASKS.w___a.1.%d.1.%d.0",
		ack.Sequence, is.Time.UnixNano()))}
	if err := b.Handover(t.Context(), "w", d); err == nil || !strings.Contains(err.Error(), "waits for its time") {
		t.Errorf("handed over: %v", err)
	}
}

// token is a Hold that settles nothing.
type token string

func (token) Ack()                 {}
func (token) Nak(time.Duration)    {}
func (token) InProgress()          {}
func (h token) AckSubject() string { return string(h) }
