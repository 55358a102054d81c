package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// window bounds what is on its way to the broker at once; each message counts with its size and
	// a little more.
	window      = 16 << 20
	messageCost = 4 << 10

	// A message whose time is nearer than near is published at once, another one waits in the
	// broker until early before its time, because the broker may be up to a quarter of a second
	// late.
	near  = 1500 * time.Millisecond
	early = time.Second

	// publishWait is how long to wait for the broker to say that it has a message; after that it is
	// published again, and the broker still remembers its id if it has it: see dedupeWindow.
	publishWait = 3 * time.Second
	// When the broker does not keep up, each message counts twice as much as before, up to
	// maxStrain times twice; when it has kept up for strainFor, half as much.
	maxStrain = 6
	strainFor = 2 * time.Second
	// withdrawing is how many withdrawals are on their way at once, for each call.
	withdrawing = 32
	// remembered is for how long the server may remember the time of what was withdrawn.
	remembered = time.Minute
)

// latest is until when the broker can delay a message: it counts nanoseconds since 1970.
var latest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Publish implements broker.Publisher.
func (b *Bus) Publish(ctx context.Context, messages ...events.Wire) error {
	var refused broker.Refused
	for len(messages) > 0 {
		var rest, withdrawn []events.Wire
		rest, withdrawn, messages = split(messages)
		if err := b.insist(ctx, rest, func(rest []events.Wire) ([]events.Wire, error) {
			return b.publishOnce(ctx, rest, &refused)
		}); err != nil {
			return err
		}
		if err := b.insist(ctx, withdrawn, func(rest []events.Wire) ([]events.Wire, error) {
			return b.withdraw(ctx, rest)
		}); err != nil {
			return err
		}
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

// split takes what can be done in two goes off the front: publish, then withdraw. What is published
// under a subject that was withdrawn before has to wait.
func split(messages []events.Wire) (publish, withdraw, rest []events.Wire) {
	first := slices.IndexFunc(messages, func(w events.Wire) bool { return w.Purge })
	if first < 0 {
		return messages, nil, nil
	}
	publish = slices.Clone(messages[:first])
	gone := make(map[string]bool)
	for i, w := range messages[first:] {
		switch {
		case w.Purge:
			gone[w.Subject] = true
			withdraw = append(withdraw, w)
		case gone[w.Subject]:
			return publish, withdraw, messages[first+i:]
		default:
			publish = append(publish, w)
		}
	}
	return publish, withdraw, nil
}

// insist does something with messages, again with those for which that failed, until it has worked
// for all.
func (b *Bus) insist(ctx context.Context, messages []events.Wire,
	do func([]events.Wire) (failed []events.Wire, last error)) error {
	for attempt := 0; len(messages) > 0; attempt++ {
		failed, err := do(messages)
		if len(failed) == 0 {
			return nil
		}
		if gone(err) && attempt > 2 { // for a third of a second: not just between two leaders
			if err := b.missing(ctx); err != nil {
				b.log.Warn("NATS: what is missing could not be made", "error", err)
			}
		}
		messages = failed
		if err := b.pause(ctx, attempt, err); err != nil {
			return err
		}
	}
	return nil
}

// missing makes what is missing, if one of the streams is.
func (b *Bus) missing(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, name := range []string{b.names.inbox, b.names.later, b.names.work, b.names.dead} {
		if _, err := b.js.Stream(look, name); gone(err) {
			return b.mend(ctx)
		}
	}
	return nil
}

// pause waits before the next attempt, and gives the error of the last one when there is none.
func (b *Bus) pause(ctx context.Context, attempt int, last error) error {
	delay := min(50*time.Millisecond<<min(attempt, 6), 2*time.Second)
	if attempt == 3 {
		b.log.Warn("NATS: publishing fails; trying on", "error", last)
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return problem("publish", errors.Join(context.Cause(ctx), last))
	case <-b.ctx.Done():
		return problem("publish", errors.Join(nats.ErrConnectionClosed, last))
	}
}

// strain is how much the broker is under. Publishing again what it has not said to have would only
// add to it.
type strain struct {
	mu      sync.Mutex
	level   int
	changed time.Time
}

func (s *strain) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// note notes whether the broker has kept up. Many may say so at once: it counts once in a while.
func (s *strain) note(late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := time.Now(); {
	case late && now.Sub(s.changed) > publishWait:
		s.level, s.changed = min(s.level+1, maxStrain), now
	case late, s.level == 0:
	case now.Sub(s.changed) > strainFor:
		s.level, s.changed = s.level-1, now
	}
}

// inOrder gives the instance of a message that must not overtake others of the same call: one that
// people have sent. Those of the services say which event they are about, so that their order means
// nothing, and waiting for each would make them slow.
func (b *Bus) inOrder(w events.Wire) (instance string) {
	if !w.NotBefore.IsZero() {
		return ""
	}
	rest := w.Subject[len(b.names.prefix)+1:] // it has been checked
	verb, _, _ := strings.Cut(rest, ".")
	switch events.Verb(verb) {
	case events.VerbWork, events.VerbBegun, events.VerbDone, events.VerbFail, events.VerbTimer, events.VerbChild,
		events.VerbWake, deadVerb:
		return ""
	}
	return lastWord(rest)
}

// deadVerb begins the subjects of dead letters.
const deadVerb = "dead"

// errNoStream is why a message is refused whose subject is none of the system's.
var errNoStream = errors.New("no stream takes this subject")

// errLongSubject is why a message is refused whose subject would have the server close the
// connection.
var errLongSubject = errors.New("the subject is too long")

// maxSubject leaves room for what else is in a line of the protocol, which servers let have 4,096
// bytes, and in the subject of a dead letter.
const maxSubject = 3500

// canTake tells whether there is a stream for a subject. The broker's own answer would be the same
// as if a stream had no leader just now.
func (b *Bus) canTake(subject string) error {
	rest, ok := strings.CutPrefix(subject, b.names.prefix+".")
	if !ok {
		return errNoStream
	}
	verb, _, _ := strings.Cut(rest, ".")
	words := strings.Count(rest, ".") + 1
	if len(subject) > maxSubject {
		return errLongSubject
	}
	if verb == deadVerb && words > 3 {
		rest = rest[len(deadVerb)+1:]
		verb, _, _ = strings.Cut(rest, ".")
		words--
	}
	want := 3
	if verb == string(events.VerbWork) && words != 3 {
		want = 5
	}
	if words != want || strings.HasPrefix(rest, ".") || strings.HasSuffix(rest, ".") || strings.Contains(rest, "..") ||
		strings.ContainsAny(rest, "*> \t\r\n") {
		return errNoStream
	}
	return nil
}

// permanent reports whether the broker will never take the message.
func permanent(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) ||
		errors.Is(err, nats.ErrBadHeaderMsg) || errors.Is(err, jetstream.ErrInvalidSubject) ||
		errors.Is(err, nats.ErrPermissionViolation) {
		return true
	}
	var api *jetstream.APIError
	// there is something wrong with the request; everything else is the state of the servers
	return errors.As(err, &api) && api.Code == 400 && api.ErrorCode != accountFull
}

// accountFull is the code of the error that the limits of the account are reached. Somebody makes
// room, and it works.
const accountFull jetstream.ErrorCode = 10002

// message makes what is published: the message itself, or what has NATS publish it later.
func (b *Bus) message(w events.Wire, now time.Time) *nats.Msg {
	m := &nats.Msg{Subject: w.Subject, Data: w.Body, Header: nats.Header(w.Header)}
	inInbox := false
	switch b.verbOf(w.Subject) {
	case string(events.VerbWork):
		m.Header = b.withWayBack(m.Header)
	case deadVerb:
	default:
		inInbox = true
	}
	if w.NotBefore.After(now) {
		w.Header = events.Header(m.Header)
		return b.delayedMessage(w, now, inInbox)
	}
	m.Header = b.withMsgID(m.Header, w.Subject, inInbox)
	return m
}

// delayedMessage is a message that is not to be taken at once.
func (b *Bus) delayedMessage(w events.Wire, now time.Time, inInbox bool) *nats.Msg {
	if far := w.NotBefore.Sub(now) >= near; far && !(inInbox && b.goesThroughInbox(w.Subject)) {
		target, id := w.Subject, first(w.Header, events.HeaderMsgID)
		if inInbox {
			target = b.dueOf(target)
		}
		if id != "" {
			id += "/later"
		}
		return b.schedule(w, target, id)
	}
	w = withHeader(w, headerNotBefore, w.NotBefore.UTC().Format(time.RFC3339Nano))
	return &nats.Msg{Subject: w.Subject, Data: w.Body, Header: b.withMsgID(nats.Header(w.Header), w.Subject, inInbox)}
}

// withMsgID adds the id by which NATS drops what is published twice, because the answer to the
// first time was lost. In the inbox, where clients publish, nobody else can guess it, and it is for
// one subject only: a client could have a message of others dropped, or two messages with one id
// for different instances would be one. What another process publishes again comes twice, and the
// instance takes it once.
func (b *Bus) withMsgID(h nats.Header, subject string, inInbox bool) nats.Header {
	id := first(events.Header(h), events.HeaderMsgID)
	own := first(events.Header(h), nats.MsgIdHdr)
	if id == "" && (own == "" || !inInbox) || !inInbox && own != "" {
		return h
	}
	out := make(nats.Header, len(h)+1)
	maps.Copy(out, h)
	switch {
	case !inInbox:
		out[nats.MsgIdHdr] = []string{id}
	case id == "": // a caller that names it as NATS does
		out[events.HeaderMsgID] = []string{own}
		id = own
		fallthrough
	default:
		out[nats.MsgIdHdr] = []string{b.nonce + "/" + subject + "/" + id}
	}
	return out
}

// streamOf finds the stream in which a message is stored until it is taken.
func (b *Bus) streamOf(subject string) (st jetstream.Stream, isWork bool, err error) {
	is := b.there.Load()
	st = is.inbox
	if strings.HasPrefix(subject, b.subject("work.")) {
		st, isWork = is.work, true
	}
	if st == nil {
		return nil, isWork, fmt.Errorf(
			"nats: the stream of %s cannot be seen with these rights, or was not there when the connection was made",
			subject)
	}
	return st, isWork, nil
}

// laterStream is the stream of what waits for its time.
func (b *Bus) laterStream() (jetstream.Stream, error) {
	if st := b.there.Load().later; st != nil {
		return st, nil
	}
	return nil, fmt.Errorf("nats: stream %s cannot be seen with these permissions, or was not there when the "+
		"connection was made", b.names.later)
}

// withdraw removes what is stored under subjects, and tells those who hold it. It gives back those
// for which that did not work.
func (b *Bus) withdraw(ctx context.Context, messages []events.Wire) (failed []events.Wire, last error) {
	now := time.Now()
	errs := make([]error, len(messages))
	var all sync.WaitGroup
	slots := make(chan struct{}, withdrawing)
	for i, w := range messages {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = b.withdrawOne(ctx, w, now)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			failed, last = append(failed, messages[i]), fmt.Errorf("withdraw %s: %w", messages[i].Subject, err)
		}
	}
	return failed, last
}

func (b *Bus) withdrawOne(ctx context.Context, w events.Wire, now time.Time) error {
	st, isWork, err := b.streamOf(w.Subject)
	if err != nil {
		return err
	}
	if w.NotBefore.After(now) { // otherwise it does not wait for its time any more, or never did
		waits := st
		if !isWork {
			if waits, err = b.laterStream(); err != nil {
				return err
			}
		}
		if err := b.unschedule(ctx, waits, b.laterOf(w), w.NotBefore.Sub(now)); err != nil {
			return err
		}
	}
	if !isWork {
		return nil
	}
	// Second, so that what comes out of its schedule in between is found.
	if err := st.Purge(ctx, jetstream.WithPurgeSubject(w.Subject)); err != nil {
		return err
	}
	words := append([]string{"notice", "withdrawn"},
		strings.Split(strings.TrimPrefix(w.Subject, b.subject("work.")), ".")...)
	return b.nc.Publish(b.subject(words...), nil)
}

// unschedule removes what waits for its time, which is after a while. The server would go on to
// remember when that is, some 500 bytes for each; a message that is not to wait, under the same
// subject, makes it forget. What would be forgotten soon anyway is not worth it.
func (b *Bus) unschedule(ctx context.Context, st jetstream.Stream, subject string, after time.Duration) error {
	if after > remembered {
		_, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: subject})
		var refused *jetstream.APIError // then it is not stored, and it goes without
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return st.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// place is where a message may be stored: under a filter, as a message that was published under a
// subject.
type place struct {
	stream          jetstream.Stream
	filter, subject string
}

// placesOf are all places of a message, in the order in which it goes from one to the other, so
// that it is seen when it does.
func (b *Bus) placesOf(w events.Wire) (all []place, isWork bool, err error) {
	st, isWork, err := b.streamOf(w.Subject)
	if err != nil {
		return nil, isWork, err
	}
	later := b.laterOf(w)
	switch {
	case isWork && w.NotBefore.IsZero():
		return []place{{st, w.Subject, w.Subject}}, true, nil
	case isWork:
		return []place{{st, later, later}, {st, w.Subject, w.Subject}}, true, nil
	case w.NotBefore.IsZero():
		return []place{{st, b.storedAs(w.Subject), w.Subject}}, false, nil
	}
	waits, err := b.laterStream()
	if err != nil {
		return nil, false, err
	}
	goesOn := w.Subject
	if b.goesThroughInbox(w.Subject) {
		all = append(all, place{st, b.storedAs(w.Subject), w.Subject}) // until it is taken over
		goesOn = b.subject(dueMark + strings.TrimPrefix(w.Subject, b.names.prefix+"."))
	}
	due := b.dueOf(w.Subject)
	return append(all, place{waits, later, later}, place{waits, due, due}, place{st, b.storedAs(goesOn), goesOn}),
		false, nil
}

// Has implements broker.Publisher.
func (b *Bus) Has(ctx context.Context, w events.Wire) (bool, error) {
	all, isWork, err := b.placesOf(w)
	if err != nil {
		return false, err
	}
	for _, p := range all {
		_, err := p.stream.GetLastMsgForSubject(ctx, p.filter)
		if err == nil {
			if isWork {
				b.noteQueue(w.Subject) // whoever published it may not have come to that
			}
			return true, nil
		}
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, problem("look for "+w.Subject, err)
		}
	}
	return false, nil
}
