package natsbroker

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// When the last message of a stream's newest file is acknowledged, the server removes the file and
// makes another one. Streams that are worked on as fast as they fill run empty hundreds of times a
// second, and then that is most of what the server does. So a message lies in each of them that
// nobody takes: the anchor. It is put down again from time to time, so that it is in the newest
// file; the one before goes then. Where NATS takes rollups, the new one removes it. In the inbox,
// where clients publish, it takes none, so that it is purged.

const (
	// anchorEvery is how often anchors are put down, where there is traffic.
	anchorEvery = time.Second
	// anchorTraffic is how many messages must have gone over the connection meanwhile.
	anchorTraffic = 100
)

// anchor is when anchors were put down last, and how much had gone over the connection.
type anchor struct {
	at   time.Time
	sent uint64
}

// anchorWord is the subject of the anchor in the inbox, behind the prefix. It is in no partition.
const anchorWord = "anchor"

// anchors are the subjects of the other anchors: they look like those of messages that wait for
// their time, which no consumer takes.
func (b *Bus) anchors() []string {
	return []string{b.subject("later", "anchor", "_", "_"), b.subject("later", "work", "_", "anchor", "_", "_")}
}

// dropAnchors puts anchors down if it is time. Nobody waits for them: without, everything works as
// well, and the server has more to do.
func (b *Bus) dropAnchors(now time.Time) {
	sent := b.nc.Stats().OutMsgs
	b.mu.Lock()
	due := now.Sub(b.anchor.at) >= anchorEvery && sent-b.anchor.sent >= anchorTraffic
	if due {
		b.anchor = anchor{now, sent}
	}
	b.mu.Unlock()
	if !due || !b.nc.IsConnected() {
		return
	}
	inbox := b.subject(anchorWord)
	_ = b.nc.Publish(inbox, nil)
	_ = b.nc.Publish(b.api+"STREAM.PURGE."+b.names.inbox, fmt.Appendf(nil, `{"filter":%q,"keep":1}`, inbox))
	for _, subject := range b.anchors() {
		m := nats.NewMsg(subject)
		m.Header.Set("Nats-Rollup", "sub") // the one before goes
		_ = b.nc.PublishMsg(m)             // it fails only if the connection is closed
	}
}
