package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
)

// This file bounds the streams that clients can fill. All streams share the storage of an account:
// messages that no instance can take must leave room for activity tasks, timers, buckets and the
// dead-letter stream. NATS reserves the bytes of a bound, for these streams alone.
//
// The inbox refuses messages beyond its bound, and their publishers try again. The dead-letter
// stream drops its oldest messages, so that it always has room for another one. RONDO_TASKS and
// RONDO_LATER have no bound, because NATS would drop their oldest messages: schedules and a refusal
// of new messages exclude each other there. They have shares instead: see shares.go.
//
// Workers write two buckets. Numbers and sizes of messages bound these, for which NATS reserves
// nothing. A message has a subject of 4 KiB at most, so that all sessions take 100 MiB at most, and
// all progress 120 MiB.

const (
	// maxSessions is the maximum number of sessions, and maxSessionSize the maximum size of the id
	// of a worker with headers.
	maxSessions    = 20_000
	maxSessionSize = 1 << 10
	// maxProgress is the maximum number of activities with stored progress, and maxProgressSize the
	// maximum size of their progress with headers.
	maxProgress     = 10_000
	maxProgressSize = broker.MaxTaskValue + 1<<10
)

// boundKey is the metadata key of a stream whose bound is being looked for.
const boundKey = "rondo.bound"

const (
	boundOpen = "open"
	boundSet  = "set"

	// maxReservation and minReservation limit what the default bounds are a part of.
	maxReservation = 64 << 30
	minReservation = 8 << 20
)

// bound sets the bounds of the inbox and of the dead-letter stream. Without settings, NATS is asked
// how much can be reserved, in powers of two: the inbox gets half of that, and dead letters an
// eighth. A stream that has a bound keeps it.
func (s *setup) bound(ctx context.Context, is *there) {
	c := &s.r.plan.config
	if c.Setup == Verify {
		s.verifyBound(is.inbox, c.InboxMaxBytes)
		s.verifyBound(is.dead, c.DeadLetterMaxBytes)
		return
	}
	if is.inbox != nil && c.InboxMaxBytes == 0 && unbounded(is.inbox.CachedInfo().Config) {
		is.inbox = s.setDefault(ctx, is.inbox, s.reservable(ctx, is.inbox)/2)
	} else {
		is.inbox = s.setBound(ctx, is.inbox, c.InboxMaxBytes)
	}
	if is.dead != nil && c.DeadLetterMaxBytes == 0 && unbounded(is.dead.CachedInfo().Config) && is.inbox != nil {
		is.dead = s.setDefault(ctx, is.dead, is.inbox.CachedInfo().Config.MaxBytes/4)
	} else {
		is.dead = s.setBound(ctx, is.dead, c.DeadLetterMaxBytes)
	}
}

// unbounded reports whether a stream has no bound yet.
func unbounded(c jetstream.StreamConfig) bool {
	return c.MaxBytes <= 0 || c.Metadata[boundKey] == boundOpen
}

func (s *setup) verifyBound(st jetstream.Stream, want int64) {
	if st == nil || want <= 0 {
		return
	}
	if c := st.CachedInfo().Config; c.MaxBytes != want {
		s.failed("stream "+c.Name, fmt.Errorf("it may have %d bytes, wanted are %d", c.MaxBytes, want))
	}
}

// reservable returns how many bytes NATS can reserve for a stream: a power of two, 0 if that is
// little. A process that dies meanwhile leaves a mark, so that the next one begins again.
func (s *setup) reservable(ctx context.Context, st jetstream.Stream) int64 {
	c := st.CachedInfo().Config
	for n := int64(maxReservation); n >= minReservation; n /= 2 {
		if _, err := s.change(ctx, c, n, boundOpen); err == nil {
			return n
		} else if !full(err) {
			s.failed("stream "+c.Name+" cannot be bounded", err)
			return 0
		}
	}
	return 0
}

// setDefault bounds a stream to a number of bytes, or to fewer if other systems have reserved the
// storage meanwhile.
func (s *setup) setDefault(ctx context.Context, st jetstream.Stream, most int64) jetstream.Stream {
	c := st.CachedInfo().Config
	for n := most; n >= minReservation/8; n /= 2 {
		if next, err := s.tryBound(ctx, st, n); err == nil {
			return next
		} else if !full(err) {
			s.failed(fmt.Sprintf("stream %s cannot be bounded to %d bytes", c.Name, n), err)
			return st
		}
	}
	s.r.log.Warn("NATS: too little storage to bound a stream; it can take what is left", "stream", c.Name)
	return st
}

// setBound bounds a stream as it is configured; 0 and -1 change nothing.
func (s *setup) setBound(ctx context.Context, st jetstream.Stream, want int64) jetstream.Stream {
	if st == nil || want <= 0 {
		return st
	}
	c := st.CachedInfo().Config
	if c.MaxBytes == want && c.Metadata[boundKey] != boundOpen {
		return st
	}
	next, err := s.tryBound(ctx, st, want)
	if s.failed(fmt.Sprintf("stream %s cannot be bounded to %d bytes", c.Name, want), err) {
		return st
	}
	return next
}

// tryBound bounds a stream. An inbox that has more than its bound keeps its messages, and takes no
// further ones.
func (s *setup) tryBound(ctx context.Context, st jetstream.Stream, want int64) (jetstream.Stream, error) {
	next, err := s.change(ctx, st.CachedInfo().Config, want, boundSet)
	if err == nil {
		s.r.log.Info("NATS: bounded a stream", "stream", st.CachedInfo().Config.Name, "bytes", want)
	}
	return next, err
}

// change changes the bound of a stream, and returns the stream as it is then.
func (s *setup) change(ctx context.Context, c jetstream.StreamConfig, bytes int64, mark string) (
	st jetstream.Stream, err error) {
	c.MaxBytes, c.Metadata = bytes, userMetadata(c.Metadata)
	c.Metadata[boundKey] = mark
	var none error
	err = s.r.askAgain(ctx, func(ctx context.Context) (err error) {
		if st, err = s.r.js.UpdateStream(ctx, c); full(err) { // as it would be when it is asked again
			none, err = err, nil
		}
		return err
	})
	return st, errors.Join(none, err)
}

// The codes of errors of NATS which say that there is no room: in the account, on the server, among
// the servers of a cluster, or in the stream.
const (
	accountFull jetstream.ErrorCode = 10002
	noPeers     jetstream.ErrorCode = 10005
	serverFull  jetstream.ErrorCode = 10023
	noMemory    jetstream.ErrorCode = 10028
	noStorage   jetstream.ErrorCode = 10047
	streamFull  jetstream.ErrorCode = 10077
	overLimit   jetstream.ErrorCode = 10122
)

// full reports whether NATS has refused something for want of room.
func full(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case accountFull, noPeers, serverFull, noMemory, noStorage, overLimit:
		return true
	case streamFull: // the code has other causes, too
		return strings.Contains(api.Description, "maximum bytes")
	}
	return false
}

// StreamUse is how much a stream holds.
type StreamUse struct {
	Name     string
	Bytes    int64
	MaxBytes int64 // 0: no bound
}

// Uses returns how much the inbox and the dead-letter stream hold.
func (r *resources) Uses(ctx context.Context) (inbox, dead StreamUse, err error) {
	use := func(name string) (u StreamUse, err error) {
		st, err := r.js.Stream(ctx, name)
		if err != nil {
			return u, problem("look at stream "+name, err)
		}
		info := st.CachedInfo()
		return StreamUse{name, int64(info.State.Bytes), max(0, info.Config.MaxBytes)}, nil
	}
	if inbox, err = use(r.names.inbox); err != nil {
		return inbox, dead, err
	}
	dead, err = use(r.names.dead)
	return inbox, dead, err
}
