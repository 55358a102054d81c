package natsbroker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// The short way back. Who publishes work and receives from partitions writes into it where results
// may go at once, without being stored by the broker: to who receives the instance's partition,
// which most often is the same process. It answers when a result is settled, which is after it was
// committed, so that the work is acknowledged no earlier than by way of the stream. Whoever does
// not take it, or is gone, or has not answered after the time that one waits for the broker, is
// passed over: then the result goes through the stream, like everything else. It may have been
// taken all the same; who takes messages can tell.

const (
	// headerSubject is the subject of a message that comes by the short way.
	headerSubject = "Rondo-Subject"
	// headerAgain says of a message in a stream that it may have been taken before, by the short
	// way.
	headerAgain = "Rondo-Again"
	// maxShort bounds what has come by the short way to one partition and waits to be handed out.
	maxShort = 512
	// For so long nothing is sent by a short way that led nowhere; at whose end there is too much
	// already, or nobody just now; that this user may not take.
	avoidFor, avoidBriefly, avoidDenied = 30 * time.Second, 100 * time.Millisecond, time.Hour
	// avoidNobody is for how long no work is passed on where no worker takes any.
	avoidNobody = time.Second
	// maxAvoided bounds how many are remembered.
	maxAvoided = 1000
	// firstShort is where the places of what comes by the short way begin: far behind those of the
	// stream.
	firstShort = 1 << 62
	// Names of short ways begin with shortName, and maxShortName bounds what follows.
	shortName, maxShortName = "results-", 64
)

const (
	saidSettled  = "+OK"
	saidReturned = "-GIVEN BACK"
	saidNotHere  = "-NOT HERE"
	saidBusy     = "-BUSY"
)

var (
	errReturned = errors.New("who was sent a result has given it back")
	errNotHere  = errors.New("who was sent a result does not take it")
	errBusy     = errors.New("who was sent a result has too much to do")
)

func readShort(said []byte) error {
	switch string(said) {
	case saidSettled:
		return nil
	case saidReturned:
		return errReturned
	case saidNotHere:
		return errNotHere
	case saidBusy:
		return errBusy
	}
	return errBadAnswer
}

// back is where results come by the short way.
type back struct {
	mu        sync.Mutex
	sub       *nats.Subscription
	subject   string
	receivers map[int]*receiver // of the lane of what goes ahead, by partition
	place     uint64            // the last one
	denied    time.Time         // until when nothing is offered, because answers are not allowed
}

// offer lets results for a partition come by the short way, as long as it is received from.
func (b *Bus) offer(r *receiver) (stop func()) {
	k := &b.back
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.receivers == nil {
		k.receivers = make(map[int]*receiver)
	}
	k.receivers[r.partition] = r
	if k.sub == nil || !k.sub.IsValid() {
		subject := b.handoverSubject(shortName + rand.Text() + takesBundles)
		sub, err := b.nc.Subscribe(subject, b.hearShort)
		if err == nil { // otherwise the connection is closed
			_ = sub.SetPendingLimits(-1, -1) // what is too much is refused at once
			k.sub, k.subject = sub, subject
		}
	}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.receivers[r.partition] == r {
			delete(k.receivers, r.partition)
		}
	}
}

// wayBack is where results may go of what is published now; "" if nowhere.
func (b *Bus) wayBack() string {
	k := &b.back
	if k.isDenied() {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.receivers) == 0 {
		return ""
	}
	return k.subject
}

// isDenied tells whether answers are not allowed, as far as is known.
func (k *back) isDenied() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.denied)
}

// deniedShort notes that something must not be published. If it was the answer to a result, the
// short way leads nowhere: who has sent the result waits in vain.
func (b *Bus) deniedShort(subject string) {
	if !isAnswer(subject) {
		return
	}
	now := time.Now()
	b.back.mu.Lock()
	first := now.After(b.back.denied)
	b.back.denied = now.Add(avoidDenied)
	b.back.mu.Unlock()
	if first {
		b.log.Warn("NATS: this user may not answer those who pass it something past the streams, so it comes "+
			"through the streams, which takes longer; let it publish on <the prefix of their answers>.*.said.*",
			"subject", subject)
	}
}

// hearShort takes what has come by the short way, or refuses it at once.
func (b *Bus) hearShort(m *nats.Msg) {
	if !b.mayAnswer(m) {
		return
	}
	count := m.Header[headerResults]
	if len(count) == 0 {
		w := events.Wire{Subject: m.Header.Get(headerSubject), Header: events.Header(m.Header), Body: m.Data}
		delete(w.Header, headerSubject)
		b.takeShort(w, time.Now(), shortHold{b.nc, m.Reply})
		return
	}
	results, err := readBundle(count[0], m.Data)
	if err != nil { // who has sent it expects a letter for each of we do not know how many
		b.log.Warn("NATS: results that cannot be read", "error", err)
		shortHold{b.nc, m.Reply}.say(saidNotHere)
		return
	}
	now := time.Now()
	all := newBundle(b.nc, m.Reply, len(results), "", now)
	for i, w := range results {
		b.takeShort(w, now, bundledHold{all, i})
	}
}

// answered is the hold of a result that has come by the short way.
type answered interface {
	broker.Hold
	say(what string) // one of those above
}

// takeShort takes a result, or refuses it at once. It may be from anybody who may publish there.
func (b *Bus) takeShort(w events.Wire, now time.Time, h answered) {
	err := b.canTake(w.Subject)
	if err == nil && !b.isResult(w.Subject) {
		err = errors.New("it is none of a result")
	}
	if err != nil {
		b.log.Warn("NATS: a result that cannot be taken", "error", fmt.Errorf("subject %q: %w", w.Subject, err))
		h.say(saidNotHere)
		return
	}
	d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, NumDelivered: 1, StoredAt: now, Hold: h}
	partition := b.partitionOf(lastWord(d.Subject))
	b.back.mu.Lock()
	r := b.back.receivers[partition]
	b.back.place++
	d.Sequence = firstShort + b.back.place
	b.back.mu.Unlock()
	refusal := saidNotHere
	if r != nil {
		refusal = r.arriveShort(d)
	}
	if refusal != "" {
		h.say(refusal)
	}
}

// isResult reports whether a subject is one of those under which workers say what has become of
// work.
func (b *Bus) isResult(subject string) bool {
	verb, _, _ := strings.Cut(subject[len(b.names.prefix)+1:], ".")
	switch events.Verb(verb) {
	case events.VerbBegun, events.VerbDone, events.VerbFail:
		return true
	}
	return false
}

// partitionOf computes the partition of an instance as the broker does, from the word that it is in
// subjects.
func (b *Bus) partitionOf(word string) int {
	n := b.count.Load()
	if n < 1 {
		return -1
	}
	h := fnv.New32a()
	h.Write([]byte(word))
	return int(h.Sum32() % uint32(n))
}

// arriveShort takes a message that has come by the short way, or says why not.
func (r *receiver) arriveShort(d broker.Delivery) (refusal string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over || r.failed != nil:
		return saidNotHere
	case len(r.queue) >= maxShort || r.bytes > prefetchBytes:
		return saidBusy
	}
	d.Partition = r.partition
	r.push(&waiting{d: d, since: d.StoredAt})
	return ""
}

// shortHold settles a message that has come by the short way.
type shortHold struct {
	nc    *nats.Conn
	reply string
}

func (h shortHold) say(what string) {
	_ = h.nc.Publish(h.reply, []byte(what)) // if it is lost, the message comes again
}

// Ack implements broker.Hold.
func (h shortHold) Ack() { h.say(saidSettled) }

// Nak implements broker.Hold. It comes again through the stream, at once.
func (h shortHold) Nak(time.Duration) { h.say(saidReturned) }

// InProgress implements broker.Hold. It does nothing: the sender of the result does not wait for
// longer, so that nothing else has to wait with it.
func (h shortHold) InProgress() {}

// AckSubject implements broker.Hold. Nobody else can settle it.
func (h shortHold) AckSubject() string { return "" }

// ways are the short ways by which results, and work, were sent lately.
type ways struct {
	mu    sync.Mutex
	avoid map[string]time.Time // those that led nowhere, and until when nothing is sent by them
	// how many results and how much work was, and how much went through the stream after all
	taken, passed atomic.Uint64
}

// may tells whether a short way may be tried.
func (w *ways) may(subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, is := w.avoid[subject]
	return !is || time.Now().After(until)
}

// refused notes why a result, or work, was not taken.
func (w *ways) refused(what events.Wire, why error) {
	w.passed.Add(1)
	var most time.Duration
	var l lasts
	switch {
	case errors.Is(why, errNotHere), errors.Is(why, errReturned), errors.Is(why, nats.ErrDisconnected),
		errors.As(why, &l):
		return // another one may be taken
	case what.Pass && errors.Is(why, jetstream.ErrNoStreamResponse):
		most = avoidNobody
	case errors.Is(why, errBusy), errors.Is(why, jetstream.ErrNoStreamResponse):
		most = avoidBriefly
	case errors.Is(why, nats.ErrPermissionViolation):
		most = avoidDenied
	default:
		most = avoidFor
	}
	until, subject := time.Now().Add(most), what.Back
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.avoid == nil || len(w.avoid) >= maxAvoided {
		w.avoid = make(map[string]time.Time)
	}
	if until.After(w.avoid[subject]) {
		w.avoid[subject] = until
	}
}

// goesShort tells whether a message is a result that may go by the short way. Where to go stands in
// the work, which anybody may have written who may publish work.
func (b *Bus) goesShort(w events.Wire) bool {
	if w.Back == "" || !w.NotBefore.IsZero() {
		return false
	}
	name, ok := strings.CutPrefix(w.Back, b.handoverSubject(shortName))
	odd := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	return ok && name != "" && len(name) <= maxShortName && !strings.ContainsFunc(name, odd) && b.ways.may(w.Back)
}

// short makes what is sent by the short way.
func short(w events.Wire) *nats.Msg {
	h := make(nats.Header, len(w.Header)+1)
	maps.Copy(h, nats.Header(w.Header))
	h[headerSubject] = []string{w.Subject}
	return &nats.Msg{Subject: w.Back, Header: h, Data: w.Body}
}

// throughTheStream makes what is published of a result that was not taken by the short way. Who has
// not refused it at once may have begun with it.
func throughTheStream(w events.Wire, why error) events.Wire {
	w.Back = ""
	if !errors.Is(why, jetstream.ErrNoStreamResponse) && !errors.Is(why, errNotHere) && !errors.Is(why, errBusy) {
		return withHeader(w, headerAgain, "true")
	}
	return w
}

// withHeader has one header more. Others may have the same headers.
func withHeader(w events.Wire, name, value string) events.Wire {
	h := make(events.Header, len(w.Header)+1)
	maps.Copy(h, w.Header)
	h[name] = []string{value}
	w.Header = h
	return w
}

// withWayBack writes into the header of work where its results may go. What somebody else has
// written there is gone then.
func (b *Bus) withWayBack(h nats.Header) nats.Header {
	to := b.wayBack()
	if to == "" && h[events.HeaderBack] == nil {
		return h
	}
	out := make(nats.Header, len(h)+1)
	maps.Copy(out, h)
	if delete(out, events.HeaderBack); to != "" {
		out[events.HeaderBack] = []string{to}
	}
	return out
}
