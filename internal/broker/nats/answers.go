package natsbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/events"
)

// answers is where it is said what has become of each message that was published: by the broker, or
// by who takes a result by the short way. One subscription is for all of them.
type answers struct {
	mu      sync.Mutex
	sub     *nats.Subscription
	begin   string // of the subjects of the answers
	last    uint64
	waiting map[uint64]*awaited // by the last word of the subject
	heard   atomic.Int64        // answers that were taken
}

// answersWord stands in the subjects of these answers only.
const answersWord = ".said."

// isAnswer recognises a subject of such an answer.
func isAnswer(subject string) bool { return strings.Contains(subject, answersWord) }

// awaited is an answer that has not come, or not all of it.
type awaited struct {
	to    chan<- landed // with room for one about each message
	n     int           // which of the messages it is about
	short bool          // it comes from who takes results, not from the broker
	until time.Time     // when it is waited for no longer
	said  []byte        // of a bundle, what was said so far of each of the messages from n on; nil if it is about one
}

// landed is a message of which is known what has become of it, or several.
type landed struct {
	n    int
	err  error  // nil: it has arrived, unless said says otherwise
	said []byte // of a bundle, what was said of each of the messages from n on; nothing new of those that are open
	by   string // who said it, of work
}

// hasNews tells whether it is about any message.
func (x landed) hasNews() bool {
	return x.said == nil || slices.ContainsFunc(x.said, func(letter byte) bool { return letter != resultOpen })
}

// rest is that nothing will be said any more of what is awaited.
func (w *awaited) rest(why error) landed {
	if w.said == nil {
		return landed{n: w.n, err: why}
	}
	open := make([]byte, len(w.said))
	for i, letter := range w.said {
		if open[i] = resultOpen; letter == resultOpen {
			open[i] = resultLost
		}
	}
	return landed{n: w.n, err: why, said: open}
}

// hear takes an answer about a bundle. It gives what is new in it, and whether nothing is open
// then.
func (w *awaited) hear(said []byte) (news landed, over bool) {
	if len(said) != len(w.said) {
		return w.rest(errBadAnswer), true
	}
	news, over = landed{n: w.n, said: make([]byte, len(said))}, true
	for i, letter := range said {
		news.said[i] = resultOpen
		if w.said[i] == resultOpen {
			w.said[i], news.said[i] = letter, letter
		}
		over = over && w.said[i] != resultOpen
	}
	return news, over
}

var (
	// errUnanswered says that nobody knows whether a message has arrived.
	errUnanswered = errors.New("NATS does not say that it has the message")
	// errBadAnswer says that an answer cannot be read.
	errBadAnswer = errors.New("NATS says something else than whether it has the message")
)

// expect tells where the answer about a message is to go. It is passed on to w.to once it is there.
func (a *answers) expect(nc *nats.Conn, w *awaited) (token uint64, subject string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub == nil || !a.sub.IsValid() {
		begin := nc.NewInbox() + answersWord
		sub, err := nc.Subscribe(begin+"*", a.hear)
		if err != nil {
			return 0, "", err
		}
		_ = sub.SetPendingLimits(-1, -1) // what is on its way is bounded
		a.sub, a.begin, a.waiting = sub, begin, make(map[uint64]*awaited)
		a.heard.Store(0)
	}
	a.last++
	a.waiting[a.last] = w
	return a.last, a.begin + strconv.FormatUint(a.last, 36), nil
}

// hear takes an answer.
func (a *answers) hear(m *nats.Msg) {
	defer a.heard.Add(1)
	token, err := strconv.ParseUint(lastWord(m.Subject), 36, 64)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[token]
	if w == nil {
		return // it was waited for long enough
	}
	news, over := landed{n: w.n}, true
	switch {
	case w.said == nil:
		news.err = readAnswer(m, w.short)
	case isNobody(m):
		news = w.rest(jetstream.ErrNoStreamResponse)
	default:
		news, over = w.hear(m.Data)
		news.by = m.Header.Get(events.HeaderWorker)
	}
	if over {
		delete(a.waiting, token)
	}
	if news.hasNews() {
		w.to <- news
	}
}

// isLate reports whether an answer is awaited that should have come by now.
func (a *answers) isLate(token uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[token]
	return w != nil && !time.Now().Before(w.until)
}

// catchUp returns when every answer was taken that the server had for this connection when it was
// called, or after a while.
func (a *answers) catchUp(nc *nats.Conn) {
	a.mu.Lock()
	sub := a.sub
	a.mu.Unlock()
	begun := time.Now()
	if sub == nil || nc.FlushTimeout(catchUpWithin) != nil {
		return // the connection has broken, and that is told like an answer
	}
	n, err := come(sub)
	for err == nil && a.heard.Load() < n && time.Since(begun) < catchUpWithin {
		time.Sleep(time.Millisecond)
	}
}

// catchUpWithin bounds how long is waited for what may be on its way.
const catchUpWithin = time.Second

// come is how many messages have come by a subscription, whether they were taken or not.
func come(sub *nats.Subscription) (int64, error) {
	for {
		before, err := sub.Delivered()
		if err != nil {
			return 0, err
		}
		waiting, _, err := sub.Pending()
		if err != nil {
			return 0, err
		}
		if after, err := sub.Delivered(); err != nil || after == before {
			return before + int64(waiting), err
		}
	}
}

// forget ends the wait for an answer, and gives what is awaited still: nil if it is there already,
// or on its way through w.to.
func (a *answers) forget(token uint64, onlyIfLate bool) *awaited {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[token]
	if w == nil || onlyIfLate && time.Now().Before(w.until) {
		return nil
	}
	delete(a.waiting, token)
	return w
}

// lost says of everything that is on its way that nobody knows whether it arrives: the connection
// broke.
func (a *answers) lost(why error) {
	a.mu.Lock()
	all := a.waiting
	a.waiting = make(map[uint64]*awaited)
	a.mu.Unlock()
	for _, w := range all {
		w.to <- w.rest(why)
	}
}

// isNobody recognises the answer of the broker that nobody listens.
func isNobody(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

// readAnswer reads what was said about a message; nil if it is stored, or taken by the short way.
func readAnswer(m *nats.Msg, short bool) error {
	switch {
	case isNobody(m):
		return jetstream.ErrNoStreamResponse
	case short:
		return readShort(m.Data)
	case isStored(m.Data):
		return nil
	}
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil:
		return errBadAnswer
	case answer.Error != nil:
		return answer.Error
	case answer.Stream == "":
		return errBadAnswer
	}
	return nil
}

// isStored recognises the usual answer of the broker, as there are very many. Of anything else it
// says no.
func isStored(data []byte) bool {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`"`))
	if !ok || len(name) == 0 {
		return false
	}
	return bytes.HasPrefix(rest, []byte(`,"seq":`)) && rest[len(rest)-1] == '}' &&
		!bytes.Contains(rest, []byte(`"error"`))
}
