package worker_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

func TestABadConfigTellsEverythingAtOnce(t *testing.T) {
	code, err := activity.NewRegistry(echoing())
	if err != nil {
		t.Fatal(err)
	}
	var b unconnected
	if _, err := worker.New(b, nil, worker.Config{}); err == nil {
		t.Error("a worker without a registry")
	}
	_, err = worker.New(b, code, worker.Config{
		ID: "a\x00b", Tags: worker.Tags("a", "b", "c", "d", "e", "e", ""), Slots: -1,
		SlotsPerTag: map[string]int{"gpu": 0}, MaxTaskCrashes: -1,
		SlotsPerActivity: map[string]int{"nobody": 1, "echo": -1},
		RatePerActivity:  map[string]float64{"somebody": 1, "echo": -1},
		CancelGrace:      -1, ShutdownTimeout: -1, SessionIdle: -1, SessionLease: 1, Discover: 1,
	})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		"worker id", "7 are over the limit of 5", `tag "e" is given twice`, "one is empty", "slots: -1",
		`slots of tag "gpu": 0`, `slots of activity "nobody": no such activity`,
		`slots of activity "echo": -1`, `rate of activity "somebody"`, `rate of activity "echo": -1`,
		"max attempts: -1", "grace", "drain timeout", "session idle", "session lease", "discover",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q:\n%v", want, err)
		}
	}
	for name, f := range map[string]worker.TagFilter{"none": worker.Tags(), "an empty one": worker.Tags(""),
		"an empty one among others": worker.DefaultAnd("a", "")} {
		if _, err := worker.New(b, code, worker.Config{Tags: f}); err == nil {
			t.Errorf("tags: %s is taken", name)
		}
	}
	if _, err := worker.New(b, code, worker.Config{ID: strings.Repeat("x", events.MaxName+1)}); err == nil {
		t.Error("a long id is taken")
	}
}

// unconnected is a broker that only knows its settings.
type unconnected struct{ worker.Broker }

func (unconnected) Prefix() string             { return "rondo" }
func (unconnected) TaskAckWait() time.Duration { return time.Minute }

func TestAWorkerMakesUpAnID(t *testing.T) {
	code, err := activity.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for range 100 {
		w, err := worker.New(unconnected{}, code, worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Ready(); err == nil {
			t.Error("it is ready before it was started")
		}
		seen[w.ID()] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d ids for 100 workers", len(seen))
	}
}

func TestAWorkerAnswersOverHTTP(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const address = "127.0.0.1:18123"
	calls := make(chan call, 1)
	r := w.start(worker.Config{Health: address, ShutdownTimeout: time.Minute}, held(block, calls))
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	defer http.DefaultClient.CloseIdleConnections()
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(path); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	var about map[string]any
	if code, body := get("/version"); code != http.StatusOK || json.Unmarshal([]byte(body), &about) != nil ||
		about["version"] == "" {
		t.Errorf("/version: %d %s", code, body)
	}
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	c := receive(t, calls, "the activity is called")
	r.stop()
	w.until("it drains", func() bool { return r.Status().Draining })
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "drains") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	c.done("y")
	w.done()
}

func TestAWorkerIsNotReadyWithoutTheBroker(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	r := w.start(worker.Config{}, echoing())
	r.kill()
	if err := r.Ready(); err == nil {
		t.Error("it has no connection, and is ready")
	}
	if err := r.Live(); err != nil {
		t.Errorf("starting it again would not help: %v", err)
	}
}
