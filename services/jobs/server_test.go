package jobserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Unix(1709139215, 0).UTC()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// silence is for tests that are not about logs.
var silence = slog.New(slog.DiscardHandler)

// service is a server on a database of its own.
type service struct {
	t     testing.TB
	clock *clock
	url   string
	store jobs.Store
	// again opens the database once more, and serves it.
	again func() *service
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(*testing.T, *service)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, onSQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		pgtest.Need(t)
		test(t, onPostgres(t))
	})
}

func onSQLite(t *testing.T) *service {
	path, c := t.TempDir()+"/rondo.db", newClock()
	var close func()
	var open func() *service
	open = func() *service {
		if close != nil {
			close()
		}
		db, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: c.now, Log: silence})
		if err != nil {
			t.Fatal(err)
		}
		s, end := serve(t, db.Queues(), jobserver.Config{Now: c.now})
		close = sync.OnceFunc(func() {
			end()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		s.clock, s.again = c, open
		return s
	}
	t.Cleanup(func() { close() })
	return open()
}

func onPostgres(t *testing.T) *service {
	address, c := pgtest.Database(t), newClock()
	var open func() *service
	open = func() *service {
		db, err := cockroach.Open(t.Context(), address, cockroach.Options{Now: c.now, Log: silence})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		s, end := serve(t, db.Queues(), jobserver.Config{Now: c.now})
		t.Cleanup(end)
		s.clock, s.again = c, open
		return s
	}
	return open()
}

// serve serves a store until end is called.
func serve(t testing.TB, store jobs.Store, c jobserver.Config) (s *service, end func()) {
	t.Helper()
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	if c.Logger == nil {
		c.Logger = silence
	}
	server, err := jobserver.New(store, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	return &service{t: t, url: server.URL(), store: store, clock: newClock()}, sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// response is an answer as a client has it.
type response struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   map[string]any
	text   string
}

// ask sends a request.
func (s *service) ask(method, path, body string) response {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.send(r)
}

func (s *service) post(path, body string) response {
	s.t.Helper()
	return s.ask(http.MethodPost, path, body)
}

func (s *service) send(r *http.Request) response {
	s.t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	out := response{t: s.t, what: r.Method + " " + r.URL.RequestURI(), status: answer.StatusCode, header: answer.Header,
		text: string(data)}
	if err := json.Unmarshal(data, &out.body); err != nil {
		s.t.Fatalf("%s: %s is no JSON: %q", out.what, answer.Status, data)
	}
	return out
}

// is checks the status and members of the answer; nil stands for a member that must not be there.
func (r response) is(status int, want map[string]any) response {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: %d, want %d: %s", r.what, r.status, status, r.text)
	}
	kind := "application/json"
	if status >= 400 {
		kind = "application/problem+json"
	}
	if is := r.header.Get("Content-Type"); is != kind {
		r.t.Errorf("%s: %s, want %s", r.what, is, kind)
	}
	for name, value := range want {
		is, there := r.body[name]
		if value == nil {
			if there {
				r.t.Errorf("%s: %q is there: %s", r.what, name, r.text)
			}
			continue
		}
		if !equal(is, value) {
			r.t.Errorf("%s: %q is %v, want %v: %s", r.what, name, is, value, r.text)
		}
	}
	return r
}

// equal compares values as JSON has them.
func equal(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// string is a member that is a string.
func (r response) string(name string) string {
	r.t.Helper()
	s, ok := r.body[name].(string)
	if !ok {
		r.t.Fatalf("%s: %q is no string: %s", r.what, name, r.text)
	}
	return s
}

// push pushes jobs that are numbers.
func (s *service) push(name string, priority int, numbers ...int) {
	s.t.Helper()
	var items []map[string]any
	for _, n := range numbers {
		items = append(items, map[string]any{"item": map[string]int{"id": n}, "priority": priority})
	}
	body, err := json.Marshal(map[string]any{"items": items})
	if err != nil {
		s.t.Fatal(err)
	}
	s.post("/queue/"+name+"/push", string(body)).is(200, map[string]any{"success": true, "items_pushed": len(numbers)})
}

// ids are jobs as push has made them.
func ids(numbers ...int) []map[string]int {
	out := []map[string]int{}
	for _, n := range numbers {
		out = append(out, map[string]int{"id": n})
	}
	return out
}

// lock pops with a lock, and gives its id.
func (s *service) lock(name, query string, want ...int) string {
	s.t.Helper()
	return s.post("/queue/"+name+"/pop?require_ack=true&"+query, "").is(200,
		map[string]any{"items": ids(want...), "count": len(want), "locked": true}).string("lock_id")
}

func body(pairs ...any) string {
	m := make(map[string]any)
	for n := 0; n < len(pairs); n += 2 {
		m[pairs[n].(string)] = pairs[n+1]
	}
	data, _ := json.Marshal(m) // strings and numbers
	return string(data)
}
