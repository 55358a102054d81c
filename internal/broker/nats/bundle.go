package natsbroker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Results that go to the same orchestrator at the same moment go in one message, a bundle, and are
// answered in one: NATS then has one where it had dozens. The body of a bundle is, of each result,
// its subject, how many headers it has, their names and values, and its body; each text with its
// length in front, lengths and counts as uvarints. The answer has a letter for each result. While
// some are not settled it comes from time to time, if there is news, so that one whose instance
// does not come back does not hold up the others.

const (
	// headerResults says that a message is a bundle, of so many results.
	headerResults = "Rondo-Results"
	// takesBundles ends the names of short ways at whose end bundles are taken. In front of it, it
	// cannot be in a name by chance.
	takesBundles = "b"
	// maxBundle and maxBundleBytes bound a bundle. A result that is larger than largeResult has a
	// message of its own.
	maxBundle, maxBundleBytes, largeResult = 128, 64 << 10, 8 << 10
	// tellEvery is how often it is told which results of a bundle are settled while others are not.
	tellEvery = 250 * time.Millisecond
	// beginWithin is how old work may be that is begun. Whoever has passed it on hears soon after
	// that it takes its time, and gives it up only after publishWait.
	beginWithin = broker.LastsAfter + 2*tellEvery
	// maxAhead is by how much the clock of whoever passes work on may be ahead of the worker's.
	maxAhead = time.Second / 2
	// headerPassedAt says when work was passed on.
	headerPassedAt = "Rondo-Passed-At"
)

// What the answer to a bundle says of a result: nothing yet, or the second letter of the answer to
// one alone (+OK, -GIVEN BACK, -NOT HERE, -BUSY).
const (
	resultOpen     = '.'
	resultSettled  = 'O'
	resultReturned = 'G'
	resultNotHere  = 'N'
	resultBusy     = 'B'
	resultLost     = '?' // is never sent: the answer is late, or wrong
)

// readBundled reads what an answer says of one result, and who says it.
func readBundled(letter byte, by string) error {
	switch letter {
	case resultLasts:
		return lasts{by}
	case resultSettled:
		return nil
	case resultReturned:
		return errReturned
	case resultNotHere:
		return errNotHere
	case resultBusy:
		return errBusy
	}
	return errBadAnswer
}

// ---- Writing one.

// appendResult adds a result to a bundle.
func appendResult(to []byte, w events.Wire) []byte {
	to = appendText(to, w.Subject)
	n := 0
	for _, values := range w.Header {
		n += len(values)
	}
	to = binary.AppendUvarint(to, uint64(n))
	for name, values := range w.Header {
		for _, v := range values {
			to = appendText(appendText(to, name), v)
		}
	}
	return append(binary.AppendUvarint(to, uint64(len(w.Body))), w.Body...)
}

func appendText(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

// takesMany tells whether bundles are taken where a short way leads.
func takesMany(back string) bool { return strings.HasSuffix(back, takesBundles) }

func nothingSaid(n int) []byte { return bytes.Repeat([]byte{resultOpen}, n) }

// ---- Reading one.

var errBundle = errors.New("the bundle is cut off, or is none")

// readBundle reads a bundle. What it gives has nothing in common with the body, so that a small
// result does not keep all of it in memory.
func readBundle(count string, body []byte) ([]events.Wire, error) {
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxBundle {
		return nil, fmt.Errorf("header %s: %q is no number from 1 to %d", headerResults, count, maxBundle)
	}
	results := make([]events.Wire, n)
	for i := range results {
		if results[i], body, err = readResult(body); err != nil {
			return nil, err
		}
	}
	if len(body) > 0 {
		return nil, errBundle
	}
	return results, nil
}

// readResult takes a result off the front of a bundle.
func readResult(body []byte) (w events.Wire, rest []byte, err error) {
	subject, rest, ok1 := cutText(body)
	n, rest, ok2 := cutNumber(rest)
	if !ok1 || !ok2 || n > uint64(len(rest))/2 {
		return w, nil, errBundle
	}
	w.Subject, w.Header = string(subject), make(events.Header, n)
	values := make([]string, n)
	for i := range values {
		name, r, ok1 := cutText(rest)
		value, r, ok2 := cutText(r)
		if !ok1 || !ok2 {
			return w, nil, errBundle
		}
		rest, values[i] = r, string(value)
		known, ok := usualHeaders[string(name)]
		if !ok {
			known = string(name)
		}
		if before := w.Header[known]; before != nil {
			w.Header[known] = append(before, values[i])
		} else {
			w.Header[known] = values[i : i+1 : i+1]
		}
	}
	text, rest, ok := cutText(rest)
	if !ok {
		return w, nil, errBundle
	}
	w.Body = slices.Clone(text)
	return w, rest, nil
}

// usualHeaders are those that nearly all results have.
var usualHeaders = map[string]string{
	events.HeaderMsgID: events.HeaderMsgID, events.HeaderIncarnation: events.HeaderIncarnation,
	events.HeaderWorker: events.HeaderWorker, events.HeaderTrace: events.HeaderTrace,
}

func cutText(from []byte) (text, rest []byte, ok bool) {
	n, rest, ok := cutNumber(from)
	if !ok || n > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[:n], rest[n:], true
}

func cutNumber(from []byte) (n uint64, rest []byte, ok bool) {
	n, width := binary.Uvarint(from)
	if width <= 0 {
		return 0, nil, false
	}
	return n, from[width:], true
}

// ---- Settling one.

// bundle is a bundle that has come, until all of its results are settled.
type bundle struct {
	nc    *nats.Conn
	reply string
	came  time.Time
	by    string // who has taken it, if it is of work

	mu    sync.Mutex
	said  []byte  // a letter for each result
	stage []stage // of each piece of work
	open  int     // how many are not settled
	news  bool    // something was not told
	timer *time.Timer
}

// stage is how far the worker has got with work that was passed to it. What is said of it depends
// on that, and is decided under the lock of the bundle: what takes its time must be here, so that
// whoever takes it from the stream finds it.
type stage uint8

const (
	waits   stage = iota // the worker has not been asked
	offered              // it is being asked
	has                  // it has it
)

func newBundle(nc *nats.Conn, reply string, n int, by string, came time.Time) *bundle {
	b := &bundle{nc: nc, reply: reply, by: by, came: came, said: nothingSaid(n), stage: make([]stage, n), open: n}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(tellEvery, b.look)
	return b
}

// settle notes what has become of a result, and reports what is said of it: something else if that
// was decided before.
func (b *bundle) settle(i int, letter byte) byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.decide(i, letter)
}

func (b *bundle) decide(i int, letter byte) byte {
	if b.said[i] != resultOpen {
		return b.said[i]
	}
	b.said[i], b.news = letter, true
	if b.open--; b.open == 0 {
		b.timer.Stop()
		b.tell()
	}
	return letter
}

// offer reports whether the worker is to be asked for work: not when so much time has passed that
// it goes through the stream.
func (b *bundle) offer(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.came) >= broker.LastsAfter {
		b.decide(i, resultBusy)
	}
	if b.said[i] != resultOpen {
		return false
	}
	b.stage[i] = offered
	return true
}

// took notes that the worker has work.
func (b *bundle) took(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stage[i] = has
}

// begin reports whether work may be begun: it was said that it is here, or there is time to say so
// before whoever has passed it on gives it up.
func (b *bundle) begin(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.came) >= beginWithin {
		b.decide(i, resultBusy)
	}
	return b.said[i] == resultOpen || b.said[i] == resultLasts
}

// look tells what is settled while something is not. After the time that is waited for it, the rest
// is told at once.
func (b *bundle) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by != "" && time.Since(b.came) >= broker.LastsAfter {
		b.last()
	}
	if b.news {
		b.tell()
	}
	if b.open > 0 && time.Since(b.came) < publishWait {
		b.timer.Reset(tellEvery)
	}
}

// last says of all work that is not settled that it takes its time, if the worker has it. While it
// is being asked, nobody knows; what it was not asked for, another one may have.
func (b *bundle) last() {
	for i, letter := range b.said {
		if letter != resultOpen || b.stage[i] == offered {
			continue
		}
		b.said[i], b.news = resultLasts, true
		if b.stage[i] == waits {
			b.said[i] = resultBusy
		}
		b.open--
	}
}

func (b *bundle) tell() {
	b.news = false
	var h nats.Header
	if bytes.IndexByte(b.said, resultLasts) >= 0 {
		h = nats.Header{events.HeaderWorker: {b.by}}
	}
	// if it is lost, they come again; what is published is copied
	_ = b.nc.PublishMsg(&nats.Msg{Subject: b.reply, Header: h, Data: b.said})
}

// bundledHold settles a result that came in a bundle.
type bundledHold struct {
	b *bundle
	i int
}

// say says of it what would be the answer to it alone.
func (h bundledHold) say(what string) { h.b.settle(h.i, what[1]) }

// Ack implements broker.Hold.
func (h bundledHold) Ack() { h.say(saidSettled) }

// Begin implements broker.PassedHold.
func (h bundledHold) Begin() bool { return h.b.begin(h.i) }

// Finish implements broker.PassedHold. What is said late may not be heard.
func (h bundledHold) Finish() (final bool) {
	return h.b.settle(h.i, resultSettled) == resultSettled && time.Since(h.b.came) < beginWithin
}

// Nak implements broker.Hold. It comes again through the stream, at once.
func (h bundledHold) Nak(time.Duration) { h.say(saidReturned) }

// InProgress implements broker.Hold. See shortHold.
func (h bundledHold) InProgress() {}

// AckSubject implements broker.Hold. Nobody else can settle it.
func (h bundledHold) AckSubject() string { return "" }
