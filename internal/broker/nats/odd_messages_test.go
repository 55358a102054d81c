package natsbroker_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// rawClient is a NATS client that sends bytes as they are: the client library refuses odd headers.
type rawClient struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
	n     int
}

func newRawClient(t *testing.T, s *embedded.Server, user string) *rawClient {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawClient{t: t, conn: conn, lines: bufio.NewReader(conn)}
	c.send(`CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"user":%q,"pass":%q}`+"\r\n"+
		"SUB _INBOX.raw.* 1\r\n", user, user)
	return c
}

func (c *rawClient) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// publish publishes a message, and waits until NATS has stored it.
func (c *rawClient) publish(subject, header, body string) {
	c.t.Helper()
	c.n++
	c.send("HPUB %s _INBOX.raw.%d %d %d\r\n%s%s\r\n", subject, c.n, len(header), len(header)+len(body), header, body)
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(line, "-ERR"), strings.Contains(line, `"error"`):
			c.t.Fatalf("publish on %q: %s", subject, line)
		case strings.Contains(line, `"seq"`):
			return
		case strings.HasPrefix(line, "PING"):
			c.send("PONG\r\n")
		}
	}
}

// onePartition starts a server with the shipped accounts, and makes a system with one partition.
func onePartition(t *testing.T) (*embedded.Server, *natsbroker.Bus) {
	t.Helper()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	b := made(t, s, "shop-setup", "rondo")
	if err := b.SetPartitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	drain(t, b)
	return s, b
}

// forgedAnswers are headers that make a stored message look like another one, or like the end of an
// answer, when it is read from its stream.
var forgedAnswers = map[string]string{
	"status":       "NATS/1.0\r\nStatus: 500\r\nDescription: forged\r\n\r\n",
	"end":          "NATS/1.0\r\nStatus: 204\r\n\r\n",
	"nothing":      "NATS/1.0\r\nStatus: 404\r\n\r\n",
	"in-line":      "NATS/1.0 404 Forged\r\nX: y\r\n\r\n",
	"far-end":      "NATS/1.0\r\nStatus: 204\r\nNats-Last-Sequence: 99999999\r\n\r\n",
	"in-line-end":  "NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 99999999\r\n\r\n",
	"sequence":     "NATS/1.0\r\nNats-Sequence: 1\r\n\r\n",
	"far-sequence": "NATS/1.0\r\nNats-Sequence: 99999999\r\n\r\n",
	"no-sequence":  "NATS/1.0\r\nNats-Sequence: x\r\n\r\n",
	"subject":      "NATS/1.0\r\nNats-Subject: rondo.p.0.start.o.victim\r\n\r\n",
	"time":         "NATS/1.0\r\nNats-Time-Stamp: x\r\n\r\n",
	"malformed":    "NATS/1.0\r\nno colon\r\n\r\n",
	"not-a-header": "x\r\n\r\n",
	"no-end":       "NATS/1.0\r\nX: y",
	"short-status": "NATS/1.0 1\r\n\r\n",
	"two-blocks": "NATS/1.0\r\nNats-Stream: RONDO\r\nNats-Subject: rondo.p.0.start.o.victim\r\nNats-Sequence: 1\r\n" +
		"Nats-Time-Stamp: 2001-01-01T00:00:00Z\r\n\r\nX: y\r\n\r\n",
}

// A client stores messages that look like other answers of NATS when they are read from the stream,
// with the shipped permissions. A receiver that takes over the partition knows all messages that
// another one has received and not settled, and delivers those of others.
func TestStoredMessagesForgeNoAnswers(t *testing.T) {
	t.Parallel()
	s, _ := onePartition(t)
	client, js := newRawClient(t, s, "shop-client"), rawJetStreamAs(t, s, "shop-setup")
	o := asOrchestrator(t, s)
	for name, header := range forgedAnswers {
		client.publish("rondo.start.o.delayed", notBefore(time.Hour), "")
		client.publish("rondo.start.o.odd", header, "")
		client.publish("rondo.start.o.others", "NATS/1.0\r\n\r\n", "")
		state := streamInfo(t, t.Context(), js, "RONDO").State
		left, found, err := o.StillThere(t.Context(), 0, state.FirstSeq, state.LastSeq)
		want := map[string][]uint64{"odd": {state.LastSeq - 1}, "others": {state.LastSeq}}
		if err != nil || found != 3 || !maps.EqualFunc(left, want, slices.Equal) {
			t.Errorf("%s: there are %d: %v, %v; want 3 and %v", name, found, left, err, want)
		}

		// The first receiver settles the messages later, as if no orchestrator had their code.
		first, end := context.WithCancel(t.Context())
		came, ended := make(chan string, 10), make(chan error, 1)
		go func() {
			ended <- o.Receive(first, 0, func(d broker.Delivery) {
				d.Hold.Nak(time.Hour)
				came <- d.Subject
			})
		}()
		for range 2 {
			select {
			case <-came:
			case <-time.After(longEnough):
				t.Fatalf("%s: a start does not come", name)
			}
		}
		end()
		if err := <-ended; err != nil {
			t.Errorf("%s: the first receiver: %v", name, err)
		}
		client.publish("rondo.event.e.last", "NATS/1.0\r\n\r\n", "")
		second, stop := context.WithCancel(t.Context())
		go func() {
			ended <- o.Receive(second, 0, func(d broker.Delivery) {
				d.Hold.Ack()
				came <- d.Subject
			})
		}()
		select {
		case subject := <-came:
			if subject != "rondo.event.e.last" {
				t.Errorf("%s: %s came", name, subject)
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("%s: the second receiver: %v", name, err)
			}
		case err := <-ended:
			stop()
			t.Errorf("%s: the second receiver: %v", name, err)
		case <-time.After(longEnough):
			t.Fatalf("%s: the message of others does not come", name)
		}
		inbox, err := js.Stream(t.Context(), "RONDO")
		if err != nil {
			t.Fatal(err)
		}
		if err := inbox.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A client stores very many messages that look like other answers of NATS. A receiver asks the
// leader of the stream about few of them, and finds the messages of others behind them.
func TestManyForgedAnswersAreLeftOut(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	const forged, large = 100, 12 // large ones fill batches that have no others
	client := newRawClient(t, s, "client")
	for range forged {
		client.publish("rondo.start.o.odd", forgedAnswers["sequence"], "")
	}
	for range large {
		client.publish("rondo.start.o.odd", forgedAnswers["sequence"], strings.Repeat("x", 900<<10))
	}
	client.publish("rondo.start.o.others", "NATS/1.0\r\n\r\n", "")
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked, err := nc.SubscribeSync("$JS.API.STREAM.MSG.GET.RONDO")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(longEnough); err != nil { // the server has the subscription
		t.Fatal(err)
	}
	left, _, err := b.StillThere(t.Context(), 0, 1, forged+large+1)
	if err != nil || !slices.Equal(left["others"], []uint64{forged + large + 1}) {
		t.Errorf("the message of others is at %d, %v; want %d", left["others"], err, forged+large+1)
	}
	if err := nc.FlushTimeout(longEnough); err != nil { // the server has sent the requests
		t.Fatal(err)
	}
	if n, _, err := asked.Pending(); n == 0 || n > 64 || err != nil {
		t.Errorf("the leader is asked about %d messages, %v; want at most 64", n, err)
	}
}

// A client delays starts of instances with odd names, with the shipped permissions. Delayed
// messages of others are taken over all the same.
func TestOddSubjectsHoldUpNoDelayedMessages(t *testing.T) {
	t.Parallel()
	s, _ := onePartition(t)
	client := newRawClient(t, s, "shop-client")
	// NATS refuses the second for the place of the first, and the receiver compares the two.
	for _, name := range []string{"\x01", "\x7f", "\a", `"`, `\`, "<", "\xff", "\u00ad", "\U000e0001"} {
		client.publish("rondo.start.o."+name, notBefore(time.Hour), "")
		client.publish("rondo.start.o."+name, notBefore(2*time.Hour), "")
	}
	client.publish("rondo.start.o.others", notBefore(time.Hour), "")
	_, stop := receive(t, asOrchestrator(t, s))
	later, err := rawJetStreamAs(t, s, "shop-setup").Stream(t.Context(), "RONDO_LATER")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the start of others waits", func() bool {
		_, err := later.GetLastMsgForSubject(t.Context(), "rondo.later.start.o.others")
		return err == nil
	})
	stop()
}

// A delayed start waits for the messages of its instance that were stored before it was due. The
// stream tells the next one, however odd the instance's name is: otherwise the receiver would ask
// for it again and again, and timers of others would wait meanwhile.
func TestOddSubjectsHoldUpNoTimers(t *testing.T) {
	t.Parallel()
	s, _ := onePartition(t)
	client, js := newRawClient(t, s, "shop-client"), rawJetStreamAs(t, s, "shop-setup")
	o := asOrchestrator(t, s)
	for _, name := range []string{"\x01", "\a", `"`, `\`, "<", "\u00ad", "\U000e0001"} {
		client.publish("rondo.start.o."+name, "NATS/1.0\r\n\r\n", "")
		want := streamInfo(t, t.Context(), js, "RONDO").State.LastSeq
		if place, err := o.NextOf(t.Context(), 0, name, 1); err != nil || place != want {
			t.Errorf("the next message of %q is at %d, %v; want %d", name, place, err, want)
		}
	}
}

// A client delays a start of an instance with a DEL in its name. NATS has no index of such
// subjects: it would not deliver the start when it is due, and keep it for ever among the delayed
// messages.
func TestSubjectsWithoutIndexAreNotDelayed(t *testing.T) {
	t.Parallel()
	s, _ := onePartition(t)
	client := newRawClient(t, s, "shop-client")
	// NATS delivers one that lies between others.
	client.publish("rondo.start.o.first", "NATS/1.0\r\n\r\n", "")
	client.publish("rondo.start.o.\x7f", notBefore(time.Hour), "")
	client.publish("rondo.start.o.last", "NATS/1.0\r\n\r\n", "")
	came, stop := receive(t, asOrchestrator(t, s))
	defer stop()
	for _, want := range []string{"rondo.start.o.first", "rondo.start.o.\x7f", "rondo.start.o.last"} {
		select {
		case d := <-came:
			if d.Subject != want || !d.NotBefore.IsZero() {
				t.Errorf("%q comes, not before %v; want %q at once", d.Subject, d.NotBefore, want)
			}
		case <-time.After(longEnough):
			t.Fatalf("%q does not come", want)
		}
	}
}

// A worker stores dead letters that look like other answers of NATS, with the shipped permissions.
// An operator sees each under its number, and removes the one that it means.
func TestForgedDeadLettersAreRead(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	operator := made(t, s, "shop-setup", "rondo")
	drain(t, operator)
	worker, js := newRawClient(t, s, "shop-worker"), rawJetStreamAs(t, s, "shop-setup")
	checker := asChecker(t, s)
	worker.publish("rondo.dead.task.gpu.a.1-2.first", "NATS/1.0\r\n\r\n", "first")
	for name, header := range forgedAnswers {
		worker.publish("rondo.dead.task.gpu.a.1-2.odd", header, name)
		worker.publish("rondo.dead.task.gpu.a.1-2.last", "NATS/1.0\r\n\r\n", "last")
		state := streamInfo(t, t.Context(), js, "RONDO_DEAD").State
		got := make(map[uint64]string)
		letters, err := checker.DeadLetters(t.Context(), 0, 10)
		for _, l := range letters {
			got[l.Sequence] = string(l.Body)
		}
		want := map[uint64]string{1: "first", state.LastSeq - 1: name, state.LastSeq: "last"}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: the dead letters are %v, %v; want %v", name, got, err, want)
		}
		l, err := checker.DeadLetter(t.Context(), state.LastSeq-1)
		if err != nil || l.Sequence != state.LastSeq-1 || string(l.Body) != name || l.DeadLetteredAt.IsZero() {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
		if name == "malformed" && l.Why.Detail == "" {
			t.Error("nothing tells why it has no headers")
		}
		if err := operator.Replay(t.Context(), state.LastSeq-1); err == nil {
			t.Errorf("%s: it is replayed", name)
		}
		for _, place := range []uint64{state.LastSeq - 1, state.LastSeq} {
			if err := operator.Drop(t.Context(), place); err != nil {
				t.Errorf("%s: drop %d: %v", name, place, err)
			}
		}
	}
	if l, err := checker.DeadLetter(t.Context(), 1); err != nil || string(l.Body) != "first" {
		t.Errorf("%+v, %v; want the first, which is still there", l, err)
	}
}

// The dead letter of a message with control characters in its subject has that subject. It is not
// replayed, because it would be a dead letter again, and the error names the right spelling.
func TestOddSubjectsAreNotReplayed(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	operator := made(t, s, "shop-setup", "rondo")
	drain(t, operator)
	o, checker := asOrchestrator(t, s), asChecker(t, s)
	right := map[string]string{"rondo.start.o.\x01": `"%01"`, "rondo.event.\u00ad.i\a": `"%C2%AD"`,
		`rondo.start.o."`: `"%22"`}
	for _, subject := range []string{"rondo.start.o.\x01", "rondo.event.\u00ad.i\a", `rondo.start.o."`} {
		d := broker.Delivery{Subject: subject, Sequence: 1, StoredAt: time.Now(), Body: []byte(subject)}
		if err := o.StoreDeadLetter(t.Context(), d, broker.Cause{Reason: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	letters, err := operator.DeadLetters(t.Context(), 0, 10)
	if err != nil || len(letters) != 3 {
		t.Fatalf("%d dead letters, %v", len(letters), err)
	}
	for _, l := range letters {
		if err := operator.Replay(t.Context(), l.Sequence); err == nil || l.Subject != string(l.Body) ||
			!strings.Contains(err.Error(), right[l.Subject]) {
			t.Errorf("replay %q of %q: %v", l.Subject, l.Body, err)
		}
		if has, err := checker.Has(t.Context(), events.Wire{Subject: string(l.Body)}); err != nil || has {
			t.Errorf("%q: %v, %v; want that it is not stored", l.Body, has, err)
		}
		if _, err := operator.DeadLetter(t.Context(), l.Sequence); err != nil {
			t.Errorf("%q: %v; want that it remains", l.Body, err)
		}
	}
}

// A client stores starts that look like other answers of NATS, with the shipped permissions. `rondo
// check` finds them.
func TestForgedStartsAreFound(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	drain(t, made(t, s, "shop-setup", "rondo"))
	client, checker := newRawClient(t, s, "shop-client"), asChecker(t, s)
	for name, header := range forgedAnswers {
		client.publish("rondo.start.o."+name, header, "")
		has, err := checker.Has(t.Context(), events.Wire{Subject: "rondo.start.o." + name})
		if err != nil || !has {
			t.Errorf("%s: %v, %v; want that it is stored", name, has, err)
		}
	}
}

func asChecker(t *testing.T, s *embedded.Server) *natsbroker.Bus {
	t.Helper()
	return natstest.Connect(t, s, natsbroker.Config{
		Login: natsbroker.Login{User: "shop-check", Password: "shop-check"}, Setup: natsbroker.Use,
		InboxPrefix: "_INBOX_check"})
}

func asOrchestrator(t *testing.T, s *embedded.Server) *natsbroker.Bus {
	t.Helper()
	return natstest.Connect(t, s, natsbroker.Config{
		Login: natsbroker.Login{User: "shop-orchestrator", Password: "shop-orchestrator"}, Setup: natsbroker.Verify,
		InboxPrefix: "_INBOX_orchestrator"})
}

// notBefore returns the headers of a delayed message.
func notBefore(by time.Duration) string {
	return "NATS/1.0\r\nRondo-Not-Before: " + time.Now().Add(by).UTC().Format(time.RFC3339Nano) + "\r\n\r\n"
}
