package natsbroker

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// When the last message of a stream's newest file is acknowledged, the server removes the file and
// creates another one. A stream whose messages are processed as fast as they arrive runs empty
// hundreds of times a second, and then that is most of the server's work. So each of these streams
// keeps a message without a receiver: the anchor. A receiver publishes it again from time to time,
// so that it is in the newest file; then the earlier anchor is removed. Where NATS accepts rollups,
// the new anchor removes it. In the inbox, where clients publish, NATS accepts no rollups, so that
// it is purged.

const (
	// anchorEvery is the interval of anchors while there is traffic.
	anchorEvery = time.Second
	// anchorTraffic is the minimum number of messages sent over the connection meanwhile.
	anchorTraffic = 100
)

// anchors publishes the anchors. at is the time of the last ones, and sent the number of messages
// sent until then.
type anchors struct {
	*conn

	mu   sync.Mutex
	at   time.Time
	sent uint64
}

// anchorWord is the subject of the anchor in the inbox, behind the prefix. It is in no partition.
const anchorWord = "anchor"

// drop publishes anchors if it is time. It waits for no response: without anchors everything
// works as well, and the server has more to do.
func (a *anchors) drop(now time.Time) {
	sent := a.nc.Stats().OutMsgs
	a.mu.Lock()
	due := now.Sub(a.at) >= anchorEvery && sent-a.sent >= anchorTraffic
	if due {
		a.at, a.sent = now, sent
	}
	a.mu.Unlock()
	if !due || !a.nc.IsConnected() {
		return
	}
	inbox := a.subject(anchorWord)
	_ = a.nc.Publish(inbox, nil)
	_ = a.nc.Publish(a.api+"STREAM.PURGE."+a.names.inbox, fmt.Appendf(nil, `{"filter":%q,"keep":1}`, inbox))
	for _, subject := range a.anchors() {
		m := nats.NewMsg(subject)
		m.Header.Set("Nats-Rollup", "sub") // the earlier one is removed
		_ = a.nc.PublishMsg(m)             // it fails only if the connection is closed
	}
}
