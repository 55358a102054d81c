package guide

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestPublish(t *testing.T) {
	var printed []int
	env := virtual(t, Publish.Bind(publish), Print.Bind(Printer{Page: func(ctx context.Context, page int) error {
		if page == 3 && activity.Info(ctx).Attempt == 1 {
			return errors.New("there is no paper")
		}
		printed = append(printed, page)
		return nil
	}}.print))
	n, err := Publish.Run(t.Context(), env, 5)
	if n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wantList(t, "printed", printed, 0, 1, 2, 3, 4)
}

// TestHangingIsNoticed prints with a real worker: an attempt that hangs is stopped, and the next
// one goes on where it was.
func TestHangingIsNoticed(t *testing.T) {
	t.Parallel()
	quick := activity.Define[int, int]("print", activity.Retry(2, activity.Fixed(10*time.Millisecond)),
		activity.HeartbeatTimeout(2*time.Second))
	var mu sync.Mutex // the race detector does not know every order that messages make
	var printed []int
	printer := Printer{Page: func(ctx context.Context, page int) error {
		mu.Lock()
		printed = append(printed, page)
		mu.Unlock()
		if page == 2 && activity.Info(ctx).Attempt == 1 { // it hangs
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}
	c, _ := onServers(t, quick.Bind(printer.print), Publish.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		return quick.Call(ctx, n)
	}))
	n, err := Publish.Run(limited(t), c, 4)
	if n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	mu.Lock()
	defer mu.Unlock()
	wantList(t, "pages", printed, 0, 1, 2, 2, 3)
}

// TestPrintingStops cancels an instance whose activity runs on a real worker.
func TestPrintingStops(t *testing.T) {
	t.Parallel()
	begun, stopped := make(chan bool), make(chan error, 1)
	printer := Printer{Page: func(ctx context.Context, page int) error {
		begun <- true
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return nil
	}}
	c, _ := onServers(t, Publish.Bind(publish), Print.Bind(printer.print))
	ctx := limited(t)
	h, err := Publish.Start(ctx, c, 100)
	must(t, err)
	<-begun
	must(t, h.Cancel(ctx, "it rains"))
	wantError(t, <-stopped, "nobody waits for the result any more")
	_, err = h.Wait(ctx)
	wantIs(t, err, orchestration.ErrCancelled)
}

// TestSilence has a worker that says nothing, once too often.
func TestSilence(t *testing.T) {
	t.Parallel()
	quick := activity.Define[int, int]("print", activity.HeartbeatTimeout(100*time.Millisecond))
	c, _ := onServers(t, Publish.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		return quick.Call(ctx, n)
	}), quick.Bind(func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}))
	_, err := Publish.Run(limited(t), c, 1)
	wantError(t, err, `activity "print": it gave no heartbeat for 100ms`)
	var e *failure.Error
	if !errors.As(err, &e) || e.Type != "heartbeat" {
		t.Errorf("%+v", e)
	}
}

func TestHeartbeatThatIsTooLarge(t *testing.T) {
	err := activity.Heartbeat(activity.NewContext(t.Context(), activity.Environment{}), nil)
	must(t, err)
	env := virtual(t, Publish.Bind(publish), Print.Bind(func(ctx context.Context, n int) (int, error) {
		return n, activity.Heartbeat(ctx, make([]int, 4000))
	}))
	_, err = Publish.Run(t.Context(), env, 1)
	wantError(t, err, `activity "print": progress of a heartbeat (bytes): 8001 is over the limit of 4096; keep the data in a store and report a position in it`)
}
