package natsbus

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// answers is where it is said what has become of each message that was published: by the broker, or by who takes a result by the short way. One subscription is for all of them.
type answers struct {
	mu      sync.Mutex
	sub     *nats.Subscription
	begin   string // of the subjects of the answers
	last    uint64
	waiting map[uint64]*awaited // by the last word of the subject
}

// answersWord stands in the subjects of these answers only.
const answersWord = ".said."

// isAnswer recognises a subject of such an answer.
func isAnswer(subject string) bool { return strings.Contains(subject, answersWord) }

// awaited is an answer that has not come.
type awaited struct {
	to    chan<- landed // with room for one from each who waits
	n     int           // which of the messages it is about
	short bool          // it comes from who takes results, not from the broker
	until time.Time     // when it is waited for no longer
}

// landed is a message of which is known what has become of it.
type landed struct {
	n   int
	err error
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
	}
	a.last++
	a.waiting[a.last] = w
	return a.last, a.begin + strconv.FormatUint(a.last, 36), nil
}

// hear takes an answer.
func (a *answers) hear(m *nats.Msg) {
	token, err := strconv.ParseUint(lastWord(m.Subject), 36, 64)
	if err != nil {
		return
	}
	a.mu.Lock()
	w := a.waiting[token]
	delete(a.waiting, token)
	a.mu.Unlock()
	if w != nil { // otherwise it was waited for long enough
		w.to <- landed{w.n, readAnswer(m, w.short)}
	}
}

// forget ends the wait for an answer. It reports false if it is there already, or on its way through w.to.
func (a *answers) forget(token uint64, onlyIfLate bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[token]
	if w == nil || onlyIfLate && time.Now().Before(w.until) {
		return false
	}
	delete(a.waiting, token)
	return true
}

// lost says of everything that is on its way that nobody knows whether it arrives: the connection broke.
func (a *answers) lost(why error) {
	a.mu.Lock()
	all := a.waiting
	a.waiting = make(map[uint64]*awaited)
	a.mu.Unlock()
	for _, w := range all {
		w.to <- landed{w.n, why}
	}
}

// readAnswer reads what was said about a message; nil if it is stored, or taken by the short way.
func readAnswer(m *nats.Msg, short bool) error {
	switch {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
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

// isStored recognises the usual answer of the broker, as there are very many. Of anything else it says no.
func isStored(data []byte) bool {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`"`))
	if !ok || len(name) == 0 {
		return false
	}
	return bytes.HasPrefix(rest, []byte(`,"seq":`)) && rest[len(rest)-1] == '}' && !bytes.Contains(rest, []byte(`"error"`))
}
