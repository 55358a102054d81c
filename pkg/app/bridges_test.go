package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
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

// TestNothingIsDoneBeforeTheSystemIsKnown: a push to a queue waits in NATS, and an orchestrator
// does not know whether its database belongs to that NATS. It takes no push, and its server of
// queues refuses requests. Then it turns out that the database belongs to another NATS, and the
// process ends. With the right NATS, the next process takes the push.
func TestNothingIsDoneBeforeTheSystemIsKnown(t *testing.T) {
	t.Parallel()
	s, database := server(t), filepath.Join(t.TempDir(), "rondo.db")
	start(t, nil, with("orchestrator", "--nats", s.URL(), "--database", database)...).ready().end()
	b := natstest.Connect(t, s, natsbroker.Config{})
	system, err := b.Get(t.Context(), broker.KeySystem)
	if err != nil {
		t.Fatal(err)
	}
	set := func(value string) {
		t.Helper()
		if err := b.Put(t.Context(), broker.KeySystem, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	set("unreadable")
	w, err := events.Encode("rondo", events.Message{Instance: "i", ID: "1", Content: &events.Task{
		Ref: events.Ref{Execution: 1, Event: 2, Incarnation: "x"}, Orchestration: "o", Attempt: 1,
		Activity: jobpush.Activity, Tag: jobpush.Tag, IdempotencyKey: "k",
		Input: codec.Payload(`{"queue":"out","items":[{"item":42}]}`)}})
	if err == nil {
		err = b.Publish(t.Context(), w)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, done := runQueues(t, s.URL(), database)
	var at string
	natstest.Eventually(t, "it listens", func() bool { at = a.Addresses().JobQueues; return at != "" })
	if status, text := request(t, "POST", at+"/queue/out/pop", ""); status != http.StatusServiceUnavailable ||
		!strings.Contains(text, "belong together is not known yet") {
		t.Errorf("a pop has %d %s", status, text)
	}
	set(`{"system":"another","beats":1}`)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "they are of different systems") {
		t.Errorf("it ends with %v", err)
	}
	left, err := b.TaskBacklog(t.Context(), broker.TaskQueueName{Tag: jobpush.Tag, Activity: jobpush.Activity})
	if err != nil || left.Waiting != 1 || left.Held > 0 {
		t.Errorf("of the push, %+v is left in NATS, %v", left, err)
	}
	set(string(system))
	a, done = runQueues(t, s.URL(), database)
	select {
	case <-a.Started():
	case err := <-done:
		t.Fatal(err)
	}
	natstest.Eventually(t, "it takes the push", func() bool {
		_, text := request(t, "POST", a.Addresses().JobQueues+"/queue/out/pop", "")
		return strings.Contains(text, "42")
	})
}

// runQueues runs an orchestrator that serves queues, until the test ends.
func runQueues(t *testing.T, nats, database string) (*app.App, <-chan error) {
	t.Helper()
	c := app.Defaults(app.Orchestrator)
	c.NATS.URLs, c.Database.URL, c.Listen, c.JobQueues.Listen = nats, database, "127.0.0.1:0", "127.0.0.1:0"
	c.Stdout, c.Stderr = io.Discard, io.Discard
	a, err := app.New(c, parts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		done <- a.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return a, done
}

// request sends a request to a server of queues.
func request(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}
