package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// reader reads stored messages, whether a consumer has delivered them or not.
type reader struct {
	*conn
	replicas int // of the streams, as configured
}

// isThere reports whether a message is still stored. Any replica may confirm it; only the leader
// may deny it, because the others may not have the message yet.
func (r *reader) isThere(ctx context.Context, stream string, place uint64) (bool, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	request := []byte(`{"seq":` + strconv.FormatUint(place, 10) + `}`)
	m, err := r.nc.RequestWithContext(ctx, r.api+"DIRECT.GET."+stream, request)
	if err == nil && m.Header.Get("Status") == "" {
		return true, nil
	}
	if err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return false, err
	}
	found, err := r.askLeader(ctx, stream, request)
	return found != nil, err
}

// found is a message in the response of a stream's leader.
type found struct {
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
	Time     time.Time
}

// header parses the headers.
func (f *found) header() (nats.Header, error) {
	if len(f.Header) == 0 {
		return nil, nil
	}
	return nats.DecodeHeadersMsg(f.Header)
}

// next returns the first message of the inbox, from a place on, whose stored subject matches a
// filter; nil if there is none.
func (r *reader) next(ctx context.Context, filter string, from uint64) (*found, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	subject, err := json.Marshal(filter) // a client may choose any bytes
	if err != nil {
		return nil, err
	}
	request := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%s}`, from, subject)
	if r.replicas != 1 { // another replica may not have the newest messages yet
		return r.askLeader(ctx, r.names.inbox, request)
	}
	m, err := r.nc.RequestWithContext(ctx, r.api+"DIRECT.GET."+r.names.inbox, request)
	if err != nil {
		return nil, err
	}
	if status := statusOf(m); status != "" {
		return nil, ignoreNotFound(status, m)
	}
	if x, ok := storedIn(m); ok {
		return &found{Subject: x.subject, Sequence: x.place, Time: x.at}, nil
	}
	return r.askLeader(ctx, r.names.inbox, request)
}

// askLeader asks the leader of a stream for a message; nil if there is none.
func (r *reader) askLeader(ctx context.Context, stream string, request []byte) (*found, error) {
	m, err := r.nc.RequestWithContext(ctx, r.api+"STREAM.MSG.GET."+stream, request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Message *found              `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Error == nil:
		return answer.Message, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	}
	return nil, answer.Error
}

// lastOf returns the last message of a stream whose subject matches a filter; nil if there is none.
// The leader answers: headers of stored messages can forge the answer of another replica.
func (r *reader) lastOf(ctx context.Context, stream, filter string) (*found, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	request, err := json.Marshal(map[string]string{"last_by_subj": filter}) // a client may choose any bytes
	if err != nil {
		return nil, err
	}
	return r.askLeader(ctx, stream, request)
}

// nextOf returns the first message of a stream, from a place on, whose subject matches a filter in
// JSON; nil if there is none. The leader answers, as for lastOf.
func (r *reader) nextOf(ctx context.Context, stream string, filter []byte, from uint64) (*found, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	return r.askLeader(ctx, stream, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%s}`, from, filter))
}

const (
	// lookBatch and lookBytes bound the messages read at once.
	lookBatch = 1024
	lookBytes = 4 << 20
	// lookForged bounds how many messages of a look the leader is asked about one by one.
	lookForged = 64
)

// lastSequence is the place of the last message of a batch, in the status at its end.
const lastSequence = "Nats-Last-Sequence"

// stillThere lists the messages of a lane that are stored between two sequence numbers, by the last
// word of their subjects. It only counts delayed messages: no message has to wait for them. It
// leaves out messages that look like other answers of NATS, apart from the first lookForged: a
// client may have stored very many.
//
// The time limit of a request is that of each batch, unless the context has another one: however
// much is stored, a receiver gets to its end.
func (r *reader) stillThere(ctx context.Context, l lane, partition int, from, upTo uint64) (left map[string][]uint64,
	found int, err error) {
	sub, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		return nil, 0, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	_ = sub.SetPendingLimits(-1, -1)
	left = make(map[string][]uint64)
	now := time.Now()
	k := &look{reader: r, sub: sub, filter: r.filter(l, partition), from: from,
		note: func(subject string, place uint64, h nats.Header) {
			if place > upTo {
				return
			}
			found++
			if at, err := time.Parse(time.RFC3339Nano, h.Get(headerNotBefore)); err != nil || at.Before(now) {
				who := lastWord(subject)
				left[who] = append(left[who], place)
			}
		}}
	for k.from <= upTo {
		more, err := k.batch(ctx)
		if err != nil {
			return nil, 0, err
		}
		if !more {
			err := r.newest(ctx, k.filter, k.from, upTo, k.note)
			return left, found, err
		}
	}
	return left, found, nil
}

// look is a walk through the messages of a lane.
type look struct {
	*reader
	sub    *nats.Subscription
	filter string
	from   uint64 // the next place
	forged int    // messages that the leader was asked about
	note   func(subject string, place uint64, h nats.Header)
}

// batch reads some messages. It returns false if there is none.
func (k *look) batch(ctx context.Context) (more bool, err error) {
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	request := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, k.from, k.filter,
		lookBatch, lookBytes)
	if err := k.nc.PublishRequest(k.api+"DIRECT.GET."+k.names.inbox, k.sub.Subject, []byte(request)); err != nil {
		return false, err
	}
	for got := 0; ; got++ {
		m, err := k.sub.NextMsgWithContext(ctx)
		if err != nil {
			return false, err
		}
		if status := statusOf(m); status == "204" && got > 0 {
			last, err := strconv.ParseUint(m.Header.Get(lastSequence), 10, 64)
			if err != nil {
				return false, fmt.Errorf("the end of a batch: %w", err)
			}
			k.from = max(k.from, last+1)
			return true, nil
		} else if status != "" {
			return false, ignoreNotFound(status, m)
		}
		if err := k.message(ctx, m); err != nil {
			return false, err
		}
	}
}

// message notes a message of a batch.
func (k *look) message(ctx context.Context, m *nats.Msg) error {
	x, ok := storedIn(m)
	h := m.Header
	if !ok {
		if k.forged == lookForged {
			return nil
		}
		k.forged++
		var err error
		if x, h, err = k.named(ctx, k.filter, k.from); err != nil {
			return err
		}
	}
	if x.place >= k.from { // otherwise the leader has named it instead of one that is gone
		k.from = x.place + 1
		k.note(x.subject, x.place, h)
	}
	return nil
}

// named reads the next message from a place on whose subject matches a filter, as the leader names
// it: the publisher may have forged the answer of another replica. If there is none, x is zero.
func (r *reader) named(ctx context.Context, filter string, from uint64) (x located, h nats.Header, err error) {
	f, err := r.askLeader(ctx, r.names.inbox, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, from, filter))
	if f == nil || err != nil {
		return x, nil, err
	}
	h, _ = f.header() // headers that cannot be read are none
	return located{f.Subject, f.Sequence, f.Time}, h, nil
}

// newest notes the messages that the responding replica does not have yet, because it may be a
// little behind. It asks the leader of the stream for them, one after the other.
func (r *reader) newest(ctx context.Context, filter string, from, upTo uint64,
	note func(subject string, place uint64, h nats.Header)) error {
	for r.replicas != 1 && from <= upTo {
		bounded, cancel := r.bounded(ctx)
		x, h, err := r.named(bounded, filter, from)
		cancel()
		if x.place == 0 || err != nil {
			return err
		}
		note(x.subject, x.place, h)
		from = x.place + 1
	}
	return nil
}

// ignoreNotFound returns the error of a status; nil if there are only no more messages.
func ignoreNotFound(status string, m *nats.Msg) error {
	switch status {
	case "404", "204":
		return nil
	case "503":
		return jetstream.ErrStreamNotFound
	}
	return fmt.Errorf("%s %s", status, m.Header.Get("Description"))
}
