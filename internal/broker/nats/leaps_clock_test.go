package natsbroker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestMessagesAreComparedWithTheClockThatStampedThem: the leader of a stream has another clock than
// the leader of its consumer. No message was stored in the future then.
func TestMessagesAreComparedWithTheClockThatStampedThem(t *testing.T) {
	t.Parallel()
	now := time.Now()
	info := &jetstream.ConsumerInfo{TimeStamp: now, Created: now.Add(-time.Hour)}
	oldest := &found{Time: now.Add(time.Minute)}
	for ahead, late := range map[time.Duration]bool{time.Minute: false, 0: true} {
		stream := &jetstream.StreamInfo{TimeStamp: now.Add(ahead)}
		if why := newLeaps().lateAfter(oldest, stream, info); (why != "") != late {
			t.Errorf("the clock of the stream is %v ahead: %q; want a reason: %t", ahead, why, late)
		}
	}
}
