package natsbroker

import (
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
	// While the broker has no message for a request, it sends a heartbeat at this interval. After
	// silence without one, no server knows the request any more.
	heartbeat = time.Second
	silence   = 3 * time.Second
	// reconnected is the interval at which awaitConnection looks for a connection.
	reconnected = 20 * time.Millisecond
)

// request asks a consumer for messages.
type request struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// ask sends a request; the responses arrive at inbox.
func (c *conn) ask(stream, consumer, inbox string, r request) error {
	if !c.nc.IsConnected() { // the client would send it after a reconnect, when its inbox may be closed
		return nats.ErrConnectionReconnecting
	}
	r.Heartbeat = min(heartbeat, r.Expires/2)
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return c.nc.PublishRequest(c.pullSubject(stream, consumer), inbox, data)
}

// pullWord begins the subjects of the requests to consumers, behind the prefix of the API.
const pullWord = "CONSUMER.MSG.NEXT."

// pullSubject is the subject of the requests to a consumer.
func (c *conn) pullSubject(stream, consumer string) string {
	return c.api + pullWord + stream + "." + consumer
}

// answer is a message of the broker that is parsed: the kind tells a message from a status.
type answer struct {
	kind answerKind
	// left is the number of messages of the request that will not arrive.
	left int
	err  error
}

type answerKind int

const (
	aMessage    answerKind = iota // it is a message
	aHeartbeat                    // the broker is there
	aDone                         // the request has ended
	aLost                         // the server has lost the requests
	aNoConsumer                   // there is no such consumer, or it has no leader
	aGone                         // the consumer was removed
	aBad                          // the request is wrong
)

// read parses a message that has arrived at the inbox of a request.
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
		a.kind, a.err = aNoConsumer, jetstream.ErrConsumerNotFound
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
