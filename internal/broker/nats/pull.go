package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// While the broker has nothing to hand out, it says so every heartbeat. After silence without a
	// word, nobody there knows of the request any more.
	heartbeat = time.Second
	silence   = 3 * time.Second
	// reconnected is how often who waits for a connection looks whether there is one.
	reconnected = 20 * time.Millisecond
)

// request asks a consumer for messages.
type request struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// ask sends a request; the answers come to inbox.
func (b *Bus) ask(stream, consumer, inbox string, r request) error {
	if !b.nc.IsConnected() { // it would be sent when there is a connection again, and by then nobody may be listening
		return nats.ErrConnectionReconnecting
	}
	r.Heartbeat = min(heartbeat, r.Expires/2)
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return b.nc.PublishRequest(b.api+"CONSUMER.MSG.NEXT."+stream+"."+consumer, inbox, data)
}

// awaitConnection waits until there is a connection, and reports whether there is one.
func (b *Bus) awaitConnection(ctx context.Context, most time.Duration) bool {
	if b.nc.IsConnected() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(reconnected)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if b.nc.IsConnected() {
				return true
			}
		case <-ctx.Done():
			return false
		case <-b.ctx.Done():
			return false
		}
	}
}

// answer is what came instead of a message.
type answer struct {
	kind answerKind
	// left is how many messages of the request will not come.
	left int
	err  error
}

type answerKind int

const (
	aMessage   answerKind = iota // it is a message
	aHeartbeat                   // the broker is there
	aDone                        // the request has ended
	aLost                        // whoever had the requests has them no more
	aNobody                      // nobody answers: there is no such consumer, or it has no leader
	aGone                        // the consumer was removed
	aBad                         // the request is wrong
)

// read tells what has come to the inbox of a request.
func read(m *nats.Msg) answer {
	status := m.Header["Status"]
	if len(m.Data) > 0 || len(status) == 0 || strings.HasPrefix(m.Reply, "$JS.ACK.") {
		return answer{kind: aMessage}
	}
	description := strings.ToLower(m.Header.Get("Description"))
	a := answer{}
	a.left, _ = strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	switch status[0] {
	case "100":
		a.kind = aHeartbeat
	case "404", "408":
		a.kind = aDone
	case "503":
		a.kind, a.err = aNobody, jetstream.ErrConsumerNotFound
	case "409":
		switch {
		case strings.Contains(description, "consumer deleted"):
			a.kind, a.err = aGone, jetstream.ErrConsumerDeleted
		case strings.Contains(description, "leadership change"), strings.Contains(description, "shutdown"):
			a.kind = aLost
		case len(m.Header["Nats-Pending-Messages"]) > 0:
			a.kind = aDone
		default:
			a.kind, a.err = aBad, errors.New(description)
		}
	default:
		a.kind, a.err = aBad, fmt.Errorf("%s %s", status[0], description)
	}
	return a
}
