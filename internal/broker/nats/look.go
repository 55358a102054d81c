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

// isThere tells whether a message is still stored. Any replica may say yes; only the leader may say
// no, as the others may not have got it yet.
func (b *Bus) isThere(ctx context.Context, stream string, place uint64) (bool, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	question := []byte(`{"seq":` + strconv.FormatUint(place, 10) + `}`)
	m, err := b.nc.RequestWithContext(ctx, b.api+"DIRECT.GET."+stream, question)
	if err == nil && m.Header.Get("Status") == "" {
		return true, nil
	}
	if err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return false, err
	}
	found, err := b.askLeader(ctx, stream, question)
	return found != nil, err
}

// found is a message as the leader of a stream gives it.
type found struct {
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
}

// askLeader asks the leader of a stream for a message; nil if there is none.
func (b *Bus) askLeader(ctx context.Context, stream string, question []byte) (*found, error) {
	m, err := b.nc.RequestWithContext(ctx, b.api+"STREAM.MSG.GET."+stream, question)
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

const (
	// lookBatch and lookBytes bound how many messages are looked at at once.
	lookBatch = 1024
	lookBytes = 4 << 20
)

// stillThere lists the messages of a lane that are stored between two places, by the last word of
// their subjects. Those whose time has not come are counted only: nobody has to wait for them.
func (b *Bus) stillThere(ctx context.Context, l lane, partition int, from, upTo uint64) (left map[string][]uint64,
	found int, err error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	sub, err := b.nc.SubscribeSync(b.nc.NewInbox())
	if err != nil {
		return nil, 0, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	_ = sub.SetPendingLimits(-1, -1)
	left = make(map[string][]uint64)
	filter := b.filter(l, partition)
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
		question := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, from, filter,
			lookBatch, lookBytes)
		if err := b.nc.PublishRequest(b.api+"DIRECT.GET."+b.names.inbox, sub.Subject, []byte(question)); err != nil {
			return nil, 0, err
		}
		got := 0
		for {
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				return nil, 0, err
			}
			if status := m.Header.Get("Status"); status != "" {
				if status == "204" && got > 0 { // the end of the batch
					break
				}
				if err := ignoreNotFound(status, m); err != nil {
					return nil, 0, err
				}
				err := b.newest(ctx, filter, from, upTo, note)
				return left, found, err
			}
			place, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
			if err != nil {
				return nil, 0, fmt.Errorf("a message without a place: %w", err)
			}
			got, from = got+1, place+1
			note(m.Header.Get("Nats-Subject"), place, m.Header)
		}
	}
	return left, found, nil
}

// newest notes the messages that a server did not have yet which was asked for many, and which may
// be a little behind: the leader of the stream is asked for one after the other.
func (b *Bus) newest(ctx context.Context, filter string, from, upTo uint64,
	note func(subject string, place uint64, h nats.Header)) error {
	for b.config.Replicas != 1 && from <= upTo {
		m, err := b.askLeader(ctx, b.names.inbox, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, from, filter))
		if m == nil || err != nil {
			return err
		}
		h, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			h = nil // it has none
		}
		note(m.Subject, m.Sequence, h)
		from = m.Sequence + 1
	}
	return nil
}

// ignoreNotFound makes an error of a status, unless it only says that there is nothing more.
func ignoreNotFound(status string, m *nats.Msg) error {
	switch status {
	case "404", "204":
		return nil
	case "503":
		return jetstream.ErrStreamNotFound
	}
	return fmt.Errorf("%s %s", status, m.Header.Get("Description"))
}
