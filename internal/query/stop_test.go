package query_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rondo-run/rondo/internal/query"
)

// slowStops is a broker that cannot take all handlers, or whose handlers end only when none takes
// requests any more.
type slowStops struct {
	*fakeBroker
	handled int
	most    int // handlers; 0: any number
	stopped chan struct{}
	ended   chan struct{}
}

func (b *slowStops) Handle(string, func(context.Context, []byte) ([]byte, error)) (func(), error) {
	if b.handled++; b.most > 0 && b.handled > b.most {
		return nil, context.DeadlineExceeded
	}
	return func() {
		b.stopped <- struct{}{}
		<-b.ended
	}, nil
}

// TestHandlersStopTogether: each handler waits for the requests that it handles, at most as long as
// the broker or the database may take. All stop at once, so this takes the time of one.
func TestHandlersStopTogether(t *testing.T) {
	b := &slowStops{fakeBroker: newBroker(), stopped: make(chan struct{}), ended: make(chan struct{})}
	stop, err := query.Answer(b, nil, query.Options{})
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop()
	}()
	for range b.handled {
		<-b.stopped
	}
	close(b.ended)
	<-done
}

// TestAnswerEndsWithTheFirstError: while the broker does not respond, each handler takes the whole
// time limit.
func TestAnswerEndsWithTheFirstError(t *testing.T) {
	b := &slowStops{fakeBroker: newBroker(), most: 1, stopped: make(chan struct{}, 1), ended: make(chan struct{})}
	close(b.ended)
	if _, err := query.Answer(b, nil, query.Options{}); !errors.Is(err, context.DeadlineExceeded) || b.handled != 2 {
		t.Errorf("%d handlers, %v", b.handled, err)
	}
}
