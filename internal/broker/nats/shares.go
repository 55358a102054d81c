package natsbroker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
)

// RONDO_TASKS and RONDO_LATER have no bound in NATS: a stream with schedules cannot refuse messages
// (see bounds.go). They have shares instead, which this process compares with their size when it
// reconciles. Beyond its share, a stream gets no more from new senders:
//
//	RONDO_TASKS  no new instance starts, so that no new instance adds tasks
//	RONDO_LATER  delayed messages of clients wait in the inbox, whose bound refuses further ones
//
// Running instances continue, and so do their tasks and timers.
//
// The share of tasks is half of the inbox's bound, and that of delayed messages a quarter of it. By
// default the inbox has half of what NATS can reserve and dead letters an eighth, so all four fit.

// keepsShare is the part of its share below which a stream must shrink before it gets more.
const keepsShare = 0.9

// returnsPerSecond bounds how often messages come again that wait in the inbox.
const returnsPerSecond = 250

// shares is what this process knows about the streams with a share.
type shares struct {
	tasks, later atomic.Pointer[broker.Flaw] // nil: it has room
	wait         atomic.Int64                // for how long messages wait in the inbox
}

// look compares the streams with their shares. An inbox without a bound gives none.
func (s *shares) look(inbox, later, tasks jetstream.Stream, every time.Duration) (found []flaw) {
	if inbox == nil {
		return nil
	}
	info := inbox.CachedInfo()
	most := uint64(max(0, info.Config.MaxBytes))
	s.wait.Store(int64(max(every, time.Duration(info.State.Msgs)*time.Second/returnsPerSecond)))
	for _, x := range []struct {
		st      jetstream.Stream
		share   uint64
		to      *atomic.Pointer[broker.Flaw]
		problem string
	}{
		{tasks, most / 2, &s.tasks, "it holds %d of %d MiB: no new instances start"},
		{later, most / 4, &s.later, "it holds %d of %d MiB: delayed messages of clients wait in the inbox"},
	} {
		if x.st == nil {
			continue
		}
		is, share := x.st.CachedInfo().State.Bytes, float64(x.share)
		if x.to.Load() != nil {
			share *= keepsShare
		}
		if share == 0 || float64(is) < share {
			x.to.Store(nil)
			continue
		}
		f := broker.Flaw{Part: "stream " + x.st.CachedInfo().Config.Name,
			Problem: fmt.Sprintf(x.problem, is>>20, x.share>>20),
			Remedy:  "start workers, withdraw what is not needed, or raise --inbox-max-bytes"}
		x.to.Store(&f)
		found = append(found, flaw{Flaw: f, numbers: true})
	}
	return found
}

// Crowded implements broker.Inbox.
func (in *inbox) Crowded() error {
	if f := in.shares.tasks.Load(); f != nil {
		return fmt.Errorf("%w: %v", broker.ErrFull, f)
	}
	return nil
}
