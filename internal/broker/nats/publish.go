package natsbroker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/pkg/events"
)

const (
	// window is the maximum size of the messages in flight to the broker; each message counts with
	// its size and messageCost.
	window      = 16 << 20
	messageCost = 4 << 10

	// A message whose time is nearer than near is published at once, another one waits in the
	// broker until early before its time, because the broker may be up to a quarter of a second
	// late.
	near  = 1500 * time.Millisecond
	early = time.Second

	// publishWait is how long a flight waits for the broker's acknowledgement. After that, it
	// publishes the message again, and the broker still remembers the id if it has the message: see
	// dedupeWindow.
	publishWait = 3 * time.Second
	// If the broker does not keep up, the cost of a message doubles, up to maxCongestion times;
	// after congestionFor without a late answer, the cost halves.
	maxCongestion = 6
	congestionFor = 2 * time.Second
	// withdrawing is the maximum number of withdrawals in flight, for each call.
	withdrawing = 32
	// remembered is how long the server may remember the time of a withdrawn message.
	remembered = time.Minute
)

// latest is the latest time of a message that the broker can delay: it counts nanoseconds since
// 1970.
var latest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// publisher publishes messages, and withdraws them.
type publisher struct {
	*resources
	reader reader
	direct *directSender
	queues *taskQueues

	nonce      string                  // begins the ids by which NATS drops what this process publishes twice
	window     *semaphore.Weighted     // the messages in flight to the broker
	answers    map[directKind]*answers // by the kind of direct delivery; "" for those of NATS
	congestion congestion
}

func newPublisher(r *resources, reader reader, direct *directSender, queues *taskQueues) *publisher {
	return &publisher{resources: r, reader: reader, direct: direct, queues: queues, nonce: rand.Text(),
		answers: newAnswers(&r.names),
		window:  semaphore.NewWeighted(window)}
}

// Publish implements broker.Publisher.
func (p *publisher) Publish(ctx context.Context, messages ...events.Wire) error {
	var refused broker.Refused
	for len(messages) > 0 {
		var rest, withdrawn []events.Wire
		rest, withdrawn, messages = split(messages)
		if err := p.insist(ctx, rest, func(rest []events.Wire) ([]events.Wire, error) {
			return p.publishOnce(ctx, rest, &refused)
		}); err != nil {
			return err
		}
		if err := p.insist(ctx, withdrawn, func(rest []events.Wire) ([]events.Wire, error) {
			return p.withdraw(ctx, rest)
		}); err != nil {
			return err
		}
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

// split takes messages off the front that need two steps: publish, then withdraw. A message on a
// subject that was withdrawn before has to wait.
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

// insist calls do with messages, and again with those that failed, until none has failed.
func (p *publisher) insist(ctx context.Context, messages []events.Wire,
	do func([]events.Wire) (failed []events.Wire, last error)) error {
	for attempt := 0; len(messages) > 0; attempt++ {
		failed, err := do(messages)
		if len(failed) == 0 {
			return nil
		}
		if gone(err) && attempt > 2 { // for a third of a second: not just between two leaders
			if err := p.missing(ctx); err != nil {
				p.log.Warn("NATS: missing streams, buckets or consumers could not be created", "error", err)
			}
		}
		if full(err) && attempt >= fullAttempts && slices.ContainsFunc(failed, p.fromOutbox) {
			return problem("publish", orFull(err))
		}
		messages = failed
		if err := p.pause(ctx, attempt, err); err != nil {
			return err
		}
	}
	return nil
}

// fullAttempts is how often messages of a commit, and dead letters, are published while there is no
// room, which takes 1.5 s. Then those of a commit stay in the outbox, and a sweep publishes them:
// the inbox would not become empty while commits wait for room in it.
const fullAttempts = 5

// fromOutbox reports whether a message may be left to its sender: a dead letter, or what only
// orchestrators publish into the inbox.
func (p *publisher) fromOutbox(w events.Wire) bool {
	verb := p.verbOf(w.Subject)
	_, internally := events.Origin(verb)
	return internally || verb == deadVerb || events.Verb(verb) == events.VerbChild
}

// orFull adds [broker.ErrFull] to an error for want of room.
func orFull(err error) error {
	if full(err) {
		return errors.Join(broker.ErrFull, err)
	}
	return err
}

// pause waits before the next attempt, and returns the error of the last one if there is none.
func (p *publisher) pause(ctx context.Context, attempt int, last error) error {
	delay := backoff.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}.After(attempt)
	last = p.withoutStream(last)
	if attempt == 3 {
		p.log.Warn("NATS: publishing fails; retrying", "error", last)
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return problem("publish", errors.Join(context.Cause(ctx), orFull(last)))
	case <-p.ctx.Done():
		return problem("publish", errors.Join(nats.ErrConnectionClosed, last))
	}
}

// withoutStream adds [broker.ErrNoStream] to the error of a message that no stream has answered. If
// this connection has seen no stream, the prefix may be wrong.
func (p *publisher) withoutStream(err error) error {
	switch {
	case !errors.Is(err, jetstream.ErrNoStreamResponse):
		return err
	case p.SeesStreams() == nil:
		return fmt.Errorf("%w: %w", broker.ErrNoStream, err)
	}
	return fmt.Errorf("%w: is %q the prefix of the system? If it is, `migrate --streams`, or an orchestrator that "+
		"starts, creates the streams: %w", broker.ErrNoStream, p.names.prefix, err)
}

// congestion is the load of the broker. Publishing unacknowledged messages again would only add to
// it.
type congestion struct {
	mu      sync.Mutex
	level   int
	changed time.Time
}

func (s *congestion) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// note records whether the broker has kept up. Of several calls at the same time, one counts.
func (s *congestion) note(late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := time.Now(); {
	case late && now.Sub(s.changed) > publishWait:
		s.level, s.changed = min(s.level+1, maxCongestion), now
	case late, s.level == 0:
	case now.Sub(s.changed) > congestionFor:
		s.level, s.changed = s.level-1, now
	}
}

// deadVerb begins the subjects of dead letters.
const deadVerb = "dead"

// errNoStream says that a subject belongs to no stream of the system.
var errNoStream = errors.New("no stream takes this subject")

// errLongSubject says that a subject is so long that the server would close the connection.
var errLongSubject = errors.New("the subject is too long")

// maxSubject leaves room for the rest of a line of the protocol, of which servers accept 4,096
// bytes, and for subjects made of another one: a dead letter, a delayed message, or the API of
// JetStream with the name of a stream and the subject of a delayed message.
const maxSubject = 3500

// permanent reports whether the broker will never take the message.
func permanent(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) ||
		errors.Is(err, nats.ErrBadHeaderMsg) || errors.Is(err, jetstream.ErrInvalidSubject) ||
		errors.Is(err, nats.ErrPermissionViolation) {
		return true
	}
	var api *jetstream.APIError
	// The request is wrong; all other errors are about the state of the servers.
	return errors.As(err, &api) && api.Code == 400 && !full(err) // there may be room later
}

// The codes of errors of NATS for messages that a stream takes as setup has made it.
const (
	tooLargeForStream  jetstream.ErrorCode = 10054
	streamSealed       jetstream.ErrorCode = 10109
	schedulingDisabled jetstream.ErrorCode = 10188
)

// misconfigured reports whether an error is due to a setting of the servers, of this user or of a
// stream.
func misconfigured(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		code := api.ErrorCode
		return code == tooLargeForStream || code == streamSealed || code == schedulingDisabled
	}
	return errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, broker.ErrMisconfigured)
}

// explained adds [broker.ErrMisconfigured] to an error that is due to a setting.
func explained(err error) error {
	if misconfigured(err) && !errors.Is(err, broker.ErrMisconfigured) {
		return fmt.Errorf("%w: %w", broker.ErrMisconfigured, err)
	}
	return err
}

// tooLarge explains that the servers take no message as large as m. Setup has verified that they
// take messages of MaxPayload.
func (p *publisher) tooLarge(m *nats.Msg, err error) error {
	if !errors.Is(err, nats.ErrMaxPayload) || p.plan.config.Setup == Use || m.Size() > p.plan.config.MaxPayload {
		return err
	}
	return fmt.Errorf("%w: max_payload of the servers is %d now, less than %d: %w", broker.ErrMisconfigured,
		p.nc.MaxPayload(), p.plan.config.MaxPayload, err)
}

// message builds the message to publish: the message itself, or one that makes NATS publish it
// later.
func (p *publisher) message(w events.Wire, now time.Time) *nats.Msg {
	m := &nats.Msg{Subject: w.Subject, Data: w.Body, Header: nats.Header(w.Header)}
	inInbox := false
	switch p.verbOf(w.Subject) {
	case string(events.VerbTask):
		m.Header = p.direct.withReply(m.Header)
	case deadVerb:
	default:
		inInbox = true
	}
	if w.NotBefore.After(now) {
		w.Header = events.Header(m.Header)
		return p.delayedMessage(w, now, inInbox)
	}
	m.Header = p.withMsgID(m.Header, w.Subject, inInbox)
	return m
}

// delayedMessage builds a message that must not be processed at once.
func (p *publisher) delayedMessage(w events.Wire, now time.Time, inInbox bool) *nats.Msg {
	if far := w.NotBefore.Sub(now) >= near; far && !(inInbox && p.goesThroughInbox(w.Subject)) {
		target, id := w.Subject, first(w.Header, events.HeaderMsgID)
		if inInbox {
			target = p.dueOf(target)
		}
		if id != "" {
			id += "/later"
		}
		return p.schedule(w, target, id)
	}
	w = withHeader(w, headerNotBefore, w.NotBefore.UTC().Format(time.RFC3339Nano))
	return &nats.Msg{Subject: w.Subject, Data: w.Body, Header: p.withMsgID(nats.Header(w.Header), w.Subject, inInbox)}
}

// withMsgID adds the id by which NATS drops a message that is published again because its answer
// was lost. In the inbox, where clients publish, the id has a secret and the subject. Otherwise a
// client could make NATS drop a message of others, and two messages with one id for different
// instances would be one. A message that another process publishes again is stored twice, and the
// instance processes it once.
func (p *publisher) withMsgID(h nats.Header, subject string, inInbox bool) nats.Header {
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
	case id == "": // a caller that sets the header of NATS
		out[events.HeaderMsgID] = []string{own}
		id = own
		fallthrough
	default:
		out[nats.MsgIdHdr] = []string{p.nonce + "/" + subject + "/" + id}
	}
	return out
}

// withdraw removes the messages that are stored under subjects, and notifies the workers that hold
// them. It returns the messages for which that failed.
func (p *publisher) withdraw(ctx context.Context, messages []events.Wire) (failed []events.Wire, last error) {
	now := time.Now()
	errs := make([]error, len(messages))
	var all sync.WaitGroup
	slots := make(chan struct{}, withdrawing)
	for i, w := range messages {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = p.withdrawOne(ctx, w, now)
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

func (p *publisher) withdrawOne(ctx context.Context, w events.Wire, now time.Time) error {
	st, isWork, err := p.streamOf(w.Subject)
	if err != nil {
		return err
	}
	if w.NotBefore.After(now) { // otherwise the message does not wait for its time any more, or never did
		waits := st
		if !isWork {
			if waits, err = p.laterStream(); err != nil {
				return err
			}
		}
		if err := p.unschedule(ctx, waits, p.laterOf(w), w.NotBefore.Sub(now)); err != nil {
			return err
		}
	}
	if !isWork {
		return nil
	}
	// Second, so that a message that NATS publishes from its schedule in between is found.
	if err := st.Purge(ctx, jetstream.WithPurgeSubject(w.Subject)); err != nil {
		return err
	}
	words := append([]string{"notification", "withdrawn"},
		strings.Split(strings.TrimPrefix(w.Subject, p.subject("task.")), ".")...)
	return p.nc.Publish(p.subject(words...), nil)
}

// unschedule removes a delayed message. The server would still remember its time, some 500 bytes
// for each message; a message without a delay on the same subject makes the server forget it. That
// is not worth it if the server forgets it soon anyway.
func (p *publisher) unschedule(ctx context.Context, st jetstream.Stream, subject string, after time.Duration) error {
	if after > remembered {
		_, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: subject})
		var refused *jetstream.APIError // then no message is stored, and the server remembers the time
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return st.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// place is where a message may be stored: the filter to look for it, and the subject on which it
// was published.
type place struct {
	stream          jetstream.Stream
	filter, subject string
}

// placesOf returns all places of a message, in the order in which it moves from one to the other,
// so that a caller finds it while it moves.
func (p *publisher) placesOf(w events.Wire) (all []place, isWork bool, err error) {
	st, isWork, err := p.streamOf(w.Subject)
	if err != nil {
		return nil, isWork, err
	}
	later := p.laterOf(w)
	switch {
	case isWork && w.NotBefore.IsZero():
		return []place{{st, w.Subject, w.Subject}}, true, nil
	case isWork:
		return []place{{st, later, later}, {st, w.Subject, w.Subject}}, true, nil
	case w.NotBefore.IsZero():
		return []place{{st, p.storedAs(w.Subject), w.Subject}}, false, nil
	}
	waits, err := p.laterStream()
	if err != nil {
		return nil, false, err
	}
	goesOn := w.Subject
	if p.goesThroughInbox(w.Subject) {
		all = append(all, place{st, p.storedAs(w.Subject), w.Subject}) // until it is taken over
		goesOn = p.subject(dueMark + strings.TrimPrefix(w.Subject, p.names.prefix+"."))
	}
	due := p.dueOf(w.Subject)
	return append(all, place{waits, later, later}, place{waits, due, due}, place{st, p.storedAs(goesOn), goesOn}),
		false, nil
}

// Has implements broker.Publisher.
func (p *publisher) Has(ctx context.Context, w events.Wire) (bool, error) {
	all, isWork, err := p.placesOf(w)
	if err != nil {
		return false, err
	}
	for _, x := range all {
		f, err := p.reader.lastOf(ctx, x.stream.CachedInfo().Config.Name, x.filter)
		if err != nil {
			return false, problem("look for "+w.Subject, err)
		}
		if f != nil {
			if isWork {
				p.queues.noteQueue(w.Subject) // its publisher may not have noted it yet
			}
			return true, nil
		}
	}
	return false, nil
}

// withHeader adds a header to a copy, because several messages may share their headers.
func withHeader(w events.Wire, name, value string) events.Wire {
	h := make(events.Header, len(w.Header)+1)
	maps.Copy(h, w.Header)
	h[name] = []string{value}
	w.Header = h
	return w
}
