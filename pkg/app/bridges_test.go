package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// A push over HTTP starts an instance, which pushes to another queue: all that is needed is a
// program with an orchestration.
func TestBridgesInDev(t *testing.T) {
	t.Parallel()
	double := orchestration.Define[int, int]("double")
	c := app.Defaults(app.Dev)
	c.Dir, c.NATSListen, c.Listen, c.JobQueues.Listen, c.Stdout, c.Stderr = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0",
		"127.0.0.1:0", io.Discard, io.Discard
	a, err := app.New(c, double.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		large := jobpush.Push(ctx, "out", jobpush.Job{Data: strings.Repeat("x", 256<<10)})
		if !errors.Is(large, orchestration.OfType(jobpush.TypeInvalid)) {
			return 0, fmt.Errorf("a push of a job that is too large: %w", large)
		}
		return 2 * n, jobpush.Push(ctx, "out", jobpush.Job{Data: 2 * n})
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case <-a.Started():
	case err := <-done:
		t.Fatal(err)
	}
	ask := func(method, path, body string) (answer struct{ Items []int }) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, a.Addresses().JobQueues+"/queue/"+path,
			bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %s, %v", method, path, response.Status, text, err)
		}
		return answer
	}
	ask("PUT", "in", `{"start": {"orchestration": "double"}}`)
	ask("POST", "in/push", `{"item": 21}`)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(30 * time.Second); ; <-tick.C {
		if got := ask("POST", "out/pop", "").Items; len(got) == 1 && got[0] == 42 {
			break
		} else if len(got) > 0 || time.Now().After(until) {
			t.Fatalf("%v has arrived", got)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheActivityOfTheEngineIsNotBound(t *testing.T) {
	code := func(context.Context, int) (int, error) { return 0, nil }
	_, err := app.New(app.Defaults(app.Dev), activity.Define[int, int](jobpush.Activity).Bind(code))
	if err == nil || !strings.Contains(err.Error(), "orchestrators execute it by themselves") {
		t.Error(err)
	}
}
