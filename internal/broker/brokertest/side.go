package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

var sideTests = []test{
	{"a delivery is handed over and settled by the other", Settings{}, handedOver},
	{"a delivery that is refused stays", Settings{}, handoverRefused},
	{"a delivery cannot be handed to nobody", Settings{}, handoverToNobody},
	{"a session has one owner", Settings{}, sessionOwner},
	{"a session ends by itself", Settings{SessionLease: 2 * time.Second}, sessionEnds},
	{"one of many who claim a session gets it", Settings{}, sessionRace},
	{"keys keep their values", Settings{}, keys},
	{"a key is created once", Settings{}, createdOnce},
	{"a value is replaced by who has read it", Settings{}, replacedOnce},
	{"keys expire after their TTL", Settings{}, keysExpire},
	{"notices reach those who listen", Settings{}, notices},
	{"questions are answered", Settings{}, questions},
	{"a handler knows requests of one connection", Settings{}, requesters},
	{"a question nobody answers fails at once", Settings{}, questionToNobody},
	{"errors of who answers keep their code", Settings{}, answerErrors},
	{"questions are answered concurrently", Settings{}, manyQuestions},
	{"answers and questions that are too large are errors", Settings{}, largeAnswers},
	{"answers that are being made are given when answering stops", Settings{}, lastAnswers},
	{"every process answers a discovery request", Settings{}, discovery},
	{"a discovery request without responders says so", Settings{}, emptyDiscovery},
}

func discovery(t *T) {
	a, b, asks := t.bus(), t.bus(), t.bus()
	here := func(b Bus, name string) (stop func()) {
		stop, err := b.HandleDiscovery("who", func(_ context.Context, request []byte) ([]byte, error) {
			return append([]byte(name+" "), request...), nil
		})
		t.must(err)
		return stop
	}
	defer here(a, "a1")()
	gone := here(a, "a2")
	defer here(b, "b1")()
	stop, err := b.HandleDiscovery("who", func(context.Context, []byte) ([]byte, error) {
		return nil, errors.New("it does not know")
	})
	t.must(err)
	defer stop()
	answered := func(want ...string) func() bool {
		return func() bool {
			answers, err := asks.Discover(t.Context(), "who", []byte("?"), short/2)
			var got []string
			for _, a := range answers {
				got = append(got, string(a))
			}
			slices.Sort(got)
			return err == nil && slices.Equal(got, want)
		}
	}
	t.eventually("all answer", answered("a1 ?", "a2 ?", "b1 ?"))
	gone()
	t.eventually("who is gone does not answer", answered("a1 ?", "b1 ?"))
}

func emptyDiscovery(t *T) {
	a, b := t.bus(), t.bus()
	if err := t.bounded(func(ctx context.Context) error {
		_, err := a.Discover(ctx, "who", nil, long) // it does not wait for answers for so long
		return err
	}); !errors.Is(err, broker.ErrNoResponders) {
		t.Errorf("%v, want that nobody is there", err)
	}
	stop, err := b.HandleDiscovery("who", func(context.Context, []byte) ([]byte, error) {
		return nil, errors.New("it does not know")
	})
	t.must(err)
	defer stop()
	t.eventually("who fails to answer is nobody", func() bool {
		answers, err := a.Discover(t.Context(), "who", nil, short/4)
		return len(answers) == 0 && (err == nil || errors.Is(err, broker.ErrNoResponders))
	})
}

func handedOver(t *T) {
	a, b := t.bus(), t.bus()
	given := make(chan broker.Delivery, 10)
	for _, kind := range []broker.HandoverKind{broker.HandoverInbox, broker.HandoverTask} {
		stop, err := b.ReceiveHandovers(kind, "worker 2.x", func(d broker.Delivery) error { given <- d; return nil })
		t.must(err)
		defer stop()
	}
	q := broker.TaskQueueName{Activity: "a"}
	r := t.receive(a)
	t.publish(a, work(a, q, "i.1", "w"), event(a, "i.1", "e"))
	for _, g := range append(t.takeWork(a, q, 1), r.next()) {
		t.eventually("it is handed over", func() bool {
			return a.Handover(t.Context(), "worker 2.x", g.Delivery) == nil
		})
		d := <-given
		want, is := g.Delivery, d
		if is.Hold.AckSubject() != want.Hold.AckSubject() {
			t.Errorf("token %q, want %q", is.Hold.AckSubject(), want.Hold.AckSubject())
		}
		want.Hold, is.Hold = nil, nil
		if !reflect.DeepEqual(is, want) {
			t.Errorf("%+v, want %+v", is, want)
		}
		d.Hold.InProgress()
		d.Hold.Nak(0)
	}
	for _, g := range append(t.takeWork(a, q, 1), r.next()) {
		if g.NumDelivered != 2 {
			t.Errorf("%s: delivery %d, want that the other has returned it", g.Subject, g.NumDelivered)
		}
		again := g.Delivery
		again.Nacked = 1 // by this process, on purpose
		t.eventually("it is handed over", func() bool {
			return a.Handover(t.Context(), "worker 2.x", again) == nil
		})
		d := <-given
		if d.Nacked != 1 {
			t.Errorf("%s: %d deliveries were nacked on purpose, want 1", d.Subject, d.Nacked)
		}
		d.Hold.Ack()
	}
	t.empty()
}

func handoverRefused(t *T) {
	a, b := t.bus(), t.bus()
	stop, err := b.ReceiveHandovers(broker.HandoverInbox, "full",
		func(broker.Delivery) error { return errors.New("no room\nfor more") })
	t.must(err)
	defer stop()
	r := t.receive(a)
	t.publish(a, event(a, "i", "x"))
	g := r.next()
	var said error
	t.eventually("it is refused", func() bool {
		said = a.Handover(t.Context(), "full", g.Delivery)
		if said == nil {
			t.Fatal("it was taken")
		}
		return !errors.Is(said, broker.ErrNoResponders)
	})
	if !strings.Contains(said.Error(), "no room") {
		t.Errorf("%v, want the reason", said)
	}
	g.Hold.Ack()
	t.empty()
}

func handoverToNobody(t *T) {
	a, b := t.bus(), t.bus()
	r := t.receive(a)
	t.publish(a, event(a, "i", "x"))
	g := r.next()
	if err := t.bounded(func(ctx context.Context) error {
		return a.Handover(ctx, "nobody", g.Delivery)
	}); !errors.Is(err, broker.ErrNoResponders) {
		t.Errorf("%v, want that nobody is there", err)
	}
	stop, err := b.ReceiveHandovers(broker.HandoverInbox, "leaves", func(broker.Delivery) error { return nil })
	t.must(err)
	stop()
	t.eventually("who has left is nobody", func() bool {
		return errors.Is(a.Handover(t.Context(), "leaves", g.Delivery), broker.ErrNoResponders)
	})
	g.Hold.Ack()
}

func sessionOwner(t *T) {
	a, b := t.bus(), t.bus()
	claim := func(b Bus, session, worker, want string) {
		t.Helper()
		if owner, err := b.Acquire(t.Context(), session, worker); err != nil || owner != want {
			t.Errorf("%s acquires %q: %q has it, %v; want %q", worker, session, owner, err, want)
		}
	}
	owner := func(b Bus, session, want string) {
		t.Helper()
		if is, err := b.Owner(t.Context(), session); err != nil || is != want {
			t.Errorf("%q has %q, %v; want %q", is, session, err, want)
		}
	}
	names := append([]string{"s", events.ReservedPrefix + "job", strings.Repeat("x", 128),
		strings.Repeat("x", 127) + "y"}, oddNames...)
	for i, s := range names {
		w1, w2 := fmt.Sprint("worker ", i), fmt.Sprint("other ", i)
		owner(a, s, "")
		claim(a, s, w1, w1)
		claim(b, s, w2, w1)
		claim(a, s, w1, w1)
		owner(b, s, w1)
		t.must(b.Release(t.Context(), s, w2)) // w2 is not the owner
		owner(b, s, w1)
	}
	for i, s := range names {
		w1, w2 := fmt.Sprint("worker ", i), fmt.Sprint("other ", i)
		owner(b, s, w1)
		t.must(b.Release(t.Context(), s, w1))
		owner(a, s, "")
		claim(b, s, w2, w2)
		owner(a, s, w2)
		t.must(a.Release(t.Context(), s, w2))
		t.must(a.Release(t.Context(), s, w2))
	}
}

func sessionEnds(t *T) {
	a, b := t.bus(), t.bus()
	names := []string{"s", events.ReservedPrefix + "job"}
	var renewed time.Time
	acquire := func() {
		t.Helper()
		renewed = time.Now()
		for _, name := range names {
			owner, err := a.Acquire(t.Context(), name, "w")
			t.must(err)
			if owner != "w" {
				t.Fatalf("%q has %q, though it was renewed", owner, name)
			}
		}
	}
	acquire()
	for range 16 { // for two leases at least
		pause(t.Context(), t.SessionLease/8)
		acquire()
	}
	for _, name := range names {
		t.eventually("the lease has ended", func() bool {
			owner, err := b.Acquire(t.Context(), name, "v")
			t.must(err)
			return owner == "v"
		})
	}
	if ended := time.Now(); ended.Before(renewed.Add(t.SessionLease / 2)) {
		t.Errorf("it ended %v after it was renewed, the lease is %v", ended.Sub(renewed), t.SessionLease)
	}
}

func sessionRace(t *T) {
	const workers = 8
	var all sync.WaitGroup
	owners := make([]string, workers)
	for i := range workers {
		b := t.bus()
		all.Go(func() {
			owner, err := b.Acquire(t.Context(), "s", fmt.Sprint("w", i))
			if err != nil {
				t.Error(err)
			}
			owners[i] = owner
		})
	}
	all.Wait()
	for _, o := range owners {
		if o == "" || o != owners[0] {
			t.Fatalf("%q have it", owners)
		}
	}
}

// keyIs checks the value of a key; nil stands for none.
func keyIs(t *T, b Bus, key string, want []byte) {
	t.Helper()
	if v, err := b.Get(t.Context(), key); err != nil || !bytes.Equal(v, want) || (v == nil) != (want == nil) {
		t.Errorf("key %q: %q, %v; want %q", key, v, err, want)
	}
}

// creates checks whether a key can be created.
func creates(t *T, b Bus, key, value string, want bool) {
	t.Helper()
	if ok, err := b.Create(t.Context(), key, []byte(value)); ok != want || err != nil {
		t.Errorf("create key %q: %t, %v; want %t", key, ok, err, want)
	}
}

// writtenOnce has several processes write a key at the same time, each a value of its own. One of
// them must succeed, and writtenOnce returns the value of that one, which the key must have then.
func writtenOnce(t *T, key string, write func(b Bus, value []byte) (ok bool, err error)) string {
	t.Helper()
	const n = 4
	var all sync.WaitGroup
	written := make(chan string, n)
	for i := range n {
		b := t.bus()
		all.Go(func() {
			value := fmt.Sprint("of ", i)
			if ok, err := write(b, []byte(value)); err != nil {
				t.Error(err)
			} else if ok {
				written <- value
			}
		})
	}
	all.Wait()
	if len(written) != 1 {
		t.Fatalf("%d of %d processes have written the key", len(written), n)
	}
	value := <-written
	keyIs(t, t.bus(), key, []byte(value))
	return value
}

// createdOnce has several processes create a key at the same time.
func createdOnce(t *T) {
	writtenOnce(t, "k", func(b Bus, value []byte) (bool, error) { return b.Create(t.Context(), "k", value) })
	b := t.bus()
	creates(t, b, "k", "another", false)
	t.must(b.Delete(t.Context(), "k"))
	creates(t, b, "k", "new", true)
	keyIs(t, b, "k", []byte("new"))
	t.must(b.Put(t.Context(), "empty", nil, 0))
	creates(t, b, "empty", "another", false)
}

// replaces checks whether the value of a key can be replaced.
func replaces(t *T, b Bus, key, read, value string, want bool) {
	t.Helper()
	if ok, err := b.Replace(t.Context(), key, []byte(read), []byte(value)); ok != want || err != nil {
		t.Errorf("replace %q of key %q: %t, %v; want %t", read, key, ok, err, want)
	}
}

// replacedOnce has several processes replace the same value of a key at the same time.
func replacedOnce(t *T) {
	b := t.bus()
	replaces(t, b, "k", "", "new", false) // an empty value is one, too
	keyIs(t, b, "k", nil)
	t.must(b.Put(t.Context(), "k", []byte("first"), 0))
	replaces(t, b, "k", "other", "new", false)

	value := writtenOnce(t, "k", func(b Bus, value []byte) (bool, error) {
		return b.Replace(t.Context(), "k", []byte("first"), value)
	})
	t.must(b.Delete(t.Context(), "k"))
	replaces(t, b, "k", value, "new", false)
	replaces(t, b, "k", "", "new", false)
	t.must(b.Put(t.Context(), "k", nil, 0))
	replaces(t, b, "k", "", "new", true)
	keyIs(t, b, "k", []byte("new"))
}

func keys(t *T) {
	a, b := t.bus(), t.bus()
	names := append([]string{"k", strings.Repeat("k", 700), "a.b ü", "group/name", "group/a/b", "group/", "//", "/n",
		"task/i/1-2", "task/", "task", "1-2"}, oddNames...)
	for i, key := range names {
		for _, ttl := range []time.Duration{0, time.Hour} {
			keyIs(t, a, key, nil)
			first, second := []byte(fmt.Sprint("first ", i)), []byte(fmt.Sprint("second\x00", i))
			t.must(a.Put(t.Context(), key, first, ttl))
			keyIs(t, b, key, first)
			t.must(b.Put(t.Context(), key, second, ttl))
			t.must(b.Repair(t.Context())) // there is nothing to repair
			keyIs(t, a, key, second)
			t.must(a.Delete(t.Context(), key))
			keyIs(t, b, key, nil)
			t.must(a.Delete(t.Context(), key))
			t.must(b.Put(t.Context(), key, first, ttl))
			keyIs(t, a, key, first)
			t.must(a.Put(t.Context(), key, nil, ttl))
			keyIs(t, b, key, []byte{})
			t.must(b.Delete(t.Context(), key))
		}
	}
	for i, key := range names { // their markers may still be there
		creates(t, a, key, fmt.Sprint(i), true)
		creates(t, b, key, "another", false)
	}
	for i, key := range names {
		keyIs(t, b, key, []byte(fmt.Sprint(i)))
	}

	// What workers store has a maximum size.
	task, most := broker.KeyTask+"i", bytes.Repeat([]byte("x"), broker.MaxTaskValue)
	t.must(a.Put(t.Context(), task, most, broker.KeyTTL))
	if err := a.Put(t.Context(), task, append(most, 'x'), broker.KeyTTL); err == nil ||
		!strings.Contains(err.Error(), "7169 bytes, the maximum is 7168") {
		t.Errorf("a value over the maximum: %v", err)
	}
	keyIs(t, b, task, most)
}

func keysExpire(t *T) {
	const ttl = 2 * time.Second
	a, b := t.bus(), t.bus()
	began := time.Now()
	t.must(a.Put(t.Context(), "stays", []byte("1"), 0))
	t.must(a.Put(t.Context(), "goes", []byte("2"), ttl))
	t.must(a.Put(t.Context(), "gets a longer TTL", []byte("3"), ttl))
	t.must(a.Put(t.Context(), "gets a longer TTL", []byte("3"), time.Hour))
	t.must(a.Put(t.Context(), "loses its TTL", []byte("4"), ttl))
	t.must(b.Put(t.Context(), "loses its TTL", []byte("4"), 0))
	t.must(a.Put(t.Context(), "gets a TTL", []byte("5"), 0))
	t.must(b.Put(t.Context(), "gets a TTL", []byte("5"), ttl))
	t.must(a.Put(t.Context(), "returns", []byte("6"), ttl))
	t.must(a.Delete(t.Context(), "returns"))
	t.must(a.Put(t.Context(), "returns", []byte("6"), 0))
	for _, key := range []string{"goes", "gets a TTL"} {
		t.eventually("the key has expired", func() bool {
			v, err := b.Get(t.Context(), key)
			t.must(err)
			return v == nil
		})
	}
	if expired := time.Now(); expired.Before(began.Add(ttl - time.Second)) { // NATS rounds TTLs down to seconds
		t.Errorf("a key expired after %v, the TTL is %v", expired.Sub(began), ttl)
	}
	pause(t.Context(), ttl)
	keyIs(t, a, "stays", []byte("1"))
	keyIs(t, a, "gets a longer TTL", []byte("3"))
	keyIs(t, a, "loses its TTL", []byte("4"))
	keyIs(t, a, "returns", []byte("6"))
	t.must(b.Put(t.Context(), "goes", []byte("7"), 0))
	keyIs(t, a, "goes", []byte("7"))
}

func notices(t *T) {
	a, b := t.bus(), t.bus()
	type notice struct {
		words []string
		h     events.Header
		body  string
	}
	heard := make(chan notice, 100)
	listen := func(words ...string) {
		t.Helper()
		stop, err := b.Listen(t.Context(), words, func(words []string, h events.Header, body []byte) {
			heard <- notice{words, h, string(body)}
		})
		t.must(err)
		t.Cleanup(stop)
	}
	listen("done", broker.Any, "i.1 *")
	listen("odd", "a b", "é.>")
	announce := func(body string, words ...string) {
		t.Helper()
		t.must(a.Notify(words, events.Header{"X": {"1", "2"}}, []byte(body)))
	}
	expect := func(body string, words ...string) {
		t.Helper()
		for again := true; ; again = false {
			announce(body, words...)
			select {
			case n := <-heard:
				if n.body != body || !reflect.DeepEqual(n.words, words) || len(n.h["X"]) != 2 {
					t.Errorf("%+v, want %q with %q", n, words, body)
				}
				return
			case <-time.After(10 * short): // the other's server may not have known the listener
				if !again {
					t.Fatalf("%q was not heard", words)
				}
			}
		}
	}
	expect("1", "done", "x", "i.1 *")
	expect("2", "done", "y.z", "i.1 *")
	expect("3", "odd", "a b", "é.>")
	announce("4", "done", "x", "i.2")
	announce("5", "odd", "a", "é.>")
	announce("6", "done", "x", "i.1 *", "more")
	expect("7", "done", "*", "i.1 *")

	if err := a.Notify([]string{"x", "", "y"}, nil, nil); err == nil {
		t.Error("an empty word was announced")
	}
	stop, err := b.Listen(t.Context(), []string{"then", "it", "stops"}, func([]string, events.Header, []byte) {
		heard <- notice{body: "late"}
	})
	t.must(err)
	stop()
	announce("8", "then", "it", "stops")
	expect("9", "done", "last", "i.1 *")
}

func questions(t *T) {
	a, b, c := t.bus(), t.bus(), t.bus()
	for i, from := range []Bus{a, b} {
		stop, err := from.Handle("query.state of", func(_ context.Context, q []byte) ([]byte, error) {
			return append([]byte(fmt.Sprint(i, ":")), q...), nil
		})
		t.must(err)
		defer stop()
	}
	by := make(map[byte]int)
	t.eventually("both have answered", func() bool {
		answer, err := c.Request(t.Context(), "query.state of", []byte("why\x00"))
		if errors.Is(err, broker.ErrNoResponders) {
			return false // c's server does not know them yet
		}
		t.must(err)
		if !bytes.HasSuffix(answer, []byte(":why\x00")) {
			t.Fatalf("the answer is %q", answer)
		}
		by[answer[0]]++
		return len(by) == 2
	})
	stop, err := a.Handle("nothing", func(context.Context, []byte) ([]byte, error) { return nil, nil })
	t.must(err)
	defer stop()
	if answer, err := a.Request(t.Context(), "nothing", nil); err != nil || len(answer) != 0 {
		t.Errorf("%q, %v", answer, err)
	}
}

// requesters: a handler can tell the requests of one connection from those of another.
func requesters(t *T) {
	a, b, c := t.bus(), t.bus(), t.bus()
	stop, err := a.Handle("name", func(ctx context.Context, _ []byte) ([]byte, error) {
		return []byte(broker.Requester(ctx)), nil
	})
	t.must(err)
	defer stop()
	name := func(b Bus) (name string) {
		t.eventually("it is answered", func() bool {
			answer, err := b.Request(t.Context(), "name", nil)
			if errors.Is(err, broker.ErrNoResponders) {
				return false // its server does not know the handler yet
			}
			t.must(err)
			name = string(answer)
			return true
		})
		return name
	}
	first, second, other := name(b), name(b), name(c)
	if first == "" || first != second || first == other {
		t.Errorf("the requesters are %q, %q and %q", first, second, other)
	}
}

func questionToNobody(t *T) {
	a, b := t.bus(), t.bus()
	if err := t.bounded(func(ctx context.Context) error {
		_, err := a.Request(ctx, "nobody", nil)
		return err
	}); !errors.Is(err, broker.ErrNoResponders) {
		t.Errorf("%v, want that nobody is there", err)
	}
	stop, err := b.Handle("stops", func(context.Context, []byte) ([]byte, error) { return nil, nil })
	t.must(err)
	stop()
	stop()
	t.eventually("who has stopped does not answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), short) // the other's server may not know it yet
		defer cancel()
		_, err := a.Request(ctx, "stops", nil)
		return errors.Is(err, broker.ErrNoResponders)
	})
}

func answerErrors(t *T) {
	b := t.bus()
	for method, c := range map[string]struct {
		err         error
		code, wants string
	}{
		"coded": {&broker.ResponseError{Code: "not_found", Message: "no instance \"ü\"\nof that name"}, "not_found",
			"no instance \"ü\"\nof that name"},
		"wrapped": {fmt.Errorf("while looking: %w", &broker.ResponseError{Code: "bad", Message: "m"}), "bad",
			"while looking: m"},
		"plain": {errors.New("broken"), "failed", "broken"},
		"empty": {&broker.ResponseError{Message: "no code"}, "failed", "no code"},
		"long":  {&broker.ResponseError{Code: "long", Message: strings.Repeat("x", 2<<20)}, "long", "xxx"},
	} {
		stop, err := b.Handle(method, func(context.Context, []byte) ([]byte, error) { return []byte("ignored"), c.err })
		t.must(err)
		defer stop()
		data, err := b.Request(t.Context(), method, nil)
		var said *broker.ResponseError
		if !errors.As(err, &said) || said.Code != c.code || !strings.HasPrefix(said.Message, c.wants) || data != nil {
			t.Errorf("%s: %.100q, %.100v; want code %q and %q", method, data, err, c.code, c.wants)
		}
	}
}

func manyQuestions(t *T) {
	const n = 200
	a, b := t.bus(), t.bus()
	together := make(chan bool, n)
	stop, err := b.Handle("slow", func(ctx context.Context, q []byte) ([]byte, error) {
		if len(q) == 0 {
			return nil, nil
		}
		together <- true
		t.within(patience, "eight are answered at the same time", func() bool { return len(together) >= 8 })
		return q, nil
	})
	t.must(err)
	defer stop()
	t.eventually("a's server has heard of b", func() bool {
		_, err := a.Request(t.Context(), "slow", nil)
		return err == nil
	})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			q := []byte(fmt.Sprint("q", i))
			if answer, err := a.Request(ctx, "slow", q); err != nil || !bytes.Equal(answer, q) {
				t.Errorf("%q, %v", answer, err)
			}
		})
	}
	all.Wait()
}

func largeAnswers(t *T) {
	b := t.bus()
	stop, err := b.Handle("size", func(_ context.Context, q []byte) ([]byte, error) {
		var n int
		_, err := fmt.Sscan(string(bytes.TrimRight(q, "x")), &n)
		return make([]byte, n), err
	})
	t.must(err)
	defer stop()
	if answer, err := b.Request(t.Context(), "size", []byte(fmt.Sprint(events.MaxPayload))); err != nil ||
		len(answer) != events.MaxPayload {
		t.Errorf("%d bytes, %v", len(answer), err)
	}
	if answer, err := b.Request(t.Context(), "size",
		append([]byte("1 "), bytes.Repeat([]byte("x"), events.MaxPayload)...)); err != nil || len(answer) != 1 {
		t.Errorf("%d bytes, %v", len(answer), err)
	}
	ask := func(question []byte) error {
		return t.bounded(func(ctx context.Context) error {
			_, err := b.Request(ctx, "size", question)
			return err
		})
	}
	var said *broker.ResponseError
	if err := ask([]byte("5000000")); !errors.As(err, &said) || said.Code != "too_large" {
		t.Errorf("%v, want that the answer is too large", err)
	}
	if err := ask(make([]byte, 4<<20)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a question of 4 MiB: %v, want that it is refused at once", err)
	}
}

func lastAnswers(t *T) {
	a, b := t.bus(), t.bus()
	asked, free := make(chan bool), make(chan bool)
	stop, err := b.Handle("slow", func(ctx context.Context, _ []byte) ([]byte, error) {
		close(asked)
		select {
		case <-free:
			return []byte("fine"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	t.must(err)
	answered := make(chan error, 1)
	go func() {
		_, err := a.Request(t.Context(), "slow", nil)
		for errors.Is(err, broker.ErrNoResponders) { // a's server does not know b yet
			pause(t.Context(), 10*time.Millisecond)
			_, err = a.Request(t.Context(), "slow", nil)
		}
		answered <- err
	}()
	<-asked
	stopped := make(chan bool)
	go func() {
		stop()
		close(stopped)
	}()
	close(free)
	t.must(<-answered)
	<-stopped
}
