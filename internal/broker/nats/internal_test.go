package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	"github.com/rondo-run/rondo/pkg/events"
)

func TestServersThatAreTooOldAreRefused(t *testing.T) {
	for version, want := range map[string]struct{ good, fine bool }{
		"2.11.9": {false, false}, "1.0.0": {false, false}, "2.12.0-RC.1": {false, false},
		"2.12.0": {false, true}, "2.13.7": {false, true}, "2.14.0": {true, true}, "2.15.2": {true, true},
		"3.0.0-dev": {true, true},
	} {
		good, err := checkVersion(version)
		if good != want.good || (err == nil) != want.fine {
			t.Errorf("%q: %v, %v", version, good, err)
		}
	}
}

func TestConsumerNamesTellQueuesApart(t *testing.T) {
	names := make(map[string]broker.TaskQueueName)
	words := []string{"", "_", "__", "a", "a_b", "a/b", "%5F", "%2F", "ü", strings.Repeat("é", 64),
		strings.Repeat("é", 63) + "x", strings.Repeat("a", 128)}
	for _, tag := range words {
		for _, activity := range words[1:] {
			q := broker.TaskQueueName{Tag: tag, Activity: activity}
			name := ConsumerOf(q)
			if other, ok := names[name]; ok {
				t.Errorf("%q is the name for %q and %q", name, q, other)
			}
			if names[name] = q; len(name) > 255 || strings.ContainsAny(name, "/\\.*> ") {
				t.Errorf("%q is no name", name)
			}
		}
	}
}

func testConn() *conn { return &conn{names: namesOf("rondo")} }

// FuzzAdopt hands over deliveries with odd positions of odd messages.
func FuzzAdopt(f *testing.F) {
	f.Add("$JS.ACK.RONDO.p-1.1.5.1.1704067200000000000.0", "rondo.p.1.event.e.i", "NATS/1.0\r\nX: y\r\n\r\n")
	f.Add("$JS.ACK._.hash.RONDO_TASKS.w_t_a.2.5.1.1704067200000000000.0.x", "rondo.task.t.a.1-2.i", "")
	f.Add("$JS.ACK.RONDO.a--1.1.5.1.1704067200000000000.0", "rondo.p.-1.task.done.1-2.i", "NATS/1.0")
	f.Add("$JS.ACK.OTHER.c.1.5.1.1.1", "rondo.p.1", "")
	f.Add("rondo.event.e.i", "rondo.task.t", "")
	hs := &handovers{conn: testConn()}
	f.Fuzz(func(t *testing.T, token, subject, header string) {
		kind := broker.HandoverKindOf("rondo", subject)
		d, err := hs.rebuild(kind, token, &found{Subject: subject, Sequence: 5, Header: []byte(header),
			Time: time.Unix(1704067200, 0)})
		if err != nil {
			return
		}
		o, err := originOf(token)
		if err != nil || d.Hold.AckSubject() != token || o.consumer != hs.consumerOf(subject) {
			t.Errorf("%q would acknowledge %q (%v)", token, subject, err)
		}
		if d.Partition < 0 || d.NumDelivered < 1 || d.Sequence != 5 || !strings.HasPrefix(d.Subject, "rondo.") {
			t.Errorf("%+v", d)
		}
	})
}

// FuzzDelivery receives messages as any client may publish them.
func FuzzDelivery(f *testing.F) {
	const reply = "$JS.ACK.RONDO.p-1.1.5.1.1704067200000000000.0"
	f.Add(reply, "rondo.p.1.event.e.i", "2024-01-01T00:00:00Z", "id")
	f.Add("$JS.ACK._.hash.RONDO.p-1.1.5.1.1704067200000000000.0.x", "rondo.task.t.a.1-2.i", "", "")
	f.Add("$JS.ACK.RONDO.p-1.99999999999999999999.5.1.-1.0", "rondo.p.x", "9999-99-99", "\x00")
	f.Add(reply, "p.1.event", "20000-01-01T00:00:00Z", "id")
	c := testConn()
	f.Fuzz(func(t *testing.T, reply, subject, notBefore, id string) {
		m := &nats.Msg{Subject: subject, Reply: reply,
			Header: nats.Header{headerNotBefore: {notBefore}, events.HeaderMsgID: {id}, "Other": {"x"}}}
		d, _, at, err := c.delivery(m)
		if err != nil {
			return
		}
		if d.NumDelivered < 1 || len(d.Header["Other"]) != 0 {
			t.Errorf("%+v", d)
		}
		if rest := time.Until(at); !at.IsZero() && rest > math.MaxInt64-time.Hour && min(rest, maxReturn) != maxReturn {
			t.Errorf("it is returned for %v", rest)
		}
	})
}

func TestOrderOfWhatWasLeft(t *testing.T) {
	const prefix = "rondo.event.e."
	make1 := func(who string, place uint64) *waiting {
		return &waiting{d: broker.Delivery{Subject: prefix + who, Sequence: place}}
	}
	o := order{upTo: 10, left: map[string][]uint64{"a": {3, 5}, "b": {7}}, behind: make(map[string][]*waiting)}
	var got []uint64
	add := func(free []*waiting) {
		for _, w := range free {
			got = append(got, w.d.Sequence)
		}
	}
	for _, m := range []struct {
		who   string
		place uint64
	}{{"a", 12}, {"c", 11}, {"a", 13}, {"a", 5}, {"b", 14}, {"b", 7}, {"a", 12}, {"a", 3}, {"a", 15}} {
		add(o.arrive(make1(m.who, m.place)))
	}
	want := []uint64{11, 7, 14, 3, 5, 12, 13, 15}
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	if len(o.left)+len(o.behind) != 0 {
		t.Errorf("%+v is left", o)
	}
}

// Messages for one request are taken before messages for the next one, however slow this process
// is.
func TestAskingAnewKeepsTheOrder(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	b, err := Connect(t.Context(), Config{URLs: server.URL(), Partitions: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := b.receiver(fromClients, 0)
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	const times, each = 5, 20
	r.mu.Lock() // it is slow
	for n := range times {
		if err := r.renew(); err != nil {
			t.Fatal(err)
		}
		for i := range each {
			if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.event.e.i",
				Header: events.Header{events.HeaderMsgID: {fmt.Sprint(n, "-", i)}}}); err != nil {
				t.Fatal(err)
			}
		}
		for sent := 0; sent < (n+1)*each; {
			held, err := b.Backlog(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			sent = int(held.Held)
		}
	}
	r.mu.Unlock()
	var last uint64
	for range times * each {
		d, ok, err := r.pop()
		for ; !ok && err == nil; d, ok, err = r.pop() {
			<-r.queue.ready
		}
		if err != nil {
			t.Fatal(err)
		}
		if d.Sequence <= last {
			t.Fatalf("%d came after %d", d.Sequence, last)
		}
		last = d.Sequence
	}
	r.end()
}

func TestWithdrawalsAreNotOvertaken(t *testing.T) {
	w := func(subject string, purge bool) events.Wire { return events.Wire{Subject: subject, Purge: purge} }
	all := []events.Wire{w("a", false), w("a", true), w("b", false), w("c", true), w("a", false), w("d", true)}
	publish, withdraw, rest := split(all)
	if len(publish) != 2 || publish[1].Subject != "b" || len(withdraw) != 2 || withdraw[1].Subject != "c" ||
		len(rest) != 2 || rest[0].Subject != "a" {
		t.Errorf("%v, %v, %v", publish, withdraw, rest)
	}
}

// A message may be stored later if only room is missing; an invalid message is refused for good.
func TestWhatIsRefusedForGood(t *testing.T) {
	for err, want := range map[error]bool{
		&jetstream.APIError{Code: 400, ErrorCode: 10002}: false,
		&jetstream.APIError{Code: 503, ErrorCode: 10077}: false,
		&jetstream.APIError{Code: 400, ErrorCode: 10097}: true, // its headers are too large
		nats.ErrMaxPayload:            true,
		jetstream.ErrNoStreamResponse: false,
	} {
		if got := permanent(fmt.Errorf("publish: %w", err)); got != want {
			t.Errorf("%v: refused for good is %v", err, got)
		}
	}
}

func TestAskAgain(t *testing.T) {
	b := &conn{timeout: 5 * time.Second}
	busy, wrong := &jetstream.APIError{Code: 503}, &jetstream.APIError{Code: 400}
	for name, c := range map[string]struct {
		said  []error // nil is an answer, a timeout is none
		want  error
		asked int
		took  time.Duration
	}{
		"an answer":           {[]error{nil}, nil, 1, 0},
		"silence, then one":   {[]error{nats.ErrTimeout, nats.ErrTimeout, nil}, nil, 3, 3 * time.Second},
		"busy, then one":      {[]error{busy, nil}, nil, 2, 200 * time.Millisecond},
		"what is wrong stays": {[]error{wrong, nil}, wrong, 1, 0},
		"always busy": {[]error{busy, busy, busy, busy, busy, nil}, busy, 5,
			(200 + 400 + 800 + 1600) * time.Millisecond},
		"always silent": {slices.Repeat([]error{nats.ErrTimeout}, 9), context.DeadlineExceeded, 5,
			(1 + 2 + 4 + 4 + 4) * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				err := b.askAgain(t.Context(), func(ctx context.Context) error {
					asked++
					if c.said[asked-1] == nats.ErrTimeout {
						<-ctx.Done()
						return ctx.Err()
					}
					return c.said[asked-1]
				})
				if !errors.Is(err, c.want) || asked != c.asked || time.Since(began) != c.took {
					t.Errorf("%v after %d times and %v; want %v after %d and %v", err, asked, time.Since(began), c.want,
						c.asked, c.took)
				}
			})
		})
	}
	t.Run("it ends with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := b.askAgain(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 1500*time.Millisecond {
				t.Errorf("%v after %v", err, took)
			}
		})
	})
}

// TestAnswersAreRead parses the broker's answers to a message, in the usual form and in others, and
// answers to direct deliveries. Neither counts for the other.
func TestAnswersAreRead(t *testing.T) {
	t.Parallel()
	full := &jetstream.APIError{Code: 503, ErrorCode: 1, Description: "x"}
	for said, want := range map[string]struct{ stream, short error }{
		`{"stream":"RONDO","seq":12}`:             {nil, errBadAnswer},
		`{"stream":"RONDO", "seq":12}`:            {nil, errBadAnswer},
		`{"stream":"R","seq":1,"duplicate":true}`: {nil, errBadAnswer},
		`{"stream":"R","domain":"hub","seq":1}`:   {nil, errBadAnswer},
		`{"stream":"R","seq":1,"val":"5"}`:        {nil, errBadAnswer},
		`{"stream":"","seq":1}`:                   {errBadAnswer, errBadAnswer},
		`{"seq":1}`:                               {errBadAnswer, errBadAnswer},
		`{}`:                                      {errBadAnswer, errBadAnswer},
		`{"stream":"R","seq":`:                    {errBadAnswer, errBadAnswer},
		`{"stream":"R`:                            {errBadAnswer, errBadAnswer},
		``:                                        {errBadAnswer, errBadAnswer},
		`OK`:                                      {errBadAnswer, errBadAnswer},
		`+OK`:                                     {errBadAnswer, nil},
		`+OK `:                                    {errBadAnswer, errBadAnswer},
		`-BUSY`:                                   {errBadAnswer, errBusy},
		`-NOT HERE`:                               {errBadAnswer, errNotHere},
		`-GIVEN BACK`:                             {errBadAnswer, errReturned},
		`{"error":{"code":503,"err_code":1,"description":"x"},"stream":"R","seq":0}`: {full, errBadAnswer},
		`{"stream":"R","seq":0,"error":{"code":503,"err_code":1,"description":"x"}}`: {full, errBadAnswer},
	} {
		for short, want := range map[bool]error{false: want.stream, true: want.short} {
			if err := readAnswer(&nats.Msg{Data: []byte(said)}, short); !errors.Is(err, want) ||
				err == nil && want != nil {
				t.Errorf("%s, by direct delivery %v: %v, want %v", said, short, err, want)
			}
		}
	}
	if err := readAnswer(&nats.Msg{Header: nats.Header{"Status": {"503"}}}, true); !errors.Is(err,
		jetstream.ErrNoStreamResponse) {
		t.Error(err)
	}
}

// TestWaysAreAvoided avoids a subject for the longest of the times for which there was a reason.
func TestWaysAreAvoided(t *testing.T) {
	t.Parallel()
	var w directRoutes
	for _, why := range []error{errNotHere, errReturned, nats.ErrDisconnected} {
		if w.refused(events.Wire{DirectTo: "a"}, why); !w.may("a") {
			t.Errorf("after %v it is avoided", why)
		}
	}
	for _, why := range []error{nats.ErrPermissionViolation, errUnanswered, errBusy} {
		w.refused(events.Wire{DirectTo: "a"}, why)
	}
	if left := time.Until(w.avoid["a"]); left < avoidDenied/2 || w.may("a") {
		t.Errorf("it is avoided for %v", left)
	}
	for i := range 2 * maxAvoided {
		w.refused(events.Wire{DirectTo: fmt.Sprint("b", i)}, errUnanswered)
	}
	if len(w.avoid) > maxAvoided {
		t.Errorf("%d are remembered", len(w.avoid))
	}
}

// TestALeapOfTheBrokersClockRaisesNoWatermark: the clock of NATS was an hour ahead when it stored a
// message. It is right again, and messages stored after that may still arrive.
func TestALeapOfTheBrokersClockRaisesNoWatermark(t *testing.T) {
	for ahead, passes := range map[time.Duration]bool{time.Second: true, time.Hour: false} {
		r := &receiver{conn: testConn(), lane: fromClients, queue: newReadyQueue()}
		r.marks = newMarks(r)
		r.marks.arrived(1, time.Now().Add(ahead))
		r.marks.add(&mark{who: "i", at: time.Now()})
		if passed := r.marks.takePassed(); (len(passed) == 1) != passes {
			t.Errorf("after a message that was stored %v ahead, the mark passes: %v", ahead, !passes)
		}
	}
}

// TestAStalledWriteEndsTheConnection: the client holds its lock during a write. In the default
// settings of the library, a server that does not read would block health checks for a minute.
func TestAStalledWriteEndsTheConnection(t *testing.T) {
	opts, err := Config{}.options()
	if err != nil {
		t.Fatal(err)
	}
	o := nats.GetDefaultOptions()
	for _, set := range opts {
		if err := set(&o); err != nil {
			t.Fatal(err)
		}
	}
	if o.FlusherTimeout != writeTimeout || !o.ReconnectOnFlusherError {
		t.Errorf("a write may take %v, then the client connects again: %v", o.FlusherTimeout, o.ReconnectOnFlusherError)
	}
}

// TestRepeatedErrorsAreLoggedNowAndThen: a server answers each message for which a permission is
// missing with an error, and any client can send messages with bad headers, or too many.
func TestRepeatedErrorsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		c := newConn(Config{Prefix: events.DefaultPrefix, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer c.stop()
		c.hooks.denied = func(string) {}
		o := nats.GetDefaultOptions()
		for _, set := range c.handlers() {
			if err := set(&o); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range []struct {
			err  error
			want int
		}{{nats.ErrAuthorization, 1}, {nats.ErrPermissionViolation, 1}, {nats.ErrSlowConsumer, 1},
			{nats.ErrBadHeaderMsg, 1}, {nats.ErrStaleConnection, 1000}} {
			log.Reset()
			for range 1000 {
				o.AsyncErrorCB(nil, nil, x.err)
			}
			if n := strings.Count(log.String(), "\n"); n != x.want {
				t.Errorf("%v is logged %d times, want %d", x.err, n, x.want)
			}
		}
		log.Reset()
		<-time.After(warnEvery)
		o.AsyncErrorCB(nil, nil, nats.ErrPermissionViolation)
		if !strings.Contains(log.String(), "dropped=999") {
			t.Errorf("a minute later, the log is %q", log.String())
		}
	})
}

// TestARepairIsNotWaitedFor: while one repair waits for NATS, the callers of others wait for it no
// longer than their contexts.
func TestARepairIsNotWaitedFor(t *testing.T) {
	for name, repairs := range map[string]func(context.Context, *reconciler) error{
		"Repair": func(ctx context.Context, c *reconciler) error { return c.Repair(ctx) },
		"mend":   func(ctx context.Context, c *reconciler) error { return c.mend(ctx) },
		"stream": func(ctx context.Context, c *reconciler) error {
			return c.repairStream(ctx, jetstream.StreamConfig{})
		},
		"replicas": func(ctx context.Context, c *reconciler) error { return c.restoreReplicas(ctx, "RONDO") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &reconciler{resources: &resources{mending: make(mending, 1)}}
				if _, err := c.mending.hold(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := repairs(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it waited, and returned %v", err)
				}
			})
		})
	}
}

// TestCloseDoesNotWaitForNATS: a request in the background waits for a server that hangs.
func TestCloseDoesNotWaitForNATS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		c := newConn(Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}.withDefaults())
		responds := make(chan struct{})
		c.run(func() { <-responds })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(logged.String(), "the connection is not closed in time") {
			t.Errorf("it logs %q", logged.String())
		}
		close(responds)
	})
}

// TestConnectEndsWithItsContext: a server accepts the connection, and says nothing.
func TestConnectEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			accepted <- conn
			cancel()
		}
	}()
	if _, err := Connect(ctx, Config{URLs: "nats://" + l.Addr().String(), Timeout: time.Hour}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("Connect returns %v", err)
	}
	(<-accepted).Close()
}

// TestMessagesKeptAsideTakeRoom: a receiver that looks for lost messages on a slow machine asks for
// no more than it may hold. Otherwise it would take what another receiver of the partition waits
// for.
func TestMessagesKeptAsideTakeRoom(t *testing.T) {
	r := &receiver{queue: newReadyQueue(), state: receiverState{phase: shared}}
	r.pulls.asked = 100
	for range prefetch - 100 {
		r.aside = append(r.aside, &waiting{})
	}
	if room := r.room(); room != 0 {
		t.Errorf("there is room for %d messages", room)
	}
}
