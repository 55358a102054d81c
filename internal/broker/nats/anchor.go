package natsbroker

import (
	"context"
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
// the new anchor removes it. In the inbox, where clients publish, NATS accepts no rollups: the
// receiver purges the earlier anchor, AFTER the server has acknowledged the new one.

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

	mu       sync.Mutex
	at       time.Time
	sent     uint64
	renewing bool // the anchor of the inbox is being replaced
}

// anchorWord is the subject of the anchor in the inbox, behind the prefix. It is in no partition.
const anchorWord = "anchor"

// drop publishes anchors if it is time. It waits for no response: without anchors everything
// works as well, and the server has more to do.
func (a *anchors) drop(now time.Time) {
	if !a.due(now) {
		return
	}
	if !a.run(a.renewInbox) { // the connection is closed
		return
	}
	for _, subject := range a.anchors() {
		m := nats.NewMsg(subject)
		m.Header.Set("Nats-Rollup", "sub") // the earlier one is removed
		_ = a.nc.PublishMsg(m)             // it fails only if the connection is closed
	}
}

// due reports whether it is time, and begins the interval to the next anchors.
func (a *anchors) due(now time.Time) bool {
	sent := a.nc.Stats().OutMsgs
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.at) < anchorEvery || sent-a.sent < anchorTraffic {
		return false
	}
	a.at, a.sent = now, sent
	if a.renewing || !a.nc.IsConnected() {
		return false
	}
	a.renewing = true
	return true
}

// renewInbox publishes the anchor of the inbox, and purges all earlier ones. The purge names the
// sequence of the new one: the server processes messages and requests at the same time, so that a
// purge of all but the last message could reach the stream BEFORE the new anchor, and leave two. If
// the purge is lost, the next one also removes what this one has left.
func (a *anchors) renewInbox() {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.renewing = false
	}()
	ctx, cancel := context.WithTimeout(a.ctx, a.timeout)
	defer cancel()
	subject := a.subject(anchorWord)
	stored, err := a.js.Publish(ctx, subject, nil)
	if err != nil {
		return
	}
	_ = a.nc.Publish(a.api+"STREAM.PURGE."+a.names.inbox,
		fmt.Appendf(nil, `{"filter":%q,"seq":%d}`, subject, stored.Sequence))
}
