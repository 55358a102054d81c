package jobserver_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// fuzzed is a server on a database in memory, one for all that the fuzzer tries.
type fuzzed struct {
	clock *clock
	store jobs.Store
	http  http.Handler
}

func newFuzzed(f *testing.F) *fuzzed {
	c := newClock()
	db, err := sqlite.Open(f.Context(), sqlite.Memory, sqlite.Options{Now: c.now, Log: silence})
	if err != nil {
		f.Fatal(err)
	}
	server, err := jobserver.New(db.Queues(),
		jobserver.Config{Address: "127.0.0.1:0", MaxJob: 4096, MaxBody: 8192, Now: c.now, Logger: silence})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := server.Close(); err != nil {
			f.Error(err)
		}
		if err := db.Close(); err != nil {
			f.Error(err)
		}
	})
	return &fuzzed{clock: c, store: db.Queues(), http: server.Handler()}
}

// clear removes all queues, and checks of each that it has the rows that it says it has.
func (f *fuzzed) clear(t *testing.T) {
	t.Helper()
	all, err := f.store.List(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		r, err := f.store.Do(t.Context(), i.Queue, jobs.Remove{Limit: 100_000}, jobs.Forget{})
		if err != nil {
			t.Fatal(err)
		}
		if r[0].Count != sum(i) {
			t.Errorf("%s says that it has %d ready, %d locked, %d delayed and %d dead items, and has %d", i.Queue,
				i.Depth(), i.Locked, i.Delayed, i.Dead, r[0].Count)
		}
		if r[1].Refused != nil {
			t.Errorf("%s: %v", i.Queue, r[1].Refused)
		}
	}
}

func sum(i jobs.Info) int { return i.Depth() + i.Locked + i.Delayed + i.Dead }

// answered is an answer, read.
type answered struct {
	status  int
	members map[string]any
	body    []byte
}

func (a answered) float(name string) float64 {
	n, _ := a.members[name].(json.Number)
	v, _ := n.Float64()
	return v
}

func (a answered) number(name string) int { return int(a.float(name)) }

func (a answered) text(name string) string {
	s, _ := a.members[name].(string)
	return s
}

// ask sends a request, and checks what holds for every answer.
func (f *fuzzed) ask(t *testing.T, r *http.Request) (a answered) {
	t.Helper()
	w := httptest.NewRecorder()
	f.http.ServeHTTP(w, r)
	a = answered{status: w.Code, body: w.Body.Bytes()}
	what := fmt.Sprintf("%s %s: %d %s", r.Method, r.URL, w.Code, a.body[:min(len(a.body), 1000)])
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	if err := d.Decode(&a.members); err != nil || d.More() {
		t.Errorf("%s: no JSON object: %v", what, err)
	}
	kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	want := "application/json"
	if w.Code >= 400 {
		want = "application/problem+json"
		if a.number("status") != w.Code || a.text("detail") == "" || a.text("message") == "" ||
			a.text("error_code") == "" {
			t.Errorf("%s: the problem is not complete", what)
		}
	}
	if err != nil || kind != want {
		t.Errorf("%s: it is %q, %v", what, kind, err)
	}
	if w.Code < 200 || w.Code >= 500 && w.Code != http.StatusInsufficientStorage || w.Code >= 300 && w.Code < 400 {
		t.Errorf("%s", what)
	}
	if w.Header().Get("X-Request-Id") == "" {
		t.Errorf("%s: it has no X-Request-Id", what)
	}
	return a
}

func (f *fuzzed) send(t *testing.T, method, target, body string) answered {
	t.Helper()
	return f.ask(t, httptest.NewRequest(method, "http://localhost"+target, strings.NewReader(body)))
}

// prepare makes a queue that has two ready jobs, one delayed, one dead, and one that a concurrent
// lock holds.
func (f *fuzzed) prepare(t *testing.T) {
	t.Helper()
	items := []jobs.NewJob{{Data: []byte(`1`)}, {Data: []byte(`2`)}, {Data: []byte(`3`), Priority: 1},
		{Data: []byte(`{"four":4}`), Priority: 1}, {Data: []byte(`5`), Delay: time.Hour}}
	all, err := f.store.Do(t.Context(), "q", jobs.Configure{Settings: jobs.Settings{MaxAttempts: 1, MaxJobs: 20}},
		jobs.Push{Jobs: items},
		jobs.Pop{Count: 1, LockID: "first"}, jobs.Return{LockID: "first"},
		jobs.Pop{Count: 1, LockID: "AAAAAAAAAAA", Mode: jobs.Concurrent})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
}

// Any request gets an answer in JSON that is not an error of the server, and the queues then have
// only the jobs that the answer reports.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][3]string{
		{"POST /queue/q/push", "Idempotency-Key: k", `{"item": {"task_id": 123, "action": "send_email"}}`},
		{"POST /queue/new/push", "", `{"items": [{"item": 1, "priority": 99}, {"item": 2, "delay_seconds": 1.5}]}`},
		{"POST /queue/q/push", "Content-Length: 99999", "{}"},
		{"POST /queue/q/pop?require_ack=true&mode=concurrent&count=2&details=1", "X-Request-Id: mine", ""},
		{"POST /queue/q/pop?mode=concurrent",
			"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
		{"POST /queue/q/acknowledge", "", `{"lock_id": "AAAAAAAAAAA"}`},
		{"POST /queue/q/extend", "", `{"lock_id": "AAAAAAAAAAA", "ttl_seconds": 5}`},
		{"POST /queue/q/nack", "", `{"lock_id": "AAAAAAAAAAA", "delay_seconds": 1e-9, "reason": "\u0000\ud800"}`},
		{"GET /queue/q", "", ""}, {"HEAD /queue/q", "", ""}, {"OPTIONS *", "", ""}, {"CONNECT localhost:80", "", ""},
		{"GET http://localhost/queues?limit=1&after=%ff%00", "", ""},
		{"PUT /queue/q", "", `{"priorities": 2, "mode": "concurrent"}`}, {"DELETE /queue/q", "", ""},
		{"GET /queue/q/depth", "", ""}, {"GET /queue/q/oldest", "", ""},
		{"GET /queue/q/dead?limit=1", "", ""}, {"GET /queue/q/dead?after=-9223372036854775808--1", "", ""},
		{"DELETE /queue/q/dead", "", ""},
		{"POST /queue/q/dead/requeue", "", `{"limit": 1}`},
		{"POST /queue/q/dead/requeue", "", `{"dead_ids": ["1709139215000000-1"]}`},
		{"GET /openapi.json", "", ""}, {"GET //queue/q/../q", "", ""}, {"GET //", "", ""},
		{"GET http://localhost", "", ""}, {"POST /queue/%2e%2e/push", "", `{"item":1}`},
		{"POST /queue/q%2Fr/push", "", `{"item":1}`}, {"GET /queue/q/", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	server := newFuzzed(f)
	f.Fuzz(func(t *testing.T, line, header, body string) {
		raw := line + " HTTP/1.1\r\nHost: localhost\r\n" + strings.TrimSpace(header) + "\r\n"
		if !strings.Contains(strings.ToLower(header), "content-length") &&
			!strings.Contains(strings.ToLower(header), "transfer-encoding") {
			raw += fmt.Sprintf("Content-Length: %d\r\n", len(body))
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + "\r\n" + body)))
		if err != nil || r.Host != "localhost" || !sendable(r.Header) {
			t.Skip("this comes to no handler")
		}
		server.clear(t)
		server.prepare(t)
		a := server.ask(t, r)
		defer server.clear(t)
		if r.Method == "HEAD" || a.status >= 300 {
			server.has(t, 5)
			return
		}
		_, operation, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/queue/"), "/")
		want := 5
		switch {
		case !strings.HasPrefix(r.URL.Path, "/queue/") || r.Method == "GET":
		case operation == "push":
			want += a.number("items_pushed")
		case operation == "pop" && a.text("lock_id") == "":
			want -= a.number("count")
		case operation == "acknowledge":
			want -= a.number("items_acknowledged")
		case r.Method == "DELETE":
			want -= a.number("items_removed")
		}
		server.has(t, want)
	})
}

// sendable reports whether the headers are such that net/http lets the request come to a handler.
func sendable(h http.Header) bool {
	for _, values := range h {
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
				return false
			}
		}
	}
	// Requests that browsers send for other sites are refused, and this test is not about them.
	return h.Get("Sec-Fetch-Site") == "" && h.Get("Origin") == ""
}

// has checks how many jobs there are in all queues together.
func (f *fuzzed) has(t *testing.T, want int) {
	t.Helper()
	all, err := f.store.List(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	is := 0
	for _, i := range all {
		is += sum(i)
	}
	if is != want {
		t.Errorf("there are %d items; want %d", is, want)
	}
}

// A pushed job is popped unchanged, and a refused push creates no queue.
func FuzzPushBody(f *testing.F) {
	for _, seed := range []string{
		`{"item": {"task_id": 123, "action": "send_email"}}`,
		`{"items": [{"item": 1, "priority": 7}, {"item": [null, "x"], "delay_seconds": 0.5}, {"item": null}]}`,
		`{"item": 1e400}`,
		`{"ITEM": "\ud800\u0000\u2028", "priority": 99}`, `{"item": 1, "item": 2}`, `{"item": 1, "items": null}`,
		`{"item": 1, "priority": 100}`, `{"item": 1, "delay_seconds": 1e300}`,
		`{"item": 1} {"item": 2}`, `[1]`, "\xef\xbb\xbf{}", `{"items": [{"items": []}]}`, strings.Repeat("[", 3000),
		`{"item": -0.0}`, `{"item": 123456789012345678901234567890.5}`,
		`{"item": ` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
		`{"item": "` + strings.Repeat("x", 4095) + `"}`,
	} {
		f.Add(seed)
	}
	server := newFuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		server.clear(t)
		defer server.clear(t)
		a := server.send(t, "POST", "/queue/q/push", body)
		if a.status != http.StatusOK {
			if again := server.send(t, "GET", "/queue/q", ""); again.status != http.StatusNotFound {
				t.Errorf("%d, and the queue is there: %s", a.status, again.body)
			}
			return
		}
		want, ok := jobsOf(t, body)
		if !ok {
			t.Skip("a name comes twice, in different letters")
		}
		if len(want) != a.number("items_pushed") {
			t.Errorf("%d items in the body, and %s", len(want), a.body)
		}
		server.clock.move(jobs.MaxDelay)
		var got []any
		for {
			p := server.send(t, "POST", "/queue/q/pop?count=1000", "")
			if p.number("count") == 0 {
				break
			}
			var out struct{ Items []json.RawMessage }
			if err := json.Unmarshal(p.body, &out); err != nil {
				t.Fatal(err)
			}
			for _, i := range out.Items {
				got = append(got, exactly(t, i))
			}
		}
		if !sameJobs(got, want) {
			t.Errorf("pushed %v\npopped %v", want, got)
		}
	})
}

// jobsOf reads the jobs of a body in another way than the server.
func jobsOf(t *testing.T, body string) (items []any, ok bool) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatalf("this was taken: %v", err)
	}
	one, isOne, ok := member(members, "item")
	if isOne || !ok {
		return []any{exactly(t, one)}, ok
	}
	all, _, ok := member(members, "items")
	if !ok {
		return nil, false
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(all, &list); err != nil {
		t.Fatalf("this was taken: %v", err)
	}
	for _, i := range list {
		value, _, ok := member(i, "item")
		if !ok {
			return nil, false
		}
		items = append(items, exactly(t, value))
	}
	return items, true
}

// member finds a member in any case of its name; ok means that there are not two of them.
func member(of map[string]json.RawMessage, name string) (value json.RawMessage, found, ok bool) {
	for n, v := range of {
		if strings.EqualFold(n, name) {
			if found {
				return v, true, false
			}
			value, found = v, true
		}
	}
	return value, found, true
}

// exactly reads JSON without loss.
func exactly(t *testing.T, data []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

// sameJobs compares two lists without their order.
func sameJobs(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	b = append([]any(nil), b...)
next:
	for _, x := range a {
		for n, y := range b {
			if reflect.DeepEqual(x, y) {
				b = append(b[:n], b[n+1:]...)
				continue next
			}
		}
		return false
	}
	return true
}

// For any query of a pop: a request for a lock gets one or is refused, and no request gets more
// jobs or time than allowed.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"", "require_ack=true", "require_ack=true&ttl_seconds=60", "require_ack=TRUE&ttl_seconds=-5",
		"ttl_seconds=99999999999999999999&require_ack=1", "require_ack=true;count=2", "require_ack=%zz",
		"require_ack", "require_ack=true&require_ack=false", "count=1000", "count=+2", "count=0x10",
		"count=-99999999999999999999", "mode=concurrent&details=yes", "mode=", "mode=other", "%72equire_ack=on",
		"Require_Ack=true", "count=٣", "ttl_seconds=300.0&require_ack=yes",
	} {
		f.Add(seed)
	}
	server := newFuzzed(f)
	f.Fuzz(func(t *testing.T, query string) {
		server.clear(t)
		defer server.clear(t)
		items := make([]jobs.NewJob, 4)
		for n := range items {
			items[n] = jobs.NewJob{Data: fmt.Appendf(nil, "%d", n), Priority: n % 2}
		}
		if _, err := server.store.Do(t.Context(), "q", jobs.Push{Jobs: items}); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "http://localhost/queue/q/pop", nil)
		r.URL.RawQuery = query
		a := server.ask(t, r)
		if a.status != http.StatusOK {
			if a.status != http.StatusBadRequest {
				t.Errorf("%q: %d %s", query, a.status, a.body)
			}
			server.has(t, 4)
			return
		}
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Errorf("%q was taken: %v", query, err)
		}
		locks := false
		for _, v := range values["require_ack"] {
			locks = locks || strings.Contains("true 1 yes on", strings.ToLower(v))
		}
		if locks != (a.text("lock_id") != "") {
			t.Errorf("%q: %s", query, a.body)
		}
		count := a.number("count")
		if want := values.Get("count"); want == "" && count != 1 || count < 1 || count > 4 {
			t.Errorf("%q: %d items", query, count)
		}
		if locks {
			ttl := a.float("lock_expires_at") - float64(server.clock.now().UnixMilli())/1000
			if ttl < 0.999 || ttl > 300.001 || values.Get("ttl_seconds") == "" && math.Abs(ttl-30) > 0.001 {
				t.Errorf("%q: a lock of %v seconds", query, ttl)
			}
			server.has(t, 4)
			return
		}
		server.has(t, 4-count)
	})
}

// A body that never ends is refused before it is read whole.
func TestEndlessBody(t *testing.T) {
	s := onSQLite(t)
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/queue/q/push", io.LimitReader(endless{}, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	s.send(r).is(http.StatusRequestEntityTooLarge, map[string]any{"error_code": "TOO_LARGE"})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for n := range p {
		p[n] = ' '
	}
	return len(p), nil
}
