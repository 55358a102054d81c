package openapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// TestDocument sends requests to every route until it has seen every response in the document. It
// compares each request and each response with the document.
func TestDocument(t *testing.T) {
	w := newWorld(t)
	w.consumers()
	w.configuredQueues()
	w.deadItems()
	w.lists()
	w.malformed()
	w.everywhere()
	w.elsewhere()
	w.complete()
}

func (w *world) post(status int, target, body string) map[string]any {
	w.t.Helper()
	return w.ask(request{status: status, method: "POST", target: target, body: body})
}

func (w *world) get(status int, target string) map[string]any {
	w.t.Helper()
	return w.ask(request{status: status, method: "GET", target: target})
}

// lock pops something with a lock.
func (w *world) lock(name, query string) string {
	w.t.Helper()
	id, _ := w.post(200, "/queue/"+name+"/pop?require_ack=true"+query, "")["lock_id"].(string)
	if id == "" {
		w.t.Fatal("the pop has given no lock")
	}
	return fmt.Sprintf("{%q: %q}", "lock_id", id)
}

// with adds members to an object.
func with(body, more string) string { return strings.TrimSuffix(body, "}") + ", " + more + "}" }

// consumers sends the requests of producers and consumers.
func (w *world) consumers() {
	w.post(200, "/queue/jobs/pop?require_ack=true", "")
	w.post(200, "/queue/jobs/push", `{"item": {"task_id": 123, "action": "send_email"}}`)
	w.post(200, "/queue/jobs/push",
		`{"items": [{"item": {"id": 1}, "priority": 7}, {"item": [null, "x"], "delay_seconds": 0.5}, {"item": null}, {"item": 1e300}, {"item": "é\u0000"}]}`)
	key := request{status: 200, method: "POST", target: "/queue/jobs/push", body: `{"item": 1}`,
		header: map[string]string{"Idempotency-Key": "a", "X-Request-Id": "mine"}}
	w.ask(key)
	if again := w.ask(key); again["duplicate"] != true {
		w.t.Errorf("the same push once more: %v", again)
	}
	key.status, key.body = 422, `{"item": 2}`
	w.ask(key)

	lock := w.lock("jobs", "&count=2&details=true")
	w.post(423, "/queue/jobs/pop", "")
	w.post(423, "/queue/jobs/pop?require_ack=true&mode=concurrent", "")
	w.post(400, "/queue/jobs/acknowledge", `{"lock_id": "another"}`)
	w.post(400, "/queue/jobs/extend", `{"lock_id": "another"}`)
	w.post(400, "/queue/jobs/nack", `{"lock_id": "another"}`)
	w.get(200, "/queue/jobs")
	w.post(200, "/queue/jobs/extend", with(lock, `"ttl_seconds": 60`))
	w.post(200, "/queue/jobs/nack", with(lock, `"delay_seconds": 1.5, "reason": "later"`))
	w.post(404, "/queue/jobs/nack", lock)
	lock = w.lock("jobs", "&ttl_seconds=300")
	w.post(200, "/queue/jobs/acknowledge", lock)
	w.post(404, "/queue/jobs/acknowledge", lock)
	w.post(404, "/queue/jobs/extend", lock)
	for _, path := range []string{"acknowledge", "extend", "nack"} {
		lock = w.lock("jobs", "&ttl_seconds=1")
		w.now = w.now.Add(time.Second)
		w.post(410, "/queue/jobs/"+path, lock)
	}
	w.post(200, "/queue/jobs/pop?count=1000&details=true", "")
	w.post(200, "/queue/jobs/push", `{"items": [{"item": 1}, {"item": 2}]}`)
	lock = w.lock("jobs", "&mode=concurrent&count=1")
	w.post(423, "/queue/jobs/pop", "")
	w.get(200, "/queue/jobs")
	w.post(200, "/queue/jobs/acknowledge", lock)
	w.get(200, "/queue/jobs/depth")
	w.get(200, "/queue/jobs/oldest")
}

// configuredQueues sets the settings of queues, and removes them.
func (w *world) configuredQueues() {
	put := func(status int, body string) {
		w.t.Helper()
		w.ask(request{status: status, method: "PUT", target: "/queue/small", body: body})
	}
	put(200, `{}`)
	put(200, `{"priorities": 10, "mode": "concurrent", "ttl_seconds": 60, "max_attempts": 5, "max_items": 2, "start": {"orchestration": "order", "version": "2", "max_per_second": 0.5}}`)
	put(200, `{"max_items": 2}`)
	w.post(200, "/queue/small/push", `{"items": [{"item": 1}, {"item": 2}]}`)
	w.post(507, "/queue/small/push", `{"item": 3}`)
	w.get(200, "/queue/small/oldest")
	w.store.onForget = func() {
		w.store.onForget = nil
		if _, err := w.store.Do(context.Background(), "small",
			jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("1")}}}); err != nil {
			w.t.Error(err)
		}
	}
	w.ask(request{status: 409, method: "DELETE", target: "/queue/small"})
	w.lock("small", "")
	w.ask(request{status: 200, method: "DELETE", target: "/queue/small"})
	w.ask(request{status: 404, method: "DELETE", target: "/queue/small"})
	w.ask(request{status: 404, method: "DELETE", target: "/queue/small/dead"})
	for _, path := range []string{"", "/depth", "/oldest"} {
		w.get(404, "/queue/small"+path)
	}
	w.post(404, "/queue/small/dead/requeue", `{}`)
}

// deadItems exhausts the attempts of items, and reads and requeues the dead ones.
func (w *world) deadItems() {
	w.ask(request{status: 200, method: "PUT", target: "/queue/tried", body: `{"max_attempts": 1}`})
	w.post(200, "/queue/tried/push", `{"items": [{"item": 1}, {"item": {"two": 2}}, {"item": 3}]}`)
	w.post(200, "/queue/tried/nack", with(w.lock("tried", "&count=3"), `"reason": "broken"`))
	page := w.get(200, "/queue/tried/dead?limit=2")
	after, _ := page["after"].(string)
	if rest := w.get(200, "/queue/tried/dead?after="+after); rest["count"] != 1.0 {
		w.t.Errorf("behind %q: %v", after, rest)
	}
	w.get(200, "/queue/tried")
	w.post(200, "/queue/tried/dead/requeue", fmt.Sprintf(`{"dead_ids": [%q]}`, after))
	w.post(200, "/queue/tried/dead/requeue", `{"limit": 1}`)
	w.ask(request{status: 200, method: "DELETE", target: "/queue/tried/dead"})
	w.get(200, "/queue/none-of-these/dead")
}

func (w *world) lists() {
	w.get(200, "/openapi.json")
	page := w.get(200, "/queues?limit=1")
	after, _ := page["after"].(string)
	w.get(200, "/queues?after="+after)
	if all := w.ask(request{status: 200, method: "GET", target: "/queues",
		token: nobody})["queues"].([]any); len(all) > 0 {
		w.t.Errorf("who may look at nothing sees %v", all)
	}
}

// malformed sends invalid requests: the server and the document must both refuse them.
func (w *world) malformed() {
	bodies := map[string][]string{
		"/queue/jobs/push": {`{}`, `[]`, `{"item": 1, "priorty": 1}`, `{"item": 1, "items": [{"item": 2}]}`,
			`{"items": []}`, `{"item": 1, "priority": -1}`, `{"item": 1, "priority": 1.5}`,
			`{"item": 1, "priority": 1000}`, `{"item": 1, "delay_seconds": -1}`, `{"item": 1, "delay_seconds": 1e9}`,
			`{"items": [{"priority": 1}]}`, `{"items": [1]}`},
		"/queue/jobs/acknowledge": {`{}`, `{"lock_id": ""}`, `{"lock_id": 7}`, `{"lock_id": "x", "more": 1}`},
		"/queue/jobs/extend": {`{}`, `{"lock_id": "x", "ttl_seconds": "1"}`,
			`{"lock_id": "x", "ttl_seconds": 1.5}`},
		"/queue/jobs/nack": {`{}`, `{"lock_id": "x", "delay_seconds": -1}`, `{"lock_id": "x", "reason": 1}`},
		"/queue/jobs/dead/requeue": {`[]`, `{"dead_ids": []}`, `{"dead_ids": ["x"]}`, `{"limit": 0}`,
			`{"limit": 1001}`},
	}
	for target, all := range bodies {
		for _, body := range append(all, `{"`, "") {
			w.ask(request{status: 400, method: "POST", target: target, body: body, fault: told})
		}
		w.ask(request{status: 413, method: "POST", target: target,
			body: with(`{"lock_id": "`+strings.Repeat("x", 2000)+`"}`, `"more": 1`), fault: told})
		w.ask(request{status: 408, method: "POST", target: target, body: `{"item"`, cut: os.ErrDeadlineExceeded})
		w.ask(request{status: 400, method: "POST", target: target, body: `{"item"`,
			cut: errors.New("the client is gone")})
	}
	w.post(413, "/queue/jobs/push", `{"item": "`+strings.Repeat("x", 499)+`"}`)
	for _, body := range []string{`{"priorities": 1001}`, `{"mode": "some"}`, `{"ttl_seconds": 301}`,
		`{"max_attempts": -1}`, `{"max_items": -1}`, `{"start": {}}`,
		`{"start": {"orchestration": "o", "max_per_second": -1}}`, `{"x": 1}`, "7", ""} {
		w.ask(request{status: 400, method: "PUT", target: "/queue/jobs", body: body, fault: told})
	}
	w.ask(request{status: 413, method: "PUT", target: "/queue/jobs",
		body: `{"mode": "` + strings.Repeat("x", 2000) + `"}`, fault: told})
	w.ask(request{status: 408, method: "PUT", target: "/queue/jobs", body: `{"mode"`, cut: os.ErrDeadlineExceeded})
	for _, query := range []string{"require_ack=maybe", "require_ack=", "ttl_seconds=soon", "count=0", "count=1001",
		"count=1.5", "mode=some", "details=x", "count=99999999999999999999"} {
		w.ask(request{status: 400, method: "POST", target: "/queue/jobs/pop?" + query, fault: told})
	}
	for _, query := range []string{"requireack=true", "require_ack=true&require_ack=false",
		"require_ack=true;count=2"} {
		// a document has no words for these
		w.ask(request{status: 400, method: "POST", target: "/queue/jobs/pop?" + query, fault: untold})
	}
	for _, target := range []string{"/queues?limit=0", "/queues?limit=x", "/queue/jobs/dead?limit=1001",
		"/queue/jobs/dead?after=x"} {
		w.ask(request{status: 400, method: "GET", target: target, fault: told})
	}
	for _, o := range operations {
		if strings.Contains(o.target, "/queue/") {
			w.ask(request{status: 400, method: o.method, target: strings.Replace(o.target, "/jobs", "/j%20obs", 1),
				body: o.body, fault: told})
			w.ask(request{status: 400, method: o.method, target: o.target + "?what=1", body: o.body, fault: untold})
		}
	}
}

// operations are requests that are as they should be, one of each kind.
var operations = []struct{ method, target, body string }{
	{"POST", "/queue/jobs/push", `{"item": 1}`},
	{"POST", "/queue/jobs/pop", ""},
	{"POST", "/queue/jobs/acknowledge", `{"lock_id": "x"}`},
	{"POST", "/queue/jobs/extend", `{"lock_id": "x"}`},
	{"POST", "/queue/jobs/nack", `{"lock_id": "x"}`},
	{"GET", "/queue/jobs", ""},
	{"PUT", "/queue/jobs", `{}`},
	{"DELETE", "/queue/jobs", ""},
	{"GET", "/queue/jobs/depth", ""},
	{"GET", "/queue/jobs/oldest", ""},
	{"GET", "/queue/jobs/dead", ""},
	{"DELETE", "/queue/jobs/dead", ""},
	{"POST", "/queue/jobs/dead/requeue", `{}`},
	{"GET", "/queues", ""},
	{"GET", "/openapi.json", ""},
}

// everywhere has every operation refused for causes outside of it: access, storage and rate limits.
func (w *world) everywhere() {
	for _, o := range operations {
		send := func(status int, token string) {
			w.t.Helper()
			w.ask(request{status: status, method: o.method, target: o.target, body: o.body, token: token})
		}
		send(401, "-")
		send(401, "unknown")
		if strings.Contains(o.target, "/queue/") {
			send(403, nobody)
		}
		w.ask(request{status: 403, method: o.method, target: o.target, body: o.body, host: "page.example"})
		if o.target == "/openapi.json" {
			continue
		}
		w.store.err = errors.New("the disk is broken")
		send(500, "")
		for _, err := range []error{context.DeadlineExceeded, &history.Error{Class: history.Retry,
			Err: errors.New("away")}, &history.Error{Class: history.Ambiguous, Err: errors.New("cut")}} {
			w.store.err = err
			send(503, "")
		}
		w.store.err = nil
	}
	// One request a second and two seconds' worth of them at once: half of that is one.
	w.ask(request{status: 200, method: "GET", target: "/queues", token: seldom})
	for _, o := range operations {
		w.ask(request{status: http.StatusTooManyRequests, method: o.method, target: o.target, body: o.body,
			token: seldom})
	}
}

// elsewhere requests paths and methods that do not exist.
func (w *world) elsewhere() {
	for _, target := range []string{"/", "/queue", "/queue/jobs/", "/queue/jobs/pushed", "/queue//push",
		"/queue/x/../jobs/depth", "/queue/a/b/push", "//queues"} {
		w.ask(request{status: 404, method: "GET", target: target, fault: nowhere})
		w.ask(request{status: 404, method: "POST", target: target, fault: nowhere})
	}
	for _, o := range operations {
		for _, method := range []string{"PATCH", "OPTIONS", "TRACE"} {
			w.ask(request{status: 405, method: method, target: o.target, fault: nowhere})
		}
	}
}
