package natsbroker

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
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

// answers receives answers to published messages: those of NATS to stored messages, or those of
// receivers to direct deliveries of one kind. All of them use one subscription. The answers of NATS
// arrive in the inbox of the connection. The others do not, so that their publishers cannot forge
// the acknowledgement of a stored message.
type answers struct {
	// begins returns what begins the subjects of the answers, with something that no other process
	// guesses.
	begins func(nc *nats.Conn) string

	mu      sync.Mutex
	sub     *nats.Subscription
	begin   string // prefix of the subjects of the answers
	last    uint64
	waiting map[uint64]*awaited // by the last token of the subject
	heard   atomic.Int64        // counts the answers that hear has processed
}

// newAnswers returns what receives all answers, by kind; "" for those of NATS.
func newAnswers(n *names) map[directKind]*answers {
	all := map[directKind]*answers{"": {begins: (*nats.Conn).NewInbox}}
	for _, kind := range []directKind{aboutResults, aboutTasks, aboutSystemTasks} {
		all[kind] = &answers{begins: func(*nats.Conn) string { return n.directAnswers(kind) + rand.Text() }}
	}
	return all
}

// awaited is an answer that is missing, or incomplete.
type awaited struct {
	to    chan<- publishResult // has capacity for one about each message
	n     int                  // which of the messages it is about
	on    string               // the subject of the published message
	short bool                 // the receiver of a direct delivery answers, not the server
	until time.Time            // the time limit of the answer
	said  []byte               // for a bundle, the answer so far to each of the messages from n on; nil for one message
}

// publishResult is the outcome of one message, or of several.
type publishResult struct {
	n    int
	err  error  // nil: it is stored or settled, unless said differs
	said []byte // for a bundle, the answer to each of the messages from n on, outcomeOpen without news
	by   string // for tasks, the worker that answered
}

// hasNews reports whether it has an outcome for any message.
func (x publishResult) hasNews() bool {
	return x.said == nil || slices.ContainsFunc(x.said, func(letter byte) bool { return letter != outcomeOpen })
}

// rest is the outcome of the messages without an answer, when no more answers will arrive.
func (w *awaited) rest(why error) publishResult {
	if w.said == nil {
		return publishResult{n: w.n, err: why}
	}
	open := make([]byte, len(w.said))
	for i, letter := range w.said {
		if open[i] = outcomeOpen; letter == outcomeOpen {
			open[i] = outcomeLost
		}
	}
	return publishResult{n: w.n, err: why, said: open}
}

// hear processes an answer to a bundle. It returns the new outcomes, and whether all messages have
// an outcome.
func (w *awaited) hear(said []byte) (news publishResult, over bool) {
	if len(said) != len(w.said) {
		return w.rest(errBadAnswer), true
	}
	news, over = publishResult{n: w.n, said: make([]byte, len(said))}, true
	for i, letter := range said {
		news.said[i] = outcomeOpen
		if w.said[i] == outcomeOpen {
			w.said[i], news.said[i] = letter, letter
		}
		over = over && w.said[i] != outcomeOpen
	}
	return news, over
}

var (
	// errUnanswered reports that a message may or may not be stored.
	errUnanswered = errors.New("NATS does not say that it has the message")
	// errBadAnswer reports an answer that cannot be parsed.
	errBadAnswer = errors.New("NATS says something else than whether it has the message")
)

// expect returns the reply subject for the answer to a message. hear sends the outcome to w.to.
func (a *answers) expect(nc *nats.Conn, w *awaited) (token uint64, subject string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub == nil || !a.sub.IsValid() {
		begin := a.begins(nc) + "."
		sub, err := nc.Subscribe(begin+"*", a.hear)
		if err != nil {
			return 0, "", err
		}
		// The window bounds the messages in flight, but other users may publish answers.
		_ = sub.SetPendingLimits(maxPendingAnswers, maxPendingBytes)
		a.sub, a.begin, a.waiting = sub, begin, make(map[uint64]*awaited)
		a.heard.Store(0)
	}
	a.last++
	a.waiting[a.last] = w
	return a.last, a.begin + strconv.FormatUint(a.last, 36), nil
}

// hear processes an answer.
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
		return // its time limit is over
	}
	news, over := publishResult{n: w.n}, true
	switch {
	case w.said == nil:
		news.err = readAnswer(m, w.short)
	case isNoResponders(m):
		news = w.rest(jetstream.ErrNoStreamResponse)
	default:
		news, over = w.hear(m.Data)
		news.by = strings.Clone(m.Header.Get(events.HeaderWorker))
	}
	if over {
		delete(a.waiting, token)
	}
	if news.hasNews() {
		w.to <- news
	}
}

// isLate reports whether an answer is missing after its time limit.
func (a *answers) isLate(token uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[token]
	return w != nil && !time.Now().Before(w.until)
}

// catchUp returns when hear has processed every answer that the server had for this connection at
// the call, or after [catchUpWithin].
func (p *publisher) catchUp() {
	begun := time.Now()
	if p.nc.FlushTimeout(catchUpWithin) != nil {
		return // the connection is broken, and lost reports that as an outcome
	}
	for _, a := range p.answers {
		a.catchUp(begun.Add(catchUpWithin))
	}
}

// catchUp returns when hear has processed every answer that has arrived, or at a time.
func (a *answers) catchUp(until time.Time) {
	a.mu.Lock()
	sub := a.sub
	a.mu.Unlock()
	if sub == nil {
		return
	}
	n, err := come(sub)
	for err == nil && a.heard.Load() < n && time.Now().Before(until) {
		time.Sleep(time.Millisecond)
	}
}

// catchUpWithin is the time limit of catchUp.
const catchUpWithin = time.Second

// come counts the messages that have arrived by a subscription, whether processed or not.
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

// forget ends the wait for an answer, and returns the awaited; nil if the outcome is sent to w.to
// already.
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

// lost sends the outcome of all messages in flight when the connection breaks: they may or may not
// be stored.
func (p *publisher) lost(why error) {
	for _, a := range p.answers {
		a.lost(why)
	}
}

// lost sends the outcome of all messages that wait for these answers.
func (a *answers) lost(why error) {
	a.mu.Lock()
	all := a.waiting
	a.waiting = make(map[uint64]*awaited)
	a.mu.Unlock()
	for _, w := range all {
		w.to <- w.rest(why)
	}
}

// deniedOn sends the outcome of all messages in flight on a subject on which this user may not
// publish: the servers do not answer them.
func (p *publisher) deniedOn(subject string) {
	for _, a := range p.answers {
		a.deniedOn(subject)
	}
}

func (a *answers) deniedOn(subject string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for token, w := range a.waiting {
		if w.on == subject {
			delete(a.waiting, token)
			w.to <- w.rest(fmt.Errorf("%w: this user may not publish on %s", nats.ErrPermissionViolation, subject))
		}
	}
}

// isNoResponders recognises the server's answer that a subject has no responders.
func isNoResponders(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

// readAnswer parses an answer; nil if the message is stored, or settled by direct delivery.
func readAnswer(m *nats.Msg, short bool) error {
	switch {
	case isNoResponders(m):
		return jetstream.ErrNoStreamResponse
	case short:
		return readDirect(m.Data)
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

// isStored recognises the usual answer of the broker, as there are very many. It returns false for
// any other answer.
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
