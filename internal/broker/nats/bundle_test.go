package natsbroker_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// overheard receives copies of direct deliveries.
type overheard struct {
	w    *directRoutes
	came chan *nats.Msg
}

// overhear receives copies of the direct deliveries to a subject, from now on.
func (w *directRoutes) overhear(back string) *overheard {
	w.t.Helper()
	o := &overheard{w, make(chan *nats.Msg, 1000)}
	nc, err := nats.Connect(w.server.URL(), nats.Timeout(time.Minute))
	w.must(err)
	w.t.Cleanup(nc.Close)
	_, err = nc.ChanSubscribe(back, o.came)
	w.must(err)
	w.must(nc.FlushTimeout(longEnough))
	return o
}

// messages waits until it has heard n results. It returns the number of results in each message; 0
// stands for a message with a single one.
func (o *overheard) messages(n int) (together []int) {
	o.w.t.Helper()
	for heard := 0; heard < n; {
		select {
		case m := <-o.came:
			many, _ := strconv.Atoi(m.Header.Get("Rondo-Results"))
			together = append(together, many)
			heard += max(many, 1)
		case <-time.After(longEnough):
			o.w.t.Fatalf("messages had %v results; want %d in all", together, n)
		}
	}
	return together
}

// inPlaceOf answers direct deliveries in place of an orchestrator. It returns their subject.
func (w *directRoutes) inPlaceOf(name string, answer func(m *nats.Msg) string) (back string) {
	w.t.Helper()
	nc, err := nats.Connect(w.server.URL(), nats.Timeout(time.Minute))
	w.must(err)
	w.t.Cleanup(nc.Close)
	back = "rondo.direct.result.to." + name
	_, err = nc.Subscribe(back, func(m *nats.Msg) { _ = m.Respond([]byte(answer(m))) })
	w.must(err)
	w.must(nc.FlushTimeout(longEnough))
	return back
}

// sendDirect sends a direct delivery of a kind, and returns the answer.
func sendDirect(nc *nats.Conn, kind string, m *nats.Msg, most time.Duration) (*nats.Msg, error) {
	m.Reply = "rondo.direct.answer." + kind + "." + nats.NewInbox()[len(nats.InboxPrefix):] + ".1"
	answers, err := nc.SubscribeSync(m.Reply)
	if err != nil {
		return nil, err
	}
	defer answers.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	if err := nc.PublishMsg(m); err != nil {
		return nil, err
	}
	return answers.NextMsg(most)
}

func results(n int, back string) (all []events.Wire) {
	for i := range n {
		r := result(fmt.Sprint("i", i), back)
		r.Header[events.HeaderTrace], r.Body = []string{"1", fmt.Sprint(i)}, fmt.Append(nil, i)
		all = append(all, r)
	}
	return all
}

func TestResultsGoTogether(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	back := w.way("i")
	heard := w.overhear(back)
	const n = 300
	sent := results(n, back)
	done := w.send(sent...)
	var came []broker.Delivery
	for range n {
		d := w.next()
		i, err := strconv.Atoi(string(d.Body))
		if err != nil || !isDirect(d) || d.NumDelivered != 1 || d.Subject != sent[i].Subject ||
			!maps.EqualFunc(d.Header, sent[i].Header, slices.Equal[[]string]) {
			t.Fatalf("came %+v", d)
		}
		came = append(came, d)
	}
	for i, d := range came {
		if i == n-1 {
			select {
			case err := <-done:
				t.Fatalf("all are said to be stored (%v) before the last is settled", err)
			default:
			}
		}
		d.Hold.Ack()
		d.Hold.Nak(0) // it is settled
	}
	w.stored(done)
	w.wantShort(n, 0)
	if is := heard.messages(n); len(is) != 3 || slices.Contains(is, 0) {
		t.Errorf("%d results went in messages of %v; want three", n, is)
	}
}

// A large result gets a message of its own, and a bundle does not become large.
func TestBundlesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	back := w.way("i")
	heard := w.overhear(back)
	const n, large = 40, 8
	sent := results(n, back)
	for i := range sent {
		if sent[i].Body = make([]byte, 5<<10); i < large {
			sent[i].Body = make([]byte, 20<<10)
		}
	}
	done := w.send(sent...)
	for range sent {
		w.next().Hold.Ack()
	}
	w.stored(done)
	w.wantShort(n, 0)
	is := heard.messages(n)
	slices.Sort(is)
	if alone := len(is) - len(slices.DeleteFunc(slices.Clone(is), func(n int) bool {
		return n == 0
	})); alone != large || slices.Max(is) > 13 {
		t.Errorf("messages had %v results; want %d alone, and no more than 13 together", is, large)
	}
}

// Each result of a bundle is settled on its own: a nacked result does not wait for the rest.
func TestBundlesAreSettledOneByOne(t *testing.T) {
	t.Parallel()
	t.Run("returned", func(t *testing.T) {
		t.Parallel()
		w := newWays(t, natsbroker.Config{}) // it waits for longer than the test
		done := w.send(results(10, w.way("i"))...)
		var lost broker.Delivery
		for range 10 {
			switch d := w.next(); string(d.Body) {
			case "3":
				lost = d // is not settled before the returned one comes again
			case "7":
				d.Hold.Nak(time.Hour)
			default:
				d.Hold.Ack()
			}
		}
		if got := w.nextStored(); got != "7" {
			t.Errorf("%s came through the stream, want 7", got)
		}
		lost.Hold.Ack()
		w.stored(done)
		w.wantShort(9, 1)
	})
	t.Run("returned and not settled", func(t *testing.T) {
		t.Parallel()
		bundleWithALostResult(t)
	})
}

// nextStored waits for a redelivery through the stream, and returns its body.
func (w *directRoutes) nextStored() string {
	w.t.Helper()
	d := w.next()
	if isDirect(d) || d.NumDelivered < 2 {
		w.t.Errorf("came %+v, want a redelivery through the stream", d)
	}
	d.Hold.Ack()
	return string(d.Body)
}

func bundleWithALostResult(t *testing.T) {
	w := newWays(t, natsbroker.Config{})
	w.worker.WaitDirect(10 * time.Second)
	done := w.send(results(10, w.way("i"))...)
	var lost broker.Delivery
	for range 10 {
		switch d := w.next(); string(d.Body) {
		case "3":
			lost = d // is not settled in time
			lost.Hold.InProgress()
		case "7":
			d.Hold.Nak(time.Hour)
		default:
			d.Hold.Ack()
		}
	}
	both := []string{w.nextStored(), w.nextStored()}
	if slices.Sort(both); !slices.Equal(both, []string{"3", "7"}) {
		t.Errorf("%s came through the stream, want 3 and 7", both)
	}
	w.stored(done)
	w.wantShort(8, 2)
	lost.Hold.Ack() // changes nothing
}

// A receiver that does not accept bundles gets the results one by one.
func TestBundlesGoOnlyToWhoTakesThem(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	var mu sync.Mutex
	var subjects []string
	back := w.inPlaceOf("OLD7", func(m *nats.Msg) string {
		mu.Lock()
		defer mu.Unlock()
		subjects = append(subjects, m.Header.Get("Rondo-Subject"))
		return "+OK"
	})
	w.stored(w.send(results(5, back)...))
	w.wantShort(5, 0)
	mu.Lock()
	defer mu.Unlock()
	if slices.Sort(subjects); len(slices.Compact(subjects)) != 5 || slices.Contains(subjects, "") {
		t.Errorf("came %q", subjects)
	}
}

// No result is lost, whatever the answer to a bundle is.
func TestBundlesAndOddAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		short  uint64
	}{
		"one for all":     {"+OK", 0},
		"nothing":         {"", 0},
		"too short":       {"OOOO", 0},
		"too long":        {"OOOOOO", 0},
		"unknown letters": {"OOxO\x00", 3},
		"refused":         {"ONBGO", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWays(t, natsbroker.Config{})
			w.t = t
			back := w.inPlaceOf("ODD7b", func(*nats.Msg) string { return c.answer })
			done := w.send(results(5, back)...)
			for range 5 - c.short {
				d := w.next()
				if isDirect(d) {
					t.Errorf("%s came by direct delivery", d.Subject)
				}
				d.Hold.Ack()
			}
			w.stored(done)
			w.wantShort(c.short, 5-c.short)
		})
	}
}

// Bundles from other clients do no harm.
func TestBundlesOfStrangers(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	back := w.way("i")
	nc, err := nats.Connect(w.server.URL(), nats.Timeout(time.Minute))
	w.must(err)
	defer nc.Close()
	one := natsbroker.AppendResult(nil, result("i", ""))
	large := result("i", "")
	large.Body = make([]byte, 256<<10)
	many := result("i", "")
	many.Header = events.Header{"Y": make([]string, 65)}
	for name, c := range map[string]struct{ count, body, want string }{
		"nothing":                        {"1", "", "-NOT HERE"},
		"no number":                      {"x", string(one), "-NOT HERE"},
		"none":                           {"0", "", "-NOT HERE"},
		"less than there are":            {"1", string(one) + string(one), "-NOT HERE"},
		"more than there are":            {"2", string(one), "-NOT HERE"},
		"more than there may be":         {"1000000000", string(one), "-NOT HERE"},
		"cut off":                        {"1", string(one[:len(one)-1]), "-NOT HERE"},
		"a text longer than all":         {"1", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "-NOT HERE"},
		"more headers than there can be": {"1", "\x01a\xff\xff\xff\xff\x7f", "-NOT HERE"},
		"too large":                      {"1", string(natsbroker.AppendResult(nil, large)), "-NOT HERE"},
		"too many headers":               {"1", string(natsbroker.AppendResult(nil, many)), "-NOT HERE"},
		"none is a result": {"2", string(natsbroker.AppendResult(natsbroker.AppendResult(nil,
			events.Wire{Subject: "rondo.start.o.i"}), events.Wire{})), "NN"},
	} {
		answer, err := sendDirect(nc, "result", &nats.Msg{Subject: back,
			Header: nats.Header{"Rondo-Results": {c.count}}, Data: []byte(c.body)}, longEnough)
		if err != nil || string(answer.Data) != c.want {
			t.Errorf("%s: answered is %v (%v), want %q", name, answer, err, c.want)
		}
	}
	w.stored(w.send(result("last", "")))
	if d := w.next(); !strings.HasSuffix(d.Subject, ".last") {
		t.Errorf("came %s", d.Subject)
	}
}

// A result with many headers, or with long ones, is not sent in a bundle, and arrives.
func TestBundlesHaveNoLargeHeaders(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	back := w.way("i")
	heard := w.overhear(back)
	sent := results(4, back)
	sent[0].Header["Z"] = make([]string, 70)
	sent[1].Header["Z"] = []string{strings.Repeat("z", 70<<10)}
	done := w.send(sent...)
	for range sent {
		d := w.next()
		if !isDirect(d) {
			t.Errorf("%s came through the stream", d.Subject)
		}
		d.Hold.Ack()
	}
	w.stored(done)
	if is := heard.messages(4); len(is) != 3 || slices.Max(is) != 2 {
		t.Errorf("messages had %v results; want two alone, and two together", is)
	}
}

// A receiver that does not keep up holds a bounded number of messages, however many a worker
// publishes. A result that is dropped goes through the stream.
func TestUnhandledResultsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWays(t, natsbroker.Config{})
	w.worker.WaitDirect(300 * time.Millisecond)
	back := w.way("i")
	nc, err := nats.Connect(w.server.URL(), nats.Timeout(time.Minute))
	w.must(err)
	defer nc.Close()
	dropped, release := w.orchestrator.HoldResults()
	release = sync.OnceFunc(release)
	defer release()
	const n = 5000
	for i := range n {
		m := &nats.Msg{Subject: back, Reply: "rondo.direct.answer.result.x.1",
			Header: nats.Header{"Rondo-Subject": {"rondo.task-done.1-2.i"}}}
		if i > 0 { // only the first one reaches the held handler; the others are refused
			m.Header["Rondo-Subject"] = []string{"rondo.start.o.i"}
		}
		w.must(nc.PublishMsg(m))
	}
	w.must(nc.FlushTimeout(longEnough))
	var lost int
	natstest.Eventually(t, "some are dropped", func() bool {
		lost, err = dropped()
		w.must(err)
		return lost >= n-4097
	})
	done := w.send(result("j", back))
	d := w.next()
	release()
	if isDirect(d) || !strings.HasSuffix(d.Subject, ".j") {
		t.Errorf("came %s at %d, want the result through the stream", d.Subject, d.Sequence)
	}
	d.Hold.Ack()
	w.stored(done)
}

// A broken connection loses no result of a bundle.
func TestBundlesWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	w, line := newWaysOverLine(t)
	done := w.send(results(20, w.way("i"))...)
	var first []broker.Delivery
	for range 20 {
		first = append(first, w.next())
	}
	for _, d := range first[:5] {
		d.Hold.Ack() // the sender does not learn it while others are open
	}
	line.Break()
	seen := make(map[string]bool)
	for len(seen) < 20 {
		d := w.next()
		d.Hold.Ack()
		seen[d.Subject] = true
	}
	for _, d := range first {
		d.Hold.Ack()
	}
	w.stored(done)
}

// FuzzBundle parses bundles of any client. A bundle that can be parsed is written the same way
// again, but for the order of headers.
func FuzzBundle(f *testing.F) {
	f.Add("1", natsbroker.AppendResult(nil, result("i", "")))
	f.Add("2", natsbroker.AppendResult(natsbroker.AppendResult(nil,
		events.Wire{Subject: "a", Header: events.Header{"A": {"1", "2"}}}), events.Wire{Body: []byte("x")}))
	f.Add("1", []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, count string, body []byte) {
		all, err := natsbroker.ReadBundle(count, body)
		if err != nil {
			return
		}
		var again []byte
		for _, w := range all {
			again = natsbroker.AppendResult(again, w)
		}
		same, err := natsbroker.ReadBundle(fmt.Sprint(len(all)), again)
		if err != nil || len(same) != len(all) {
			t.Fatalf("%v: %q became %q", err, body, again)
		}
		for i, w := range all {
			if s := same[i]; s.Subject != w.Subject || string(s.Body) != string(w.Body) ||
				!maps.EqualFunc(s.Header, w.Header, slices.Equal[[]string]) {
				t.Errorf("%+v became %+v", w, s)
			}
		}
	})
}
