package natsbroker

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// block is the memory of a received message: the bytes that the NATS client has read, and the
// string of which all headers are parts.
type block struct {
	bytes  []byte
	header string
}

// incoming makes a message as the NATS client does.
func incoming(t *testing.T, subject, reply, headers, body string) (m *nats.Msg, b block) {
	t.Helper()
	headers = "NATS/1.0\r\n" + headers + "\r\n"
	b.bytes = []byte(headers + body)
	h, err := nats.DecodeHeadersMsg(b.bytes[:len(headers)])
	if err != nil {
		t.Fatal(err)
	}
	var first *byte
	for name := range h {
		if data := unsafe.StringData(name); first == nil || addressOf(data) < addressOf(first) {
			first = data
		}
	}
	if first != nil { // the first header begins behind the first line
		b.header = unsafe.String(first, len(headers)-len("NATS/1.0\r\n"))
	}
	return &nats.Msg{Subject: subject, Reply: reply, Header: h, Data: b.bytes[len(headers):]}, b
}

func addressOf(data *byte) uintptr { return uintptr(unsafe.Pointer(data)) }

// has reports whether a text shares memory with the message.
func (b block) has(text string) bool {
	within := func(data *byte, size int) bool {
		at, begin := addressOf(unsafe.StringData(text)), addressOf(data)
		return text != "" && begin <= at && at < begin+uintptr(size)
	}
	return within(unsafe.StringData(b.header), len(b.header)) || within(unsafe.SliceData(b.bytes), len(b.bytes))
}

// sharedBy lists what of a delivery shares memory with the message.
func (b block) sharedBy(d broker.Delivery) (all []string) {
	texts := map[string]string{"subject": d.Subject, "acknowledgement": d.Hold.AckSubject(),
		"body": unsafe.String(unsafe.SliceData(d.Body), len(d.Body))}
	for name, values := range d.Header {
		texts["name of "+name] = name
		for _, v := range values {
			texts["value of "+name] = v
		}
	}
	for what, text := range texts {
		if b.has(text) {
			all = append(all, what)
		}
	}
	slices.Sort(all)
	return all
}

const (
	ackOfStart = "$JS.ACK.RONDO.p-1.1.5.1.1704067200000000000.0"
	padding    = 60_000
)

// TestADeliveryKeepsNoOtherHeaders: what a delivery keeps of a message with headers that services
// do not know, with large ones, or with many values, shares no memory with the rest.
func TestADeliveryKeepsNoOtherHeaders(t *testing.T) {
	t.Parallel()
	c, id := testConn(), events.Header{events.HeaderMsgID: {"m"}}
	others := events.Header{broker.HeaderOthers: {"true"}}
	for name, test := range map[string]struct {
		headers string
		want    events.Header
	}{
		"one unknown":       {"Rondo-Id: m\r\nX: y\r\n", id},
		"a large unknown":   {"Rondo-Id: m\r\nX-Large: " + strings.Repeat("y", padding) + "\r\n", id},
		"many unknown":      {"Rondo-Id: m\r\n" + manyHeaders(padding), id},
		"unknown only":      {"X: y\r\n", others},
		"many unknown only": {manyHeaders(padding), others},
		"those of receivers": {"Rondo-Id: m\r\nNats-Msg-Id: n\r\nRondo-Accepted: 9@9\r\nRondo-Fired: x\r\n" +
			"Rondo-Again: 1\r\nRondo-Not-Before: 2024-01-01T00:00:00Z\r\nX: y\r\n", id},
		"one of NATS": {"Nats-Msg-Id: n\r\nNats-Rollup: all\r\n", events.Header{"Nats-Msg-Id": {"n"}}},
		"many values": {"Rondo-Id: m\r\n" + strings.Repeat("traceparent: t\r\n", 1000),
			events.Header{events.HeaderMsgID: {"m"}, "traceparent": slices.Repeat([]string{"t"}, 8)}},
		"a large known one": {"Rondo-Id: m\r\nbaggage: " + strings.Repeat("b", padding) + "\r\n",
			events.Header{events.HeaderMsgID: {"m"}, "baggage": {strings.Repeat("b", padding)}}},
	} {
		m, b := incoming(t, "rondo.p.1.start.o.i", ackOfStart, test.headers, `{"the":"body"}`)
		d, _, _, err := c.delivery(m)
		if err != nil || d.Subject != "rondo.start.o.i" || string(d.Body) != `{"the":"body"}` {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		if !maps.EqualFunc(d.Header, test.want, slices.Equal[[]string]) {
			t.Errorf("%s: came with %.200v, want %.200v", name, d.Header, test.want)
		}
		shared := b.sharedBy(d)
		if len(b.header) <= maxBlock { // the body may keep so much
			shared = slices.DeleteFunc(shared, func(what string) bool { return what == "body" })
		}
		if len(shared) > 0 {
			t.Errorf("%s: %s keep the headers in memory", name, strings.Join(shared, ", "))
		}
	}
}

// manyHeaders has as many headers as fit.
func manyHeaders(size int) string {
	var b strings.Builder
	for name := []byte("aaaa"); b.Len() < size; {
		b.Write(name)
		b.WriteString(":\r\n")
		for i := len(name) - 1; i >= 0; i-- {
			if name[i]++; name[i] <= 'z' {
				break
			}
			name[i] = 'a'
		}
	}
	return b.String()
}

// TestUsualHeadersAreKeptAsTheyAre: a message with small headers that services know costs no copy.
func TestUsualHeadersAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	m, b := incoming(t, "rondo.p.1.start.o.i", ackOfStart, "Rondo-Id: m\r\nNats-Msg-Id: n\r\nbaggage: b\r\n", "body")
	d, _, _, err := testConn().delivery(m)
	want := events.Header{events.HeaderMsgID: {"m"}, "baggage": {"b"}}
	if err != nil || !maps.EqualFunc(d.Header, want, slices.Equal[[]string]) || len(b.sharedBy(d)) != 5 {
		t.Errorf("%+v shares %v (%v)", d, b.sharedBy(d), err)
	}
	m, _ = incoming(t, "rondo.p.1.start.o.i", ackOfStart, "", "body")
	m.Header = nil
	if d, _, _, err := testConn().delivery(m); err != nil || d.Header != nil {
		t.Errorf("%+v has headers, want none (%v)", d, err)
	}
}

// TestALookKeepsNoHeaders: a receiver remembers the instances whose messages are not settled, and
// not the headers of those messages.
func TestALookKeepsNoHeaders(t *testing.T) {
	t.Parallel()
	const subject = "rondo.p.1.start.o.i"
	m, b := incoming(t, "inbox", "", "X-Large: "+strings.Repeat("y", padding)+"\r\n"+
		"Nats-Stream: RONDO\r\nNats-Sequence: 7\r\nNats-Subject: "+subject+"\r\n"+
		"Nats-Time-Stamp: 2024-01-01T00:00:00Z\r\n", "body")
	s, ok := storedIn(m)
	if !ok || s.subject != subject || s.place != 7 {
		t.Fatalf("%+v, %t", s, ok)
	}
	if b.has(s.subject) {
		t.Error("the subject keeps the headers in memory")
	}
}

// TestDirectResultsKeepNoOtherHeaders is TestADeliveryKeepsNoOtherHeaders for results that are
// delivered directly, alone or in a bundle.
func TestDirectResultsKeepNoOtherHeaders(t *testing.T) {
	t.Parallel()
	var came []broker.Delivery
	take := resultTaker(func(d broker.Delivery) outcome { came = append(came, d); return outcomeOpen })
	k := &directResults{conn: testConn(), takers: map[int]*resultTaker{-1: &take}}
	const subject, reply = "rondo.task-done.1-2.i", "rondo.direct.answer.result.random.1"
	alone, b := incoming(t, "rondo.direct.result.to.o", reply, "Rondo-Subject: "+subject+"\r\nRondo-Id: m\r\nX-Large: "+
		strings.Repeat("y", padding)+"\r\n", "7")
	k.hear(alone)
	bundle := appendResult(nil, events.Wire{Subject: subject, Body: []byte("7"),
		Header: events.Header{events.HeaderMsgID: {"m"}, "X": {strings.Repeat("y", padding)}, "Y": {"", ""}}})
	together, _ := incoming(t, "rondo.direct.result.to.o", reply, "Rondo-Results: 1\r\n", string(bundle))
	k.hear(together)
	if len(came) != 2 {
		t.Fatalf("%d results came, want 2", len(came))
	}
	for _, d := range came {
		if d.Subject != subject || string(d.Body) != "7" ||
			!maps.EqualFunc(d.Header, map[string][]string{events.HeaderMsgID: {"m"}}, slices.Equal[[]string]) {
			t.Errorf("%.200v came", d)
		}
	}
	if shared := b.sharedBy(came[0]); len(shared) > 0 {
		t.Errorf("%s keep the headers in memory", strings.Join(shared, ", "))
	}
}
