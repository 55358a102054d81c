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

const (
	// lookBatch and lookBytes bound the messages read at once.
	lookBatch = 1024
	lookBytes = 4 << 20
)

// stillThere lists the messages of a lane that are stored between two sequence numbers, by the last
// word of their subjects. It only counts delayed messages: no message has to wait for them.
func (r *reader) stillThere(ctx context.Context, l lane, partition int, from, upTo uint64) (left map[string][]uint64,
	found int, err error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	sub, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		return nil, 0, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	_ = sub.SetPendingLimits(-1, -1)
	left = make(map[string][]uint64)
	filter := r.filter(l, partition)
	now := time.Now()
	note := func(subject string, place uint64, h nats.Header) {
		if place > upTo {
			return
		}
		found++
		if at, err := time.Parse(time.RFC3339Nano, h.Get(headerNotBefore)); err != nil || at.Before(now) {
			who := lastWord(subject)
			left[who] = append(left[who], place)
		}
	}
	for from <= upTo {
		request := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, from, filter,
			lookBatch, lookBytes)
		if err := r.nc.PublishRequest(r.api+"DIRECT.GET."+r.names.inbox, sub.Subject, []byte(request)); err != nil {
			return nil, 0, err
		}
		got := 0
		for {
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				return nil, 0, err
			}
			if status := statusOf(m); status != "" {
				if status == "204" && got > 0 { // the end of the batch
					break
				}
				if err := ignoreNotFound(status, m); err != nil {
					return nil, 0, err
				}
				err := r.newest(ctx, filter, from, upTo, note)
				return left, found, err
			}
			got++
			x, h, err := r.storedIn(ctx, m, filter, from)
			if err != nil {
				return nil, 0, err
			}
			if x.place >= from { // otherwise the leader has named it instead of one that is gone
				from = x.place + 1
				note(x.subject, x.place, h)
			}
		}
	}
	return left, found, nil
}

// storedIn reads one of the messages from a place on whose subjects match a filter. If the
// publisher may have forged the answer, the leader names the next message; if there is none, x is
// zero.
func (r *reader) storedIn(ctx context.Context, m *nats.Msg, filter string, from uint64) (x located, h nats.Header,
	err error) {
	if x, ok := storedIn(m); ok {
		return x, m.Header, nil
	}
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
		m, err := r.askLeader(ctx, r.names.inbox, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, from, filter))
		if m == nil || err != nil {
			return err
		}
		h, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			h = nil // it has no headers
		}
		note(m.Subject, m.Sequence, h)
		from = m.Sequence + 1
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
