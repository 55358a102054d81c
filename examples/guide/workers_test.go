package guide

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestVideoBeginsAgain(t *testing.T) {
	var sessions []string
	env := virtual(t, Video.Bind(video),
		Download.Bind(func(ctx context.Context, address string) (string, error) {
			sessions = append(sessions, activity.Info(ctx).Session)
			return fmt.Sprint("file ", len(sessions)), nil
		}),
		Encode.Bind(func(ctx context.Context, file string) (string, error) {
			want(t, "session", activity.Info(ctx).Session, sessions[len(sessions)-1])
			want(t, "tag", activity.Info(ctx).Tag, "gpu")
			if file == "file 1" {
				return "", activity.Errorf(FileGone, "%s is not here", file)
			}
			return "encoded " + file, nil
		}))
	out, err := Video.Run(t.Context(), env, "address")
	if out != "encoded file 2" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	want(t, "sessions", len(sessions), 2)
	want(t, "the same session", sessions[0] == sessions[1], false)
}

func TestVideoIsUnlucky(t *testing.T) {
	var downloaded []string
	env := virtual(t, Video.Bind(video), noting(Download, &downloaded, func(s string) (string, error) {
		return s, nil
	}),
		Encode.Bind(func(_ context.Context, file string) (string, error) {
			return "", activity.Errorf(FileGone, "%s is not here", file)
		}))
	_, err := Video.Run(t.Context(), env, "address")
	wantError(t, err, "three workers have died with address")
	want(t, "downloads", len(downloaded), 3)
}

func TestNobodyServesTheTag(t *testing.T) {
	env := virtual(t, Video.Bind(func(ctx *orchestration.Context, address string) (string, error) {
		return Download.Call(ctx, address, activity.ScheduleToStart(time.Minute), activity.Retry(1))
	}))
	_, err := Video.Run(t.Context(), env, "address")
	wantError(t, err, `activity "download": no worker took it up in time; is a worker running with tag "gpu"?`)
	env = virtual(t, Video.Bind(video))
	_, err = Video.Run(t.Context(), env, "address", orchestration.ID("video-1"))
	wantError(t, err, `rondotest: instance "video-1" is running, and nothing more will happen`+"\n"+
		`  it waits for activity "download" on a worker with tag "gpu" (event 2), which is not registered in this test`)
}

// cards counts the videos that each worker encodes at the same time.
type cards struct {
	mu            sync.Mutex
	running, most map[string]int
	videos        map[string]string // where the files are
}

func (c *cards) download(ctx context.Context, address string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.videos[address] = activity.Info(ctx).Worker
	return address, nil
}

func (c *cards) encode(ctx context.Context, file string) (string, error) {
	worker := activity.Info(ctx).Worker
	c.mu.Lock()
	where := c.videos[file]
	c.running[worker]++
	c.most[worker] = max(c.most[worker], c.running[worker])
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running[worker]--
	}()
	if where != worker {
		return "", activity.NonRetryable(fmt.Errorf("the file is on %s, this is %s", where, worker))
	}
	return worker, nil
}

// TestSessionsOnServers has two workers, each with one graphics card.
func TestSessionsOnServers(t *testing.T) {
	t.Parallel()
	x := &cards{running: make(map[string]int), most: make(map[string]int), videos: make(map[string]string)}
	parts := []app.Part{Video.Bind(video), Download.Bind(x.download), Encode.Bind(x.encode)}
	config := app.Defaults(app.Dev)
	config.Dir, config.NATSListen, config.Listen = t.TempDir(), "127.0.0.1:0", "off"
	config.Stdout, config.Stderr = io.Discard, io.Discard
	limits(&config)
	config.Worker.ID, config.Worker.RatePerActivity = "one", nil
	c, servers := run(t, config, parts...)

	second := app.Defaults(app.Worker)
	second.NATS.URLs, second.Listen = servers, "off"
	second.Stdout, second.Stderr = io.Discard, io.Discard
	limits(&second)
	second.Worker.ID, second.Worker.RatePerActivity = "two", nil
	run(t, second, parts...)

	ctx := limited(t)
	var handles []orchestration.Handle[string]
	for i := range 12 {
		h, err := Video.Start(ctx, c, fmt.Sprint("video ", i))
		must(t, err)
		handles = append(handles, h)
	}
	for _, h := range handles {
		if _, err := h.Wait(ctx); err != nil {
			t.Error(err)
		}
	}
	for worker, most := range x.most {
		want(t, "at the same time on "+worker, most, 1)
	}
}

// TestLimitsAreThose of the example.
func TestLimitsAreThose(t *testing.T) {
	config := app.Defaults(app.Worker)
	limits(&config)
	_, err := app.New(config, Download.Bind(priceless), Encode.Bind(priceless))
	must(t, err)
	_, err = app.New(config, Download.Bind(priceless))
	wantIn(t, fmt.Sprint(err), `--slots-per-activity: the program has no activity "encode"`)
}

func priceless(_ context.Context, s string) (string, error) { return s, nil }
